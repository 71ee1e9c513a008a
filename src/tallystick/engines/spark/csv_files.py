"""CSV files of a cluster, read by tallystick's own reader on the executors, a file a task.

Spark's reader lets one record decide about others: a quote that nothing closes swallows all that follows, up to the
next quote. It also takes a blank cell for a missing one, where a blank list of items is an empty set. So Spark only
brings the bytes of each file, and records are cut from them as they are from a file on one machine.

A file is in its executor's memory while it is read.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tallystick.core.errors import DataError
from tallystick.data.csv_records import csv_record_blocks
from tallystick.engines.spark.contents import CONTENT_SCHEMA, digest_of_part

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER = 1 << 20
_BLOCK = 8 << 20


def open_csv_files(session: Any, path: str) -> Any:
    """The records of a CSV file, or of a folder of them, as a DataFrame of text."""
    names = _names_in(session, path)
    schema = ", ".join(f"c{place} string" for place in range(len(names)))
    return _files(session, path).select("path", "content").mapInArrow(reading(names), schema).toDF(*names)


def csv_contents(session: Any, path: str) -> Any:
    """The digests of the same records, and how many lines are none, as :data:`CONTENT_SCHEMA` has them: a frame of
    records cannot tell the latter."""
    names = _names_in(session, path)

    def digested(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = ((table.rename_columns(names), lost) for table, lost in _tables(batches, names))
        yield digest_of_part(tables, sorted(names))

    return _files(session, path).select("path", "content").mapInArrow(digested, CONTENT_SCHEMA)


def _names_in(session: Any, path: str) -> list[str]:
    first = _files(session, path).selectExpr("min(path)").head()[0]
    if first is None:
        raise DataError("there is no CSV file, or nothing in it", rule="spark-source", remedy="Correct [data] source.")
    head = _files(session, first).selectExpr(f"substring(content, 1, {_HEADER})").head()[0]
    names = header_of(first, bytes(head))
    if not any(names):
        raise DataError(
            "the CSV file names no columns", rule="spark-source", remedy="Its first line must name the columns."
        )
    return names


def _files(session: Any, path: str) -> Any:
    return session.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)


def header_of(path: str, content: bytes) -> list[str]:
    """The names in a file's first line."""
    text = io.TextIOWrapper(io.BytesIO(_plain(path, content)), "utf-8-sig", errors="replace", newline="")
    return [name.strip() for name in next(csv.reader(text, delimiter=_delimiter(path)), [])]


def reading(names: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The map from files to their records, as tallystick's own reader has them."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table, _ in _tables(batches, names):
            yield from table.to_batches()

    return read


def _tables(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[tuple[pa.Table, int]]:
    """The records of these files, piece by piece, and how many lines of a piece are none."""
    import pyarrow as arrow

    every = range(len(names))
    for batch in batches:
        for row in range(batch.num_rows):
            path, content = batch.column(0)[row].as_py(), batch.column(1)[row].as_py()
            if header_of(path, content[:_HEADER]) != names:
                raise ValueError("CSV_HEADERS_DIFFER")  # by its word the driver knows it again
            plain = _plain(path, content)
            for columns, lost in csv_record_blocks(plain, _delimiter(path), len(names), every, block=_BLOCK):
                texts = [column.cast(arrow.string()) for column in columns]
                yield arrow.table(texts, names=[f"c{place}" for place in every]), lost


def _plain(path: str, content: bytes) -> bytes:
    """Its bytes, or as many of them as there are, if it is compressed."""
    return zlib.decompressobj(31).decompress(content) if path.lower().endswith(".gz") else content


def _delimiter(path: str) -> str:
    return "\t" if ".tsv" in path.rpartition("/")[2].lower() else ","
