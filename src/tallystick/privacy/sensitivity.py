"""The sensitivity registry: how far one record can move a sum, per row of spec/privacy 0.5.

A mechanism may use a sensitivity only from here. Each row is brute-forced on tiny domains under both relations in
``tests/privacy/test_sensitivity.py``.

Neighbours. ``add-remove``: one record more or less; the number of records is secret. ``replace-one``: one record
differs; the number of records is public.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

__all__ = ["Neighbours", "count_sensitivity", "person_multiplier", "vector_sensitivity"]

Neighbours = Literal["replace-one", "add-remove"]


def vector_sensitivity(bound: int, neighbours: Neighbours) -> int:
    """Row "vector, norm ≤ B", L1 or L2 alike.

    Add-remove moves the sum by one vector: ‖v‖ ≤ B. Replace-one moves it by v' − v: ‖v' − v‖ ≤ ‖v'‖ + ‖v‖ ≤ 2B,
    attained at v' = −v.
    """
    return bound if neighbours == "add-remove" else 2 * bound


def count_sensitivity(neighbours: Neighbours) -> int:
    """Row "total count n": 1 when a record comes or goes, 0 when one is replaced."""
    return 1 if neighbours == "add-remove" else 0


def person_multiplier(max_institutions: int) -> Fraction:
    """A person known to k institutions moves each of k sums, so every sensitivity is multiplied by k (spec 0.1)."""
    return Fraction(max_institutions)
