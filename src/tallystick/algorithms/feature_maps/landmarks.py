"""Any kernel by landmarks, Nyström's method [WS01]: public points, or points made up within the public box.

Never records: landmarks stand in the study, or follow from its seed. For landmarks z₁ … z_m and K = k(z, z) = LLᵀ,
φ(x) = L⁻¹·k(z, x) has φ(x)·φ(y) = k(x, z) K⁻¹ k(z, y): the kernel exactly where x or y is a landmark, and its
projection onto what the landmarks span elsewhere. A positive kernel has ‖φ(x)‖² = k(x, z) K⁻¹ k(z, x) ≤ k(x, x),
because the Schur complement of a positive matrix is not negative: at most 1 for rbf.

A little is added to K's diagonal so that it can be factored, which makes φ shorter still. For a kernel that is not
positive (the sigmoid's) as much is added as that takes, which is the usual shift of its spectrum; the length is then
not known by the inequality, and rows longer than √max k(x, x) are shortened to it. Cholesky's factor, not
eigenvectors: a loop of a fixed order has the same bits on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.elementwise import exp_of_negative
from tallystick.algorithms.feature_maps.feature_map import WITHIN, FeatureMap, project_row, shorten_row
from tallystick.algorithms.feature_maps.public_draws import PublicDraws
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError

_KINDS = {"rbf": 0, "poly": 1, "sigmoid": 2}
_JITTER = 2.0**-24
"""Added to the diagonal, in parts of its largest entry; doubled until the matrix can be factored."""


class LandmarkFeatures(FeatureMap):
    """k(z, x) for every landmark, made orthonormal: as many features as landmarks."""

    def __init__(
        self,
        *,
        kernel: str,
        landmarks: NDArray[np.float64],
        synthetic: int | None,
        longest: float,
        typical_square: float,
        gamma: float,
        degree: int,
        coef0: float,
        seed: int,
    ) -> None:
        self.kernel, self.gamma, self.degree, self.coef0, self.seed = kernel, gamma, degree, coef0, seed
        self.landmarks, self._synthetic = np.ascontiguousarray(landmarks), synthetic
        self.size, self.columns = landmarks.shape
        self.norm = self.typical_square = 1.0  # rbf: k(x, x) = 1; sigmoid: tanh < 1
        if kernel == "poly":
            self.norm = (gamma * longest**2 + coef0) ** (degree / 2)
            self.typical_square = (gamma * typical_square + coef0) ** degree
        self._transposed = np.ascontiguousarray(self.landmarks.T)
        self._constants = (_KINDS[kernel], gamma, degree, coef0)
        between = np.empty((self.size, self.size))
        _kernel_rows(self.landmarks, self._transposed, *self._constants, between)
        self._whitening = _whitening(between)

    def _rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty((len(features), self.size))
        _nystroem(features, self._transposed, self._whitening, *self._constants, self.norm * WITHIN, out)
        return out

    def values(self, features: NDArray[np.float64], points: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """The kernel itself between rows and landmarks, or other points."""
        constants = {"kernel": self.kernel, "gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return kernel_values(features, self.landmarks if points is None else points, **constants)  # type: ignore[arg-type]

    def weights_for(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the features whose function has these values at the landmarks, one row of values per function."""
        found: NDArray[np.float64] = values @ self._whitening
        return found

    def facts(self) -> dict[str, Any]:
        of = {} if self.kernel == "rbf" else {"coef0": self.coef0}
        if self.kernel == "poly":
            of["degree"] = self.degree
        made: Any = self._synthetic if self._synthetic is not None else self.landmarks.tolist()
        return {"kernel": self.kernel, "gamma": self.gamma, **of, "landmarks": made, "seed": self.seed}

    def describe(self) -> str:
        where = (
            f"made up within the declared bounds from the study's feature_seed = {self.seed}"
            if self._synthetic is not None
            else "that stand in the study"
        )
        return (
            f"{self.kernel} kernel (gamma = {self.gamma:.4g}) by {self.size} landmarks {where}: public, no records, no "
            f"budget; no row is longer than {self.norm:.4g}"
        )


def synthetic_landmarks(public: Public, count: int, seed: int) -> NDArray[np.float64]:
    """Points spread evenly over what the schema allows: numbers within their bounds, one value per category."""
    draws = PublicDraws(seed, "landmarks")
    out = np.zeros((count, len(public.features)))
    for _, start, stop, kind, ones in public.columns:
        if kind == "number":
            out[:, start] = 2 * draws.uniform(count) - 1  # its missing mark, if it has one, stays 0
            continue
        for _ in range(max(1, min(ones, stop - start) // 2)):
            out[np.arange(count), start + draws.below(stop - start, count)] = 1.0
    return out


def _whitening(kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    """(L⁻¹)ᵀ of K + the least of some shifts that can be factored."""
    largest = float(np.max(np.abs(np.diag(kernel)), initial=0.0))
    shift = _JITTER * largest
    factor = np.empty_like(kernel)
    while math.isfinite(shift) and shift > 0:
        if _cholesky(kernel, shift, factor):
            return np.ascontiguousarray(_inverse(factor).T)
        shift *= 2
    raise StudyError(
        "the kernel of the landmarks is zero or not a number",
        rule="map-landmarks",
        remedy="Use other landmarks, a smaller gamma, or coef0 above 0.",
    )


@njit(cache=True, nogil=True)
def _cholesky(a, shift, out):  # type: ignore[no-untyped-def]
    """L with LLᵀ = a + shift·1, or False where a pivot is not clearly positive."""
    n = a.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j] + (shift if i == j else 0.0)
            for k in range(j):
                total -= out[i, k] * out[j, k]
            if i == j:
                if not total > 0.25 * shift:
                    return False
                out[i, i] = np.sqrt(total)
            else:
                out[i, j] = total / out[j, j]
        for j in range(i + 1, n):
            out[i, j] = 0.0
    return True


@njit(cache=True, nogil=True)
def _inverse(lower):  # type: ignore[no-untyped-def]
    n = lower.shape[0]
    out = np.zeros((n, n))
    for i in range(n):
        for k in range(i):
            part = lower[i, k]
            for j in range(k + 1):
                out[i, j] -= part * out[k, j]
        for j in range(i):
            out[i, j] /= lower[i, i]
        out[i, i] = 1.0 / lower[i, i]
    return out


@njit(cache=True, nogil=True)
def _kernel_row(row, transposed, kind, gamma, degree, coef0, out):  # type: ignore[no-untyped-def]
    m = transposed.shape[1]
    if kind == 0:
        for j in range(m):
            out[j] = 0.0
        for k in range(transposed.shape[0]):
            x = row[k]
            for j in range(m):
                away = x - transposed[k, j]
                out[j] += away * away
        for j in range(m):
            out[j] = exp_of_negative(-gamma * out[j])
        return
    project_row(row, transposed, out)
    for j in range(m):
        z = gamma * out[j] + coef0
        if kind == 1:
            power = 1.0
            for _ in range(degree):
                power *= z
            out[j] = power
        else:  # tanh z = ±(1 − e)/(1 + e), e = exp(−2|z|)
            e = exp_of_negative(-2.0 * abs(z))
            t = (1.0 - e) / (1.0 + e)
            out[j] = t if z >= 0 else -t


@njit(cache=True, nogil=True)
def _kernel_rows(features, transposed, kind, gamma, degree, coef0, out):  # type: ignore[no-untyped-def]
    for i in range(features.shape[0]):
        _kernel_row(features[i], transposed, kind, gamma, degree, coef0, out[i])


@njit(cache=True, nogil=True)
def _nystroem(features, transposed, whitening, kind, gamma, degree, coef0, most, out):  # type: ignore[no-untyped-def]
    near = np.empty(transposed.shape[1])
    for i in range(features.shape[0]):
        _kernel_row(features[i], transposed, kind, gamma, degree, coef0, near)
        project_row(near, whitening, out[i])
        shorten_row(out[i], most)


def kernel_values(
    features: NDArray[np.float64], points: NDArray[np.float64], *, kernel: str, gamma: float, degree: int, coef0: float
) -> NDArray[np.float64]:
    """k(x, z) of every row x and every point z, each row by itself."""
    out = np.empty((len(features), len(points)))
    rows, transposed = np.ascontiguousarray(features), np.ascontiguousarray(points.T)
    _kernel_rows(rows, transposed, _KINDS[kernel], gamma, degree, coef0, out)
    return out
