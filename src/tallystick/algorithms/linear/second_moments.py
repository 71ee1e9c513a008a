"""The second moments of a record: which products of its columns are summed, how they are weighted and bounded.

z = (1, encoded columns). Of the symmetric matrix z zᵀ only what is not known beforehand is summed: an indicator's
square is the indicator itself, two indicators of one one-hot block (or a number and its missing mark) are never both
there. An entry that stands m times in the matrix (twice beside the diagonal; three times for an indicator: row, column,
diagonal) is weighted by a = m^¼, in L1 by a = m^⅓: for a given bound on Σ (a u)², or on Σ |a u|, the squared error of
the matrix, Σ m σ²/a² over entries, is least so where a record's share of entries that are 1 is the same for each m.

Two groups. Products of indicators and squares of numbers are never negative, and are declared so: replacing a record
then moves them by √2 times their bound, not twice. Products with one number in them have both signs.

Bounds. No record exceeds :meth:`longest`. :meth:`typical` is the norm of a record whose numbers are uniform in [−1, 1]:
x² = ⅓, x⁴ = 1/5 (L1: |x| = ½, x² = ⅓). A record beyond the bound that is used gets a *weight* ω < 1 in all its sums
alike, which depends on z alone: weighted least squares, as good an estimate of the same linear model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.program import Public
from tallystick.privacy.ranges import check_coordinates

_WITHIN = 1 - 2.0**-21
"""Weights aim this much below the bound, so that rounding on the grid does not push a record over it."""


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Columns of z that belong to one declared column; ``ones`` indicators of it are 1 at most."""

    start: int
    stop: int
    number: bool
    mark: bool
    ones: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondMoments:
    """Public: where each product of two columns of z is summed (−1: nowhere), in which group, with which weight."""

    size: int
    """Columns of z, the constant included."""
    where: NDArray[np.int64]
    signed: NDArray[np.bool_]
    weight: NDArray[np.float64]
    blocks: tuple[_Block, ...]
    sizes: tuple[int, int]
    """Coordinates that are never negative, and of both signs."""
    l1: bool

    @classmethod
    def of(cls, public: Public, *, l1: bool) -> SecondMoments:
        """From the layout."""
        d = len(public.features) + 1
        check_coordinates(f"the products of {d} columns", d * d)  # before tables of that size are made
        blocks = [_Block(start=0, stop=1, number=False, mark=False, ones=1)]
        for _, start, stop, kind, ones in public.columns:
            number = kind == "number"
            many = 1 if number else min(ones, stop - start)
            mark = number and stop - start > 1
            blocks.append(_Block(start=start + 1, stop=stop + 1, number=number, mark=mark, ones=many))
        owner = np.zeros(d, dtype=np.int64)
        number_column = np.zeros(d, dtype=np.bool_)
        for at, block in enumerate(blocks):
            owner[block.start : block.stop] = at
            number_column[block.start] = block.number
        times = np.full((d, d), 2.0)
        kept = np.triu(np.ones((d, d), dtype=np.bool_))
        for block in blocks:
            inside = slice(block.start, block.stop)
            if block.ones == 1:
                kept[inside, inside] = False
        for j in range(d):
            kept[j, j] = bool(number_column[j]) or j == 0
            times[j, j] = 1.0
            if j and not number_column[j]:
                times[0, j] = 3.0
        either = number_column[:, None] | number_column[None, :]
        signed = either & ~np.eye(d, dtype=np.bool_)
        where = np.full((d, d), -1, dtype=np.int64)
        counts = []
        for group in (kept & ~signed, kept & signed):
            counts.append(int(group.sum()))
            where[group] = np.arange(counts[-1])  # row by row: ascending, as sparse rows must be
        return cls(
            size=d,
            where=where,
            signed=signed,
            weight=times ** (1 / 3 if l1 else 1 / 4),
            blocks=tuple(blocks),
            sizes=(counts[0], counts[1]),
            l1=l1,
        )

    @property
    def numbers(self) -> NDArray[np.bool_]:
        """Which columns of z are numbers."""
        out = np.zeros(self.size, dtype=np.bool_)
        for block in self.blocks:
            out[block.start] = block.number
        return out

    def longest(self) -> tuple[float, float, float]:
        """Largest norm of a record's (never negative, signed) products, and of z itself."""
        return self._norms(1.0, 1.0)

    def typical(self) -> tuple[float, float, float]:
        """The same for numbers uniform in [−1, 1]."""
        return self._norms(0.5, 1 / 3) if self.l1 else self._norms(1 / 3, 1 / 5)

    def _norms(self, size: float, square: float) -> tuple[float, float, float]:
        """Norms when every |x|^p of a number is ``size`` and every |x²|^p is ``square``, p = 1 or 2."""
        p = 1 if self.l1 else 2
        plain, both = self.weight[0, 0] ** p, 0.0
        first = [b.start + 1 if b.mark else b.start for b in self.blocks]  # the mark is an indicator like others
        whole = 1.0
        pair = 2.0 ** (p / 3 if self.l1 else p / 4)  # an entry beside the diagonal
        for at, b in enumerate(self.blocks[1:], start=1):
            if b.number:
                plain += square
                both += self.weight[0, b.start] ** p * size
            if not b.number or b.mark:
                plain += self.weight[0, first[at]] ** p * b.ones
                plain += pair * b.ones * (b.ones - 1) / 2
            whole += max(size, float(b.mark)) if b.number else b.ones
            for other in self.blocks[1:at]:
                ones = [0 if x.number and not x.mark else x.ones for x in (b, other)]
                plain += pair * ones[0] * ones[1]
                if b.number or other.number:
                    sizes = [max(size, float(x.mark)) if x.number else float(x.ones) for x in (b, other)]
                    both += pair * sizes[0] * sizes[1]
        root = 1 if self.l1 else 1 / 2
        return plain**root, both**root, whole**root

    def matrix(self, products: NDArray[np.float64], signed: NDArray[np.float64]) -> NDArray[np.float64]:
        """The symmetric matrix that the summed coordinates (weights included) stand for."""
        return self._spread(products, signed, self.weight)

    def variances(self, products: float, signed: float) -> NDArray[np.float64]:
        """The noise variance of every entry of :meth:`matrix`, given those of the coordinates."""
        powers = (np.full(self.sizes[0], products), np.full(self.sizes[1], signed))
        return self._spread(*powers, self.weight**2)

    def _spread(
        self, products: NDArray[np.float64], signed: NDArray[np.float64], divisor: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        out = np.zeros((self.size, self.size))
        for values, group in ((products, ~self.signed), (signed, self.signed)):
            chosen = group & (self.where >= 0)
            out[chosen] = values[self.where[chosen]] / divisor[chosen]
        out += np.triu(out, 1).T
        indicators = np.flatnonzero(~self.numbers)[1:]
        out[indicators, indicators] = out[0, indicators]
        return out


def product_rows(
    moments: SecondMoments, features: NDArray[np.float64], target: NDArray[np.float64], bounds: tuple[float, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Sparse rows (indptr, indices, values): both groups of products, then target × z, each in units of its bound."""
    rows = np.ones((len(features), moments.size))
    rows[:, 1:] = features
    args = (rows, moments.where, moments.signed, moments.weight)
    limits = np.array([b if b > 0 else math.inf for b in bounds])
    indptr, weights = _measure(*args, _WITHIN * limits, moments.l1)
    indices = np.empty(indptr[-1], dtype=np.int64)
    values = np.empty(indptr[-1])
    _fill(*args, target, limits, np.array(moments.sizes), weights, indptr, indices, values)
    return indptr, indices, values


@njit(cache=True, nogil=True)
def _measure(rows, where, signed, weight, limits, l1):  # type: ignore[no-untyped-def]
    """Entries of every record, and its weight ω = min(1, bound/norm) over the three groups; one record at a time."""
    n, d = rows.shape
    indptr = np.zeros(n + 1, np.int64)
    weights = np.ones(n)
    for i in range(n):
        entries = 0
        norms = np.zeros(3)
        for a in range(d):
            x = rows[i, a]
            if x == 0.0:
                continue
            entries += 1
            norms[2] += abs(x) if l1 else x * x
            for b in range(a, d):
                if rows[i, b] != 0.0 and where[a, b] >= 0:
                    u = weight[a, b] * x * rows[i, b]
                    entries += 1
                    norms[1 if signed[a, b] else 0] += abs(u) if l1 else u * u
        for g in range(3):
            size = norms[g] if l1 else np.sqrt(norms[g])
            if size > limits[g]:
                weights[i] = min(weights[i], limits[g] / size)
        indptr[i + 1] = indptr[i] + entries
    return indptr, weights


@njit(cache=True, nogil=True)
def _fill(rows, where, signed, weight, target, limits, sizes, weights, indptr, indices, values):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    for i in range(n):
        at = indptr[i]
        for g in range(2):
            first = 0 if g == 0 else sizes[0]
            for a in range(d):
                x = rows[i, a]
                if x == 0.0:
                    continue
                for b in range(a, d):
                    if rows[i, b] != 0.0 and where[a, b] >= 0 and (1 if signed[a, b] else 0) == g:
                        indices[at] = first + where[a, b]
                        values[at] = weights[i] * (weight[a, b] * x * rows[i, b]) / limits[g]
                        at += 1
        for a in range(d):
            if rows[i, a] != 0.0:
                indices[at] = sizes[0] + sizes[1] + a
                values[at] = weights[i] * (target[i] * rows[i, a]) / limits[2]
                at += 1
