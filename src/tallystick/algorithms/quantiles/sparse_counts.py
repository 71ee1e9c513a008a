"""Counts of which many are nothing: what a noisy count says of a cell where records are known to lie in heaps.

A cell is empty with probability 1 − π, else its count has the density 1/((c + s)·L) on [0, M], s being the noise's
standard deviation, M the largest count that is possible and L what makes it one: no scale is preferred. π is taken from
the counts themselves (the maximum of their marginal likelihood, by EM). Post-processing: only where to look depends on
it; intervals (:mod:`tallystick.algorithms.quantiles.sightings`) do not.
"""

from __future__ import annotations

import numpy as np

from tallystick.algorithms.quantiles.posterior import Floats

_POINTS = 96
_EMPTY = 0.25
"""Standard deviation, in that of the noise, left to a count that is surely nothing."""


def expected_counts(counts: Floats, std: float, *, laplace: bool) -> tuple[Floats, Floats]:
    """Posterior mean and variance of each count."""
    if std <= 0:
        return counts, np.zeros(len(counts))
    most = max(float(counts.max()) + 3 * std, 4 * std)
    places = (np.geomspace(1.0, 1.0 + most / std, _POINTS) - 1.0) * std  # equal steps of ln(c + s)
    of_place = _density(counts[:, None] - places[None, :], std, laplace) / _POINTS
    empty, some = _density(counts, std, laplace), of_place.sum(axis=1)
    occupied = 0.5
    for _ in range(8):
        share = occupied * some / np.maximum(occupied * some + (1 - occupied) * empty, 1e-300)
        occupied = float(np.clip(share.mean(), 1 / (2 * len(counts)), 1.0))
    weights = of_place / np.maximum(some, 1e-300)[:, None]
    first = weights @ places
    second = weights @ places**2
    mean = share * first
    variance = share * second - mean**2 + (1 - share) * (_EMPTY * std) ** 2
    return mean, np.maximum(variance, (_EMPTY * std) ** 2 / 4)


def _density(x: Floats, std: float, laplace: bool) -> Floats:
    """Of the noise, up to a constant; two servers' Laplace noise has e^(−|x|/b)·(1 + |x|/b), b = s/2."""
    if laplace:
        scaled = 2 * np.abs(x) / std
        return np.asarray((1 + scaled) * np.exp(-scaled))
    return np.asarray(2 * np.exp(-0.5 * (x / std) ** 2) / np.sqrt(2 * np.pi) * 1.0)
