"""Proven bounds on exp(-γ) for rational γ, in integers only.

The samplers compare a uniform real with exp(-γ). Where double precision cannot be trusted the comparison is settled
here: the alternating Taylor series on dyadic rationals, every operation rounded outwards, so that the true value always
lies between the two integers returned, at any precision asked for.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

_SLACK = 16  # extra working bits, so that outward rounding costs the caller a unit or two of the last place


def exp_bounds(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Integers ``lo, hi`` with ``lo / 2^bits <= exp(-gamma) <= hi / 2^bits``, for ``gamma >= 0``."""
    if gamma < 0:
        raise ValueError("bounds are kept for exp(-gamma) with gamma >= 0")
    work = bits + _SLACK
    whole, rest = divmod(gamma.numerator, gamma.denominator)
    below = (rest << work) // gamma.denominator  # fractional part of gamma lies in [below, below + 1] / 2^work
    lo, hi = _series(below, below + 1, work)
    if whole:
        power_lo, power_hi = _power(whole, work)
        lo, hi = (lo * power_lo) >> work, _ceil_shift(hi * power_hi, work)
    return max(lo, 0) >> _SLACK, _ceil_shift(hi, _SLACK)


def floor_exp(gamma: Fraction, bits: int) -> int:
    """``floor(exp(-gamma) * 2^bits)`` exactly; gamma > 0, so the value is irrational and the search ends."""
    if gamma <= 0:
        raise ValueError("gamma must be positive: exp(0) = 1 needs no search")
    extra = 32
    while True:
        lo, hi = exp_bounds(gamma, bits + extra)
        if lo >> extra == hi >> extra:
            return lo >> extra
        extra *= 2


def _ceil_shift(value: int, bits: int) -> int:
    return -((-value) >> bits)


def _series(below: int, above: int, work: int) -> tuple[int, int]:
    """Bounds on exp(-x), x in [below, above] / 2^work within [0, 1], as integers over 2^work.

    exp(-x) = Σ (-x)^k / k!; for 0 <= x <= 1 the terms fall in absolute value, so after the term k the remainder is at
    most the term k + 1, hence at most the term k (Leibniz). Terms and sums are intervals rounded outwards.
    """
    term_lo = term_hi = total_lo = total_hi = 1 << work
    k = 0
    while term_hi > 1:
        k += 1
        term_lo = ((term_lo * below) >> work) // k
        term_hi = -(-_ceil_shift(term_hi * above, work) // k)
        if k % 2:
            total_lo, total_hi = total_lo - term_hi, total_hi - term_lo
        else:
            total_lo, total_hi = total_lo + term_lo, total_hi + term_hi
    return total_lo - term_hi, total_hi + term_hi


@lru_cache(maxsize=4096)
def _power(exponent: int, work: int) -> tuple[int, int]:
    """Bounds on e^-exponent over 2^work by repeated squaring, each product rounded outwards."""
    if exponent == 1:
        return _series(1 << work, 1 << work, work)
    lo, hi = _power(exponent // 2, work)
    lo, hi = (lo * lo) >> work, _ceil_shift(hi * hi, work)
    if exponent % 2:
        one_lo, one_hi = _power(1, work)
        lo, hi = (lo * one_lo) >> work, _ceil_shift(hi * one_hi, work)
    return lo, hi
