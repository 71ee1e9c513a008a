"""CSV files of a cluster, read by tallystick's own reader on the executors, a file a task.

Spark's reader lets one record decide about others: a quote that nothing closes swallows all that follows, up to the
next quote. It also takes a blank cell for a missing one, where a blank list of items is an empty set. So Spark only
brings the bytes of each file, and records are cut from them as they are from a file on one machine.

A file is in its executor's memory while it is read. Of its header only the names come to this process.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.core.errors import DataError
from tallystick.data.csv_records import csv_record_blocks
from tallystick.data.opened import with_broken_records
from tallystick.engines.spark.contents import CONTENT_SCHEMA, digest_of_part

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 8 << 20
_GLOB = re.compile(r"([\\{}\[\]*?])")
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Packed files, as Arrow knows them by their endings where it reads files by itself."""


class CsvFiles(NamedTuple):
    """The bytes of CSV files as Spark has them, and the names that all of them begin with."""

    frame: Any
    names: list[str]

    def contents(self) -> Any:
        """The digests of the records, and how many lines are none, as :data:`CONTENT_SCHEMA` has them: a frame of
        records cannot tell the latter."""
        names = self.names

        def digested(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pieces = ((table.rename_columns(names), lost) for table, lost in _pieces(batches, names, range(len(names))))
            yield digest_of_part(pieces, sorted(names))

        return self.frame.mapInArrow(digested, CONTENT_SCHEMA)

    def tables(self, wanted: Sequence[str], rows: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.Table]]:
        """The map from files to tables of at most so many records, noted with each how many lines are none."""
        names = self.names

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
            for table, lost in _pieces(batches, names, [names.index(name) for name in wanted]):
                for first in range(0, max(1, table.num_rows), rows):
                    named = table.slice(first, rows).rename_columns(list(wanted))
                    yield with_broken_records(named, lost if first == 0 else 0)

        return read


def open_csv_files(session: Any, path: str) -> Any:
    """The records of a CSV file, or of a folder of them, as a DataFrame of text."""
    names = _names_in(session, path)
    schema = ", ".join(f"c{place} string" for place in range(len(names)))
    return _files(session, path).mapInArrow(reading(names), schema).toDF(*names)


def csv_files(session: Any, path: str, names: Sequence[str] | None = None) -> CsvFiles:
    """The same files; ``names``: what their columns are called, if that is known already."""
    return CsvFiles(_files(session, path), list(names or _names_in(session, path)))


def _names_in(session: Any, path: str) -> list[str]:
    first = _files(session, path).selectExpr("min(path)").head()[0]
    if first is None:
        raise DataError("there is no CSV file, or nothing in it", rule="spark-source", remedy="Correct [data] source.")
    told = _files(session, _GLOB.sub(r"\\\1", first)).mapInArrow(_headers, "names string").collect()
    names: list[str] = json.loads(told[0][0]) if told else []
    if not any(names):
        raise DataError(
            "the CSV file names no columns", rule="spark-source", remedy="Its first line must name the columns."
        )
    return names


def _files(session: Any, path: str) -> Any:
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    return reader.load(path).select("path", "content")


def _headers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as arrow

    for path, content in _contents(batches):
        yield arrow.RecordBatch.from_pydict({"names": [json.dumps(header_of(path, content))]})


def header_of(path: str, content: bytes) -> list[str]:
    """The names in a file's first line."""
    with io.TextIOWrapper(_stream(path, content), "utf-8-sig", errors="replace", newline="") as text:
        try:
            return [name.strip() for name in next(csv.reader(text, delimiter=_delimiter(path)), [])]
        except (csv.Error, OSError, EOFError, ValueError):  # Arrow's errors are OSError and ValueError
            raise _unreadable() from None


def reading(names: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The map from files to their records, as tallystick's own reader has them."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table, _ in _pieces(batches, names, range(len(names))):
            yield from table.to_batches()

    return read


def _pieces(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], places: Sequence[int]
) -> Iterator[tuple[pa.Table, int]]:
    """The cells at these places of the records of these files, piece by piece, and how many lines of a piece are no
    record."""
    import pyarrow as arrow

    called = [f"c{place}" for place in places]
    for path, content in _contents(batches):
        if header_of(path, content) != list(names):
            raise ValueError("CSV_HEADERS_DIFFER")  # by its word the driver knows it again
        blocks = csv_record_blocks(_stream(path, content), _delimiter(path), len(names), places, block=_BLOCK)
        while True:
            try:
                found = next(blocks, None)
            except (OSError, EOFError, ValueError):  # a packed file that ends too early, as one machine refuses it
                raise _unreadable() from None
            if found is None:
                break
            columns, lost = found
            yield arrow.table([column.cast(arrow.string()) for column in columns], names=called), lost


def _contents(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.column(0)[row].as_py(), batch.column(1)[row].as_py()


def _unreadable() -> ValueError:
    """By its word the driver knows it again; what the libraries say quotes the file."""
    return ValueError("CSV_UNREADABLE")


def _stream(path: str, content: bytes) -> Any:
    """A file's bytes, unpacked as they are read."""
    import pyarrow as arrow

    return arrow.input_stream(arrow.py_buffer(content), compression=_PACKED.get(PurePosixPath(path).suffix.lower()))


def _delimiter(path: str) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in PurePosixPath(path).suffixes] else ","
