"""exp(−γ‖x − y‖²) by orthogonal random features.

The kernel is the mean of cos(w·(x − y)) over w ~ N(0, 2γ·I) (Bochner's theorem; random Fourier features [RR07]). With m
frequencies, φ(x) = (cos w₁·x, …, cos w_m·x, sin w₁·x, …, sin w_m·x)/√m has φ(x)·φ(y) = (1/m) Σ cos(w_i·(x − y)), and
‖φ(x)‖² = (1/m) Σ (cos² + sin²) = 1, for every x.

*Orthogonal* [YSCHK16]: the frequencies come in blocks of as many as there are columns, each an orthogonal matrix drawn
uniformly (Gram and Schmidt on normal deviates) whose rows get lengths of their own, those of independent normal
vectors. Each frequency alone is then still N(0, 2γ·I), so the kernel is met without bias (Theorem 1 there); but those
of a block do not repeat each other, and the variance is smaller than with independent ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.feature_map import WITHIN, FeatureMap, project_row
from tallystick.algorithms.feature_maps.public_draws import PublicDraws
from tallystick.algorithms.feature_maps.waves import LARGEST, sine_cosine
from tallystick.core.errors import StudyError


class RbfFeatures(FeatureMap):
    """Cosines and sines of m frequencies: 2m features, every row of length 1."""

    kernel = "rbf"
    norm = 1.0
    typical_square = 1.0

    def __init__(self, *, columns: int, longest: float, gamma: float, n_features: int, seed: int) -> None:
        """``longest`` bounds ‖x‖ of an encoded record: what the size of the waves' arguments follows from."""
        if n_features % 2:
            raise StudyError(
                f"n_features = {n_features} is odd, and each frequency gives a cosine and a sine",
                rule="map-features",
                remedy=f"Use n_features = {n_features + 1}.",
            )
        self.columns, self.size = columns, n_features
        self.gamma, self.seed = gamma, seed
        self.frequencies = math.sqrt(2 * gamma) * orthogonal_frequencies(columns, n_features // 2, seed)
        fastest = float(np.sqrt(np.max(np.sum(self.frequencies**2, axis=0)))) * max(longest, 1.0)
        if not fastest < LARGEST / 2:
            raise StudyError(
                f"gamma = {gamma} is too large: no two different records of these columns would be alike",
                rule="map-gamma",
                remedy='Use gamma = "auto", or a number near one over the number of encoded columns.',
            )

    def _rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty((len(features), self.size))
        _waves(features, self.frequencies, WITHIN / math.sqrt(self.size // 2), out)
        return out

    def facts(self) -> dict[str, Any]:
        return {"kernel": "rbf", "gamma": self.gamma, "n_features": self.size, "seed": self.seed}

    def describe(self) -> str:
        return (
            f"kernel exp(-{self.gamma:.4g} |x - y|^2) by {self.size} orthogonal random features, drawn from the "
            f"study's feature_seed = {self.seed}: public, without records and without budget; every row has length 1"
        )


def orthogonal_frequencies(columns: int, count: int, seed: int) -> NDArray[np.float64]:
    """``count`` vectors, one per column of the answer: orthogonal within blocks, each by itself standard normal."""
    draws = PublicDraws(seed, "rbf")
    out = np.empty((columns, count))
    for first in range(0, count, columns):
        many = min(columns, count - first)
        directions = draws.normal(many, columns)
        lengths = draws.normal(many, columns)
        _orthonormalise(directions)
        _write_frequencies(directions, lengths, out[:, first : first + many])
    return out


@njit(cache=True, nogil=True)
def _orthonormalise(rows):  # type: ignore[no-untyped-def]
    """Gram and Schmidt, in place and in a fixed order; each row is cleared twice, which is enough [Kahan, Parlett]."""
    for i in range(rows.shape[0]):
        for _ in range(2):
            for k in range(i):
                dot = 0.0
                for j in range(rows.shape[1]):
                    dot += rows[i, j] * rows[k, j]
                for j in range(rows.shape[1]):
                    rows[i, j] -= dot * rows[k, j]
        square = 0.0
        for j in range(rows.shape[1]):
            square += rows[i, j] * rows[i, j]
        length = np.sqrt(square)
        for j in range(rows.shape[1]):
            rows[i, j] /= length


@njit(cache=True, nogil=True)
def _write_frequencies(directions, lengths, out):  # type: ignore[no-untyped-def]
    for i in range(directions.shape[0]):
        square = 0.0
        for j in range(lengths.shape[1]):
            square += lengths[i, j] * lengths[i, j]
        length = np.sqrt(square)
        for j in range(directions.shape[1]):
            out[j, i] = length * directions[i, j]


@njit(cache=True, nogil=True)
def _waves(features, frequencies, scale, out):  # type: ignore[no-untyped-def]
    m = frequencies.shape[1]
    angles = np.empty(m)
    for i in range(features.shape[0]):
        project_row(features[i], frequencies, angles)
        for j in range(m):
            sine, cosine = sine_cosine(angles[j])
            out[i, j] = scale * cosine
            out[i, m + j] = scale * sine
