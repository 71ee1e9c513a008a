"""Intervals from noise whose law is known: nothing is estimated from data, so they cover as they say.

A released number is the true one plus a linear combination of independent noises of known variance. Sums of discrete
Gaussians are normal for all purposes here (variances far above 1). A single Laplace has heavier tails than the normal
of its variance (95 %: 2.12 against 1.96 standard deviations); a combination of several lies between the two beyond the
levels where the curves cross, so the larger of both quantiles is taken.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
OF_THE_NOISE = "they cover the noise that was added, and nothing else."


def quantile(level: float, mechanism: str) -> float:
    """Standard deviations on either side that hold the noise with probability ``level``."""
    normal = NormalDist().inv_cdf((1 + level) / 2)
    if mechanism != "laplace":
        return normal
    return max(normal, -math.log(1 - level) / math.sqrt(2))  # P(|L| > t) = e^(−t/b), standard deviation b√2


def interval(
    value: Any, std: Any, z: float, *, lower: float = -math.inf, upper: float = math.inf
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """value ± z·std, cut to the public range."""
    low = np.clip(np.asarray(value) - z * np.asarray(std), lower, upper)
    high = np.clip(np.asarray(value) + z * np.asarray(std), lower, upper)
    return low, high
