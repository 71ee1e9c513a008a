"""The integer grid of a round: how a real vector is cut into groups, and the integer bound of each group.

Everything private that is ever summed lives on this grid. A real number x stands for the integer round(x · 2^f);
a group is a run of coordinates with its own norm bound (its own share of the budget, PEM's ε-splitting).

What more a group declares about a record's vector is enforced as its bound is, on the grid, and makes its sensitivity
smaller (:mod:`tallystick.privacy.sensitivity`): that it has no negative coordinate, or that it lies in one of several
equal blocks whose first coordinate counts the record, or that it is the upper triangle of u·uᵀ for a row u.
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
Outer = Literal["", "diagonal", "beside"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A run of coordinates bounded together: ``bound`` is the largest norm one record may add to it.

    ``nonnegative``: negative coordinates are set to 0.
    ``ceiling`` > 0, in a non-negative group: larger coordinates are set to it (a set of items is in a record or not).
    ``one_of`` = k > 0: the group is k blocks of equal length, and a record adds to one of them. The first coordinate of
    a block is its count: the block that a record's vector gives a non-zero count is the record's (the first, if there
    are several; none, if there is none: the vector is then 0), every other block is set to 0, and the count is set to
    ``count``. The bound is that of the other coordinates, the sums.
    ``outer``: the group is the diagonal of u·uᵀ, or what stands ``"beside"`` it, row by row, for a row u of d numbers.
    The two follow each other at the end of a grid, have one bound and are noised together, with the sum of their
    shares. The platform takes u itself, on a grid of half the fraction bits, and multiplies there, so what is summed is
    such a product by construction; ``bound`` is that of ‖u‖₂² (L1: of ‖u‖₁²). ``equal``: see
    :func:`tallystick.privacy.round_plan.outer_noise`.
    """

    name: str
    size: int
    bound: float
    share: float = 1.0
    nonnegative: bool = False
    ceiling: float = 0.0
    one_of: int = 0
    count: float = 0.0
    outer: Outer = ""
    equal: bool = False

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
        if self.outer and (self.one_of or self.nonnegative or self.ceiling):
            raise BoundsError(
                f"group {self.name!r} is of products of a row, and declares something else besides",
                remedy="Leave nonnegative, ceiling and one_of out: what it is follows from the row.",
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


def outer_groups_for(name: str, columns: int, bound: float, *, share: float = 1.0, equal: bool = False) -> list[Group]:
    """The groups of u·uᵀ, u a row of ``columns`` numbers with ‖u‖₂² (L1: ‖u‖₁²) up to ``bound``."""
    half = share if columns == 1 else share / 2  # noised together: only the sum counts
    diagonal = Group(name=f"{name}_diagonal", size=columns, bound=bound, share=half, outer="diagonal", equal=equal)
    if columns == 1:
        return [diagonal]
    pairs = columns * (columns - 1) // 2
    return [diagonal, Group(name=name, size=pairs, bound=bound, share=half, outer="beside", equal=equal)]


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
        self._check_outer()
        for group, bound, count, ceiling in zip(
            self.groups, self.integer_bounds, self.integer_counts, self.integer_ceilings
        ):
            fits = 1 <= bound <= MAX_BOUND and (not group.one_of or 1 <= count <= MAX_BOUND)
            if not fits or (group.ceiling and ceiling < 1):
                raise BoundsError(
                    f"the bound {group.bound} of group {group.name!r} does not fit {self.fraction_bits} fraction bits",
                    remedy="Scale the group so that its bound lies between 2^-30 and 2^30, or let the plan choose.",
                )

    def _check_outer(self) -> None:
        """Products of a row come last, the diagonal first, and their row has a grid of its own."""
        own = self.outer_groups
        if any(g.outer for g in self.groups[: len(self.groups) - len(own)]) or (own and own[0].outer != "diagonal"):
            raise BoundsError(
                "products of a row are not the last groups", remedy="Put the diagonal, then the rest, last."
            )
        if not own:
            return
        d = own[0].size
        sizes, alike = [g.size for g in own[1:]], {(g.bound, g.equal) for g in own}
        if sizes != ([d * (d - 1) // 2] if d > 1 else []) or len(alike) != 1 or self.fraction_bits % 2:
            raise BoundsError(
                f"the products of a row of {d} numbers are not one bound, d and d(d − 1)/2 coordinates, and even bits",
                remedy="Make the groups by outer_groups_for(...), or let the plan choose the fraction bits.",
            )

    @property
    def outer_groups(self) -> tuple[Group, ...]:
        """The products of a row: its diagonal, and what stands beside it; none of most rounds."""
        if len(self.groups) > 1 and self.groups[-1].outer == "beside":
            return self.groups[-2:]
        return self.groups[-1:] if self.groups[-1].outer else ()

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
