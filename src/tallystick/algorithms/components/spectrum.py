"""From a symmetric matrix to components, and how far noise may have moved its eigenvalues."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def leading(matrix: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(eigenvalues, eigenvectors as rows) of the ``count`` largest, by *signed* value.

    A scatter has no negative eigenvalue: a large negative one is noise, and by absolute value it would be picked.
    Signs: the entry of largest modulus (the first of equals) is positive, so that two runs can be compared.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, rows = values[::-1][:count], vectors.T[::-1][:count]
    return values.copy(), signed(rows)


def signed(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row or its opposite: the one whose entry of largest modulus is positive."""
    at = np.abs(rows).argmax(axis=1)
    return np.asarray(rows * np.where(rows[np.arange(len(rows)), at] < 0, -1.0, 1.0)[:, None])


def noise_norm(columns: int, diagonal: float, beside: float, level: float) -> float:
    """The spectral norm that a symmetric Gaussian matrix of these variances exceeds with probability 1 − level at most.

    With τ² = max(σ_d²/2, σ_b²) the matrix is dominated by one with 2τ² on the diagonal and τ² beside it (a Gaussian
    orthogonal ensemble; more independent noise of mean 0 does not lower E of a convex function). Its largest eigenvalue
    has mean ≤ 2τ√d and is a √2·τ-Lipschitz function of independent standard normals, so it exceeds 2τ√d + √2·τ·t with
    probability ≤ e^(−t²/2) [DS01, Thm. 2.11; Gaussian concentration]; likewise the smallest. By Weyl's inequality every
    eigenvalue of scatter + noise is within the norm of the scatter's own: all intervals hold together.
    """
    tau = math.sqrt(max(diagonal / 2, beside))
    t = math.sqrt(2 * math.log(2 / (1 - level)))
    return tau * (2 * math.sqrt(columns) + math.sqrt(2) * t)
