"""The reducer's half of sharing ADMM for the hinge loss [BPC11, §7.3; spec 5.4].

    minimise Σ_m ½‖w_m‖² + C·Σ_i hinge(y_i·(z_i + b)),   z = Σ_m X_m·w_m,      c̄, z̄: averages over the M institutions

    w_m = argmin ½‖w‖² + ρ/2·‖X_m w − (X_m w_m − c̄ + z̄ − u)‖²      at institution m
    λ_i = clip(ρ/M·(1 − y_i(a_i + b)), 0, C),  a = M(u + c̄),  b such that Σ y_i λ_i = 0
    z   = a + M/ρ·Yλ,   u ← u + c̄ − z̄                                at the reducer

λ: the z-step is min over z and b of C·Σ hinge + ρ/(2M)‖z − a‖²; its dual has the quadratic form (M/ρ)·I, and b its
constraint. (The paper's form Y·1·1ᵀ·Y vanishes on its own constraint, which leaves a linear programme whose λ jump
between 0 and C: that stalls, tests/algorithms/test_vertical_svm.py.) Σ y_i λ_i(b) falls in b: b is found by bisection.

Over-relaxation by α replaces c̄ by α·c̄ + (1 − α)·z̄ in the reducer's steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BISECTIONS = 80


def hinge_step(
    a: NDArray[np.float64], labels: NDArray[np.float64], *, C: float, ratio: float
) -> tuple[NDArray[np.float64], float]:
    """(z, b) of the z-step; ``ratio`` is ρ/M. Labels are ±1, 0 where there is none."""
    there = labels != 0
    if not (labels > 0).any() or not (labels < 0).any():
        side = 1.0 if (labels > 0).any() else -1.0
        return a.copy(), side * (1.0 + float(np.abs(a).max(initial=0.0)))  # one class: everybody is on its side

    def multipliers(b: float) -> NDArray[np.float64]:
        return np.where(there, np.clip(ratio * (1 - labels * (a + b)), 0.0, C), 0.0)

    reach = float(np.abs(a).max()) + 1.0 + C / ratio
    low, high = -reach, reach
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if float(labels @ multipliers(middle)) > 0:
            low = middle
        else:
            high = middle
    b = (low + high) / 2
    return a + labels * multipliers(b) / ratio, b
