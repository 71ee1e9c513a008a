"""Integer bounds on exp(-γ), against decimal arithmetic of 120 digits and against the double-precision exp."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tallystick.privacy.mechanisms.batch import THRESHOLDS
from tallystick.privacy.mechanisms.exponential import exp_bounds, floor_exp

DIGITS = Context(prec=120)
SLACK = Decimal(10) ** -100  # decimal exp is correctly rounded; the quotient fed to it is off by 1e-119 relative


def decimal_exp(gamma: Fraction) -> Decimal:
    with localcontext(DIGITS):
        return (-(Decimal(gamma.numerator) / Decimal(gamma.denominator))).exp()


@settings(deadline=None, max_examples=300)
@given(st.fractions(min_value=0, max_value=200, max_denominator=1 << 80), st.integers(1, 300))
def test_bounds_enclose_the_value_and_are_tight(gamma: Fraction, bits: int) -> None:
    lo, hi = exp_bounds(gamma, bits)
    with localcontext(DIGITS):
        value = decimal_exp(gamma)
        unit = Decimal(2) ** -bits
        assert lo * unit <= value + SLACK
        assert hi * unit >= value - SLACK
    assert 0 <= lo <= hi <= lo + 2


@pytest.mark.parametrize("gamma", [Fraction(1), Fraction(1, 3), Fraction(7, 2), Fraction(1, 10**9), Fraction(44)])
@pytest.mark.parametrize("bits", [63, 64, 128])
def test_floor_exp_is_the_floor(gamma: Fraction, bits: int) -> None:
    with localcontext(DIGITS):
        assert floor_exp(gamma, bits) == int(decimal_exp(gamma) * Decimal(2) ** bits)


def test_zero_gives_one_and_negative_is_refused() -> None:
    lo, hi = exp_bounds(Fraction(0), 50)
    assert lo <= 1 << 50 <= hi
    with pytest.raises(ValueError):
        exp_bounds(Fraction(-1, 2), 50)
    with pytest.raises(ValueError):
        floor_exp(Fraction(0), 50)


def test_geometric_thresholds_are_exact_and_end_in_zero() -> None:
    with localcontext(DIGITS):
        expected = [int(decimal_exp(Fraction(k)) * (1 << 63)) for k in range(1, 45)]
    assert THRESHOLDS.tolist() == expected
    assert expected[-2:] == [1, 0]  # bits 0 and 1 meet equality: the kernel never decides a V above 42
    assert not THRESHOLDS.flags.writeable


@njit
def _exp(x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = math.exp(-x[i])
    return out


def test_compiled_exp_is_far_better_than_the_guard_assumes() -> None:
    """kernels.py asks 2^-40 of exp; this machine's must be within 2^-50 relative."""
    x = np.concatenate((np.linspace(0, 1, 2000), np.geomspace(1e-12, 60, 2000)))
    for value, computed in zip(x.tolist(), _exp(x).tolist()):
        true = decimal_exp(Fraction(value))
        with localcontext(DIGITS):
            assert abs(Decimal(computed) - true) <= true * Decimal(2) ** -50
