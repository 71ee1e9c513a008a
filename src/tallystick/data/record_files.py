"""Files of records: CSV, Parquet, and folders of Parquet files, opened for reading whole or in blocks.

Errors name file, column and line, never a cell: the libraries' own messages quote data, so they are not chained.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tallystick.core.errors import DataError
from tallystick.data.accounts import why_closed
from tallystick.data.csv_records import csv_record_blocks, read_csv_records
from tallystick.data.opened import Opened, with_broken_records
from tallystick.data.table_folders import refuse_tables

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET = (".parquet", ".pq")
_CSV_BLOCK = 8 << 20  # bytes of a file that are read at once
_PARQUET_BUFFER = 1 << 20  # of each column


def open_file(path: Path, *, lenient: bool) -> Opened:
    """A file or folder of records; ``lenient``: a line of a CSV file that is no record is left out."""
    where = f"file {path.name}"
    if (closed := why_closed(path)) is not None:
        raise DataError(f"{where} {closed.cause} ({path})", rule="wrong-account", remedy=closed.remedy)
    if path.is_dir():
        refuse_tables(path)
        return _open_folder(path)
    if not path.is_file():
        raise DataError(f"{where} does not exist ({path})", remedy="Give the path of a .csv or .parquet file.")
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in _PARQUET:
        refuse_tables(path)
        return _open_parquet(path, where)
    if ".csv" in suffixes or ".tsv" in suffixes:
        return _open_csv(path, where, delimiter="\t" if ".tsv" in suffixes else ",", lenient=lenient)
    raise DataError(f"{where} is of no known format", remedy="Known are .csv, .tsv (also .gz) and .parquet.")


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder and its folders, in the order of their names; not those that a writer hides."""
    found = [p for p in folder.rglob("*") if p.suffix.lower() in _PARQUET and p.is_file()]
    return sorted(p for p in found if not any(part[0] in "._" for part in p.relative_to(folder).parts))


def _open_folder(folder: Path) -> Opened:
    import pyarrow as pa

    where = f"folder {folder.name}"
    files = parquet_files(folder)
    if not files:
        raise DataError(
            f"{where} is a directory without Parquet files ({folder})",
            remedy="Give the path of a .csv or .parquet file, or of a folder of Parquet files.",
        )
    parts = [_open_parquet(file, f"file {file.relative_to(folder)}") for file in files]
    names = list(parts[0].names)
    for part in parts[1:]:
        if absent := [name for name in names if name not in part.names]:
            raise DataError(
                f"{where}: {part.where} has no column {absent[0]!r}, which the first file has",
                remedy="Write the folder anew, with the same columns in every file.",
            )

    def in_blocks(columns: list[str], rows: int) -> Iterator[pa.Table]:
        for part in parts:
            yield from part.blocks(columns, rows)

    def read(columns: list[str]) -> pa.Table:
        tables = [part.read(columns) for part in parts]
        with suppress(pa.ArrowException):
            return pa.concat_tables(tables)
        raise DataError(
            f"{where}: its files declare different types for the same columns",
            remedy="Write the folder anew, with the same types in every file.",
        )

    return Opened(names=names, read=read, where=where, in_blocks=in_blocks)


def _open_parquet(path: Path, where: str) -> Opened:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def unreadable() -> NoReturn:
        raise DataError(f"{where} is not a readable Parquet file", remedy="Write it again.")

    def taken(take: Callable[[Any], Any]) -> Any:
        found = None
        with suppress(pa.ArrowException, OSError), pq.ParquetFile(path) as file:
            found = take(file)
        return unreadable() if found is None else found

    def read(columns: list[str]) -> pa.Table:
        return taken(lambda file: file.read(columns=columns)).select(columns)

    def in_blocks(columns: list[str], rows: int) -> Iterator[pa.Table]:
        whole = False
        # Neither mapped into memory (a file that is cut short meanwhile would end this process, SIGBUS), nor ahead of
        # what is asked for (all of it).
        with (
            suppress(pa.ArrowException, OSError),
            pq.ParquetFile(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False) as file,
        ):
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                yield pa.Table.from_batches([batch]).select(columns)
            whole = True
        if not whole:
            unreadable()

    names = taken(lambda file: file.schema_arrow.names)
    return Opened(names=names, read=read, where=where, in_blocks=in_blocks)


def _open_csv(path: Path, where: str, delimiter: str, *, lenient: bool) -> Opened:
    import pyarrow as pa

    header: list[str] | None = None
    problem = "cannot be read"
    try:
        # Records are read ahead with the header: a byte of theirs that is no UTF-8 is not the header's fault.
        with (
            pa.input_stream(str(path)) as stream,
            io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text,
        ):
            header = next(csv.reader(text, delimiter=delimiter), [])
    except (pa.ArrowException, OSError, csv.Error, EOFError):
        pass
    if header is not None and any("\udc80" <= c <= "\udcff" for name in header for c in name):
        header, problem = None, "is not UTF-8 text"
    if header is None:
        raise DataError(f"{where} {problem}", remedy="Save it as UTF-8 CSV.")
    if not any(name.strip() for name in header):
        raise DataError(f"{where} is empty", remedy="Its first line must name the columns.")
    names = [name.strip() for name in header]

    def unreadable() -> NoReturn:
        raise DataError(f"{where} cannot be read", remedy="Save it as UTF-8 CSV.")

    def read_leniently(columns: list[str]) -> pa.Table:
        found = None
        with suppress(pa.ArrowException, OSError, EOFError):  # the file cannot be read, whatever its records are
            found = read_csv_records(path, delimiter, len(names), [names.index(c) for c in columns])
        if found is None:
            unreadable()
        return with_broken_records(pa.table(found[0], names=columns), found[1])

    def lenient_blocks(columns: list[str], _rows: int) -> Iterator[pa.Table]:
        whole, places = False, [names.index(c) for c in columns]
        with suppress(pa.ArrowException, OSError, EOFError):
            for found, broken in csv_record_blocks(path, delimiter, len(names), places, block=_CSV_BLOCK):
                yield with_broken_records(pa.table(found, names=columns), broken)
            whole = True
        if not whole:
            unreadable()

    def read(columns: list[str]) -> pa.Table:
        return _read_csv(path, where, delimiter, header, columns)

    def strict_blocks(columns: list[str], _rows: int) -> Iterator[pa.Table]:
        return _csv_blocks(path, where, delimiter, header, columns)

    if lenient:
        return Opened(names=names, read=read_leniently, where=where, in_blocks=lenient_blocks)
    return Opened(names=names, read=read, where=where, in_blocks=strict_blocks)


def _csv_options(delimiter: str, header: Sequence[str], columns: Sequence[str], threads: bool) -> dict[str, Any]:
    """Every cell as text, by position: names in a file may repeat or be blank."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    positions = [f"f{i}" for i in range(len(header))]
    chosen = [positions[[h.strip() for h in header].index(c)] for c in columns]
    return {
        "read_options": arrow_csv.ReadOptions(
            column_names=positions, skip_rows=0, use_threads=threads, block_size=1 << 20 if threads else _CSV_BLOCK
        ),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
        ),
        "convert_options": arrow_csv.ConvertOptions(
            include_columns=chosen, column_types=dict.fromkeys(positions, pa.string()), strings_can_be_null=False
        ),
    }


def _read_csv(path: Path, where: str, delimiter: str, header: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Arrow reads; on failure it reads again on one thread, where its message has the line."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    message = ""
    for threads in (True, False):
        try:
            table = arrow_csv.read_csv(str(path), **_csv_options(delimiter, header, columns, threads))
            return table.rename_columns(list(columns)).slice(1)  # the header is the first row read
        except pa.ArrowInvalid as error:
            message = str(error)
    return _refuse_csv(where, message)


def _csv_blocks(
    path: Path, where: str, delimiter: str, header: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The same, as the file is gone through."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    message: str | None = None
    try:
        with arrow_csv.open_csv(str(path), **_csv_options(delimiter, header, columns, False)) as reader:
            skip = 1
            for batch in reader:
                table = pa.Table.from_batches([batch]).rename_columns(list(columns))
                yield table.slice(skip)
                skip -= min(skip, batch.num_rows)
    except pa.ArrowInvalid as error:
        message = str(error)
    if message is not None:
        _refuse_csv(where, message)


def _refuse_csv(where: str, message: str) -> NoReturn:
    """What Arrow found, in our words."""
    if "UTF8" in message:
        raise DataError(f"{where} is not UTF-8 text", remedy="Save it as UTF-8 CSV.")
    ragged = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if ragged:
        line = f"record {int(ragged[1]) - 1}" if ragged[1] else "a record"
        raise DataError(
            f"{where}: {line} has {ragged[3]} cells, but the header names {ragged[2]} columns",
            remedy='Quote cells that hold a comma or a line break ("a, b"), and fill in the missing cells.',
        )
    raise DataError(f"{where} is not readable as CSV", remedy="Save it as UTF-8 CSV with a header line.")
