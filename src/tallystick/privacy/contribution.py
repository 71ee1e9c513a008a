"""What one client's records add to a round, before anything is shared: dense, sparse, factored or products of rows.

Each form holds one vector per record; :func:`total` puts every one of them on the grid, clips it there and adds up
exact integers. The three forms of the same vectors give the same bits. They exist because speed lives here: a
factored contribution (coefficient × row, as in any generalised linear model) is summed by one matrix product, which
float64 BLAS does exactly while all partial sums are integers below 2^53.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.errors import BoundsError, DataError
from tallystick.privacy.clipping import MAX_BOUND, clip_record, grid_record
from tallystick.privacy.grid import Grid
from tallystick.privacy.outer_products import (
    OuterProducts,
    add_products,
    add_products_by_person,
    check_outer,
    dense_products,
)
from tallystick.privacy.person_sums import sum_persons
from tallystick.privacy.row_kernels import add_weighted_rows, put_on_grid, put_standardised

_EXACT = 2.0**53
_PERSON_CELLS = 2**24
"""Numbers held at once while the records of persons are picked from parts."""
_NOT_A_NUMBER = (
    "a record's contribution holds NaN or infinity",
    "Nothing was shared. Check the program's arithmetic (a division by zero, an overflow) on this data set.",
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Dense:
    """``values``: one row per record, as many columns as the grid has coordinates."""

    values: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sparse:
    """Compressed rows: record i holds ``values[indptr[i]:indptr[i+1]]`` at ``indices``, ascending and distinct."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]
    size: int


@dataclass(frozen=True, kw_only=True, repr=False)
class GridRows:
    """Records already on a grid of 2^-bits: made once per study, used in every round.

    ``values`` are integers stored as float64 so that BLAS can sum them; ``squares`` and ``sums`` are each row's exact
    Σ x² and Σ |x|. Rows longer than ``limit`` (an L2 norm, in grid units) are shortened towards zero at construction.
    """

    values: NDArray[np.float64]
    bits: int
    limit: int
    squares: NDArray[np.int64]
    sums: NDArray[np.int64]

    @classmethod
    def make(cls, rows: NDArray[np.float64], *, bits: int, limit: float) -> GridRows:
        """Put ``rows`` on the grid and shorten those of L2 norm above ``limit``."""
        return cls._put(put_on_grid, (np.ascontiguousarray(rows),), rows.shape, bits, limit)

    @classmethod
    def standardised(
        cls,
        columns: NDArray[np.float64],
        *,
        intercept: float,
        shift: NDArray[np.float64],
        spread: NDArray[np.float64],
        unit: float,
        bits: int,
        limit: float,
    ) -> GridRows:
        """:meth:`make` of the rows (intercept, (columns − shift)/spread)/unit, without any of them in memory before."""
        rows = (np.ascontiguousarray(columns), float(intercept), shift, spread, float(unit))
        return cls._put(put_standardised, rows, (len(columns), columns.shape[1] + 1), bits, limit)

    @classmethod
    def _put(
        cls, kernel: Callable[..., bool], rows: tuple[Any, ...], shape: tuple[int, ...], bits: int, limit: float
    ) -> GridRows:
        bound = int(np.floor(np.ldexp(limit, bits)))
        if not 0 <= bound <= MAX_BOUND:  # above it, Σ x² of a row could leave int64
            raise BoundsError(
                f"rows of norm up to {limit} do not fit {bits} fraction bits",
                remedy="Scale the rows so that their largest norm is below 2^31 units of the grid.",
            )
        values = np.empty(shape, dtype=np.float64)
        squares = np.empty(shape[0], dtype=np.int64)
        sums = np.empty(shape[0], dtype=np.int64)
        if not kernel(*rows, float(np.ldexp(1.0, bits)), bound, values, squares, sums):
            raise DataError(_NOT_A_NUMBER[0], remedy=_NOT_A_NUMBER[1])
        for array in (values, squares, sums):
            array.setflags(write=False)
        return cls(values=values, bits=bits, limit=bound, squares=squares, sums=sums)


@dataclass(frozen=True, kw_only=True, repr=False)
class Factored:
    """Record i contributes coefficients[i, c] · rows[i, :] to block c; block by block, row-major, as on the grid."""

    coefficients: NDArray[np.float64]
    rows: GridRows


@dataclass(frozen=True, kw_only=True, repr=False)
class Chunked:
    """The records in order, some at a time: each part is summed and dropped before the next is made.

    For vectors that would not fit into memory together. ``parts`` yields at least one part, also without records.
    """

    parts: Callable[[], Iterator[Dense | Sparse | Factored]]


@dataclass(frozen=True, kw_only=True, repr=False)
class Repeated:
    """Few distinct vectors: record i holds ``vectors[which[i]]``. Each is clipped once, and counted as often as held.

    The same bits as one row per record: clipping is a function of the record's own vector, equal for equal vectors.
    """

    vectors: NDArray[np.float64]
    which: NDArray[np.int64]


Contribution = Dense | Sparse | Factored | Chunked | Repeated | OuterProducts


def total(contribution: Contribution, grid: Grid) -> NDArray[np.int64]:
    """The exact integer sum over records of their clipped vectors."""
    acc = np.zeros(grid.size, dtype=np.int64)
    if isinstance(contribution, OuterProducts) or grid.outer_groups:
        return _total_of_products(contribution, grid, None)
    starts, stops, rules = grid.edges()
    l1 = grid.norm == "l1"
    if isinstance(contribution, Dense):
        _check_width(contribution.values.shape[1], grid)
        ok = _sum_dense(contribution.values, starts, stops, rules, l1, grid.scale, acc)
    elif isinstance(contribution, Chunked):
        for part in contribution.parts():
            acc += total(part, grid)
        return acc
    elif isinstance(contribution, Repeated):
        _check_width(contribution.vectors.shape[1], grid)
        times = np.bincount(contribution.which, minlength=len(contribution.vectors)).astype(np.int64)
        ok = _sum_repeated(contribution.vectors, times, starts, stops, rules, l1, grid.scale, acc)
    elif isinstance(contribution, Sparse):
        _check_width(contribution.size, grid)
        c = contribution
        ok = _sum_sparse(c.indptr, c.indices, c.values, starts, stops, rules, l1, grid.scale, acc)
    else:
        ok = _sum_factored(contribution, grid, acc)
    if not ok:
        raise DataError(_NOT_A_NUMBER[0], remedy=_NOT_A_NUMBER[1])
    return acc


def total_by_person(contribution: Contribution, grid: Grid, persons: NDArray[np.int64]) -> NDArray[np.int64]:
    """As :func:`total`, but records of one person (equal codes 0..k−1) are added first and their SUM is clipped."""
    if any(g.one_of for g in grid.groups):
        raise BoundsError(
            "a person's records may lie in several blocks of a group",
            remedy='The plan of a study with unit = "person" bounds such a group as a whole: use its grid.',
        )
    if isinstance(contribution, OuterProducts) or grid.outer_groups:
        return _total_of_products(contribution, grid, persons)
    if isinstance(contribution, Chunked):
        return _total_by_person_in_parts(contribution, grid, persons)
    dense = densify(contribution, grid)
    _check_width(dense.shape[1], grid)
    acc = np.zeros(grid.size, dtype=np.int64)
    starts, stops, rules = grid.edges()
    order = np.argsort(persons, kind="stable").astype(np.int64)
    if not sum_persons(dense, persons, order, starts, stops, rules, grid.norm == "l1", grid.scale, acc):
        raise DataError(_NOT_A_NUMBER[0], remedy=_NOT_A_NUMBER[1])
    return acc


def _total_of_products(contribution: Contribution, grid: Grid, persons: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Products of rows last, multiplied here; the groups before them as any others."""
    if not isinstance(contribution, OuterProducts):
        # A dense vector that says it is a product need not be one, and the sensitivity rests on that.
        raise BoundsError("a round of products is given vectors", remedy="Return the rows: the platform multiplies.")
    before = check_outer(contribution, grid)
    acc = np.zeros(grid.size, dtype=np.int64)
    if contribution.others is not None:
        plain = replace(grid, groups=grid.groups[: len(grid.groups) - len(grid.outer_groups)])
        others = Dense(values=contribution.others)
        acc[:before] = total(others, plain) if persons is None else total_by_person(others, plain, persons)
    rows = contribution.rows
    if persons is None:
        ok = add_products(rows, grid, acc[before:])
    else:
        ok = add_products_by_person(rows, grid, persons, acc[before:])
    if not ok:
        raise DataError(_NOT_A_NUMBER[0], remedy=_NOT_A_NUMBER[1])
    return acc


def _total_by_person_in_parts(contribution: Chunked, grid: Grid, persons: NDArray[np.int64]) -> NDArray[np.int64]:
    """A few whole persons at a time: their records are picked from all parts, in order, and bounded as usual."""
    acc = np.zeros(grid.size, dtype=np.int64)
    many = int(persons.max(initial=-1)) + 1
    each = max(1, _PERSON_CELLS // grid.size)
    for first in range(0, many, each):
        rows, codes, at = [], [], 0
        for part in contribution.parts():
            count = _count(part)
            own = persons[at : at + count]
            chosen = np.flatnonzero((own >= first) & (own < first + each))
            rows.append(_dense_rows(part, chosen, grid))
            codes.append(own[chosen])
            at += count
        acc += total_by_person(Dense(values=np.vstack(rows)), grid, np.concatenate(codes))
    return acc


def _count(part: Dense | Sparse | Factored) -> int:
    if isinstance(part, Factored):
        return len(part.coefficients)
    return len(part.values) if isinstance(part, Dense) else len(part.indptr) - 1


def _dense_rows(part: Dense | Sparse | Factored, chosen: NDArray[np.int64], grid: Grid) -> NDArray[np.float64]:
    if isinstance(part, Dense):
        return part.values[chosen]
    if isinstance(part, Factored):
        own = {name: getattr(part.rows, name)[chosen] for name in ("values", "squares", "sums")}
        return densify(Factored(coefficients=part.coefficients[chosen], rows=replace(part.rows, **own)), grid)
    out = np.zeros((len(chosen), part.size))
    for row, record in enumerate(chosen):
        entries = slice(part.indptr[record], part.indptr[record + 1])
        out[row, part.indices[entries]] = part.values[entries]
    return out


def densify(contribution: Contribution, grid: Grid) -> NDArray[np.float64]:
    """The same vectors, one dense row per record (an oracle, and the slow path of rare forms)."""
    if isinstance(contribution, Dense):
        return contribution.values
    if isinstance(contribution, Repeated):
        return contribution.vectors[contribution.which]
    if isinstance(contribution, OuterProducts):
        return dense_products(contribution, grid)
    if isinstance(contribution, Chunked):
        return np.vstack([densify(part, grid) for part in contribution.parts()])
    if isinstance(contribution, Sparse):
        out = np.zeros((len(contribution.indptr) - 1, contribution.size))
        rows = np.repeat(np.arange(out.shape[0]), np.diff(contribution.indptr))
        out[rows, contribution.indices] = contribution.values
        return out
    coefficients = _integer_coefficients(contribution, grid)
    products = coefficients[:, :, None] * contribution.rows.values[:, None, :]
    return np.ldexp(products.reshape(len(products), grid.size), -grid.fraction_bits)  # a size: there may be no records


def _check_width(width: int, grid: Grid) -> None:
    if width != grid.size:
        raise BoundsError(
            f"a contribution has {width} coordinates where the round sums {grid.size}",
            remedy="Return a vector as long as the groups declare.",
        )


def _integer_coefficients(contribution: Factored, grid: Grid) -> NDArray[np.float64]:
    coefficients = contribution.coefficients
    if coefficients.ndim == 1:
        coefficients = coefficients[:, None]
    return np.rint(np.ldexp(coefficients, grid.fraction_bits - contribution.rows.bits))


def _sum_factored(contribution: Factored, grid: Grid, acc: NDArray[np.int64]) -> bool:
    """One exact matrix product for the records within the bound, the dense path for the others.

    A record is within the bound iff ‖c‖²·‖x‖² ≤ B² (L1: ‖c‖₁·‖x‖₁ ≤ B), tested in exact integers. The product is
    exact because every partial sum is an integer of modulus ≤ Σ_i |c_i|·max|x_i| < 2^53, which is checked per block.
    """
    rows = contribution.rows
    coefficients = _integer_coefficients(contribution, grid)
    _check_width(coefficients.shape[1] * rows.values.shape[1], grid)
    if not np.isfinite(coefficients).all():
        return False
    starts, stops, rules = grid.edges()
    l1 = grid.norm == "l1"
    if len(rules) == 1 and not rules[0, 1:].any():  # a bound and nothing more
        sizes = rows.sums if l1 else rows.squares
        within = _within_bound(coefficients, sizes, int(rules[0, 0]), l1)
    else:
        within = np.zeros(len(coefficients), dtype=np.bool_)
    if not within.all():
        outside = ~within
        products = coefficients[outside][:, :, None] * rows.values[outside][:, None, :]
        scaled = np.ldexp(products.reshape(len(products), -1), -grid.fraction_bits)
        if not _sum_dense(scaled, starts, stops, rules, l1, grid.scale, acc):
            return False
        coefficients = np.where(within[:, None], coefficients, 0.0)
    if len(coefficients) == 0:
        return True
    if coefficients.shape[1] == 1:
        largest = float(np.abs(coefficients).max()) * rows.limit  # no entry of a row is longer than the row
        add_weighted_rows(coefficients[:, 0], rows.values, max(1, int((_EXACT - 1) // max(largest, 1.0))), acc)
        return True
    largest = float(np.abs(coefficients).max()) * float(np.abs(rows.values).max(initial=0.0))
    block = len(coefficients) if largest == 0 else max(1, int((_EXACT - 1) // largest))
    for first in range(0, len(coefficients), block):
        part = coefficients[first : first + block].T @ rows.values[first : first + block]
        acc += part.astype(np.int64).reshape(-1)
    return True


@njit(cache=True, nogil=True)
def _within_bound(coefficients, sizes, bound, l1):  # type: ignore[no-untyped-def]
    n, k = coefficients.shape
    out = np.zeros(n, np.bool_)
    for i in range(n):
        total_size = 0.0
        for c in range(k):
            a = abs(coefficients[i, c])
            total_size += a if l1 else a * a
        # Integers below 2^53 are exact in float64; anything larger is far above any bound unless the row is zero.
        if sizes[i] == 0:
            out[i] = True
        elif total_size < 2.0**53:
            limit = bound if l1 else bound * bound
            out[i] = np.int64(total_size) <= limit // sizes[i]
    return out


@njit(cache=True, nogil=True)
def _sum_dense(values, starts, stops, rules, l1, scale, acc):  # type: ignore[no-untyped-def]
    for i in range(values.shape[0]):  # noqa: SIM110 - a loop is what numba compiles
        if not clip_record(values[i], starts, stops, rules, l1, scale, acc):
            return False
    return True


@njit(cache=True, nogil=True)
def _sum_repeated(vectors, times, starts, stops, rules, l1, scale, acc):  # type: ignore[no-untyped-def]
    one = np.empty_like(acc)
    for i in range(vectors.shape[0]):
        if times[i] > 0:
            one[:] = 0
            if not clip_record(vectors[i], starts, stops, rules, l1, scale, one):
                return False
            acc += times[i] * one
    return True


@njit(cache=True, nogil=True)
def _sum_sparse(indptr, indices, values, starts, stops, rules, l1, scale, acc):  # type: ignore[no-untyped-def]
    """Only the entries present are visited: an absent zero adds nothing to a norm, so the bits are the dense ones."""
    groups = starts.shape[0]
    first = np.empty(groups, np.int64)
    last = np.empty(groups, np.int64)
    for i in range(indptr.shape[0] - 1):
        low, high = indptr[i], indptr[i + 1]
        at = low
        for g in range(groups):
            first[g] = at - low
            while at < high and indices[at] < stops[g]:
                at += 1
            last[g] = at - low
        u = np.empty(high - low, np.int64)
        if not grid_record(values[low:high], indices[low:high], first, last, starts, rules, l1, scale, u):
            return False
        for e in range(low, high):
            acc[indices[e]] += u[e - low]
    return True
