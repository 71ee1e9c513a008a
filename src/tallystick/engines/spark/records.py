"""One client's records in a Spark cluster: encoded once, cached there, and mapped there in every round.

What comes back to this process is a partial sum a partition, and counts. Exact sums make partitions, their order, lost
and repeated tasks invisible: the bits are those of one machine.

A program with a memory at the client (consensus) has its step done on one executor, over all records of the client,
because its bits depend on their order; its memory comes back and is kept as durably as ever.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import LocalProgram
from tallystick.algorithms.program import BuiltInProgram
from tallystick.core.errors import BoundsError, DataError, RoundAborted, StudyError, TallystickError
from tallystick.data.content import digest_of_sum
from tallystick.data.encoding import Records, Tallies, study_records
from tallystick.data.record_blocks import tallies_of
from tallystick.data.sources import errors_name, refuse_absent
from tallystick.engines.client_map import ClientMaps, DistantMap, DistantRecords, Streams
from tallystick.engines.local_map import Memories, not_there_before
from tallystick.engines.spark import executor
from tallystick.engines.spark.contents import CONTENT_SCHEMA, as_named, digesting
from tallystick.engines.spark.csv_files import CsvFiles
from tallystick.engines.spark.session import check_executors, job, start_session
from tallystick.engines.spark.sources import files_of, open_frame
from tallystick.privacy.round_plan import RoundPlan
from tallystick.study import Study

_KINDS = {kind.__name__: kind for kind in (DataError, StudyError, BoundsError, RoundAborted)}


@dataclass(frozen=True, kw_only=True)
class SparkEngine:
    """Maps records where Spark has them; ``master`` and ``conf`` as in the role's file."""

    master: str = "local[*]"
    conf: dict[str, str] = field(default_factory=dict, repr=False)  # may hold the keys of a store

    def frame(self, source: Any) -> Any:
        """A source as a DataFrame: it may be one already."""
        if hasattr(source, "mapInArrow"):
            return source
        session = start_session(self.master, self.conf)

        def opened() -> Any:
            frame = open_frame(session, str(source))
            tuple(frame.columns)  # Spark Connect looks at a source when it is asked for these
            return frame

        return job(opened, session, "opening the source")

    def records(self, study: Study, source: Any, *, party: str | None, lenient: bool) -> SparkRecords:
        frame = self.frame(source)
        with errors_name(party):
            check_executors(frame.sparkSession)
            return SparkRecords(frame, study, lenient=lenient, files=self._files(frame, source))

    def _files(self, frame: Any, source: Any) -> CsvFiles | None:
        if frame is source:
            return None
        session = frame.sparkSession
        return job(lambda: files_of(session, str(source), frame.columns), session, "opening the source")

    def column_names(self, source: Any) -> tuple[str, ...]:
        """The columns of a source."""
        return tuple(self.frame(source).columns)

    def content_digest(self, source: Any) -> str:
        """How the records are known again, whatever their order: the digest that a file of them has."""
        frame = self.frame(source)
        check_executors(frame.sparkSession)
        names = sorted(frame.columns)
        refuse_absent(frame.columns, names, where="the Spark table")

        files = self._files(frame, source)

        def digested() -> Any:
            if files is not None:
                return files.contents().collect()
            return _columns(frame, names).mapInArrow(digesting(names), CONTENT_SCHEMA).collect()

        rows = job(digested, frame.sparkSession, "the records' fingerprint")
        total = sum(int.from_bytes(row["total"], "little") for row in rows)
        count, broken = (sum(row[name] for row in rows) for name in ("records", "broken"))
        return digest_of_sum(names, count, total, broken)


class SparkRecords(DistantRecords):
    """Encoded blocks in the cluster's cache; of ``files``, if a frame of their records would not tell their lines that
    are none: those count among the records a client has, else what is in one would decide whether it takes part."""

    def __init__(self, frame: Any, study: Study, *, lenient: bool, files: CsvFiles | None = None) -> None:
        self.layout = study.schema_of_data().layout(
            study.study.features, target=study.study.target, missing=study.missing_policy()
        )
        person = study.person_column()
        extra = [c for c in (study.study.target, person) if c is not None]
        wanted = list(dict.fromkeys([*self.layout.columns, *extra]))
        refuse_absent(frame.columns, wanted, where="the Spark table")
        self.session, self._study, self.by_person = frame.sparkSession, study, person is not None
        # The declared types are looked at here, before any record is: what is wrong with them is no record's doing.
        types = job(lambda: _columns(frame, wanted).limit(0).toArrow(), self.session, "the table's types")
        study_records(study, as_named(types, wanted), lenient=lenient)
        buckets = 1
        if self.by_person:
            asked = job(
                lambda: self.session.conf.get("spark.sql.shuffle.partitions", "8"), self.session, "its settings"
            )
            buckets = int(asked)
        shipped = executor.Shipped(
            study=study.canonical(), program="", lenient=lenient, buckets=max(1, min(buckets, 64))
        )
        self.shipped = shipped

        width = len(self.layout) + 2
        tables = None if files is None else files.tables(wanted, executor.rows_at_once(width))

        def encoded() -> Any:
            read = _columns(frame, wanted) if files is None else files.frame
            made = read.mapInArrow(executor.encoding(shipped, width, wanted, tables), executor.BLOCK_SCHEMA)
            return (made.repartition(shipped.buckets, "bucket") if self.by_person else made).persist()

        self.blocks = job(encoded, self.session, "encoding the records")
        try:
            rows = job(lambda: self.blocks.select("tallies", "error").collect(), self.session, "encoding the records")
            for row in rows:
                raise_told(row["error"])
        except BaseException:
            self.forget()  # some partitions may be in the cluster's cache already
            raise
        found = [executor.tallies_from(row["tallies"]) for row in rows]
        self.tallies: Tallies = tallies_of(found) if found else Tallies()

    def __repr__(self) -> str:
        return f"SparkRecords({len(self.layout)} features, local)"

    def map_of(self, maps: ClientMaps, streams: Streams, party: str, memories: Memories | None) -> SparkMap:
        return SparkMap(self, maps, streams, party, {} if memories is None else memories)

    def forget(self) -> None:
        with suppress(Exception):  # a cluster that is gone has forgotten them already
            self.blocks.unpersist()

    def whole(self) -> Records:
        raise DataError(
            "this kind of study needs all records in one process, and these are mapped where Spark has them",
            rule="spark-records-stay",
            remedy='Give the records as a file, or set engine = "local".',
        )


class SparkMap(DistantMap):
    """A client's half of a program in the cluster. Nothing here leaves the client but what ``contribute`` returns."""

    def __init__(
        self, records: SparkRecords, maps: ClientMaps, streams: Streams, party: str, memories: Memories
    ) -> None:
        self._records, self._study, self._party, self._memories = records, maps.study, party, memories
        self._streams, self._remembers = streams, isinstance(maps.program, LocalProgram)
        text = getattr(maps.program, "source_text", "")
        if not isinstance(maps.program, BuiltInProgram) and not text:
            raise StudyError(
                "a program that is a Python class runs in this process only, and the records are with Spark",
                rule="program-travels-as-a-file",
                remedy="Write it in a file and name that as the study's program: its text is checked, and runs in a "
                "locked child on the executors.",
            )
        self._shipped = replace(records.shipped, study=maps.study.canonical(), program=text)
        self.mapped = self.left_out = 0

    def contribute(self, model: bytes, plan: RoundPlan, round: int = 0) -> NDArray[np.int64]:
        """The client's own sum at this state, added up from the partitions' partial sums."""
        records, number = self._records, round.to_bytes(8, "little")
        coins = None
        if self._study.privacy.sampling is not None:
            coins = self._streams(self._study.hash, b"coins", number, self._party.encode()).bytes(32)
        order = executor.RoundOrder(
            shipped=self._shipped,
            model=model,
            plan=plan,
            features=len(records.layout),
            targeted=self._study.study.target is not None,
            by_person=records.by_person,
            coins=coins,
            memory=self._memory(round) if self._remembers else None,
        )

        def summed() -> Any:
            blocks = records.blocks.coalesce(1) if self._remembers else records.blocks
            return blocks.mapInArrow(executor.summing(order), executor.SUM_SCHEMA).collect()

        rows = job(summed, records.session, f"round {round}")
        for row in rows:
            raise_told(row["error"])
        self.mapped = sum(row["mapped"] for row in rows)
        self.left_out = sum(row["left_out"] for row in rows)
        total = executor.total_of(rows, plan.grid.size)
        if self._remembers:
            self._memories[round] = next(row["memory"] for row in rows)
            for old in [kept for kept in self._memories if kept < round - 1]:
                del self._memories[old]
        return total

    def close(self) -> None:
        self._records.forget()

    def _memory(self, round: int) -> bytes:
        if round == 1:
            return b""
        kept = self._memories.get(round - 1)
        if kept is None:
            raise not_there_before(round)
        return bytes(kept)


def _columns(frame: Any, wanted: Sequence[str]) -> Any:
    """These columns, by their places: to Spark's own names for them dots, backticks and capitals matter."""
    places = [frame.columns.index(name) for name in wanted]
    return frame.toDF(*[f"c{place}" for place in range(len(frame.columns))]).select(*[f"c{place}" for place in places])


def raise_told(text: str | None) -> None:
    """An executor's typed error, here."""
    if text is not None:
        told = json.loads(text)
        kind: type[TallystickError] = _KINDS.get(told["kind"], DataError)
        raise kind(told["cause"], remedy=told["remedy"], rule=told["rule"])
