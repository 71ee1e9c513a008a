"""Where one client's records are read and mapped: in this process, or where they lie (:mod:`tallystick.engines.spark`).

An engine is chosen by the client's role file, or by what the records are. It decides nothing that could be seen
outside: every engine gives the same bits (``tests/engines/engine_contract.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tallystick.data.record_blocks import open_records
from tallystick.engines.client_map import HeldRecords
from tallystick.study import Study


class RecordEngine(Protocol):
    """Makes records of a source."""

    def records(self, study: Study, source: Any, *, party: str | None, lenient: bool) -> HeldRecords:
        """The records as a study reads them."""


@runtime_checkable
class KnowsContent(Protocol):
    """An engine that reads a source where it lies, also to know it again."""

    def content_digest(self, source: Any) -> str:
        """The digest of its records, whatever their order."""

    def column_names(self, source: Any) -> Sequence[str]:
        """Its columns."""


def mapped_where_it_lies(source: Any, otherwise: RecordEngine) -> RecordEngine:
    """The engine for a source: a Spark DataFrame is mapped by Spark, whatever engine the others have."""
    if type(source).__module__.partition(".")[0] == "pyspark" and hasattr(source, "mapInArrow"):
        from tallystick.engines.spark.records import SparkEngine

        return SparkEngine()
    return otherwise


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """All cores of this machine; records beyond ``memory`` bytes are read anew in every round, ``rows`` at a time."""

    memory: int | None = None
    rows: int | None = None

    def records(self, study: Study, source: Any, *, party: str | None, lenient: bool) -> HeldRecords:
        return open_records(study, source, party=party, lenient=lenient, memory=self.memory, rows=self.rows)
