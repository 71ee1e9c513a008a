"""The public grid of values that a column's quantiles are looked for on: whole numbers from 0, and what they mean.

An integer column's grid is its declared values, ``lower + k·step``. A number's is made from its bounds alone: steps of
a power of ten, such that there are 10^8 to 10^9 of them (on a logarithmic column: 2^30 equal steps of its scale). So an
answer is exact to a 10^8th of the declared range, and values with few decimals are on the grid as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Public
from tallystick.core.errors import BoundsError

MOST_VALUES = 2**45
"""Encoded values are float64s of the range [−1, 1]: up to here an index survives the way there and back."""
_LOG_VALUES = 2**30


@dataclass(frozen=True, kw_only=True)
class ValueGrid:
    """One column: index k stands for ``lower + k·step``, on its own scale."""

    column: str
    lower: float
    step: float
    size: int
    centre: float
    scale: float
    digits: int | None = None
    """Decimals of a number's values; None where values are whole numbers."""
    log_offset: float | None = None
    """Of a logarithmic column: a value is this + e^x − 1."""

    def indices(self, encoded: NDArray[np.float64]) -> NDArray[np.int64]:
        """The grid index of each encoded value, element by element: records do not see each other."""
        if self.digits is None and self.log_offset is None:
            # From the end of the scale, not by its centre: near 2^53 a centre between two integers is no float64.
            place = np.rint((encoded + 1.0) * self.scale / self.step)
        else:
            place = np.rint((self.centre + self.scale * encoded - self.lower) / self.step)
        return np.clip(place, 0, self.size - 1).astype(np.int64)

    def value(self, index: int) -> float | int:
        """What an index stands for, in the column's units."""
        if self.log_offset is not None:
            return self.log_offset + math.expm1(self.lower + index * self.step)
        if self.digits is None:
            return int(self.lower) + index * int(self.step)
        return round(self.lower + index * self.step, self.digits)


def value_grid(public: Public, column: str) -> ValueGrid:
    """The grid of a number or integer column."""
    name, start, _, _, _ = next(block for block in public.columns if block[0] == column)
    kind, centre, scale, offset = public.units[start] if public.units else ("number", 0.0, 1.0, 0.0)
    for integer, lower, step, size in public.integers:
        if integer == column:
            return ValueGrid(
                column=name, lower=lower, step=step, size=_checked(column, size), centre=centre, scale=scale
            )
    low = centre - scale
    if kind == "log":
        return ValueGrid(
            column=name,
            lower=low,
            step=2 * scale / _LOG_VALUES,
            size=_LOG_VALUES + 1,
            centre=centre,
            scale=scale,
            log_offset=offset,
        )
    power = math.floor(math.log10(2 * scale)) - 8
    fine = float(f"1e{power}")
    size = round(2 * scale / fine) + 1
    return ValueGrid(column=name, lower=low, step=fine, size=size, centre=centre, scale=scale, digits=max(0, -power))


def _checked(column: str, size: int) -> int:
    if not 2 <= size <= MOST_VALUES:
        raise BoundsError(
            f"column {column!r} has {size:,} possible values",
            rule="values-can-be-told-apart",
            remedy=f"A quantile is looked for among 2 to {MOST_VALUES:,} values: declare another step or other bounds.",
        )
    return size
