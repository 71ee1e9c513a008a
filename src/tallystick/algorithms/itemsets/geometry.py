"""Counts of sets as a group of coordinates: its bound, and the noise a budget buys.

A record adds 1 to each of at most c coordinates of I (registry row "itemset counts"): L1 norm c, L2 norm √c, all
coordinates in [0, 1], so that replacing a record moves the sum by at most √min(2c, I) in L2 and min(2c, I) in L1. The
platform enforces all of it: norm, sign and ceiling.
"""

from __future__ import annotations

import math

from tallystick.algorithms.design import PublicBudget
from tallystick.core.errors import BoundsError
from tallystick.privacy.grid import Group

FRACTION_BITS = 14
"""A count of 1 is 2^14 on the grid: fine enough for √c, coarse enough for a few million sets in a record."""


def fraction_bits(budget: PublicBudget) -> int:
    """A person's records are bounded together, at several times the bound of one: coarser, so that it fits 31 bits."""
    bits = FRACTION_BITS - (budget.person_factor - 1).bit_length()
    if bits < 0:  # a count of 1 would be less than a grid unit
        raise BoundsError(
            f"a person with {budget.person_factor} records, over all institutions, does not fit the grid of counts",
            rule="person-fits-the-grid",
            remedy=f"Let max_records · max_institutions be at most {2**FRACTION_BITS}.",
        )
    return bits


def count_group(name: str, *, size: int, ones: int, budget: PublicBudget) -> Group:
    """A record with ``ones`` ones is within the bound: the root is rounded up on the grid, so nothing is clipped."""
    if budget.mechanism == "laplace":
        return Group(name=name, size=size, bound=float(ones), nonnegative=True, ceiling=1.0)
    bits = fraction_bits(budget)
    root = math.isqrt(ones * 4**bits - 1) + 1
    return Group(name=name, size=size, bound=math.ldexp(root, -bits), nonnegative=True, ceiling=1.0)


def noise_of_counts(budget: PublicBudget, share: float, ones: int, size: int) -> float:
    """Standard deviation of one count, all servers together, when ``share`` of the budget buys it."""
    moved = ones if budget.neighbours == "add-remove" else min(2 * ones, size)
    norm = float(moved) if budget.mechanism == "laplace" else math.sqrt(moved)
    return budget.noise(norm * budget.person_factor, share)
