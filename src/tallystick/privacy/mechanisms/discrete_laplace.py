"""Exact discrete Laplace noise: P(y) proportional to exp(-|y| / scale) on the integers.

Guarantee and argument: ``discrete_laplace.md``. Running time depends on the values drawn, so noise is drawn before a
round starts and kept.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.privacy.mechanisms import reference
from tallystick.privacy.mechanisms.batch import THRESHOLDS, fill
from tallystick.privacy.mechanisms.kernels import GUARD, laplace_kernel
from tallystick.privacy.mechanisms.rational_scale import check_scale


def sample(scale: Fraction, size: int, source: WordSource, *, guard: float = GUARD) -> NDArray[np.int64]:
    """``size`` independent draws; ε-DP for L1 sensitivity Δ when scale >= Δ / ε.

    The same draws whatever the guard: a wider one sends more of them through the reference (for tests).
    """
    t, s = check_scale(scale).numerator, scale.denominator
    parameters = (np.uint64(t), np.uint64(s), np.uint64((1 << 64) % t), 1.0 / t)

    def kernel(words: NDArray[np.uint64], out: NDArray[np.int64], filled: int) -> tuple[int, int, int]:
        read, filled, status = laplace_kernel(words, out, filled, *parameters, guard, THRESHOLDS)
        return read, filled, status

    return fill(size, source, kernel=kernel, reference=lambda words: reference.laplace(scale, words), guard=guard)


def standard_deviation(scale: float | Fraction) -> float:
    """sqrt(2a) / (1 - a) with a = exp(-1 / scale); close to sqrt(2) · scale for large scales."""
    inverse = 1.0 / float(scale)
    return math.sqrt(2.0) * math.exp(-inverse / 2.0) / -math.expm1(-inverse)
