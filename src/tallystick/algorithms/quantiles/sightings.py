"""What releases say about ranks by themselves, whatever law the records follow: the ground of intervals.

Every release tells D(e) = F(e) − q·N − shift at its edges, up to noise whose law is public. Nothing is assumed about
the records, so what holds here holds for spikes, gaps and ties as well.

* A level of K + 1 cells, each with noise of variance v: the rank at the j-th edge is a sum of counts with weights 1 − r
  below the edge and −r above it; r = j/(K + 1) where N is public (generalised least squares of one rank under
  Σ counts = N), r = q where it is not (then Σ weights·counts is F(e) − q·N itself). Its variance is
  v·(j(1 − r)² + (K + 1 − j)r²).
* A probe tells one rank.

Sightings of one edge are averaged by their precisions. An edge e can be mistaken on one side only: F(e) is at most the
target or above it. So if each of m statements errs with probability (1 − level)/m at most, all hold together with
probability ``level`` (union bound), and with them every interval whose ends are chosen among them afterwards. Each
round's word on an edge counts as a statement, because later edges and prices are chosen in sight of the earlier ones.

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Sightings:
    """Of one series, for one target: edge by edge the precision-weighted mean of D, ascending."""

    edges: Indices
    mean: Floats
    variance: Floats
    kurtosis: Floats
    """Excess, of the noise in ``mean``."""
    statements: int

    @classmethod
    def none(cls) -> Sightings:
        empty = np.zeros(0)
        return cls(edges=np.zeros(0, dtype=np.int64), mean=empty, variance=empty, kurtosis=empty, statements=0)

    def with_cells(
        self, edges: Indices, counts: Floats, variance: float, *, target: Target, records: float | None, laplace: bool
    ) -> Sightings:
        """After the counts of the ``len(edges) + 1`` cells; ``records`` where their number is public."""
        cells = len(counts)
        below = np.arange(1, cells, dtype=np.float64)
        weight = below / cells if records is not None else np.full(len(edges), target.share)
        mean = np.cumsum(counts)[:-1] - weight * counts.sum() - target.shift
        if records is not None:
            mean += (weight - target.share) * records
        square = below * (1 - weight) ** 2 + (cells - below) * weight**2
        fourth = below * (1 - weight) ** 4 + (cells - below) * weight**4
        kurtosis = 3 * fourth / square**2 if laplace else np.zeros(len(edges))
        return self._with(edges, mean, variance * square, kurtosis)

    def with_rank(self, edge: int, difference: float, variance: float, *, laplace: bool) -> Sightings:
        """After a probe told D(edge)."""
        kurtosis = np.array([3.0 if laplace else 0.0])
        return self._with(np.array([edge], dtype=np.int64), np.array([difference]), np.array([variance]), kurtosis)

    def _with(self, edges: Indices, mean: Floats, variance: Floats, kurtosis: Floats) -> Sightings:
        variance = np.maximum(variance, 1e-12)
        every = np.union1d(self.edges, edges)
        precision, weighted, fourth = (np.zeros(len(every)) for _ in range(3))
        for of, value, var, kurt in (
            (self.edges, self.mean, self.variance, self.kurtosis),
            (edges, mean, variance, kurtosis),
        ):
            at = np.searchsorted(every, of)
            precision[at] += 1 / var
            weighted[at] += value / var
            fourth[at] += kurt / var**2  # fourth cumulants of independent terms add: (1/v)⁴·κv²
        return Sightings(
            edges=every,
            mean=weighted / precision,
            variance=1 / precision,
            kurtosis=fourth / precision**2,
            statements=self.statements + len(edges),
        )

    def between(self, level: float, size: int) -> tuple[int, int]:
        """Edges [low, high) that hold the answer with probability ``level``: F(low) ≤ target ≤ F(high)."""
        if not len(self.edges):
            return 0, size
        reach = tail_quantiles((1 - level) / self.statements, self.kurtosis) * np.sqrt(self.variance)
        low, high = self.edges[self.mean + reach <= 0], self.edges[self.mean - reach >= 0]
        first, last = int(low.max(initial=0)), int(high.min(initial=size))
        if last <= first:  # statements that contradict each other: one of them errs, and nobody knows which
            first, last = int(low[low < last].max(initial=0)), int(high[high > first].min(initial=size))
        return first, last


def tail_quantiles(p: float, kurtosis: NDArray[np.float64]) -> Floats:
    """Standard deviations that noise of this excess kurtosis exceeds with probability p at most."""
    z = NormalDist().inv_cdf(1 - p)
    one = math.log(1 / (2 * p)) / math.sqrt(2)
    heavier = np.where(kurtosis > 0, np.minimum(z + kurtosis * (z**3 - 3 * z) / 24, max(one, z)), z)
    return np.asarray(heavier)
