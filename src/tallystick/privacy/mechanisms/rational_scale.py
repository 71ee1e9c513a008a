"""Noise scales as bounded rationals: what the exact samplers can take, and rounding UP to it.

A plan computes a scale in floating point; the sampler needs a rational. Rounding up adds at most 2^-32 of noise and
never removes any, so the claim of the plan stays true.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tallystick.core.errors import StudyError

MAX_SCALE = 1 << 56
"""Largest Laplace scale and largest Gaussian σ: 40σ of noise stay below half of the 64-bit field."""
_MAX_PART = 1 << 56  # numerator and denominator of a Laplace scale: proposals then stay below 2^62 in the kernel
_KEPT_BITS = 32
_REMEDY = "Choose fewer fraction bits, a smaller bound, or a larger epsilon."


def round_up_scale(scale: float | Fraction) -> Fraction:
    """The scale itself if numerator and denominator are at most 2^32, else the next rational of that kind above it.

    Never below the input; above it by less than one part in 2^32.
    """
    return _round_up(scale, "noise scale", MAX_SCALE)


def round_up_variance(variance: float | Fraction) -> Fraction:
    """Like :func:`round_up_scale` for σ², up to (2^56)²."""
    return _round_up(variance, "noise variance", MAX_SCALE * MAX_SCALE)


def check_scale(scale: Fraction) -> Fraction:
    """The scale, if the Laplace sampler takes it."""
    if not isinstance(scale, Fraction) or not 0 < scale.numerator <= _MAX_PART or scale.denominator > _MAX_PART:
        raise StudyError(
            "a Laplace noise scale must be a positive fraction with numerator and denominator up to 2^56",
            remedy="Pass it through round_up_scale. If it is too large: " + _REMEDY,
        )
    return scale


def check_variance(variance: Fraction) -> Fraction:
    """The variance, if the Gaussian sampler takes it."""
    limit = MAX_SCALE * MAX_SCALE
    if not isinstance(variance, Fraction) or not 0 < variance <= limit or variance.denominator > limit:
        raise StudyError(
            "a Gaussian noise variance must be a positive fraction up to 2^112 with a denominator up to 2^112",
            remedy="Pass it through round_up_variance. If it is too large: " + _REMEDY,
        )
    return variance


def _round_up(value: float | Fraction, what: str, limit: int) -> Fraction:
    if not math.isfinite(value) or not 0 < value <= limit:
        raise StudyError(f"a {what} must be positive and at most 2^{limit.bit_length() - 1}", remedy=_REMEDY)
    exact = Fraction(value)
    if exact < Fraction(1, 1 << 20):
        raise StudyError(
            f"a {what} below 2^-20 of a grid unit is no noise at all",
            remedy="Use more fraction bits or a smaller epsilon.",
        )
    if exact.denominator == 1 or max(exact.numerator, exact.denominator) <= 1 << _KEPT_BITS:
        return exact
    # 2^whole <= value < 2^(whole + 1): the numerator of the rounded fraction then has 33 bits (or the value is whole).
    whole = exact.numerator.bit_length() - exact.denominator.bit_length() - 1
    if exact >= Fraction(2) ** (whole + 1):
        whole += 1
    denominator = 1 << max(_KEPT_BITS - whole, 0)
    return Fraction(math.ceil(exact * denominator), denominator)
