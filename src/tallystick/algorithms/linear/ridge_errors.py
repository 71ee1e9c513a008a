"""How far noise may have moved the coefficients of a ridge regression: their covariance, from public facts and A, b.

    A = A₀ + E,   b = b₀ + e          E symmetric; every released sum has noise of known variance, independent of others

What is asked for is w₀ with (A₀ + αD) w₀ = b₀, the solution without noise (D = 1 but for the intercept). For
ŵ = (A + αD)⁻¹ b this holds exactly:

    ŵ − w₀ = M (e − E w₀),   M = (A + αD)⁻¹

so its covariance is M N M, N the covariance of e − E w₀: linear in the noise but for the noise in M and the unknown w₀.
Both are of second order while ‖M‖·‖E‖ is small; w₀² is taken as ŵ² plus its own variance. Where ‖M‖·‖E‖ is beyond
``_SMALL`` no covariance is given: a formula that may not hold promises nothing.

A block of indicators of which every record has exactly one sums to the constant 1. In these directions A₀ is exactly 0
and all of A is noise, so they are projected out of A and b first; α alone decides there, as it does without noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.linear.second_moments import SecondMoments

_SMALL = 0.1
_RENEWALS = 2


def coefficient_errors(
    moments: SecondMoments,
    gram: NDArray[np.float64],
    cross: NDArray[np.float64],
    *,
    gram_variance: NDArray[np.float64],
    cross_variance: float,
    alpha: float,
    fit_intercept: bool,
    complete: Sequence[tuple[int, int]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """(ŵ, covariance of ŵ − w₀), the intercept first (0 if there is none); None where the noise is not small.

    ``complete``: columns ``start:stop`` of z of which every record has exactly one.
    """
    d, first = len(cross), int(not fit_intercept)
    keep = _projection(d, complete, fit_intercept)
    penalty = np.full(d, float(alpha))
    penalty[0] = 0.0
    a = keep @ gram @ keep + np.diag(penalty)
    values, vectors = np.linalg.eigh(a[first:, first:])
    if values[0] <= 0:
        return None
    inverse = np.zeros((d, d))
    inverse[first:, first:] = (vectors / values) @ vectors.T
    inverse = inverse @ keep
    # A symmetric matrix of independent noise: ‖E‖ is about 2·√(largest sum of variances in a row).
    size = 2 * np.sqrt(gram_variance[first:, first:].sum(axis=1).max())
    if np.linalg.norm(inverse, 2) * size > _SMALL:
        return None
    w = inverse @ cross
    covariance = np.zeros((d, d))
    for _ in range(_RENEWALS):
        noise = _moved(moments, gram_variance, w) + np.diag(gram_variance @ np.diag(covariance))
        noise += cross_variance * np.eye(d)
        covariance = inverse @ noise @ inverse.T
    return w, covariance


def _projection(d: int, complete: Sequence[tuple[int, int]], fit_intercept: bool) -> NDArray[np.float64]:
    """Onto what is left when the differences of complete blocks' sums (the constant is one) are known to be 0."""
    blocks = [(0, 1)] * fit_intercept + list(complete)
    sums = np.zeros((d, len(blocks)))
    for at, (start, stop) in enumerate(blocks):
        sums[start:stop, at] = 1.0
    if len(blocks) < 2:
        return np.eye(d)
    known, _ = np.linalg.qr(sums[:, 1:] - sums[:, :1])
    return np.asarray(np.eye(d) - known @ known.T)


def _moved(moments: SecondMoments, variance: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cov(E w). A sum stands at (i, j) and (j, i), and moves row i by w_j and row j by w_i; an indicator's count also
    stands at (j, j), so that it moves row j by w_0 + w_j."""
    beside = variance - np.diag(np.diag(variance))
    out = np.diag(beside @ w**2) + beside * np.outer(w, w)
    indicators = np.flatnonzero(~moments.numbers)[1:]
    own = np.ones(len(w), dtype=np.bool_)
    own[indicators] = False
    out[own, own] += np.diag(variance)[own] * w[own] ** 2
    counts = variance[0, indicators]
    out[indicators, indicators] += counts * (w[indicators] ** 2 + 2 * w[0] * w[indicators])
    out[0, indicators] += counts * w[indicators] ** 2
    out[indicators, 0] += counts * w[indicators] ** 2
    return np.asarray(out)
