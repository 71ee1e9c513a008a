"""Ridge regression from noisy sums: solving A w = b when A and b carry noise of known power.

    A = Σ ω z zᵀ + E,   b = Σ ω t z + e        Var E_ij = S_ij, Var e_i known: nothing about the noise is estimated

Three steps, all of them post-processing of what was released:

1. *Shrink.* Beside the exactly known structure (indicators of one block exclude each other) the informative entries are
   the covariances between blocks, C_ij = A_ij − A_0i A_0j/A_00. Those of one pair of blocks (or of all small pairs
   together) are multiplied by f = (1 − Σ S/Σ C²)₊, the empirical Bayes estimate for normal noise [EM73]: what drowns in
   noise becomes "independent", what stands out stays. The error left is about f·S.
2. *Project.* Eigenvalues below 0 are noise: they are set to 0, the nearest positive semidefinite matrix.
3. *Solve.* With A taken as it is, b − A w = e − E w has the variances N_i = Var e_i + Σ_j S_ij E w_j². Coefficients
   with prior variances T = τ² (the intercept: 0.1) then have the posterior mean

       w = T Ã (Ã T Ã + N)⁻¹ b,        Ã = A + alpha on the diagonal (intercept apart)

   which is (A + alpha)⁻¹ b where there is no noise, and drops directions whose eigenvalue is below the noise. τ is the
   one of 25 between 10⁻³ and 3 with the largest marginal likelihood of b, N is renewed three times. With targets in
   [−1, 1] coefficients beyond 3 are not expected, nor a mean far out: its standard deviation is taken as 0.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.linear.second_moments import SecondMoments

_TAUS = np.geomspace(1e-3, 3.0, 25)
_SMALL_PAIR = 6
"""Block pairs with fewer entries are shrunk together: one entry alone says nothing about its own signal."""
_RENEWALS = 3
_INTERCEPT_VARIANCE = 0.1


def solve(
    moments: SecondMoments,
    gram: NDArray[np.float64],
    cross: NDArray[np.float64],
    *,
    gram_variance: NDArray[np.float64],
    cross_variance: float,
    alpha: float,
    fit_intercept: bool = True,
    shrunk_below: float = 1.0,
) -> NDArray[np.float64]:
    """Coefficients of z, the intercept first (0 if there is none), for a target in [−1, 1]; for several, a column each.

    ``shrunk_below``: in step 1, pairs of blocks whose factor f is larger are left as they are. Several
    targets share τ and the expected squares of their coefficients: one likelihood of all of them chooses.
    """
    gram, variance = _shrink(moments, gram, gram_variance, shrunk_below)
    first = 0 if fit_intercept else 1
    a, s, b = gram[first:, first:], variance[first:, first:], cross[first:]
    values, vectors = np.linalg.eigh(a)
    a = (vectors * np.maximum(values, 0.0)) @ vectors.T
    penalty = np.full(len(b), float(alpha))
    prior = np.ones(len(b))
    if fit_intercept:
        penalty[0] = 0.0
    a = a + np.diag(penalty)
    w = _filtered(a, b, s, cross_variance, prior, fit_intercept) if variance.any() or cross_variance else _exact(a, b)
    return w if fit_intercept else np.concatenate([np.zeros((1, *w.shape[1:])), w])


def _exact(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without noise: the solution of least norm."""
    return np.asarray(np.linalg.lstsq(a, b, rcond=1e-12)[0])


def _filtered(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    variance: NDArray[np.float64],
    cross_variance: float,
    prior: NDArray[np.float64],
    fit_intercept: bool,
) -> NDArray[np.float64]:
    w, squares = np.zeros(b.shape), np.full(len(b), 0.05)
    targets = b.size // len(b)
    for _ in range(_RENEWALS):
        noise = cross_variance + variance @ squares
        scale = 1 / np.sqrt(noise)
        scaled_cross = (scale * b.T).T
        scaled = scale[:, None] * a  # in units of the noise: well scaled whatever the number of records
        best = -np.inf
        for tau in _TAUS:
            t = prior * tau**2
            if fit_intercept:
                t[0] = _INTERCEPT_VARIANCE
            half = scaled * np.sqrt(t)
            lower = np.linalg.cholesky(half @ half.T + np.eye(len(b)))
            z = np.linalg.solve(lower, scaled_cross)
            likelihood = -targets * np.log(np.diag(lower)).sum() - 0.5 * float(np.vdot(z, z))
            if likelihood > best:
                best, chosen, factor = likelihood, t, lower
                w = (t * (scaled.T @ np.linalg.solve(lower.T, z)).T).T
        # E w² = mean² + variance, the posterior covariance being T − T Ã (Ã T Ã + N)⁻¹ Ã T.
        known = (np.linalg.solve(factor, scaled * chosen) ** 2).sum(axis=0)
        squares = (w**2).reshape(len(b), -1).mean(axis=1) + np.maximum(chosen - known, 0.0)
    return w


def _shrink(
    moments: SecondMoments, gram: NDArray[np.float64], variance: NDArray[np.float64], below: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Step 1: covariances between blocks, each pair of blocks by its own factor, small pairs by a common one."""
    gram, variance = gram.copy(), variance.copy()
    count = max(float(gram[0, 0]), 1.0)
    mean = np.clip(gram[0] / count, -1.0, 1.0)
    product = count * np.outer(mean, mean)
    small = np.zeros(gram.shape, dtype=np.bool_)
    pairs: list[Any] = []
    for at, one in enumerate(moments.blocks[1:], start=1):
        for other in moments.blocks[1:at]:
            pair = slice(other.start, other.stop), slice(one.start, one.stop)
            if (other.stop - other.start) * (one.stop - one.start) < _SMALL_PAIR:
                small[pair] = True
            else:
                pairs.append(pair)
    for where in (*pairs, np.nonzero(small)):
        c = gram[where] - product[where]
        if c.size == 0 or not variance[where].any():
            continue
        kept = max(0.0, 1 - float(variance[where].sum()) / max(float((c**2).sum()), 1e-300))
        kept = 1.0 if kept > below else kept
        gram[where] = product[where] + kept * c
        variance[where] *= kept
    upper = np.triu(np.ones(gram.shape, dtype=np.bool_), 1)
    return _mirrored(gram, upper), _mirrored(variance, upper)


def _mirrored(matrix: NDArray[np.float64], upper: NDArray[np.bool_]) -> NDArray[np.float64]:
    out = np.where(upper, matrix, 0.0)
    return out + out.T + np.diag(np.diag(matrix))
