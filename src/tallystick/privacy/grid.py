"""The integer grid of a round: how a real vector is cut into groups, and the integer bound of each group.

Everything private that is ever summed lives on this grid. A real number x stands for the integer round(x · 2^f);
a group is a run of coordinates with its own norm bound (its own share of the budget, PEM's ε-splitting).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import BoundsError
from tallystick.privacy.clipping import MAX_BOUND

__all__ = ["Grid", "Group", "Norm", "fraction_bits_for"]

Norm = Literal["l1", "l2"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A run of coordinates bounded together: ``bound`` is the largest norm one record may add to it."""

    name: str
    size: int
    bound: float
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BoundsError(f"group {self.name!r} has {self.size} coordinates", remedy="Give it at least one.")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise BoundsError(
                f"group {self.name!r} has the bound {self.bound}", remedy="A bound is a positive, finite number."
            )
        if not (0 < self.share <= 1):
            raise BoundsError(f"group {self.name!r} has the share {self.share}", remedy="Shares lie in (0, 1].")


def fraction_bits_for(bound: float) -> int:
    """The finest grid on which ``bound`` still fits: the largest f with bound · 2^f < 2^31."""
    return math.floor(math.log2(MAX_BOUND / bound))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Groups on a grid of 2^-fraction_bits, with their integer bounds, in the norm the mechanism needs."""

    groups: tuple[Group, ...]
    fraction_bits: int
    norm: Norm

    def __post_init__(self) -> None:
        if not self.groups:
            raise BoundsError("a round sums at least one group of coordinates")
        if len({g.name for g in self.groups}) != len(self.groups):
            raise BoundsError("two groups have the same name", remedy="Name each group differently.")
        for group, bound in zip(self.groups, self.integer_bounds):
            if not 1 <= bound <= MAX_BOUND:
                raise BoundsError(
                    f"the bound {group.bound} of group {group.name!r} does not fit {self.fraction_bits} fraction bits",
                    remedy="Scale the group so that its bound lies between 2^-30 and 2^30, or let the plan choose.",
                )

    @property
    def size(self) -> int:
        """Number of coordinates of the whole vector."""
        return sum(g.size for g in self.groups)

    @property
    def scale(self) -> float:
        """2^fraction_bits, exactly."""
        return math.ldexp(1.0, self.fraction_bits)

    @property
    def integer_bounds(self) -> tuple[int, ...]:
        """⌊bound · 2^f⌋ for each group: rounding down, so the real bound is never exceeded."""
        return tuple(math.floor(math.ldexp(g.bound, self.fraction_bits)) for g in self.groups)

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(starts, stops, integer bounds) as the kernels take them."""
        stops = np.cumsum([g.size for g in self.groups]).astype(np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
        return starts, stops, np.array(self.integer_bounds, dtype=np.int64)
