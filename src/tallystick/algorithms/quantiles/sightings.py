"""What releases say about ranks by themselves, whatever law the records follow: the ground of intervals.

Every release tells D(e) = F(e) − q·N − shift at its edges, up to noise whose law is public. Nothing is assumed about
the records, so what holds here holds for spikes, gaps and ties as well.

* A level of K + 1 cells, each with noise of variance v: the rank at the j-th edge is a sum of counts with weights 1 − r
  below the edge and −r above it; r = j/(K + 1) where N is public (generalised least squares of one rank under
  Σ counts = N), r = q where it is not (then Σ weights·counts is F(e) − q·N itself). Its variance is
  v·(j(1 − r)² + (K + 1 − j)r²).
* A probe tells one rank.

Ranks rise, so statements come in order: if D(e) ≤ 0, then D ≤ 0 at every edge left of e. Within a round the edges
are tried from the left, "D(e) ≤ 0" is said while each is sure by itself, and the first that is not ends it; the same
from the right for "D(e) ≥ 0". Only the first edge of which it is false can make this err (a fixed sequence of tests
needs no correction for their number [MHL95]), and given all earlier rounds, which chose the edges, its noise is fresh.
Edges that were counted in several rounds are tried once more by the precision-weighted means of them. Each side of the
r-th round may err with probability α/r, and of the means with α/4, where 2α(1/4 + 1 + 1/2 + … + 1/R) = 1 − level, so
that all hold together with probability ``level``. R is the most rounds that a search may have, not those it had: when
it ends depends on what was counted. While it goes on, where nothing is promised, (1 − level)/4 is shared by those it
had. (Not proved is that means may be taken of edges which are counted again because of what was counted there; that
intervals hold all the same is measured.)

Tails. Gaussian noise: the normal quantile. Laplace noise: sums of m independent terms have excess kurtosis 3/m and
lighter tails than one term alone; the quantile is the smaller of one term's, ln(1/2p)/√2 standard deviations, and the
normal one with the Cornish-Fisher term of the kurtosis, κ(z³ − 3z)/24 [CF38], which lies above the true one (tests).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.quantiles.posterior import Floats, Indices, Target

_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True, repr=False)
class Round:
    """What one round says at its edges, ascending."""

    edges: Indices
    mean: Floats
    variance: Floats
    kurtosis: Floats
    """Excess, of the noise in ``mean``."""

    def between(self, p: float, size: int) -> tuple[int, int]:
        """The last edge from the left that is surely not above the target, the last from the right not below it."""
        reach = tail_quantiles(p, self.kurtosis) * np.sqrt(self.variance)
        left = int(np.logical_and.accumulate(self.mean + reach <= 0).sum())
        right = int(np.logical_and.accumulate((self.mean - reach >= 0)[::-1]).sum())
        return int(self.edges[left - 1]) if left else 0, int(self.edges[-right]) if right else size


@dataclass(frozen=True, kw_only=True, repr=False)
class Sightings:
    """Of one series, for one target: all rounds."""

    rounds: tuple[Round, ...] = ()

    def with_cells(
        self, edges: Indices, counts: Floats, variance: float, *, target: Target, records: float | None, laplace: bool
    ) -> Sightings:
        """After the counts of the ``len(edges) + 1`` cells; ``records`` where their number is public."""
        if not len(edges):
            return self
        cells = len(counts)
        below = np.arange(1, cells, dtype=np.float64)
        weight = below / cells if records is not None else np.full(len(edges), target.share)
        mean = np.cumsum(counts)[:-1] - weight * counts.sum() - target.shift
        if records is not None:
            mean += (weight - target.share) * records
        square = below * (1 - weight) ** 2 + (cells - below) * weight**2
        fourth = below * (1 - weight) ** 4 + (cells - below) * weight**4
        kurtosis = 3 * fourth / np.maximum(square, 1e-12) ** 2 if laplace else np.zeros(len(edges))
        return self._with(edges, mean, variance * square, kurtosis)

    def with_rank(self, edge: int, difference: float, variance: float, *, laplace: bool) -> Sightings:
        """After a probe told D(edge)."""
        kurtosis = np.array([3.0 if laplace else 0.0])
        return self._with(np.array([edge], dtype=np.int64), np.array([difference]), np.array([variance]), kurtosis)

    def _with(self, edges: Indices, mean: Floats, variance: Floats, kurtosis: Floats) -> Sightings:
        told = Round(edges=edges, mean=mean, variance=np.maximum(variance, _LEAST), kurtosis=kurtosis)
        return Sightings(rounds=(*self.rounds, told))

    def between(self, level: float, size: int, *, most: int | None = None) -> tuple[int, int]:
        """Edges [low, high) that hold the answer with probability ``level``: F(low) ≤ target ≤ F(high).

        ``most``: how many rounds there may be, for an interval that is promised.
        """
        if not self.rounds:
            return 0, size
        repeated = self._repeated()
        told = (*self.rounds, *([repeated] if repeated is not None else []))
        found = [r.between(p, size) for r, p in zip(told, _errors(level, len(self.rounds), most), strict=False)]
        low, high = max(first for first, _ in found), min(last for _, last in found)
        if high <= low:  # statements that contradict each other: one of them errs, and nobody knows which
            return min(low, high - 1), max(low + 1, high)
        return low, high

    def _repeated(self) -> Round | None:
        """The edges that several rounds have counted, with the precision-weighted means of what these said."""
        every = np.concatenate([r.edges for r in self.rounds])
        edges, times = np.unique(every, return_counts=True)
        edges = edges[times > 1]
        if not len(edges):
            return None
        precision, weighted, fourth = (np.zeros(len(edges)) for _ in range(3))
        for r in self.rounds:
            _, at, own = np.intersect1d(edges, r.edges, return_indices=True)
            precision[at] += 1 / r.variance[own]
            weighted[at] += r.mean[own] / r.variance[own]
            fourth[at] += r.kurtosis[own] / r.variance[own] ** 2  # fourth cumulants of independent terms: (1/v)⁴·κv²
        kurtosis = fourth / precision**2
        return Round(edges=edges, mean=weighted / precision, variance=1 / precision, kurtosis=kurtosis)


def _errors(level: float, rounds: int, most: int | None) -> list[float]:
    """With which probability one side of each round may err, and of the means over rounds."""
    if most is None:
        return [(1 - level) / (4 * rounds)] * (rounds + 1)
    alpha = (1 - level) / (2 * (1 / 4 + sum(1 / r for r in range(1, most + 1))))
    return [*(alpha / r for r in range(1, rounds + 1)), alpha / 4]


def tail_quantiles(p: float, kurtosis: NDArray[np.float64]) -> Floats:
    """Standard deviations that noise of this excess kurtosis exceeds with probability p at most."""
    z = NormalDist().inv_cdf(1 - p)
    one = math.log(1 / (2 * p)) / math.sqrt(2)
    heavier = np.where(kurtosis > 0, np.minimum(z + kurtosis * (z**3 - 3 * z) / 24, max(one, z)), z)
    return np.asarray(heavier)
