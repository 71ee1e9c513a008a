"""The rows that gradients are multiples of: columns or features, on the grid, with the weight of each.

A row is (intercept, columns shifted and scaled) in units of R, the typical row, and is weighted by min(1, R/‖row‖).
Rows are made once for a given shift, scale and R, and kept; features of a map (:mod:`…feature_maps`),
which are many times as wide as the records, are made anew in every round, some records at a time, where keeping them
would fill the memory. Both give the same bits: a row depends on its record alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.privacy.contribution import GridRows

FRACTION_BITS = 30
"""Of a gradient whose bound is 1: shared between the row and its coefficient."""
_ROW_BITS, _COEFFICIENT_BITS = 15, 10
"""The least each of them gets; what rows in units of R need beyond that for a resolution of 2^-11 they take."""
_WITHIN = 1 - 2.0**-11
"""Weights aim this much below the bound, so that rounding a coefficient does not push a record over it."""
_KEPT_NUMBERS = 1 << 26
"""Of a block: features beyond this (half a gigabyte) are not kept between rounds."""
_PART_NUMBERS = 1 << 23


class RowRule(NamedTuple):
    """How rows are made in a round: public."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    row_limit: float
    longest_row: float
    intercept: float
    fraction_bits: int
    l1: bool

    def key(self) -> bytes:
        """Equal for equal rows."""
        return self.shift.tobytes() + self.scale.tobytes() + np.array(self[2:], dtype=np.float64).tobytes()


@dataclass(frozen=True, kw_only=True, repr=False)
class RowPart:
    """Some records: their rows on the grid, what each is weighted by, and their targets."""

    rows: GridRows
    weights: NDArray[np.float64]
    target: NDArray[np.float64]


class GradientRows:
    """A block of records; nothing here leaves the client."""

    def __init__(
        self, features: NDArray[np.float64], target: NDArray[np.float64], feature_map: FeatureMap | None
    ) -> None:
        self.features, self.target = features, target
        self._map = feature_map
        self._kept: RowPart | None = None
        self._made_for = b""

    @property
    def kept(self) -> bool:
        """Whether all rows stay in memory between rounds, as one part."""
        return self._map is None or len(self.features) * (self._map.size + 1) <= _KEPT_NUMBERS

    def parts(self, rule: RowRule) -> Iterator[RowPart]:
        """The records in order, by this rule: at once where rows are kept, else some at a time."""
        if self.kept:
            if self._kept is None or self._made_for != rule.key():
                self._kept, self._made_for = self._made(self.features, self.target, rule), rule.key()
            yield self._kept
            return
        each = max(64, _PART_NUMBERS // (len(rule.shift) + 1))
        for first in range(0, len(self.features), each):
            some = slice(first, first + each)
            yield self._made(self.features[some], self.target[some], rule)

    def _made(self, features: NDArray[np.float64], target: NDArray[np.float64], rule: RowRule) -> RowPart:
        # A map's rows are no longer than its norm: in units of it, no longer than 1.
        columns = features if self._map is None else self._map.rows(features) / self._map.norm
        wanted = max(_ROW_BITS, 11 + math.ceil(math.log2(rule.row_limit)))
        bits = min(wanted, rule.fraction_bits - _COEFFICIENT_BITS)
        # R is a typical row or longer, so no row gets near the second limit, which keeps squares within 63 bits.
        limit = min(max(1.0, 1.01 * rule.longest_row / rule.row_limit), 2.0 ** (FRACTION_BITS - bits))
        on_grid = GridRows.standardised(
            columns,
            intercept=rule.intercept,
            shift=rule.shift,
            spread=rule.scale,
            unit=rule.row_limit,
            bits=bits,
            limit=limit,
        )
        lengths = on_grid.sums if rule.l1 else on_grid.squares
        weights = _row_weights(lengths, math.ldexp(1.0, bits) * _WITHIN, rule.l1)
        return RowPart(rows=on_grid, weights=weights, target=target)


@njit(cache=True, nogil=True)
def _row_weights(lengths, limit, l1):  # type: ignore[no-untyped-def]
    """min(1, limit/‖row‖) per row; ``lengths`` are exact integers: Σ|x|, or Σx²."""
    out = np.ones(lengths.shape[0])
    for i in range(lengths.shape[0]):
        size = float(lengths[i]) if l1 else np.sqrt(float(lengths[i]))
        if size > limit:
            out[i] = limit / size
    return out
