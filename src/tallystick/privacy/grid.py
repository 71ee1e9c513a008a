"""The integer grid of a round: how a real vector is cut into groups, and the integer bound of each group.

Everything private that is ever summed lives on this grid. A real number x stands for the integer round(x · 2^f);
a group is a run of coordinates with its own norm bound (its own share of the budget, PEM's ε-splitting).

What more a group declares about a record's vector is enforced as its bound is, on the grid, and makes its sensitivity
smaller (:mod:`tallystick.privacy.sensitivity`): that it has no negative coordinate, or that it lies in one of several
equal blocks whose first coordinate counts the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import BoundsError
from tallystick.privacy.clipping import MAX_BOUND
from tallystick.privacy.ranges import check_coordinates

Norm = Literal["l1", "l2"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A run of coordinates bounded together: ``bound`` is the largest norm one record may add to it.

    ``nonnegative``: negative coordinates are set to 0.
    ``ceiling`` > 0, in a non-negative group: larger coordinates are set to it (a set of items is in a record or not).
    ``one_of`` = k > 0: the group is k blocks of equal length, and a record adds to one of them. The first coordinate of
    a block is its count: the block that a record's vector gives a non-zero count is the record's (the first, if there
    are several; none, if there is none: the vector is then 0), every other block is set to 0, and the count is set to
    ``count``. The bound is that of the other coordinates, the sums.
    """

    name: str
    size: int
    bound: float
    share: float = 1.0
    nonnegative: bool = False
    ceiling: float = 0.0
    one_of: int = 0
    count: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BoundsError(f"group {self.name!r} has {self.size} coordinates", remedy="Give it at least one.")
        check_coordinates(f"group {self.name!r}", self.size)
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise BoundsError(
                f"group {self.name!r} has the bound {self.bound}", remedy="A bound is a positive, finite number."
            )
        if not (0 < self.share <= 1):
            raise BoundsError(f"group {self.name!r} has the share {self.share}", remedy="Shares lie in (0, 1].")
        if self.ceiling and not (
            math.isfinite(self.ceiling) and self.ceiling > 0 and self.nonnegative and not self.one_of
        ):
            raise BoundsError(
                f"group {self.name!r} has the ceiling {self.ceiling}",
                remedy="A ceiling is a positive, finite number, of a non-negative group without blocks.",
            )
        if not self.one_of:
            if self.count != 0:
                raise BoundsError(
                    f"group {self.name!r} has a count and no blocks", remedy="Say one_of = k, or leave count out."
                )
        elif self.one_of < 1 or self.size % self.one_of or self.size // self.one_of < 2:
            raise BoundsError(
                f"group {self.name!r} of {self.size} coordinates is not {self.one_of} blocks of a count and sums",
                remedy="Its size is one_of times the length of a block, which is 2 or more.",
            )
        elif not (math.isfinite(self.count) and self.count > 0):
            raise BoundsError(
                f"group {self.name!r} counts a record as {self.count}", remedy="A count is a positive, finite number."
            )

    @property
    def width(self) -> int:
        """Coordinates of one block, its count included; 0 where there are no blocks."""
        return self.size // self.one_of if self.one_of else 0


def fraction_bits_for(bound: float) -> int:
    """The finest grid on which ``bound`` still fits: the largest f with bound · 2^f < 2^31."""
    if not 2.0**-500 < bound < 2.0**500:  # 2^f would not be a float64
        raise BoundsError(
            f"no grid has a bound of {bound:g}", remedy="Scale the group so that its bound lies between 2^-30 and 2^30."
        )
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
        for group, bound, count, ceiling in zip(
            self.groups, self.integer_bounds, self.integer_counts, self.integer_ceilings
        ):
            fits = 1 <= bound <= MAX_BOUND and (not group.one_of or 1 <= count <= MAX_BOUND)
            if not fits or (group.ceiling and ceiling < 1):
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

    @property
    def integer_counts(self) -> tuple[int, ...]:
        """⌊count · 2^f⌋ for each group, 0 where records are not counted."""
        return tuple(math.floor(math.ldexp(g.count, self.fraction_bits)) for g in self.groups)

    @property
    def integer_ceilings(self) -> tuple[int, ...]:
        """⌊ceiling · 2^f⌋ for each group, 0 where there is none; a ceiling above the bound is the bound's matter."""
        ceilings = (math.floor(math.ldexp(g.ceiling, self.fraction_bits)) for g in self.groups)
        return tuple(min(c, MAX_BOUND) for c in ceilings)

    @property
    def largest_coordinates(self) -> tuple[int, ...]:
        """The most one record adds to a coordinate of each group, in grid units."""
        return tuple(max(pair) for pair in zip(self.integer_bounds, self.integer_counts))

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(starts, stops, rules) for the kernels; a rule is (bound, nonnegative, block width, count, ceiling)."""
        stops = np.cumsum([g.size for g in self.groups]).astype(np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
        rules = [
            (bound, int(g.nonnegative), g.width, count, ceiling)
            for g, bound, count, ceiling in zip(
                self.groups, self.integer_bounds, self.integer_counts, self.integer_ceilings
            )
        ]
        return starts, stops, np.array(rules, dtype=np.int64)
