"""Counts of sets as a group of coordinates: its bound, and the noise a budget buys.

A record adds 1 to each of at most c coordinates of I (registry row "itemset counts"): L1 norm c, L2 norm √c, all
coordinates ≥ 0, so that replacing a record moves the sum by at most √(2c) in L2 and 2c in L1. A record cannot add to
more coordinates than there are: c ≤ I.
"""

from __future__ import annotations

import math

from tallystick.algorithms.design import PublicBudget
from tallystick.privacy.grid import Group

__all__ = ["FRACTION_BITS", "count_group", "fraction_bits", "noise_of_counts"]

FRACTION_BITS = 14
"""A count of 1 is 2^14 on the grid: fine enough for √c, coarse enough for a few million sets in a record."""


def fraction_bits(budget: PublicBudget) -> int:
    """A person's records are bounded together, at several times the bound of one: coarser, so that it fits 31 bits."""
    return FRACTION_BITS - (budget.person_factor - 1).bit_length()


def count_group(name: str, *, size: int, ones: int, budget: PublicBudget) -> Group:
    """A record with ``ones`` ones is just within the bound: the root is rounded up on the grid, so nothing is clipped."""
    if budget.mechanism == "laplace":
        return Group(name=name, size=size, bound=float(ones), nonnegative=True)
    bits = fraction_bits(budget)
    root = math.isqrt(ones * 4**bits - 1) + 1
    return Group(name=name, size=size, bound=math.ldexp(root, -bits), nonnegative=True)


def noise_of_counts(budget: PublicBudget, share: float, ones: int) -> float:
    """Standard deviation of one count, all servers together, when ``share`` of the budget buys it."""
    replace = budget.neighbours != "add-remove"
    if budget.mechanism == "none":
        return 0.0
    if budget.mechanism == "laplace":
        sensitivity = float(ones * (2 if replace else 1) * budget.person_factor)
        return sensitivity / (share * budget.epsilon) * math.sqrt(2 * budget.variance_factor)
    sensitivity = math.sqrt(2 * ones if replace else ones) * budget.person_factor
    return sensitivity * math.sqrt(budget.variance_factor / (2 * share * budget.rho))
