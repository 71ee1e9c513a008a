"""The published way with kernels: learners agree on their functions' values at public landmarks [decision 15].

Learner m's function w_m lives in the kernel's own space; G = φ(X_g) of the landmarks X_g maps it to its values there,
and G·w_m = z is what is agreed on. With K_g = 1 + ρM·K(X_g, X_g) its dual has a box and nothing else:

    A = M·Y[K_mm − ρM K_mg K_g⁻¹ K_gm]Y + y yᵀ/ρ,   q = −1 + Y[Mρ K_mg K_g⁻¹(z − r) + (s − e)]
    G·w = M K_g⁻¹[K_gm Yλ + ρ K_gg(z − r)],   b = s − e + yᵀλ/ρ;   z = mean(G·w + r), s = mean(b + e)

(the published equations have ρ/M for ρM, miss the factor M, and have the wrong sign in q: with z = 0 nothing would ever
move). A learner's own function is made of its records and stays with it. The model that is shared is the shortest
function with the agreed values, K(x, X_g)K_gg⁻¹z + s, which Nyström's features of the same landmarks write as weights.

A learner holds the kernel between all pairs of its records, so they may be a few thousand. Random features, or
Nyström's with a linear solver, are the better way to a shared model; this one is there because the paper has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.consensus_svm.admm import AdmmProgram, AdmmQuery, AdmmSettings, AdmmState, learner
from tallystick.algorithms.consensus_svm.coordinate_descent import stride
from tallystick.algorithms.feature_maps.landmarks import LandmarkFeatures
from tallystick.algorithms.program import Public
from tallystick.core.errors import DataError

MOST_RECORDS = 6000
"""Of one learner: their kernel takes 8 bytes a pair."""


class LandmarkMemory(NamedTuple):
    """A learner's own, per class: multipliers, and the last (G·ŵ + r, b̂ + e)."""

    multipliers: NDArray[np.float64]
    sent_z: NDArray[np.float64]
    sent_b: NDArray[np.float64]


@dataclass(repr=False)
class LandmarkLearner:
    """A client's records as kernels; what depends on ρ and M is made when they are known."""

    signs: NDArray[np.float64]
    between: NDArray[np.float64]
    """K_mm."""
    across: NDArray[np.float64]
    """K_mg."""
    at: tuple[float, float] | None = None
    spread: NDArray[np.float64] | None = None
    """K_mg K_g⁻¹."""
    curvature: NDArray[np.float64] | None = None
    """K_mm − ρM K_mg K_g⁻¹ K_gm."""


class LandmarkAdmmProgram(AdmmProgram):
    """See the module. Fields are public facts."""

    def __init__(self, public: Public, settings: AdmmSettings, *, made: LandmarkFeatures) -> None:
        super().__init__(public, settings, size=made.size, rows=made.rows, typical_square=1.0)
        self.made = made
        self._at_landmarks = made.values(made.landmarks)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> LandmarkLearner:  # type: ignore[override]
        if len(features) > MOST_RECORDS:
            raise DataError(
                f"consensus at landmarks holds the kernel of all pairs of records, and {len(features)} are too many",
                remedy='Leave feature_map = "landmarks" out: random features take any number of records.',
            )
        signs = learner(features, target, self.classes, lambda rows: rows[:, :0]).signs
        return LandmarkLearner(
            signs=signs, between=self.made.values(features, features), across=self.made.values(features)
        )

    def start_in_client(self, prepared: LandmarkLearner) -> LandmarkMemory:  # type: ignore[override]
        k, n, size = self.outputs, len(prepared.across), self.size
        return LandmarkMemory(np.zeros((k, n)), np.zeros((k, size)), np.zeros(k))

    def step_in_client(  # type: ignore[override]
        self, prepared: LandmarkLearner, state: AdmmQuery, memory: LandmarkMemory
    ) -> tuple[NDArray[np.int64], LandmarkMemory]:
        self._check(state)
        if state.learners == 0:
            return self.encoded(np.zeros(self.numbers)), memory
        after = LandmarkMemory(*(part.copy() for part in memory))
        parts = [self._landmark_step(prepared, state, after, k) for k in range(self.outputs)]
        return self.encoded(np.concatenate(parts)), after

    def _made_ready(self, own: LandmarkLearner, state: AdmmQuery) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        strength = state.rho * state.learners
        if own.at != (state.rho, state.learners) or own.spread is None or own.curvature is None:
            joint = np.eye(self.size) + strength * self._at_landmarks
            spread: NDArray[np.float64] = np.linalg.solve(joint.T, own.across.T).T.astype(np.float64)
            curvature = own.between - strength * (spread @ own.across.T)
            own.spread, own.curvature = spread, np.ascontiguousarray((curvature + curvature.T) / 2)
            own.at = state.rho, state.learners
        return own.spread, own.curvature

    def _landmark_step(
        self, own: LandmarkLearner, state: AdmmQuery, memory: LandmarkMemory, k: int
    ) -> NDArray[np.float64]:
        c, rho, learners = self.settings, state.rho, state.learners
        spread, curvature = self._made_ready(own, state)
        z, s, signs, first = state.z[k], float(state.s[k]), own.signs[k], state.round == 1
        r = np.zeros_like(z) if first else memory.sent_z[k] - z
        e = 0.0 if first else float(memory.sent_b[k]) - s
        fixed = learners * rho * spread @ (z - r) + (s - e)
        multipliers = memory.multipliers[k]
        descend_kernel(
            learners * curvature, signs, multipliers, fixed, c.C, rho, stride(len(signs)), c.sweeps, c.precision
        )
        weighted = signs * multipliers
        joint = np.eye(self.size) + rho * learners * self._at_landmarks
        values = learners * np.linalg.solve(joint, own.across.T @ weighted + rho * self._at_landmarks @ (z - r))
        bias = s - e + float(weighted.sum()) / rho
        memory.sent_z[k] = c.relaxation * values + (1 - c.relaxation) * z + r
        memory.sent_b[k] = c.relaxation * bias + (1 - c.relaxation) * s + e
        return np.concatenate([memory.sent_z[k], memory.sent_b[k : k + 1]])

    def finished(self, state: AdmmState) -> bool:
        return bool(state.round > 2 and state.moved <= self.settings.tolerance / 10)

    def model(self, state: AdmmState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercepts, weights of Nyström's features at the landmarks)."""
        return state.s.copy(), self.made.weights_for(state.z)

    def progress(self, state: AdmmState) -> dict[str, Any]:
        told = super().progress(state)
        return told | {"solver": "admm at landmarks", "moved_in_the_last_round": float(state.moved)}


@njit(cache=True, nogil=True)
def descend_kernel(curvature, signs, multipliers, fixed, C, rho, stride, sweeps, tolerance):  # type: ignore[no-untyped-def]
    """Box-only dual coordinate descent on a dense matrix; ``multipliers`` are changed in place."""
    n = curvature.shape[0]
    scores, bias = fixed.copy(), 0.0
    for i in range(n):
        if multipliers[i] != 0.0:
            part = multipliers[i] * signs[i]
            bias += part / rho
            for j in range(n):
                scores[j] += part * curvature[i, j]
    for sweep in range(sweeps):
        worst, i = 0.0, sweep % n if n else 0
        for _ in range(n):
            i += stride
            if i >= n:
                i -= n
            gradient, old = signs[i] * (scores[i] + bias) - 1.0, multipliers[i]
            if (old <= 0.0 and gradient >= 0.0) or (old >= C and gradient <= 0.0):
                continue
            worst = max(worst, abs(gradient))
            new = min(max(old - gradient / (max(curvature[i, i], 0.0) + 1.0 / rho), 0.0), C)
            change = (new - old) * signs[i]
            if change != 0.0:
                multipliers[i] = new
                bias += change / rho
                for j in range(n):
                    scores[j] += change * curvature[i, j]
        if worst <= tolerance:
            break
