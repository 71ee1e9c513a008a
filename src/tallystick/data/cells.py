"""One Arrow column to numbers: floats with NaN where missing, category codes, or lists of item codes.

Every function is a map over cells: what a cell becomes depends on that cell and on public declarations alone. Cells
are looked up by their distinct values (dictionary encoding), so the cost in Python is per distinct value, not per
record, and every file format takes the same path. Errors name the column and the cell's *type*, never its content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError
from tallystick.privacy.schema import label_text

__all__ = ["MISSING", "UNKNOWN", "CellReader"]

UNKNOWN = -1
"""The code of a category that is not declared."""
MISSING = -2
"""The code of a missing cell."""

_ITEM_SEPARATOR = ";"


@dataclass(frozen=True, kw_only=True)
class CellReader:
    """Reads the cells of one column; ``marker`` is the text (or number) that also counts as missing."""

    column: str
    marker: str | None = None
    party: str | None = None

    def numbers(self, array: Any) -> NDArray[np.float64]:
        """float64 values, NaN where missing; ±inf and every finite value as they are."""
        import pyarrow as pa

        array = _one_chunk(array)
        kind = array.type
        if _is_text(kind) or pa.types.is_dictionary(kind):
            cells, index = _distinct(array)
            table = np.array([self._number(c) for c in cells] + [math.nan], dtype=np.float64)
            return table[index]
        if pa.types.is_null(kind) or len(array) == 0:
            return np.full(len(array), math.nan)
        if pa.types.is_boolean(kind):
            array = array.cast(pa.uint8())
        elif pa.types.is_decimal(kind):
            array = array.cast(pa.float64())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise self._wrong_type(str(kind), "a number")
        values, absent = _primitive(array)
        values = values.astype(np.float64)
        values[absent] = math.nan
        mark = _as_number(self.marker)
        if mark is not None:
            values[values == mark] = math.nan
        return values

    def codes(self, array: Any, codes: Mapping[str, int], default: int = UNKNOWN) -> NDArray[np.int64]:
        """The code of each cell; ``default`` if it is not declared, :data:`MISSING` if it is missing."""
        import pyarrow as pa

        array = _one_chunk(array)
        if pa.types.is_nested(array.type):
            raise self._wrong_type(str(array.type), "a category")
        cells, index = _distinct(array)
        table = np.array([self._code(c, codes, default) for c in cells] + [MISSING], dtype=np.int64)
        return table[index]

    def items(self, array: Any, codes: Mapping[str, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_], int]:
        """Multi-hot membership (records × vocabulary), which cells are missing, and how many items were unknown."""
        import pyarrow as pa

        array = _one_chunk(array)
        size = max(codes.values()) + 1
        kind = array.type
        if pa.types.is_null(kind) or len(array) == 0:
            return np.zeros((len(array), size), dtype=bool), np.ones(len(array), dtype=bool), 0
        if pa.types.is_nested(kind) and hasattr(kind, "value_type"):
            array = array.cast(pa.large_list(kind.value_type))
            missing = _primitive(array.is_null().cast(pa.uint8()))[0].astype(bool)
            lengths = np.where(missing, 0, np.diff(_primitive(array.offsets)[0]))
            found = self.codes(array.flatten(), codes)  # flatten() leaves out what null lists may cover
            member = np.zeros((len(array), size), dtype=bool)
            rows = np.repeat(np.arange(len(array)), lengths)
            known = found >= 0
            member[rows[known], found[known]] = True
            return member, missing, int(np.count_nonzero(found == UNKNOWN))
        if not (_is_text(kind) or pa.types.is_dictionary(kind)):
            raise self._wrong_type(str(kind), "a list of items")
        cells, index = _distinct(array)
        table = np.zeros((len(cells) + 1, size), dtype=bool)
        unknown = np.zeros(len(cells) + 1, dtype=np.int64)
        absent = np.zeros(len(cells) + 1, dtype=bool)
        absent[-1] = True
        for row, cell in enumerate(cells):
            text = "" if cell is None else label_text(cell)
            absent[row] = cell is None or text == self.marker
            for item in [] if absent[row] else filter(None, map(str.strip, text.split(_ITEM_SEPARATOR))):
                code = codes.get(item)
                if code is None:
                    unknown[row] += 1
                else:
                    table[row, code] = True
        return table[index], absent[index], int(unknown[index].sum())

    def _number(self, cell: object) -> float:
        if cell is None:
            return math.nan
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            value = float(cell)
            return math.nan if value == _as_number(self.marker) else value
        text = label_text(cell)
        if not text or text == self.marker:
            return math.nan
        number = _as_number(text)
        if number is None:
            if isinstance(cell, str | bytes):
                raise DataError(
                    f"column {self.column!r} is declared as a number, but holds text that is not one",
                    remedy="If the text marks a missing value, declare it: "
                    'missing = { marker = "...", policy = "category" } under [data]; otherwise declare a category.',
                    party=self.party,
                )
            raise self._wrong_type(type(cell).__name__, "a number")
        return math.nan if number == _as_number(self.marker) else number

    def _code(self, cell: object, codes: Mapping[str, int], default: int) -> int:
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return MISSING
        text = label_text(cell)
        for spelling in (text, *(_BOOLEANS[cell] if isinstance(cell, bool) else ())):
            if spelling in codes:  # a marker that is itself a declared value is that value
                return codes[spelling]
        return MISSING if not text or text == self.marker else default

    def _wrong_type(self, found: str, wanted: str) -> DataError:
        return DataError(
            f"column {self.column!r} is declared as {wanted}, but the data has type {found}",
            remedy="Convert the column, or declare it differently.",
            party=self.party,
        )


_BOOLEANS = {True: ("True", "TRUE", "1"), False: ("False", "FALSE", "0")}


def _as_number(text: str | None) -> float | None:
    """The number a text denotes, correctly rounded, or None; Python's digit grouping (1_000) is not a number."""
    if text is None or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    tests: tuple[Callable[[Any], bool], ...] = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def _one_chunk(array: Any) -> Any:
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries() if pa.types.is_dictionary(array.type) else array
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # pyarrow returns chunks for zero rows or beyond 2 GB
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


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

    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    cells = coded.dictionary.to_pylist()
    index, absent = _primitive(coded.indices)
    index = np.where(absent, len(cells), index.astype(np.int64))
    used = np.zeros(len(cells) + 1, dtype=bool)
    used[index] = True
    return [cell if here else None for cell, here in zip(cells, used.tolist())], index
