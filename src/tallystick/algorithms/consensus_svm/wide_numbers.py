"""Numbers with 40 fraction bits and a wide range, as two whole numbers each: exact sums, whoever adds what.

Interior points need both: multiplier ratios of 10⁸ beside a unit matrix. One element of the field has 60 bits for a
total, too few for 40 behind the point and 40 before it. So a number v is sent as ⌊v·2⁸⌉ and ⌊(v·2⁸ − ⌊v·2⁸⌉)·2³²⌉: the
rest is exact in floats (two neighbours subtracted), and at most 2³¹. Each is rounded once for each record; from there
on there are integers alone, and sums do not depend on order or on who holds which record.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

HIGH_BITS, LOW_BITS = 8, 40
LARGEST = 2.0**32
"""The most one addend may be: 4 million of them still fit 64 bits, and what a client may add is checked besides."""


@njit(cache=True, nogil=True)
def add_wide(high, low, at, value):  # type: ignore[no-untyped-def]
    """Add a number at a place; beyond ±LARGEST it counts as that (no honest direction is so steep), NaN as nothing."""
    if not value <= LARGEST:
        value = LARGEST if value > 0.0 else 0.0
    if value < -LARGEST:
        value = -LARGEST
    scaled = value * 256.0
    whole = np.rint(scaled)
    high[at] += np.int64(whole)
    low[at] += np.int64(np.rint((scaled - whole) * 4294967296.0))


def wide(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One number at each place, as (high, low)."""
    high, low = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.int64)
    _add_each(high, low, np.asarray(values, dtype=np.float64))
    return high, low


@njit(cache=True, nogil=True)
def _add_each(high, low, values):  # type: ignore[no-untyped-def]
    for at in range(values.shape[0]):
        add_wide(high, low, at, values[at])


def packed(high: NDArray[np.int64], low: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A client's vector: 1 for the client itself, counts, high parts, low parts."""
    return np.concatenate([np.ones(1, dtype=np.int64), counts, high, low])


def packed_size(numbers: int, counts: int = 0) -> int:
    """Entries of a vector with so many wide numbers."""
    return 1 + counts + 2 * numbers


def unpacked(
    total: NDArray[np.float64], numbers: int, counts: int = 0
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """(how many clients, counts, numbers) from a total on the grid of 2^-40, read as real numbers."""
    units = np.ldexp(total[: 1 + counts], LOW_BITS)
    high = total[1 + counts : 1 + counts + numbers]
    low = total[1 + counts + numbers : 1 + counts + 2 * numbers]
    return float(units[0]), units[1:], np.ldexp(high, LOW_BITS - HIGH_BITS) + low
