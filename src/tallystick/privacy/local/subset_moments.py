"""Moments of subset selection, and which subset to select: figures of the public law, never of a record.

Candidates are N(0, I_d), so their scores along a unit vector u are K standard normal numbers, and what is orthogonal to
u is independent of them. Let s be the score of the published candidate c. Then c = s·u + g with g ~ N(0, I − uuᵀ)
independent of s, and with μ = E s

    z = c/μ:    E z = u,    E zzᵀ = a·uuᵀ + b·I,    a = (E s² − 1)/μ²,    b = 1/μ².

With T₁ and T₂ the means of the scores and squared scores among the top m, and since all K together have means 0 and 1,

    μ = T₁·(p − (1 − p)·m/(K − m)),    E s² = p·T₂ + (1 − p)·(K − m·T₂)/(K − m),
    T_r = (K/m)·∫ xʳ φ(x)·P(Bin(K − 1, 1 − Φ(x)) < m) dx :

a candidate of score x is among the top m if fewer than m of the others lie above it. Of several draws on candidates of
their own, b and what a has of s are averaged. How far the integer table is from normal is bounded in ``subset.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.privacy.local.coins import Draw

LEAST_LOG, MOST_LOG = 4, 16
"""K is a power of two from 16 to 65,536, so that an index takes one or two bytes."""
_MOST_TOP = 1024
_MOST_DRAWS = 32
_GOOD_ENOUGH = 1.02
"""The cheapest subset whose variance is within this factor of the best that the work allows is taken."""
WORK = 1 << 18
"""Coordinates of all candidates of one record, at most: about a millisecond of a peer's time."""


@dataclass(frozen=True, kw_only=True)
class SubsetMoments:
    """a and b of the law above, in units of a record of length 1."""

    mean: float
    a: float
    b: float


@dataclass(frozen=True, kw_only=True)
class Subset:
    """``draws`` draws, each of one of K candidates, of which the top m are preferred at ε/draws."""

    draws: int
    candidates: int
    top: int


@lru_cache(maxsize=16)
def _tops(candidates: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """T₁ and T₂ for every m from 1 on, by the trapezium rule on [−9, 9], which is exact to 10⁻⁹ for such integrands."""
    most = min(_MOST_TOP, candidates - 1)
    x = np.linspace(-9.0, 9.0, 2401)
    tail = np.array([0.5 * math.erfc(v / math.sqrt(2)) for v in x])
    log_tail = np.log(np.maximum(tail, 1e-300))
    log_rest = np.log1p(-np.minimum(tail, 1 - 1e-16))
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    below = np.zeros_like(x)
    first, second = np.empty(most), np.empty(most)
    log_choose, n = 0.0, candidates - 1
    for i in range(most):
        below += np.exp(log_choose + i * log_tail + (n - i) * log_rest)
        log_choose += math.log((n - i) / (i + 1))
        first[i] = candidates / (i + 1) * float(np.sum(x * density * below))
        second[i] = candidates / (i + 1) * float(np.sum(x * x * density * below))
    return first, second


def subset_moments(subset: Subset, epsilon: Fraction) -> SubsetMoments:
    """Of draws that cost ε all together."""
    k, m, t = subset.candidates, subset.top, subset.draws
    first, second = _tops(k)
    kept = float(Draw.of(epsilon / t, m, k - m).probability)
    mean = float(first[m - 1]) * (kept - (1 - kept) * m / (k - m))
    square = kept * second[m - 1] + (1 - kept) * (k - m * second[m - 1]) / (k - m)
    # z is the mean of t independent ones: E zzᵀ = ((a₁uuᵀ + b₁I) + (t − 1)·uuᵀ)/t.
    a, b = (float(square) - 1) / mean**2, 1 / mean**2
    return SubsetMoments(mean=mean, a=(a + t - 1) / t, b=b / t)


def _best_top(candidates: int, epsilon: float) -> tuple[float, int]:
    """(variance of a coordinate, m) of the best m."""
    first, _ = _tops(candidates)
    m = np.arange(1, len(first) + 1)
    kept = 1 / (1 + (candidates - m) / m * math.exp(-epsilon))
    means = first * (kept - (1 - kept) * m / (candidates - m))
    at = int(np.argmax(means))
    return 1 / float(means[at]) ** 2, at + 1


@lru_cache(maxsize=256)
def choose_subset(epsilon: Fraction, dimension: int) -> Subset:
    """Which subset a record of this many coordinates is published by, from public facts."""
    if dimension < 1:
        raise StudyError("a record without coordinates says nothing", remedy="Name at least one feature.")
    most_log = min(MOST_LOG, max(LEAST_LOG, int(math.log2(max(1.0, WORK / dimension)))))
    found: list[tuple[int, float, Subset]] = []
    for log, draws in product(range(LEAST_LOG, most_log + 1), range(1, _MOST_DRAWS + 1)):
        if draws > 1 and (draws << log) * dimension > WORK:
            continue
        variance, top = _best_top(1 << log, float(epsilon) / draws)
        found.append((draws << log, variance / draws, Subset(draws=draws, candidates=1 << log, top=top)))
    least = min(variance for _, variance, _ in found)
    return min(found, key=lambda f: (f[1] > _GOOD_ENOUGH * least, f[0], f[2].draws))[2]
