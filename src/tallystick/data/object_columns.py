"""Columns whose type nobody has declared: Python objects, each made plain by itself, kept in one Arrow array.

A list of cells, a pandas or NumPy column of dtype object: a library that looks for *one* type of such a column lets
one cell decide how all others are read. Here a column of one kind of cell gets that Arrow type, for speed, and any
other a union of the plain kinds (:func:`tallystick.data.cell_rules.plain`). Both keep each cell's own kind and value,
so what is read from a cell is the same whatever its neighbours are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick.data.cell_rules import NoCell, canonical_text, plain

_INT64 = 2**63


def cells_to_arrow(values: Sequence[object]) -> Any:
    """An Arrow array of these cells: booleans, int64, float64, text, or a union."""
    import pyarrow as pa

    kinds = set(map(type, values)) - {type(None)}
    simple = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.large_string()}
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) == 1 and (only := next(iter(kinds))) in simple:
        try:
            return pa.array(values, type=simple[only])
        except (pa.ArrowException, OverflowError, UnicodeError):  # beyond 64 bits, half a character: cell by cell
            pass
    if kinds == {str, float}:  # pandas writes a missing text as NaN
        values = [None if isinstance(v, float) and math.isnan(v) else v for v in values]
        if not any(isinstance(v, float) for v in values):
            return cells_to_arrow(values)
    return _union([plain(value) for value in values])


def _union(cells: Sequence[Any]) -> Any:
    import pyarrow as pa

    children: list[list[Any]] = [[] for _ in range(6)]
    kinds, offsets = np.zeros(len(cells), dtype=np.int8), np.zeros(len(cells), dtype=np.int32)
    for at, cell in enumerate(cells):
        kind, value = _kept(cell)
        kinds[at], offsets[at] = kind, len(children[kind])
        children[kind].append(value)
    types = (
        pa.bool_(),
        pa.int64(),
        pa.float64(),
        pa.large_string(),
        pa.large_list(pa.large_string()),
        pa.struct([("no_cell", pa.large_string())]),
    )
    return pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, type=kind) for child, kind in zip(children, types)],
        ["truth", "integer", "number", "text", "items", "no_cell"],
    )


def _kept(cell: Any) -> tuple[int, Any]:
    """The child of the union that a plain cell goes to, and what is kept of it."""
    if isinstance(cell, bool):
        return 0, cell
    if isinstance(cell, int):
        return (1, cell) if -_INT64 <= cell < _INT64 else (3, str(cell))  # as text it is the same number and category
    if isinstance(cell, float):
        return 2, cell
    if isinstance(cell, list):
        return 4, [_text(element if isinstance(element, str) else canonical_text(element)) for element in cell]
    if isinstance(cell, NoCell):
        return 5, {"no_cell": cell.type_name}
    return 3, _text(cell)


def _text(text: str | None) -> str | None:
    """Text that Arrow can hold: half a character becomes U+FFFD."""
    return text if text is None else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
