"""Sums of outer products u·uᵀ over records, exact and bounded: the form that second moments have.

A record gives a row; the platform puts it on a grid of half the round's fraction bits, shortens it there to ‖u‖² ≤ B
(L1: ‖u‖₁² ≤ B) in exact integers, and multiplies. So every vector that is added is the upper triangle of some u·uᵀ of
Frobenius norm at most B, whatever the program returned; :func:`tallystick.privacy.sensitivity.outer_sensitivity`
needs no more.

One matrix product Uᵀ·U sums a whole block. It is exact: every partial sum of it, in any order, is an integer of modulus
at most Σ |u_i||u_j| ≤ (rows)·B < 2^53, which bounds the rows of one product. NumPy takes BLAS's ``syrk`` for it, which
does half of the work. Only the upper triangle is kept: the diagonal, then row by row what is right of it.

A person's records are shortened together, by one factor, to Σ ‖u‖² ≤ B. Their sum S is positive semidefinite, so
‖S‖_F ≤ tr S = Σ ‖u‖² ≤ B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.errors import BoundsError, DataError
from tallystick.privacy.clipping import clip_group
from tallystick.privacy.grid import Grid

_EXACT = 2.0**53
_ROWS = 1 << 14
"""Rows of one product at most: their integers are held beside the records themselves."""


@dataclass(frozen=True, kw_only=True, repr=False)
class OuterProducts:
    """``rows``: one per record, whose products are the last groups; ``others``: the vectors of all groups before."""

    rows: NDArray[np.float64]
    others: NDArray[np.float64] | None = None


def check_outer(contribution: OuterProducts, grid: Grid) -> int:
    """How many coordinates come before the products; refused where grid and contribution do not fit."""
    own = grid.outer_groups
    columns, width = contribution.rows.shape[1], 0 if contribution.others is None else contribution.others.shape[1]
    before = grid.size - sum(g.size for g in own)
    if not own or own[0].size != columns or before != width:
        raise BoundsError(
            f"a contribution of products of {columns} numbers and {width} coordinates does not fit the round",
            remedy="Return a row as long as the diagonal, and a vector as long as the groups before it.",
        )
    return before


def add_products(rows: NDArray[np.float64], grid: Grid, acc: NDArray[np.int64]) -> bool:
    """Add the records' bounded products to ``acc``, the coordinates of the last groups; False on NaN or infinity."""
    bound = _row_bound(grid)
    most = max(1, min(_ROWS, int((_EXACT - 1) // max(bound * bound, 1))))
    for first in range(0, len(rows), most):
        part = np.ascontiguousarray(rows[first : first + most])
        if not _rows_on_grid(part, *_scales(grid), bound, grid.norm == "l1", units := np.empty(part.shape)):
            return False
        _add_triangle(units.T @ units, acc)
    return True


def add_products_by_person(
    rows: NDArray[np.float64], grid: Grid, persons: NDArray[np.int64], acc: NDArray[np.int64]
) -> bool:
    """As :func:`add_products`, the records of each person (equal codes) shortened together."""
    units = np.empty(rows.shape)
    bound, l1 = _row_bound(grid), grid.norm == "l1"
    if not _rows_on_grid(np.ascontiguousarray(rows), *_scales(grid), bound, l1, units):
        return False
    order = np.argsort(persons, kind="stable").astype(np.int64)
    _shorten_persons(units, persons, order, grid.integer_bounds[-1], l1)
    most = max(1, min(_ROWS, int((_EXACT - 1) // max(bound * bound, 1))))
    for first in range(0, len(units), most):
        part = np.ascontiguousarray(units[first : first + most])
        _add_triangle(part.T @ part, acc)
    return True


def dense_products(contribution: OuterProducts, grid: Grid) -> NDArray[np.float64]:
    """The same vectors, one per record (an oracle)."""
    check_outer(contribution, grid)
    rows, bits = contribution.rows, grid.fraction_bits // 2
    units = np.rint(np.ldexp(rows, bits))
    i, j = np.triu_indices(rows.shape[1], 1)
    products = np.ldexp(np.hstack([units**2, units[:, i] * units[:, j]]), -grid.fraction_bits)
    return products if contribution.others is None else np.hstack([contribution.others, products])


def matrix_of(triangle: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """The symmetric matrix of summed products."""
    out = np.zeros((columns, columns))
    at = columns
    for i in range(columns - 1):  # row by row: no table of indices, which would be larger than the matrix
        out[i, i + 1 :] = triangle[at : at + columns - 1 - i]
        at += columns - 1 - i
    out += out.T
    out[np.arange(columns), np.arange(columns)] = triangle[:columns]
    return out


def rows_on_grid(rows: NDArray[np.float64], bits: int, bound: int) -> NDArray[np.float64]:
    """Rows as integers on a grid of 2^-bits, each shortened to ‖u‖₂ ≤ ``bound`` in exact integers; NaN is refused.

    For a part of a row that is bounded by itself: where ‖u_m‖² ≤ b_m² of every part, ‖u‖² ≤ Σ b_m² of the whole.
    """
    units = np.empty(rows.shape)
    if not _rows_on_grid(np.ascontiguousarray(rows), math.ldexp(1.0, bits), bound, False, units):
        raise DataError(
            "a record's numbers hold NaN or infinity", remedy="Nothing was shared. Look at how the columns are encoded."
        )
    return units


def _row_bound(grid: Grid) -> int:
    """Largest ‖u‖ in units of the row's grid: b = ⌊√B⌋, so that b² ≤ B."""
    return math.isqrt(grid.integer_bounds[-1])


def _scales(grid: Grid) -> tuple[float]:
    return (math.ldexp(1.0, grid.fraction_bits // 2),)


def _add_triangle(square: NDArray[np.float64], acc: NDArray[np.int64]) -> None:
    d = len(square)
    acc[:d] += np.diag(square).astype(np.int64)
    at = d
    for i in range(d - 1):
        acc[at : at + d - 1 - i] += square[i, i + 1 :].astype(np.int64)
        at += d - 1 - i


@njit(cache=True, nogil=True)
def _rows_on_grid(rows, scale, bound, l1, units):  # type: ignore[no-untyped-def]
    """Round every row to integers and shorten it to ‖u‖ ≤ bound, one record at a time."""
    n, d = rows.shape
    u = np.empty(d, np.int64)
    for i in range(n):
        for j in range(d):
            x = rows[i, j] * scale
            if not np.isfinite(x):
                return False
            u[j] = np.int64(np.rint(min(max(x, -(2.0**62)), 2.0**62)))
        clip_group(u, 0, d, bound, l1)
        for j in range(d):
            units[i, j] = float(u[j])
    return True


@njit(cache=True, nogil=True)
def _shorten_persons(units, persons, order, bound, l1):  # type: ignore[no-untyped-def]
    """Rows of one person by one factor, towards zero, until Σ ‖u‖² ≤ bound (L1: Σ ‖u‖₁²) in exact integers."""
    n, d = units.shape
    first = 0
    while first < n:
        last = first + 1
        while last < n and persons[order[last]] == persons[order[first]]:
            last += 1
        factor = 1.0
        while True:
            whole = np.int64(0)
            for at in range(first, last):
                size = np.int64(0)
                for j in range(d):
                    u = np.int64(np.trunc(units[order[at], j] * factor))
                    size += abs(u) if l1 else u * u
                whole += size * size if l1 else size
                if whole > 2**62:  # each row is within 2^31: this many rows are far above any bound
                    break
            if whole <= bound:
                break
            shrunk = np.sqrt(float(bound) / float(whole)) * (1.0 - 2.0**-30)
            factor *= shrunk
            if factor < 2.0**-70:
                factor = 0.0
        if factor < 1.0:
            for at in range(first, last):
                for j in range(d):
                    units[order[at], j] = np.trunc(units[order[at], j] * factor)
        first = last
