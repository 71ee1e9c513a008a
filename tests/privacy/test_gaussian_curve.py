"""The exact Gaussian curve: never below the truth, inverse to itself, and what dp-accounting says of it."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, localcontext
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.conversion import Composed
from tallystick.privacy.gaussian_curve import (
    distance_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rho,
)

EPSILONS = st.floats(1e-6, 300).map(Fraction)
RHOS = st.floats(-35, 6).map(lambda power: Fraction(2.0**power))
DELTAS = st.floats(-100, -0.5).map(lambda power: 10.0**power)


def true_delta(rho: Fraction, epsilon: Fraction) -> Any:
    """By the formula as [BW18] prints it, with digits to spare."""
    with mpmath.workdps(80):
        mu = mpmath.sqrt(2 * mpmath.mpf(rho.numerator) / rho.denominator)
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        # ncdf of a far tail is computed with a relative error; the difference has digits to spare all the same
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


@settings(deadline=None, max_examples=150)
@given(RHOS, EPSILONS)
def test_delta_is_never_below_the_truth_and_hardly_above_it(rho: Fraction, epsilon: Fraction) -> None:
    truth, found = true_delta(rho, epsilon), gaussian_delta(rho, epsilon)
    with mpmath.workdps(80):
        told = mpmath.mpf(found.numerator) / found.denominator
        assert told >= truth * (1 - mpmath.mpf(10) ** -40)
        if truth > mpmath.mpf(10) ** -100:
            assert told <= truth * (1 + mpmath.mpf(10) ** -20)


@settings(deadline=None, max_examples=60)
@given(EPSILONS, DELTAS)
def test_rho_is_the_largest_that_keeps_the_promise(epsilon: Fraction, delta: float) -> None:
    rho = gaussian_rho(epsilon, delta)
    assert true_delta(rho, epsilon) <= delta
    more = rho * (1 + Fraction(1, 10**6)) + Fraction(1, 2**75)
    assert true_delta(more, epsilon) > delta
    assert rho >= rho_from_epsilon(float(epsilon), delta) * (1 - Fraction(1, 10**6))  # never worse than zCDP


@settings(deadline=None, max_examples=60)
@given(RHOS, DELTAS)
def test_epsilon_is_the_smallest_that_is_kept(rho: Fraction, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    assert true_delta(rho, Fraction(epsilon)) <= delta
    if epsilon > 1e-20:
        assert true_delta(rho, Fraction(epsilon) * (1 - Fraction(1, 10**6))) > delta * (1 - 1e-9)
    assert epsilon <= epsilon_from_rho(rho, delta) * (1 + 1e-9) + 1e-20


@settings(deadline=None, max_examples=40)
@given(EPSILONS, DELTAS, st.floats(1, 3))
def test_more_budget_never_pays_for_less(epsilon: Fraction, delta: float, factor: float) -> None:
    rho = gaussian_rho(epsilon, delta)
    assert gaussian_rho(epsilon * Fraction(factor), delta) >= rho
    assert gaussian_rho(epsilon, min(0.9, delta * factor)) >= rho
    if rho:
        assert gaussian_epsilon(rho * Fraction(factor), delta) >= gaussian_epsilon(rho, delta)


@pytest.mark.parametrize(("epsilon", "saved"), [(0.1, 1.087), (0.5, 1.077), (1.0, 1.073), (10.0, 1.053)])
def test_it_saves_what_was_measured(epsilon: float, saved: float) -> None:
    """Ratio of standard deviations at delta = 1e-6."""
    ratio = math.sqrt(gaussian_rho(epsilon, 1e-6) / rho_from_epsilon(epsilon, 1e-6))
    assert ratio == pytest.approx(saved, abs=0.0006)


@pytest.mark.parametrize("rho", [Fraction(1, 1000), Fraction(28, 1000), Fraction(1, 2), Fraction(5)])
def test_dp_accounting_agrees(rho: Fraction) -> None:
    """Its privacy loss distribution of the Gaussian is discretised upwards: at or above ours, by very little."""
    multiplier = 1 / math.sqrt(2 * rho)
    theirs = PLDAccountant().compose(GaussianDpEvent(multiplier)).get_epsilon(1e-6)
    assert gaussian_epsilon(rho, 1e-6) == pytest.approx(theirs, rel=1e-3)
    many = PLDAccountant().compose(GaussianDpEvent(multiplier * 4), 16).get_epsilon(1e-6)
    assert gaussian_epsilon(rho, 1e-6) == pytest.approx(many, rel=1e-3)


def test_a_pure_part_on_top_is_above_what_dp_accounting_finds() -> None:
    """The law of Laplace noise and Gaussian noise together, by privacy loss distributions: below Σε plus the curve."""
    rho = Fraction(28, 1000)
    both = PLDAccountant().compose(GaussianDpEvent(1 / math.sqrt(2 * rho))).compose(LaplaceDpEvent(1 / 0.3))
    whole = Composed(
        rho=rho + Fraction(9, 200), pure_epsilon=Fraction(3, 10), all_pure=False, gaussian_rho=rho,
        distance=Fraction(0), aside=Fraction(0),
    )  # fmt: skip
    ours, delta = whole.promise(1e-6)
    assert delta == 1e-6
    assert both.get_epsilon(1e-6) <= ours <= 0.3 + gaussian_epsilon(rho, 1e-6) + 1e-12
    assert gaussian_epsilon(rho, 1e-6) < both.get_epsilon(1e-6)  # planted: the pure part forgotten


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_promises_nothing_is_refused(bad: float) -> None:
    with pytest.raises(PrivacyRefused):
        gaussian_rho(bad, 1e-6)
    with pytest.raises(PrivacyRefused):
        gaussian_rho(1.0, bad)
    with pytest.raises(PrivacyRefused):
        gaussian_epsilon(Fraction(1), bad)


def test_no_noise_cost_is_no_loss() -> None:
    assert gaussian_epsilon(Fraction(0), 1e-6) == 0.0
    assert gaussian_delta(Fraction(0), Fraction(0)) == 0


def test_distances_are_paid_for_on_both_sides() -> None:
    assert distance_delta(Fraction(0), Fraction(5000)) == 0
    assert distance_delta(Fraction(1, 2**200), Fraction(5000)) == 1
    cost = distance_delta(Fraction(1, 10**12), Fraction(1))
    assert (1 + math.e) * 1e-12 < cost < (1 + math.e) * 1.000001e-12


@pytest.mark.parametrize("digits", [3, 28, 60])
def test_a_distance_costs_no_less_than_the_truth_whatever_the_callers_arithmetic(digits: int) -> None:
    """Decimal arithmetic outside its own context is rounded as the thread happens to round."""
    with localcontext() as callers, mpmath.workdps(60):
        callers.prec, callers.rounding = digits, ROUND_FLOOR
        for i in range(1, 60):
            distance, epsilon = Fraction(1, 7 * 10**9 + i), Fraction(i, 7)
            truth = (1 + mpmath.exp(mpmath.mpf(i) / 7)) / (7 * 10**9 + i)
            told = distance_delta(distance, epsilon)
            assert truth <= mpmath.mpf(told.numerator) / told.denominator <= truth * (1 + mpmath.mpf(10) ** -30)
