"""(γ x·y + c)^p by random products, a random Maclaurin map [KK12] of the one degree that is asked for.

With a = (√γ·x, √c) and b likewise of y, the kernel is (a·b)^p. For independent vectors r of signs ±1, E[(r·a)(r·b)] =
a·b; so for p of them E[Π (r_l·a) · Π (r_l·b)] = (a·b)^p, and φ_i(x) = Π_l (r_il·a)/√D meets the kernel without bias;
its variance falls as 1/D and grows with p.

*Bias*: E‖φ(x)‖² = ‖a‖^2p, but products have long tails, and a row may be far longer than that. Rows longer than the
kernel itself allows, √k(x, x) at the longest record, (γR² + c)^(p/2), are shortened to that length: so the norm is
known, and the features of the longest records are pulled inwards. The fewer features, the more rows that happens to.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.feature_map import WITHIN, FeatureMap, project_row, shorten_row
from tallystick.algorithms.feature_maps.public_draws import PublicDraws


class PolyFeatures(FeatureMap):
    """Products of p random projections each."""

    kernel = "poly"

    def __init__(
        self,
        *,
        columns: int,
        longest: float,
        typical_square: float,
        gamma: float,
        degree: int,
        coef0: float,
        n_features: int,
        seed: int,
    ) -> None:
        self.columns, self.size = columns, n_features
        self.gamma, self.degree, self.coef0, self.seed = gamma, degree, coef0, seed
        self.norm = (gamma * longest**2 + coef0) ** (degree / 2)
        self.typical_square = (gamma * typical_square + coef0) ** degree
        draws = PublicDraws(seed, "poly")
        signs = draws.signs(degree, columns + 1, n_features)
        # √γ and √c go into the signs once; the constant is the last row.
        signs[:, :-1] *= math.sqrt(gamma)
        signs[:, -1] *= math.sqrt(coef0)
        self._projections = signs

    def _rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty((len(features), self.size))
        _products(features, self._projections, 1 / math.sqrt(self.size), self.norm * WITHIN, out)
        return out

    def facts(self) -> dict[str, Any]:
        return {
            "kernel": "poly",
            "gamma": self.gamma,
            "degree": self.degree,
            "coef0": self.coef0,
            "n_features": self.size,
            "seed": self.seed,
        }

    def describe(self) -> str:
        return (
            f"kernel ({self.gamma:.4g} x.y + {self.coef0:g})^{self.degree} by {self.size} random products, drawn "
            f"from the study's feature_seed = {self.seed}: public, without records and without budget; rows are "
            f"shortened to {self.norm:.4g}"
        )


@njit(cache=True, nogil=True)
def _products(features, projections, scale, most, out):  # type: ignore[no-untyped-def]
    degree, columns, size = projections.shape
    row = np.empty(columns)
    row[columns - 1] = 1.0
    dots = np.empty(size)
    for i in range(features.shape[0]):
        for k in range(columns - 1):
            row[k] = features[i, k]
        for j in range(size):
            out[i, j] = scale
        for p in range(degree):
            project_row(row, projections[p], dots)
            for j in range(size):
                out[i, j] *= dots[j]
        shorten_row(out[i], most)
