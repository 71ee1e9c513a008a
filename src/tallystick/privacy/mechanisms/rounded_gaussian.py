"""How near discrete Gaussian noise is to a rounded continuous one, by coordinates; proofs in rounded_gaussian.md."""

from __future__ import annotations

import math
from fractions import Fraction

ROUNDING = Fraction(1, 12)
"""Variance of a uniform rounding error: N_Z(0, s²) is compared with round(N(0, s² − 1/12))."""
LEAST_VARIANCE = 4
"""Of the whole noise on a coordinate, in grid units: from here on the bound is proved."""
_STEPS = 2**200
_MOST_BITS = 256


def continuous_variance(variance: Fraction) -> Fraction:
    """The v = s² − 1/12 of the Gaussian whose rounding stands for noise of variance s²."""
    return variance - ROUNDING


def coordinate_distance(variance: Fraction, honest: int) -> Fraction | None:
    """Total variation between the sum of ``honest`` discrete Gaussians of s² = ``variance`` in all and that rounded
    Gaussian, at most; None where nothing is proved.

    1/(900 s⁴) for s² ≥ 4 (Lemma 1), and for h > 1 shares of σ² = s²/h ≥ 4 besides [KLS21, Prop. 4]: log-ratios of at
    most τ = 10 Σ_{k<h} e^{−2π²σ²k/(k+1)} ≤ 10(h − 1)e^{−π²σ²} ≤ 10(h − 1)2^{−14σ²}, so a total variation of
    (e^τ − 1)/2 ≤ τ.
    """
    if variance < LEAST_VARIANCE or (honest > 1 and variance < honest * LEAST_VARIANCE):
        return None
    distance = 1 / (900 * variance**2)
    if honest > 1:
        distance += Fraction(10 * (honest - 1), 1 << min(math.floor(14 * variance / honest), _MOST_BITS))
    return distance


def short(distance: Fraction) -> Fraction:
    """Rounded up to whole steps of 2^-200, so that sums of many stay short."""
    return Fraction(math.ceil(distance * _STEPS), _STEPS)
