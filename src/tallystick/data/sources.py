"""Where records come from: files and in-memory frames, read into Arrow columns, only those the study names.

The kinds accepted are CSV and Parquet files by path, pandas and polars frames, Arrow tables, NumPy matrices with
column names, and dicts of arrays. All become one :class:`pyarrow.Table`; nothing above this file knows which it was.
A column has a type only where its source declares one (Parquet, Arrow, a dtype other than object). No type is ever
inferred from cells: CSV cells stay text, and Python objects stay what each of them is
(:mod:`tallystick.data.object_columns`), so that no cell decides how another is read.

Errors name file, column and line, never a cell: the libraries' own messages quote data, so they are not chained.

A database is reached through :class:`TableSource`: any object with ``column_names`` and ``read`` is a source.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tallystick.core.errors import DataError
from tallystick.core.readable_text import did_you_mean
from tallystick.data.accounts import why_closed
from tallystick.data.csv_records import read_csv_records
from tallystick.data.object_columns import cells_to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_SHOWN = 40
_BROKEN = b"tallystick.broken"
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@runtime_checkable
class TableSource(Protocol):
    """The seam for sources that are not here: SQL, a warehouse, an object store."""

    def column_names(self) -> Sequence[str]:
        """Every column there is."""
        ...

    def read(self, columns: Sequence[str]) -> pa.Table:
        """These columns of every record, in a fixed order of records."""
        ...


class _Opened(NamedTuple):
    """A source whose column names are known and whose columns are read on demand."""

    names: Sequence[str]
    read: Callable[[list[str]], pa.Table]
    where: str


@contextmanager
def errors_name(party: str | None) -> Iterator[None]:
    """What is wrong with records is told with the name of the party that holds them."""
    try:
        yield
    except DataError as error:
        error.party = error.party or party
        raise


def column_names(source: Any, *, party: str | None = None) -> tuple[str, ...]:
    """The columns of a source, without reading its records."""
    with errors_name(party):
        return tuple(_open(source, None).names)


def read_table(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    names: Sequence[str] | None = None,
    party: str | None = None,
    lenient: bool = False,
) -> pa.Table:
    """The named columns (all, if None) of a source as an Arrow table, in the order asked for.

    ``names`` gives a NumPy matrix its column names; other sources have their own. ``lenient``: a line of a CSV file
    that is no record is left out (:func:`broken_records` says how many were) instead of refused with the whole file.
    """
    with errors_name(party):
        opened = _open(source, names, lenient=lenient)
        wanted = list(opened.names if columns is None else columns)
        there = Counter(opened.names)
        absent = [name for name in wanted if there[name] == 0]
        if absent:
            raise _no_column(opened, absent)
        for name in wanted:
            if there[name] > 1:
                raise DataError(f"{opened.where} has {there[name]} columns named {name!r}", remedy="Rename them.")
        return opened.read(wanted)


def _no_column(opened: _Opened, absent: Sequence[str]) -> DataError:
    """Columns that are not there; a file cut at another character than its own has one, of a long name."""
    for mark, called in _DELIMITERS.items():
        parts = [part.strip().strip('"') for name in opened.names for part in name.split(mark)]
        if absent[0] not in opened.names and absent[0] in parts:
            return DataError(
                f"{opened.where} has no column {absent[0]!r}: its cells are separated by {called}",
                remedy="Save it with commas between the cells, or as .tsv with tabs.",
            )
    shown = ", ".join(opened.names[:_MAX_SHOWN]) + (", ..." if len(opened.names) > _MAX_SHOWN else "")
    called = f"column {absent[0]!r}" if len(absent) == 1 else f"columns {', '.join(map(repr, absent[:_MAX_SHOWN]))}"
    return DataError(
        f"{opened.where} has no {called}",
        remedy=f"Columns there: {shown or 'none'}.{did_you_mean(absent[0], opened.names)} Rename the file's column, or "
        "ask for a study that reads what is there.",
    )


def with_broken_records(table: pa.Table, count: int) -> pa.Table:
    """The table, with a note of how many lines of its file were no records."""
    return table.replace_schema_metadata({_BROKEN: str(count).encode()})


def broken_records(table: pa.Table) -> int:
    """How many lines of the file a lenient reader has left out; stays local."""
    return int((table.schema.metadata or {}).get(_BROKEN, b"0"))


def _open(source: Any, names: Sequence[str] | None, *, lenient: bool = False) -> _Opened:
    import pyarrow as pa

    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source), lenient=lenient)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return _Opened(source.column_names, source.select, "the Arrow table")
    if isinstance(source, np.ndarray):
        return _open_matrix(source, names)
    if isinstance(source, Mapping):
        return _open_arrays([str(key) for key in source], [*source.values()].__getitem__, "the dict of arrays")
    library = type(source).__module__.partition(".")[0]
    if library == "polars" and hasattr(source, "collect_schema"):
        return _open_polars(source)
    if library == "pandas" and hasattr(source, "iloc") and hasattr(source, "columns"):
        return _open_arrays([str(c) for c in source.columns], lambda i: source.iloc[:, i], "the pandas frame")
    if isinstance(source, TableSource):
        return _Opened([str(name) for name in source.column_names()], source.read, "the source")
    raise DataError(
        f"a {type(source).__name__} is not a data source",
        remedy="Give a .csv or .parquet path, a pandas or polars frame, an Arrow table, a dict of arrays, or a NumPy "
        "matrix with names.",
    )


def _open_file(path: Path, *, lenient: bool) -> _Opened:
    where = f"file {path.name}"
    if (closed := why_closed(path)) is not None:
        raise DataError(f"{where} {closed.cause} ({path})", rule="wrong-account", remedy=closed.remedy)
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"{where} {kind} ({path})", remedy="Give the path of a .csv or .parquet file.")
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in (".parquet", ".pq"):
        return _open_parquet(path, where)
    if ".csv" in suffixes or ".tsv" in suffixes:
        return _open_csv(path, where, delimiter="\t" if ".tsv" in suffixes else ",", lenient=lenient)
    raise DataError(f"{where} is of no known format", remedy="Known are .csv, .tsv (also .gz) and .parquet.")


def _open_parquet(path: Path, where: str) -> _Opened:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def taken(take: Callable[[Any], Any]) -> Any:
        found = None
        with suppress(pa.ArrowException, OSError), pq.ParquetFile(path) as file:
            found = take(file)
        if found is None:
            raise DataError(f"{where} is not a readable Parquet file", remedy="Write it again.")
        return found

    def read(columns: list[str]) -> pa.Table:
        return taken(lambda file: file.read(columns=columns)).select(columns)

    return _Opened(taken(lambda file: file.schema_arrow.names), read, where)


def _open_csv(path: Path, where: str, delimiter: str, *, lenient: bool) -> _Opened:
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

    def read_leniently(columns: list[str]) -> pa.Table:
        found = None
        with suppress(pa.ArrowException, OSError, EOFError):  # the file cannot be read, whatever its records are
            found = read_csv_records(path, delimiter, len(names), [names.index(c) for c in columns])
        if found is None:
            raise DataError(f"{where} cannot be read", remedy="Save it as UTF-8 CSV.")
        return with_broken_records(pa.table(found[0], names=columns), found[1])

    def read(columns: list[str]) -> pa.Table:
        return _read_csv(path, where, delimiter, header, columns)

    return _Opened(names, read_leniently if lenient else read, where)


def _read_csv(path: Path, where: str, delimiter: str, header: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Every cell as text. Arrow reads; on failure it reads again on one thread, where its message has the line."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    positions = [f"f{i}" for i in range(len(header))]  # names in a file may repeat or be blank; positions do not
    chosen = [positions[[h.strip() for h in header].index(c)] for c in columns]
    message = ""
    for threads in (True, False):
        try:
            table = arrow_csv.read_csv(
                str(path),
                read_options=arrow_csv.ReadOptions(column_names=positions, skip_rows=0, use_threads=threads),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=chosen,
                    column_types=dict.fromkeys(positions, pa.string()),
                    strings_can_be_null=False,
                ),
            )
            return table.rename_columns(list(columns)).slice(1)  # the header is the first row read
        except pa.ArrowInvalid as error:
            message = str(error)
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


def _open_polars(frame: Any) -> _Opened:
    def read(columns: list[str]) -> pa.Table:
        selected = frame.select(columns)
        found = selected.collect() if hasattr(selected, "collect") else selected
        return _assemble({c: found.get_column(c) for c in columns}, "the polars frame")

    return _Opened(frame.collect_schema().names(), read, "the polars frame")


def _open_arrays(names: Sequence[str], column: Callable[[int], Any], where: str) -> _Opened:
    place = {name: i for i, name in enumerate(names)}
    return _Opened(names, lambda wanted: _assemble({c: column(place[c]) for c in wanted}, where), where)


def _open_matrix(source: np.ndarray[Any, Any], names: Sequence[str] | None) -> _Opened:
    where = "the NumPy matrix"
    fields = source.dtype.names
    if fields is not None and source.ndim == 1:
        return _open_arrays(fields, lambda i: source[fields[i]], where)
    if source.ndim != 2:
        raise DataError(
            f"a NumPy array of {source.ndim} dimension(s) is not a table",
            remedy="Give records as rows and columns as columns: X.reshape(-1, 1) makes one column.",
        )
    labels = [f"x{i}" for i in range(source.shape[1])] if names is None else [str(n) for n in names]
    if len(labels) != source.shape[1]:
        raise DataError(
            f"{where} has {source.shape[1]} columns, but {len(labels)} names were given",
            remedy="Give one name per column.",
        )
    return _open_arrays(labels, lambda i: source[:, i], where)


def _assemble(columns: Mapping[str, Any], where: str) -> pa.Table:
    """Array-likes of one length to a table; NaN and None become nulls alike."""
    import pyarrow as pa

    arrays = {name: _to_arrow(name, values, where) for name, values in columns.items()}
    lengths = {name: len(a) for name, a in arrays.items()}
    if len(set(lengths.values())) > 1:
        first = next(iter(lengths))
        other = next(name for name, length in lengths.items() if length != lengths[first])
        raise DataError(
            f"{where}: columns {first!r} and {other!r} differ in length",
            remedy="Give every column one cell per record.",
        )
    return pa.table(arrays)


def _to_arrow(name: str, values: Any, where: str) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if type(values).__module__.partition(".")[0] == "polars":
        # A column of Python objects would come as their addresses in memory, and Arrow has no integers of 128 bits.
        own = str(values.dtype) in ("Object", "Int128", "UInt128")
        return cells_to_arrow(values.to_list()) if own else values.to_arrow()
    if not hasattr(values, "dtype"):
        return cells_to_arrow(list(values))
    if getattr(values, "ndim", 1) != 1:
        raise DataError(f"{where}: column {name!r} has {values.ndim} dimensions", remedy="Give one cell per record.")
    if str(values.dtype) == "category":
        return _categorical_to_arrow(getattr(values, "cat", values))
    if values.dtype == object:
        return cells_to_arrow(list(values))  # nobody has declared what it holds: every cell is judged by itself
    try:
        if isinstance(values, np.ma.MaskedArray):
            return pa.array(values.data, mask=np.ma.getmaskarray(values), from_pandas=True)
        if isinstance(values, np.ndarray) and values.dtype in (np.float64, np.float32, np.int64):
            values = np.ascontiguousarray(values)  # the common case without a copy: NaN is missing to the cell reader
            return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
        made = pa.array(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values, from_pandas=True)
        if not isinstance(made.type, pa.BaseExtensionType):  # pandas' periods and intervals are read by their text
            return made
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    return cells_to_arrow(list(values))


def _categorical_to_arrow(values: Any) -> Any:
    """A pandas categorical: its categories, each judged by itself, at the places its codes say."""
    import pyarrow as pa

    codes = np.asarray(values.codes)
    categories = values.categories
    if categories.dtype != object:
        dictionary = _to_arrow("categories", categories, "the pandas frame")
        if not pa.types.is_union(dictionary.type) and not isinstance(dictionary, pa.ChunkedArray):
            return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), dictionary)
    cells = [*categories, None]  # a missing cell has the code -1
    return cells_to_arrow([cells[code] for code in codes.tolist()])
