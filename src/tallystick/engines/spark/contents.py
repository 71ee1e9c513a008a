"""The records of a partition as they are in a file of them: names, instants, and the digest they are known by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tallystick.data.content import content_sum

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_SCHEMA = "records long, total binary, broken long"


def as_named(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    """Columns under their own names, and instants in UTC: Spark has names of its own and its session's time zone."""
    import pyarrow as pa

    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz is not None
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=list(names or table.column_names))


def digesting(names: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The map from a partition's records to the sum of their digests (:mod:`tallystick.data.content`)."""

    def digested(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield digest_of_part(((as_named(pa.Table.from_batches([batch]), names), 0) for batch in batches), names)

    return digested


def digest_of_part(tables: Iterable[tuple[pa.Table, int]], names: list[str]) -> pa.RecordBatch:
    """A row of :data:`CONTENT_SCHEMA` for these tables; with each, the lines near it that are no record."""
    import pyarrow as pa

    count = total = broken = 0
    for table, lost in tables:
        total += content_sum(table, names)
        count += table.num_rows
        broken += lost
    raw = (total % (1 << 256)).to_bytes(32, "little")
    kinds = pa.schema([("records", pa.int64()), ("total", pa.binary()), ("broken", pa.int64())])
    return pa.RecordBatch.from_pylist([{"records": count, "total": raw, "broken": broken}], kinds)
