"""One server's noise for one round: exact, discrete, drawn once (the state rule, spec/privacy 0.6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.privacy.mechanisms import discrete_gaussian, discrete_laplace
from tallystick.privacy.plan import RoundPlan

__all__ = ["draw_noise"]


def draw_noise(plan: RoundPlan, source: WordSource) -> NDArray[np.int64]:
    """Independent noise for every coordinate of the round's vector, group after group, in grid units."""
    parts = []
    for noise in plan.noise:
        size = noise.group.size
        if plan.mechanism == "gaussian":
            parts.append(discrete_gaussian.sample(noise.parameter, size, source))
        elif plan.mechanism == "laplace":
            parts.append(discrete_laplace.sample(noise.parameter, size, source))
        else:
            parts.append(np.zeros(size, dtype=np.int64))
    return np.concatenate(parts)
