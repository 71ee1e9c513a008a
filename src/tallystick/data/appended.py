"""Sources that grow at their end while a stream study runs, read piece by piece.

A CSV file is told by bytes: what lies between two positions is read and nothing else, and a line that is still being
written has no position yet. Every other source is told by its rows and read whole.

In a stream's CSV file a record is one line, and each line is read by itself: a quote that is not closed, too many cells
or bytes that are no text spoil their own record and no other, as neighbouring streams must differ in one batch only.
"""

from __future__ import annotations

import csv
import os
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tallystick.core.errors import DataError
from tallystick.data.addresses import is_address
from tallystick.data.opened import with_broken_records
from tallystick.data.sources import TableSource, column_names, read_table

if TYPE_CHECKING:
    import pyarrow as pa

_STEP = 1 << 16


class Appended(Protocol):
    """A source that grows."""

    def end(self) -> int:
        """How far it goes now."""

    def piece(self, first: int, last: int) -> TableSource:
        """The records from one position to another; ``first`` is 0 or what was an end."""


def appended(source: Any, *, party: str | None = None) -> Appended:
    """A source by its path, or any that :func:`tallystick.data.sources.read_table` takes."""
    if isinstance(source, str) and is_address(source):
        raise DataError(
            "a stream reads what is appended to a file, and a query has no end to append to",
            party=party,
            rule="streams-read-files",
            remedy="Let the database write new records to a CSV file, and name that.",
        )
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.suffix.lower() in (".csv", ".tsv"):
            return _GrowingCsv(path, party)
    return _Whole(source, party)


def _shorter(party: str | None) -> DataError:
    return DataError(
        "the source of a running stream has become shorter",
        party=party,
        remedy="Only append to it: what a tick has used is known by its position.",
    )


class _GrowingCsv:
    def __init__(self, path: Path, party: str | None) -> None:
        self._path, self._party = path, party

    def end(self) -> int:
        """After the last whole line; 0 if there is no line after the header."""
        with self._open() as file:
            at = int(file.seek(0, os.SEEK_END))
            while at > 0:
                first = max(0, at - _STEP)
                file.seek(first)
                found = int(file.read(at - first).rfind(b"\n"))
                if found >= 0:
                    return first + found + 1
                at = first
        return 0

    def piece(self, first: int, last: int) -> TableSource:
        with self._open() as file:
            header = file.readline()
            if file.seek(0, os.SEEK_END) < last or last < first:
                raise _shorter(self._party)
            first = max(first, len(header))
            file.seek(first)
            body = file.read(max(0, last - first))
        if last < len(header):
            raise DataError(f"file {self._path.name} has no header yet", party=self._party)
        return _Lines(self._path, header, body)

    def _open(self) -> Any:
        try:
            return self._path.open("rb")
        except OSError:
            raise DataError(
                f"file {self._path.name} cannot be read", party=self._party, remedy="Check its path and permissions."
            ) from None


class _Lines:
    def __init__(self, path: Path, header: bytes, body: bytes) -> None:
        self._header, self._body = header, body
        self._delimiter = "\t" if path.suffix.lower() == ".tsv" else ","

    def column_names(self) -> Sequence[str]:
        return [name.strip() for name in self._cells(self._header.removeprefix(BOM_UTF8).removesuffix(b"\n"))]

    def read(self, columns: Sequence[str]) -> pa.Table:
        import pyarrow as pa

        names = self.column_names()
        lines = [line for line in self._body.split(b"\n") if line.strip()]
        rows = [row for row in map(self._cells, lines) if len(row) == len(names)]
        places = [names.index(column) for column in columns]
        table = pa.table({c: pa.array([row[i] for row in rows], pa.string()) for c, i in zip(columns, places)})
        return with_broken_records(table, len(lines) - len(rows))

    def _cells(self, line: bytes) -> list[str]:
        """The cells of one line, as text; none of a line that is blank or cannot be read."""
        try:
            return next(csv.reader([line.removesuffix(b"\r").decode()], delimiter=self._delimiter), [])
        except (UnicodeDecodeError, csv.Error):
            return []


class _Whole:
    def __init__(self, source: Any, party: str | None) -> None:
        self._source, self._party = source, party

    def end(self) -> int:
        names = column_names(self._source, party=self._party)
        return int(read_table(self._source, names[:1], party=self._party, lenient=True).num_rows)

    def piece(self, first: int, last: int) -> TableSource:
        return _Rows(self._source, first, last, self._party)


class _Rows:
    def __init__(self, source: Any, first: int, last: int, party: str | None) -> None:
        self._source, self._first, self._last, self._party = source, first, last, party

    def column_names(self) -> Sequence[str]:
        return column_names(self._source, party=self._party)

    def read(self, columns: Sequence[str]) -> pa.Table:
        table = read_table(self._source, columns, party=self._party, lenient=True)
        if table.num_rows < self._last:
            raise _shorter(self._party)
        return table.slice(self._first, self._last - self._first)
