"""What runs on executors: cells made into encoded blocks, and blocks made into one exact partial sum.

Plain functions over Arrow batches, the code of one machine. Only sums and counts go back to the driver, which is
the client's own process; encoded blocks stay in the cluster, in Spark's cache, from round to round.

An error that a record or a program causes is returned, not raised: Spark would retry it, and quote it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import LocalProgram
from tallystick.algorithms.program import pack_state, unpack_state
from tallystick.core.errors import DataError, TallystickError
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.encoding import Records, Tallies, study_records
from tallystick.data.record_blocks import joined
from tallystick.engines.client_map import ClientMaps
from tallystick.engines.record_choice import sampling_rates, tossed
from tallystick.engines.setup import Setup, set_up
from tallystick.engines.spark.contents import as_named
from tallystick.privacy.client_vectors import ClientRound, check_room
from tallystick.privacy.round_plan import RoundPlan
from tallystick.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_SCHEMA = (
    "part long, number long, bucket long, count long, tallies string, error string, "
    "features binary, target binary, places binary, persons binary"
)
SUM_SCHEMA = "total binary, mapped long, left_out long, memory binary, error string"
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """What an executor needs to know of a study: its canonical text and that of its program file. Public facts."""

    study: bytes
    program: str
    lenient: bool
    buckets: int = 1
    """Into how many parts persons are dealt, where persons are the unit."""


@lru_cache(maxsize=8)
def _set_up(shipped: Shipped) -> tuple[Setup, ClientMaps]:
    made = set_up(shipped.study, shipped.program, allow_not_private=True)
    return made, ClientMaps(made.study, made.design.program, made.template)


@lru_cache(maxsize=8)
def _study(canonical: bytes) -> Study:
    return Study.from_canonical(canonical)


# -- cells to blocks ---------------------------------------------------------------------------------------------------


Tables = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.Table"]]


def rows_at_once(width: int) -> int:
    """How many records are worth a block, of so many numbers each."""
    return max(1 << 10, _BLOCK_BYTES // (8 * width))


def encoding(
    shipped: Shipped, width: int, names: Sequence[str] | None = None, tables: Tables | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The map from a partition's records to encoded blocks of it; ``names`` are what the columns are called.

    ``tables`` makes the records of what is in the partition, if that is files.
    """
    rows = rows_at_once(width)
    # Spark knows what it has cached again by the paths that are read and the bytes of this function: the records of an
    # earlier reading of the same path would come back, with those that were corrected or deleted since.
    once = secrets.token_hex(16)

    def encoded(batches: Iterable[pa.RecordBatch], _once: str = once) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        number = 0
        every = (as_named(table, names) for table in _tables(batches, rows)) if tables is None else tables(batches)
        for table in every:
            try:
                records = _encoded(shipped, table)
            except TallystickError as error:
                yield pa.RecordBatch.from_pylist([_block_row(part, number, error=told(error))], _block_type())
                return
            for bucket in range(shipped.buckets):
                own = records
                if shipped.buckets > 1 and records.persons is not None:
                    own = records.take(records.persons % shipped.buckets == bucket)
                counted = records.tallies if bucket == 0 else Tallies()
                row = _block_row(part, number, bucket=bucket, records=own, tallies=counted)
                yield pa.RecordBatch.from_pylist([row], _block_type())
                number += 1

    return encoded


def _encoded(shipped: Shipped, table: pa.Table) -> Records:
    """A table's records; what no code of ours foresaw is told by its class, for its words may quote a cell."""
    failed = ""
    try:
        return study_records(_study(shipped.study), table, lenient=shipped.lenient, before=0)
    except (TallystickError, MemoryError):  # of the latter Spark tries again, elsewhere
        raise
    except Exception as error:
        failed = type(error).__name__
    raise DataError(
        f"an executor could not encode the records ({failed})",
        rule="spark-job",
        remedy='Report it; the same records as a file, with engine = "local", say in which column.',
    )


def _tables(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches put together to blocks worth mapping."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held)


def _block_type() -> pa.Schema:
    import pyarrow as pa

    kinds = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    pairs = [field.split() for field in BLOCK_SCHEMA.split(", ")]
    return pa.schema([(name, kinds[kind]) for name, kind in pairs])


def _block_row(
    part: int,
    number: int,
    *,
    bucket: int = 0,
    records: Records | None = None,
    tallies: Tallies | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    raw = dict.fromkeys(("features", "target", "places", "persons"), b"")
    if records is not None:
        raw["features"], raw["places"] = records.features.tobytes(), records.rows.tobytes()
        raw["target"] = b"" if records.target is None else records.target.tobytes()
        raw["persons"] = b"" if records.persons is None else records.persons.tobytes()
    counted = "{}" if tallies is None else json.dumps(asdict(tallies))
    count = 0 if tallies is None else tallies.records
    return {
        "part": part, "number": number, "bucket": bucket, "count": count, "tallies": counted, "error": error, **raw
    }  # fmt: skip


def tallies_from(text: str) -> Tallies:
    """The counts of a block, as they came back; a row's number means nothing in a cluster."""
    raw = json.loads(text)
    raw["unknown_values"] = {k: tuple((v, n) for v, n in seen) for k, seen in raw.get("unknown_values", {}).items()}
    raw["spans"] = {k: (low, high) for k, (low, high) in raw.get("spans", {}).items()}
    raw["first_unusable"] = {}
    return Tallies(**raw)


def told(error: TallystickError) -> str:
    """An error as it travels from an executor to the driver."""
    kind = type(error).__name__
    return json.dumps({"kind": kind, "cause": error.cause, "remedy": error.remedy, "rule": error.rule})


# -- blocks to a partial sum -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RoundOrder:
    """What a round asks of every partition."""

    shipped: Shipped
    model: bytes
    plan: RoundPlan
    features: int
    targeted: bool
    by_person: bool
    coins: bytes | None = None
    """The seed of this round's coins, where records are sampled; each block has a stream of its own under it."""
    memory: bytes | None = None
    """Of a program with a memory at the client: after the round before, b"" before the first."""


def summing(order: RoundOrder) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The map from a partition's blocks to one row: their exact sum."""

    def summed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        row: dict[str, Any] = {"total": b"", "mapped": 0, "left_out": 0, "memory": b"", "error": None}
        try:
            setup, maps = _set_up(order.shipped)
            if order.memory is not None:
                row["total"], row["memory"], row["mapped"] = _stepped(order, setup, _blocks(order, batches))
            else:
                total = np.zeros(order.plan.grid.size, dtype=np.int64)
                for records in _chosen(order, _blocks(order, batches)):
                    part = maps.whole(records)
                    total += part.contribute(order.model, order.plan)
                    row["mapped"] += part.mapped
                    row["left_out"] += part.left_out
                row["total"] = total.astype("<i8").tobytes()
        except TallystickError as error:
            row["error"] = told(error)
        kinds = [("total", pa.binary()), ("mapped", pa.int64()), ("left_out", pa.int64()), ("memory", pa.binary())]
        yield pa.RecordBatch.from_pylist([row], pa.schema([*kinds, ("error", pa.string())]))

    return summed


@dataclass(frozen=True, kw_only=True)
class _Block:
    part: int
    number: int
    count: int
    records: Records


def _blocks(order: RoundOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[_Block]:
    setup, _ = _set_up(order.shipped)
    for batch in batches:
        for row in batch.to_pylist():
            features = np.frombuffer(row["features"], dtype=np.float64).reshape(-1, order.features)
            places = np.frombuffer(row["places"], dtype=np.int64)
            if order.features == 0:
                features = np.zeros((len(places), 0))
            records = Records(
                features=features,
                target=np.frombuffer(row["target"], dtype=np.float64) if order.targeted else None,
                layout=setup.layout,
                rows=places,
                tallies=Tallies(records=row["count"]),
                persons=np.frombuffer(row["persons"], dtype=np.int64) if order.by_person else None,
            )
            yield _Block(part=row["part"], number=row["number"], count=row["count"], records=records)


def _chosen(order: RoundOrder, blocks: Iterator[_Block]) -> Iterator[Records]:
    """The records of this round, as they are mapped: a person's together, a sample by the block's own coins."""
    setup, _ = _set_up(order.shipped)
    if order.by_person:
        every = [block.records for block in blocks]
        if every:
            yield joined(every, Tallies())
        return
    for block in blocks:
        if order.coins is None:
            yield block.records
            continue
        place = block.part.to_bytes(8, "little") + block.number.to_bytes(8, "little")
        source = AesStream(derive(order.coins, b"tallystick/spark/coins", place))
        rates = sampling_rates(setup.study, block.records, block.records.rows)
        yield block.records.take(tossed(rates, source)[block.records.rows])


def _stepped(order: RoundOrder, setup: Setup, blocks: Iterator[_Block]) -> tuple[bytes, bytes, int]:
    """The step of a program with a memory, over all records of the client: (vector, memory after it, records)."""
    program = setup.design.program
    every = sorted(blocks, key=lambda block: (block.part, block.number))
    if not isinstance(program, LocalProgram) or not isinstance(order.plan, ClientRound):
        raise DataError("this program has no memory at the client")
    records = joined([block.records for block in every], Tallies()) if every else None
    features = np.zeros((0, order.features)) if records is None else records.features
    target = (np.zeros(0) if order.targeted else None) if records is None else records.target
    prepared = program.prepare(features, target)
    start = program.start_in_client(prepared)
    memory = unpack_state(order.memory, start) if order.memory else start
    state = unpack_state(order.model, program.query(setup.template))
    vector, after = program.step_in_client(prepared, state, memory)
    packed = pack_state(after)
    if not np.isfinite(np.frombuffer(packed, dtype="<f8")).all():
        raise DataError("the variables of this client are no numbers any more", remedy="Use a smaller C.")
    check_room(vector, order.plan.grid)
    return vector.astype("<i8").tobytes(), packed, len(features)


def total_of(rows: Iterable[Any], size: int) -> NDArray[np.int64]:
    """The partial sums of all partitions, added up."""
    total = np.zeros(size, dtype=np.int64)
    for row in rows:
        if row["total"]:
            total += np.frombuffer(row["total"], dtype="<i8")
    return total
