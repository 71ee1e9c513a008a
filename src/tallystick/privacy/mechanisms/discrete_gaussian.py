"""Exact discrete Gaussian noise: P(x) proportional to exp(-x² / (2 variance)) on the integers.

Guarantee and argument: ``discrete_gaussian.md``. Running time depends on the values drawn, so noise is drawn before a
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
from tallystick.privacy.mechanisms.kernels import GUARD, gaussian_kernel
from tallystick.privacy.mechanisms.rational_scale import check_variance


def sample(variance: Fraction, size: int, source: WordSource, *, guard: float = GUARD) -> NDArray[np.int64]:
    """``size`` independent draws; ρ-zCDP with ρ = Δ² / (2 variance) for L2 sensitivity Δ [CKS20].

    The same draws whatever the guard: a wider one sends more of them through the reference (for tests).
    """
    width = reference.strip_width(check_variance(variance))
    offset = float(reference.strip_offset(variance, width))
    parameters = (np.uint64(width.bit_length() - 1), float(1 / (2 * variance)), offset)

    def kernel(words: NDArray[np.uint64], out: NDArray[np.int64], filled: int) -> tuple[int, int, int]:
        read, filled, status = gaussian_kernel(words, out, filled, *parameters, guard, THRESHOLDS)
        return read, filled, status

    return fill(size, source, kernel=kernel, reference=lambda words: reference.gaussian(variance, words), guard=guard)


def standard_deviation(variance: float | Fraction) -> float:
    """sqrt(variance): never below that of the discrete law [CKS20], and equal to it to 1e-14 from variance 2 on."""
    return math.sqrt(float(variance))
