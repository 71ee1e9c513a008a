"""What private components are compared with: one trusted curator, local components passed along, a random projection.

Baselines of a benchmark only: none of them is offered, and the second promises less than it seems (its owners see their
predecessors' components with the noise of one owner alone).
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

__all__ = ["central_analyze_gauss", "gaussian_multiplier", "passed_along", "random_projection", "without_privacy"]

Rows = NDArray[np.float64]


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """σ over sensitivity of the Gaussian mechanism, exactly: δ = Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) [BW18, Thm. 8]."""

    def excess(sigma: float) -> float:
        a, b = 1 / (2 * sigma), epsilon * sigma
        return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - delta)

    return float(brentq(excess, 1e-3, 1e6))


def _symmetric(d: int, std: float, rng: np.random.Generator) -> Rows:
    noise = np.triu(rng.normal(0, std, (d, d)))
    return noise + np.triu(noise, 1).T


def _leading(matrix: Rows, count: int) -> tuple[Rows, Rows]:
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:count], vectors.T[::-1][:count]


def central_analyze_gauss(rows: Rows, k: int, *, epsilon: float, delta: float, rng: np.random.Generator) -> Rows:
    """Analyze Gauss as published [DTTZ14]: rows of length 1, equal noise on the triangle, one trusted curator.

    Kinder to it than it could have it: rows are centred on their exact mean, which nobody charges.
    """
    centred = rows - rows.mean(axis=0)
    noise = _symmetric(rows.shape[1], math.sqrt(2) * gaussian_multiplier(epsilon, delta), rng)
    return _leading(centred.T @ centred + noise, k)[1]


def without_privacy(rows: Rows, k: int) -> Rows:
    """The components themselves."""
    centred = rows - rows.mean(axis=0)
    return _leading(centred.T @ centred, k)[1]


def random_projection(d: int, k: int, rng: np.random.Generator) -> Rows:
    """k directions at random."""
    return np.asarray(np.linalg.qr(rng.normal(size=(d, k)))[0].T)


def passed_along(
    rows: Rows, k: int, owners: int, *, epsilon: float, delta: float, rng: np.random.Generator
) -> tuple[Rows, float]:
    """Local components, each with its owner's own noise, handed from owner to owner [IS16, as the paper compares].

    Owner l adds symmetric noise to the second moment of its own records (each record is at one owner, so every one of
    them has the whole budget), keeps as many components as its records have rank, weighs them by √eigenvalue, stacks
    them on what came from its predecessor, and passes on the best of both. And the seconds, one owner after the other.
    """
    std = math.sqrt(2) * gaussian_multiplier(epsilon, delta)
    d = rows.shape[1]
    passed, seconds = np.zeros((0, d)), 0.0
    for own in np.array_split(rows, owners):
        started = time.process_time()
        centred = own - own.mean(axis=0)
        rank = min(k, len(own))
        values, vectors = _leading(centred.T @ centred + _symmetric(d, std, rng), rank)
        both = np.vstack([passed, vectors * np.sqrt(np.maximum(values, 0.0))[:, None]])
        _, weights, directions = np.linalg.svd(both, full_matrices=False)
        passed = directions[:k] * weights[:k, None]
        seconds += time.process_time() - started
    lengths = np.linalg.norm(passed, axis=1)
    return passed[lengths > 0] / lengths[lengths > 0, None], seconds
