"""One column to numbers: floats with NaN where missing, category codes, or sets of items.

What a cell becomes is defined by :mod:`tallystick.data.cell_rules`, one cell at a time, from that cell and public
declarations alone. Here the rule is applied to whole columns, fast: numbers of a declared type in one step, everything
else once per distinct value. Tests hold the two against each other.

The *type* of a column counts only where the source declares it (a Parquet or Arrow type, a dtype other than object):
then a column of dates that the study calls a number is refused as a whole, whatever its cells are. Errors name the
column and the cell's *type*, never its content.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.core.caller import for_caller
from tallystick.core.errors import DataError
from tallystick.core.readable_text import one_line
from tallystick.data.cell_rules import (
    ITEM_SEPARATOR,
    MISSING,
    NO_CELL,
    UNKNOWN,
    NoCell,
    as_category,
    as_items,
    as_number,
    canonical_text,
    plain,
    spelled_number,
    with_other_spellings,
)
from tallystick.study.declared_values import label_text

SHOWN_VALUES = 5
NUMBERS_AS_TEXT = "a number has a decimal point (12.5, not 12,5) and neither a unit nor thousands separators"
_LOOKED_AT, _SHOWN_CHARACTERS = 100, 40


class Read(NamedTuple):
    """A column read: its values, which cells are not what the study declares, and the type of one of those."""

    values: NDArray[Any]
    bad: NDArray[np.bool_]
    found: str | None
    unknown: tuple[tuple[str, int], ...] = ()
    """The most frequent values that are not declared, and how often each is there: for this machine's screen."""


@dataclass(frozen=True, kw_only=True)
class CellReader:
    """Reads the cells of one column; ``marker`` is the text (or number) that also counts as missing."""

    column: str
    marker: str | None = None

    def numbers(self, array: Any) -> Read:
        """float64 values, NaN where missing or bad; ±inf and every finite value as they are."""
        import pyarrow as pa

        array = _one_chunk(array)
        kind = _value_type(array)
        if pa.types.is_null(kind):
            return _good(np.full(len(array), math.nan))
        if not pa.types.is_dictionary(array.type) and (
            pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        ):
            values, absent = _primitive(array.cast(pa.uint8()) if pa.types.is_boolean(kind) else array)
            values = values.astype(np.float64)
            values[absent] = math.nan
            mark = spelled_number(self.marker)
            if mark is not None:
                values[values == mark] = math.nan
            return _good(values)
        if not (_is_single(kind) or pa.types.is_union(kind)) or pa.types.is_temporal(kind):
            raise self._wrong_type(str(kind), "a number")
        cells, index = _distinct(array)
        found = [as_number(cell, self.marker) for cell in cells] + [math.nan]
        bad = np.array([number is None for number in found])
        table = np.array([math.nan if number is None else number for number in found], dtype=np.float64)
        return Read(table[index], bad[index], _bad_type(cells, bad))

    def codes(self, array: Any, codes: Mapping[str, int]) -> Read:
        """The code of each cell; :data:`UNKNOWN` if it is not declared, :data:`MISSING` if missing, else bad."""
        import pyarrow as pa

        array = _one_chunk(array)
        kind = _value_type(array)
        if pa.types.is_nested(kind) and not pa.types.is_union(kind):
            raise self._wrong_type(str(kind), "a category")
        known = with_other_spellings(codes)
        cells, index = _distinct(array)
        table = np.array([as_category(cell, known, self.marker) for cell in cells] + [MISSING], dtype=np.int64)
        bad = table == NO_CELL
        unknown = _most_frequent(cells, index, np.flatnonzero(table == UNKNOWN), lambda cell: [cell])
        return Read(table[index], bad[index], _bad_type(cells, bad), unknown)

    def items(self, array: Any, codes: Mapping[str, int]) -> tuple[Read, NDArray[np.bool_], int]:
        """Multi-hot membership (records × vocabulary), which cells are missing, and how many items were unknown."""
        import pyarrow as pa

        array = _one_chunk(array)
        size = max(codes.values()) + 1
        kind = _value_type(array)
        if pa.types.is_null(kind):
            return _good(np.zeros((len(array), size), dtype=bool)), np.ones(len(array), dtype=bool), 0
        if _is_list(array.type):
            return self._listed(array, codes, size)
        if not (_is_single(kind) or pa.types.is_union(kind)):
            raise self._wrong_type(str(kind), "a list of items")
        known = with_other_spellings(codes)
        cells, index = _distinct(array)
        table = np.zeros((len(cells) + 1, size), dtype=bool)
        unknown = np.zeros(len(cells) + 1, dtype=np.int64)
        absent, bad = np.zeros((2, len(cells) + 1), dtype=bool)
        absent[-1] = True
        for row, cell in enumerate(cells):
            found = as_items(cell, known, self.marker)
            if isinstance(found, int):
                absent[row], bad[row] = found == MISSING, found == NO_CELL
            else:
                table[row, found[0]] = True
                unknown[row] = found[1]

        def undeclared(cell: object) -> list[object]:
            found = plain(cell)
            elements = found if isinstance(found, list) else str(found).split(ITEM_SEPARATOR)
            return [e for e in elements if as_category(e, known, self.marker) == UNKNOWN]

        values = _most_frequent(cells, index, np.flatnonzero(unknown), undeclared)
        read = Read(table[index], bad[index], _bad_type(cells, bad), values)
        return read, absent[index], int(unknown[index].sum())

    def _listed(self, array: Any, codes: Mapping[str, int], size: int) -> tuple[Read, NDArray[np.bool_], int]:
        """A column that the source declares as lists: its elements are one column of categories."""
        import pyarrow as pa

        array = array.cast(pa.large_list(array.type.value_type))
        missing = _primitive(array.is_null().cast(pa.uint8()))[0].astype(bool)
        lengths = np.where(missing, 0, np.diff(_primitive(array.offsets)[0]))
        elements = self.codes(array.flatten(), codes)  # flatten() leaves out what null lists may cover
        found = elements.values
        member = np.zeros((len(array), size), dtype=bool)
        rows = np.repeat(np.arange(len(array)), lengths)
        known = found >= 0
        member[rows[known], found[known]] = True
        read = _good(member)._replace(unknown=elements.unknown)
        return read, missing, int(np.count_nonzero(found == UNKNOWN))

    def _wrong_type(self, found: str, wanted: str) -> DataError:
        return DataError(
            f"column {self.column!r} is declared as {wanted}, but the data has type {found}",
            remedy="Convert the column, or declare it differently.",
        )

    def refusal(self, found: str | None, wanted: str, *, row: int) -> DataError:
        """What a check says about a bad cell of type ``found``, the first of which is in this row."""
        if found == "str" and wanted == "a number":
            marked = for_caller(
                python='missing=ts.Missing("…", "drop")',
                toml='missing = { marker = "…", policy = "drop" } under [data]',
            )
            return DataError(
                f"column {self.column!r} is declared as a number, but holds text that is not one, first in row {row:,} "
                "(the header not counted)",
                remedy=f"Correct the cell: {NUMBERS_AS_TEXT}. If the text marks a missing value, declare it: {marked}; "
                "if the column is no number, declare a category.",
            )
        if found in ("bool", "int", "float", "str", "list"):
            return self._wrong_type(found, wanted)
        return DataError(
            f"column {self.column!r} holds values that are neither numbers nor text",
            remedy="Convert the column, or leave it out of the study.",
        )


def canonical_texts(array: Any, rule: Callable[[object], str | None] = canonical_text) -> list[str | None]:
    """The text that ``rule`` gives every cell of a column, worked out once per distinct value."""
    cells, index = _distinct(_one_chunk(array))
    texts = [rule(cell) for cell in cells] + [None]
    return [texts[at] for at in index.tolist()]


def python_values(array: Any) -> list[Any]:
    """The cells of an Arrow array as Python has them; one that it cannot hold is a :class:`NoCell` by itself.

    A text that is not UTF-8, a year beyond 9999: one such cell must not take its column along.
    """
    try:
        return list(array.to_pylist())
    except (ValueError, OverflowError, TypeError, ArithmeticError):
        return [_python_value(cell) for cell in array]


def _python_value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError, TypeError, ArithmeticError):
        return NoCell(str(cell.type))


def _good(values: NDArray[Any]) -> Read:
    return Read(values, np.zeros(len(values), dtype=bool), None)


def _bad_type(cells: list[Any], bad: NDArray[np.bool_]) -> str | None:
    """The type of the first bad cell among the distinct ones."""
    at = next(iter(np.flatnonzero(bad)), None)
    if at is None:
        return None
    cell = plain(cells[at])
    return cell.type_name if isinstance(cell, NoCell) else type(cell).__name__


def _most_frequent(
    cells: list[Any], index: NDArray[np.int64], places: NDArray[np.int64], values_of: Callable[[Any], list[Any]]
) -> tuple[tuple[str, int], ...]:
    """The commonest of the values at these places, as they may be shown. Looks at so many and no more, whatever
    there is: how long a client takes to read must not tell how many of its values are unknown."""
    times = np.bincount(index, minlength=len(cells) + 1)[places]
    found: Counter[str] = Counter()
    for at in np.argsort(-times, kind="stable")[:_LOOKED_AT].tolist():
        for value in values_of(cells[places[at]]):
            found[one_line(label_text(plain(value)), _SHOWN_CHARACTERS)] += int(times[at])
    return tuple(found.most_common(SHOWN_VALUES))


def _value_type(array: Any) -> Any:
    """What the source declares the cells to be."""
    import pyarrow as pa

    return array.type.value_type if pa.types.is_dictionary(array.type) else array.type


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind)) and hasattr(kind, "value_type") and not pa.types.is_map(kind)


def _is_single(kind: Any) -> bool:
    """Whether cells of this type may spell a number."""
    from pyarrow import types

    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_fixed_size_binary)
    raw = (types.is_binary, types.is_large_binary, types.is_binary_view)
    numeric = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    return any(test(kind) for test in (*texts, *raw, *numeric))


def _one_chunk(array: Any) -> Any:
    """The column as one array, of a type that can be looked up by its distinct values."""
    import pyarrow as pa

    from tallystick.data.object_columns import cells_to_arrow

    if isinstance(array, pa.ChunkedArray):
        array = _one_dictionary(array) if pa.types.is_dictionary(array.type) else array
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # pyarrow returns chunks for zero rows or beyond 2 GB
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
    # Of list views Arrow's own casts lose elements (seen in 26.0), and what is lost depends on the other cells.
    views = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    if views or pa.types.is_run_end_encoded(kind) or isinstance(_value_type(array), pa.BaseExtensionType):
        return cells_to_arrow(python_values(array))
    return array


def _one_dictionary(array: Any) -> Any:
    """Chunks of a categorical column, with one dictionary and indices wide enough for it.

    The chunks' own may have 8 bits: then one record with one more value would decide whether the column can be read.
    """
    import pyarrow as pa

    wide = [pa.DictionaryArray.from_arrays(c.indices.cast(pa.int64()), c.dictionary) for c in array.chunks]
    try:
        return pa.chunked_array(wide, type=pa.dictionary(pa.int64(), array.type.value_type)).unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a null among its values, a type without a lookup
        return pa.chunked_array([c.dictionary_decode() for c in wide], type=array.type.value_type)


def _primitive(array: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The numbers of a fixed-width array and which of them are null, from its buffers.

    Arrow's own ``to_numpy`` imports pandas wherever pandas is installed, most of a second for nothing.
    """
    name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(array.type), str(array.type))
    validity, data = array.buffers()
    start, stop = array.offset, array.offset + len(array)
    values = np.frombuffer(data, dtype=name)[start:stop] if len(array) else np.zeros(0, dtype=name)
    if validity is None or array.null_count == 0:
        return values, np.zeros(len(array), dtype=bool)
    return values, np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[start:stop] == 0


def _distinct(array: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values, and each cell's index among them; a null cell gets the index after the last.

    A dictionary may hold values of other records (a slice of a categorical column): those become None here, so that
    they can neither fail nor cost anything.
    """
    import pyarrow as pa

    coded = array
    try:
        coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    except pa.ArrowNotImplementedError:  # of a type that Arrow cannot look up, such as a union: every cell by itself
        cells = python_values(array)
        return cells, np.arange(len(cells), dtype=np.int64)
    index, absent = _primitive(coded.indices)
    size = len(coded.dictionary)
    index = np.where(absent, size, index.astype(np.int64))
    used = np.zeros(size + 1, dtype=bool)
    used[index] = True
    cells = python_values(coded.dictionary)
    return [cell if here else None for cell, here in zip(cells, used.tolist())], index
