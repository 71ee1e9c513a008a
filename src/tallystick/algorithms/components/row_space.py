"""The rows whose components are sought: encoded columns around a public origin, and how long they can be.

z = x − o for an encoded record x. Principal components do not depend on o, but the first round bounds ‖z‖, so o should
be near the records: it is the encoded 0 of a number whose bounds hold 0 (a pixel, a count, a signed spectrum), the
middle of its bounds otherwise, and 0 for indicators. Where every bound begins at its origin no coordinate is negative,
and replacing a record moves the sum of rows by √2 instead of 2 bounds.

Row independence: everything is element by element or a loop in fixed order over one record; the transform into a public
basis is a product of integers on the grid, exact in any block (:func:`tallystick.algorithms.elementwise.grid_scores`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.elementwise import grid_scores
from tallystick.algorithms.program import Public
from tallystick.privacy.contribution import GridRows


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSpace:
    """Public: origin, smallest and largest value of every column, and norms that follow."""

    origin: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    longest: float
    """No row is longer."""
    typical: float
    """As long is a row whose numbers are uniform between origin and bound: E z² = ⅓ max² (L1: E|z| = ½ max)."""
    unit: bool
    """Rows are scaled to length 1 first."""
    l1: bool

    @classmethod
    def of(cls, public: Public, *, unit: bool, l1: bool) -> RowSpace:
        """From the layout."""
        d = len(public.features)
        origin, low, high = np.zeros(d), np.zeros(d), np.ones(d)
        ones, numbers = 0.0, []
        for _, start, stop, kind, most in public.columns:
            if kind != "number":
                ones += min(most, stop - start)
                continue
            numbers.append(start)
            centre, scale = public.units[start][1:3] if public.units else (0.0, 1.0)
            zero = -centre / scale
            origin[start] = zero if -1 <= zero <= 1 else 0.0
            low[start], high[start] = -1 - origin[start], 1 - origin[start]
            ones += float(stop - start > 1)  # its missing mark
        most_of = np.maximum(-low, high)[numbers]
        power = 1 if l1 else 2
        uniform = 1 / 2 if l1 else 1 / 3
        sizes = [float((most_of**power).sum()) * part + ones for part in (1.0, uniform)]
        longest, typical = (size if l1 else math.sqrt(size) for size in sizes)
        if unit:
            longest = typical = 1.0
        return cls(origin=origin, low=low, high=high, longest=longest, typical=typical, unit=unit, l1=l1)

    @property
    def nonnegative(self) -> bool:
        """Whether no coordinate of any row is negative."""
        return bool((self.low >= -1e-12).all())

    def rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows of encoded records."""
        rows = features - self.origin
        if self.nonnegative:
            rows = np.maximum(rows, 0.0)
        return unit_rows(rows, self.l1) if self.unit else rows

    def longest_residual(self, mean: NDArray[np.float64]) -> float:
        """The longest row − mean there can be, for a released mean (of the columns themselves)."""
        if self.unit:
            return 1.0 + float(np.abs(mean).sum() if self.l1 else np.linalg.norm(mean))
        far = np.maximum(np.abs(self.low - mean), np.abs(self.high - mean))
        return float(far.sum()) if self.l1 else float(np.linalg.norm(far))


def in_basis(rows: NDArray[np.float64], matrix: NDArray[np.float64], longest: float) -> NDArray[np.float64]:
    """``rows @ matrix.T``, exactly on the grid: the same bits in any block."""
    bits = 20 - max(0, math.ceil(math.log2(max(longest, 1.0))) - 8)
    return grid_scores(GridRows.make(rows, bits=bits, limit=1.001 * longest + 2.0**-8), matrix)


@njit(cache=True, nogil=True)
def unit_rows(rows, l1):  # type: ignore[no-untyped-def]
    """Every row over its own length; a row of zeros stays one."""
    n, d = rows.shape
    out = np.zeros((n, d))
    for i in range(n):
        size = 0.0
        for j in range(d):
            size += abs(rows[i, j]) if l1 else rows[i, j] * rows[i, j]
        if not l1:
            size = np.sqrt(size)
        if size > 0.0:
            for j in range(d):
                out[i, j] = rows[i, j] / size
    return out


@njit(cache=True, nogil=True)
def squared_rows(rows, l1):  # type: ignore[no-untyped-def]
    """The squares of every row's numbers, scaled to length 1 together; zeros stay zeros."""
    n, d = rows.shape
    out = np.zeros((n, d))
    for i in range(n):
        size = 0.0
        for j in range(d):
            out[i, j] = rows[i, j] * rows[i, j]
            size += out[i, j] if l1 else out[i, j] * out[i, j]
        if not l1:
            size = np.sqrt(size)
        if size > 0.0:
            for j in range(d):
                out[i, j] = out[i, j] / size
    return out


@njit(cache=True, nogil=True)
def squared_lengths(rows, unit):  # type: ignore[no-untyped-def]
    """(‖row‖/unit)² of every row, at most 1, as a column."""
    n, d = rows.shape
    out = np.zeros((n, 1))
    for i in range(n):
        size = 0.0
        for j in range(d):
            size += rows[i, j] * rows[i, j]
        out[i, 0] = min(size / (unit * unit), 1.0)
    return out
