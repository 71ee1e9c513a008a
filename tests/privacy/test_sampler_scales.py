"""Rounding a planned scale to what the samplers take: never down, hardly up."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import StudyError
from tallystick.privacy.mechanisms import MAX_SCALE, discrete_gaussian, discrete_laplace
from tallystick.privacy.mechanisms.rational_scale import (
    check_scale,
    check_variance,
    round_up_scale,
    round_up_variance,
)

scales = st.floats(2.0**-20, 2.0**56) | st.fractions(min_value=Fraction(1, 1 << 20), max_value=MAX_SCALE)
variances = st.floats(2.0**-20, 2.0**112) | st.fractions(min_value=Fraction(1, 1 << 20), max_value=MAX_SCALE**2)


@settings(deadline=None, max_examples=500)
@given(scales)
def test_scale_is_rounded_up_a_little_and_accepted(scale: float | Fraction) -> None:
    rounded = round_up_scale(scale)
    assert Fraction(scale) <= rounded <= Fraction(scale) * (1 + Fraction(1, 1 << 32))
    assert check_scale(rounded) == rounded
    assert rounded.denominator <= 1 << 52
    assert round_up_scale(rounded) == rounded or rounded.numerator > 1 << 32


@settings(deadline=None, max_examples=500)
@given(variances)
def test_variance_is_rounded_up_a_little_and_accepted(variance: float | Fraction) -> None:
    rounded = round_up_variance(variance)
    assert Fraction(variance) <= rounded <= Fraction(variance) * (1 + Fraction(1, 1 << 32))
    assert check_variance(rounded) == rounded


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 1 << 32), st.integers(1, 1 << 20))
def test_a_small_fraction_is_kept(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    if value >= Fraction(1, 1 << 20):
        assert round_up_scale(value) == value
        assert round_up_variance(value) == value


def test_known_answers() -> None:
    assert round_up_scale(1.5) == Fraction(3, 2)
    assert round_up_scale(1e6) == 10**6
    assert round_up_scale(2.0**56) == MAX_SCALE
    assert round_up_scale(0.1) == Fraction(math.ceil(Fraction(0.1) * (1 << 36)), 1 << 36)
    assert round_up_scale(Fraction(2**33 + 1, 3)) == Fraction(math.ceil(Fraction(2**33 + 1, 3) * 2), 2)
    assert round_up_variance(float(MAX_SCALE) ** 2) == MAX_SCALE**2


@pytest.mark.parametrize("bad", [0, -1, 0.0, math.nan, math.inf, -math.inf, 2.0**57, 2.0**-21, Fraction(-1, 2)])
def test_impossible_scales_are_refused(bad: float) -> None:
    with pytest.raises(StudyError):
        round_up_scale(bad)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, 2.0**113, 2.0**-21])
def test_impossible_variances_are_refused(bad: float) -> None:
    with pytest.raises(StudyError):
        round_up_variance(bad)


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1), Fraction(MAX_SCALE + 1), Fraction(1, MAX_SCALE + 1), 1.5])
def test_the_laplace_sampler_refuses_what_it_cannot_take(bad: Fraction) -> None:
    with pytest.raises(StudyError, match="Laplace noise scale"):
        discrete_laplace.sample(bad, 1, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1), Fraction(MAX_SCALE**2 + 1), Fraction(1, 2**113), 1.5])
def test_the_gaussian_sampler_refuses_what_it_cannot_take(bad: Fraction) -> None:
    with pytest.raises(StudyError, match="Gaussian noise variance"):
        discrete_gaussian.sample(bad, 1, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [0.3, 1.5, 20.0, 1e3])
def test_standard_deviation_of_the_discrete_laplace(scale: float) -> None:
    weights = [math.exp(-k / scale) for k in range(1, int(60 * scale) + 3)]
    exact = math.sqrt(2 * math.fsum(w * k * k for k, w in enumerate(weights, 1)) / (1 + 2 * math.fsum(weights)))
    assert discrete_laplace.standard_deviation(Fraction(scale)) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("variance", [0.05, 0.5, 2.0, 100.0])
def test_standard_deviation_bounds_the_discrete_gaussian(variance: float) -> None:
    weights = [math.exp(-k * k / (2 * variance)) for k in range(1, 500)]
    exact = math.sqrt(2 * math.fsum(w * k * k for k, w in enumerate(weights, 1)) / (1 + 2 * math.fsum(weights)))
    claimed = discrete_gaussian.standard_deviation(variance)
    assert claimed >= exact * (1 - 1e-15)
    if variance >= 2:
        assert claimed == pytest.approx(exact, rel=1e-14)
