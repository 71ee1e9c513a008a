"""The sensitivity registry: how far one record can move a sum, one function for each shape of contribution.

A mechanism may use a sensitivity only from here. Each row is brute-forced on tiny domains under both relations in
``tests/privacy/test_sensitivity.py`` and ``test_geometry.py``.

Neighbours. ``add-remove``: one record more or less; the number of records is secret. ``replace-one``: one record
differs; the number of records is public.

A record may be one with a bad or missing cell, which adds zeros. So the zero vector is in the domain of every row under
replace-one too: ‖v − 0‖ = ‖v‖ ≤ B is within 2B, √2·B, √(2(B² + c²)); and where coordinates lie in [0, u], 0 is one of
them. No row uses that a record adds something, or always counts: the number of *complete* records is not public, and
where an answer divides by it, it is one more coordinate of a noised sum.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

Neighbours = Literal["replace-one", "add-remove"]


def vector_sensitivity(bound: int, neighbours: Neighbours) -> int:
    """Row "vector, norm ≤ B", L1 or L2 alike.

    Add-remove moves the sum by one vector: ‖v‖ ≤ B. Replace-one moves it by v' − v: ‖v' − v‖ ≤ ‖v'‖ + ‖v‖ ≤ 2B,
    attained at v' = −v.
    """
    return bound if neighbours == "add-remove" else 2 * bound


def nonnegative_sensitivity(bound: int, neighbours: Neighbours, *, l1: bool) -> int:
    """Row "vector, norm ≤ B, all coordinates ≥ 0".

    Replace-one, L2: ‖v − v'‖² = ‖v‖² + ‖v'‖² − 2 v·v' ≤ 2B², because v·v' ≥ 0; attained at orthogonal v, v'. The same
    two show that L1 is not better than 2B. Add-remove: ‖v‖ ≤ B, as for any vector.
    """
    if l1 or neighbours == "add-remove":
        return vector_sensitivity(bound, neighbours)
    return _root_up(2 * bound**2)


def counts_sensitivity(bound: int, ceiling: int, size: int, neighbours: Neighbours, *, l1: bool) -> int:
    """Row "itemset counts": I = ``size`` coordinates within [0, u], u = ``ceiling``, and norm ≤ B.

    Replace-one: as any non-negative vectors, ‖v − v'‖ ≤ √2·B (L1: 2B); and every coordinate moves by at most u, so
    ‖v − v'‖² ≤ I·u² (L1: I·u). With u = 1 and at most c ones that is √min(2c, I) and min(2c, I). Add-remove: ‖v‖ ≤ B.
    """
    most = nonnegative_sensitivity(bound, neighbours, l1=l1)
    if neighbours == "add-remove":
        return most
    return min(most, size * ceiling if l1 else _root_up(size * ceiling**2))


def blocks_sensitivity(bound: int, count: int, neighbours: Neighbours, *, l1: bool, nonnegative: bool) -> int:
    """Row "k-means sums + counts": one block of several holds (c, s), its count c fixed and ‖s‖ ≤ B, the others are 0.

    Sums and counts are scaled alike. A vector is 0 or has ‖v‖² = c² + ‖s‖² ≤ c² + B² (L1: c + B).

    * Add-remove: that. L2 √(B² + c²), L1 B + c.
    * Replace-one within a block: the counts cancel and ‖s − s'‖ ≤ 2B is left, √2·B if all coordinates are ≥ 0.
      Between two blocks: disjoint coordinates, ‖v − v'‖² = ‖v‖² + ‖v'‖² ≤ 2(B² + c²), L1 2(B + c). From or to 0: less.
      The larger of the two, so that in L2 a count of c ≤ B costs nothing: max(4B², 2B² + 2c²) = 4B².
    """
    if l1:
        return (bound + count) * (1 if neighbours == "add-remove" else 2)
    if neighbours == "add-remove":
        return _root_up(bound**2 + count**2)
    return _root_up(max((2 if nonnegative else 4) * bound**2, 2 * (bound**2 + count**2)))


def outer_sensitivity(bound: int, neighbours: Neighbours, *, l1: bool) -> int:
    """Row "second moment x xᵀ", ‖x‖² ≤ B: the Frobenius norm (L1: the sum of moduli over the upper triangle).

    Add-remove: ‖x xᵀ‖_F = ‖x‖² ≤ B. Replace-one: ‖x xᵀ − y yᵀ‖_F² = ‖x‖⁴ + ‖y‖⁴ − 2 (x·y)² ≤ 2B², attained where x and
    y are orthogonal. (The spectral norm is B there: noise for it would be short by √2.) The same for sums over a
    person's records, which are positive semidefinite: tr(S S') ≥ 0, and ‖S‖_F ≤ tr S ≤ B.
    L1: Σ_{i≤j} |x_i x_j| = (‖x‖₁² + ‖x‖₂²)/2 ≤ ‖x‖₁² ≤ B, twice that under replace-one.
    """
    if l1 or neighbours == "add-remove":
        return vector_sensitivity(bound, neighbours)
    return _root_up(2 * bound**2)


def _root_up(square: int) -> int:
    """⌈√square⌉, exactly."""
    return math.isqrt(square - 1) + 1 if square else 0


def count_sensitivity(neighbours: Neighbours) -> int:
    """Row "total count n" of records, complete or not: 1 when a record comes or goes, 0 when one is replaced."""
    return 1 if neighbours == "add-remove" else 0


def rank_sensitivity(numerator: int, denominator: int, neighbours: Neighbours) -> int:
    """Row "rank utility": how far the distance of a cell to the wanted rank a·n/b moves, in units of 1/b rank.

    d = max(0, a·n − b·hi, b·lo − a·n), lo and hi being the records below the cell and below its end. A record that
    comes moves n by 1 and lo, hi by 0 or 1: each of the two terms by a, −(b − a) or their opposites, so d by at most
    max(a, b − a) either way, also when it goes. Replacing one is one that goes and one that comes: a term moves by
    0 or ±b, and where one of the two adds zeros (an incomplete record) by less.
    """
    return max(numerator, denominator - numerator) if neighbours == "add-remove" else denominator


def score_spread(bound: int, neighbours: Neighbours) -> int:
    """Row "score of a candidate", each record adding 0 to B to each: the length of the interval that scores move in.

    A record that comes raises every score by 0 to B, one that goes lowers it: an interval of length B that holds 0.
    Replaced, scores move by −B to B: of length 2B.
    """
    return bound if neighbours == "add-remove" else 2 * bound


def person_multiplier(max_institutions: int) -> Fraction:
    """A person known to k institutions moves each of k sums, so every sensitivity is multiplied by k."""
    return Fraction(max_institutions)
