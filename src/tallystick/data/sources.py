"""Where records come from: files and in-memory frames, read into Arrow columns, only those the study names.

The kinds accepted are CSV and Parquet files and folders of Parquet files by path, queries to a database by address,
pandas and polars frames, Arrow tables, NumPy matrices with column names, and dicts of arrays. All become one
:class:`pyarrow.Table`, or blocks of one (:func:`read_blocks`); nothing above this file knows which it was.
A column has a type only where its source declares one (Parquet, Arrow, a dtype other than object). No type is ever
inferred from cells: CSV cells stay text, and Python objects stay what each of them is
(:mod:`tallystick.data.object_columns`), so that no cell decides how another is read.

Errors name file, column and line, never a cell: the libraries' own messages quote data, so they are not chained.

Any object with ``column_names`` and ``read`` is a source (:class:`TableSource`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tallystick.core.errors import DataError
from tallystick.core.readable_text import did_you_mean
from tallystick.data.addresses import is_address, parse_address
from tallystick.data.object_columns import cells_to_arrow
from tallystick.data.opened import Opened
from tallystick.data.record_files import open_file
from tallystick.data.sql import open_address

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_SHOWN = 40
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@runtime_checkable
class TableSource(Protocol):
    """The seam for sources that are not here: a warehouse, an object store. One that can be read in blocks has
    ``blocks(columns, rows)`` besides, which gives tables."""

    def column_names(self) -> Sequence[str]:
        """Every column there is."""
        ...

    def read(self, columns: Sequence[str]) -> pa.Table:
        """These columns of every record, in a fixed order of records."""
        ...


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
        return opened.read(_wanted(opened, columns))


def read_blocks(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    rows: int,
    names: Sequence[str] | None = None,
    party: str | None = None,
    lenient: bool = False,
) -> Generator[pa.Table, None, None]:
    """The same records in the same order, as tables of at most ``rows`` records; at least one, be it empty.

    Files, folders and databases are read as they are gone through: what is in memory is a block, however large they
    are. Frames are in memory already.
    """
    with errors_name(party):
        opened = _open(source, names, lenient=lenient)
        yield from opened.blocks(_wanted(opened, columns), rows)


def _wanted(opened: Opened, columns: Sequence[str] | None) -> list[str]:
    """The columns asked for, each of which is there once."""
    wanted = list(opened.names if columns is None else columns)
    refuse_absent(opened.names, wanted, where=opened.where)
    return wanted


def refuse_absent(names: Sequence[str], wanted: Sequence[str], *, where: str) -> None:
    """That each of these columns is there, once."""
    there = Counter(names)
    absent = [name for name in wanted if there[name] == 0]
    if absent:
        raise _no_column(names, absent, where)
    for name in wanted:
        if there[name] > 1:
            raise DataError(f"{where} has {there[name]} columns named {name!r}", remedy="Rename them.")


def _no_column(names: Sequence[str], absent: Sequence[str], where: str) -> DataError:
    """Columns that are not there; a file cut at another character than its own has one, of a long name."""
    for mark, called in _DELIMITERS.items():
        parts = [part.strip().strip('"') for name in names for part in name.split(mark)]
        if absent[0] not in names and absent[0] in parts:
            return DataError(
                f"{where} has no column {absent[0]!r}: its cells are separated by {called}",
                remedy="Save it with commas between the cells, or as .tsv with tabs.",
            )
    shown = ", ".join(names[:_MAX_SHOWN]) + (", ..." if len(names) > _MAX_SHOWN else "")
    called = f"column {absent[0]!r}" if len(absent) == 1 else f"columns {', '.join(map(repr, absent[:_MAX_SHOWN]))}"
    return DataError(
        f"{where} has no {called}",
        remedy=f"Columns there: {shown or 'none'}.{did_you_mean(absent[0], names)} Rename the file's column, or "
        "ask for a study that reads what is there.",
    )


def _open(source: Any, names: Sequence[str] | None, *, lenient: bool = False) -> Opened:
    import pyarrow as pa

    if isinstance(source, str) and is_address(source):
        return open_address(parse_address(source))
    if isinstance(source, str | os.PathLike):
        return open_file(Path(source), lenient=lenient)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return Opened(names=source.column_names, read=source.select, where="the Arrow table")
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
        names_there = [str(name) for name in source.column_names()]
        return Opened(
            names=names_there, read=source.read, where="the source", in_blocks=getattr(source, "blocks", None)
        )
    raise DataError(
        f"a {type(source).__name__} is not a data source",
        remedy="Give a .csv or .parquet path, the address of a database, a pandas or polars frame, an Arrow table, a "
        "dict of arrays, or a NumPy matrix with names.",
    )


def _open_polars(frame: Any) -> Opened:
    def read(columns: list[str]) -> pa.Table:
        selected = frame.select(columns)
        found = selected.collect() if hasattr(selected, "collect") else selected
        return _assemble({c: found.get_column(c) for c in columns}, "the polars frame")

    return Opened(names=frame.collect_schema().names(), read=read, where="the polars frame")


def _open_arrays(names: Sequence[str], column: Callable[[int], Any], where: str) -> Opened:
    place = {name: i for i, name in enumerate(names)}
    return Opened(names=names, read=lambda wanted: _assemble({c: column(place[c]) for c in wanted}, where), where=where)


def _open_matrix(source: np.ndarray[Any, Any], names: Sequence[str] | None) -> Opened:
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
