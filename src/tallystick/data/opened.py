"""A source that has been opened: its column names are known, its records are read on demand, whole or in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_BROKEN = b"tallystick.broken"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """``in_blocks`` gives tables of about so many records without ever holding all of them; None where it cannot."""

    names: Sequence[str]
    read: Callable[[list[str]], pa.Table]
    where: str
    in_blocks: Callable[[list[str], int], Iterator[pa.Table]] | None = None

    def blocks(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        """Tables of at most so many records, in the order of the source; at least one, be it empty."""
        some = False
        for table in [self.read(columns)] if self.in_blocks is None else self.in_blocks(columns, rows):
            broken = broken_records(table)
            for first in range(0, max(1, table.num_rows), rows):
                some = True
                yield with_broken_records(table.slice(first, rows), broken if first == 0 else 0)
        if not some:
            yield self.read(columns)


def with_broken_records(table: pa.Table, count: int) -> pa.Table:
    """The table, with a note of how many lines of its file were no records."""
    return table.replace_schema_metadata({_BROKEN: str(count).encode()})


def broken_records(table: pa.Table) -> int:
    """How many lines of the file a lenient reader has left out; stays local."""
    return int((table.schema.metadata or {}).get(_BROKEN, b"0"))
