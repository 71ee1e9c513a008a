"""ε is never understated, however small: against mpmath at 40 digits, where float64 loses its own to cancellation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from tallystick.privacy.accountant import ORDERS, _estimate, epsilon_from_rho, rho_from_epsilon, rounded_up
from tallystick.privacy.ledger import Budget, Ledger, _caps, covers_sum
from tallystick.privacy.sampling import (
    _estimated_curve,
    _estimated_epsilon,
    curve_epsilon,
    round_curve,
    sampled_budget,
    sampled_curve,
)
from tallystick.privacy.totals import STEPS, Charge, UnitTotals, steps

EPSILONS = (1e-6, 3.3e-6, 1e-5, 1e-4, 1e-3, 0.1, 1.0, 7.0, 100.0, 1e3)
DELTAS = (1e-18, 1e-12, 1e-6, 1e-3, 0.1)
SMALL = [(e, d) for e, d in itertools.product(EPSILONS, DELTAS) if e <= 1e-4]


def exact(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


def true_epsilon(rho: Fraction, delta: float) -> Any:
    """min over α of the conversion, at 40 digits."""
    with mpmath.workdps(40):
        r, log_delta = exact(rho), -mpmath.log(mpmath.mpf(delta))

        def bound(t: Any) -> Any:
            x = mpmath.exp(t)
            return r * (1 + x) + (log_delta - mpmath.log1p(x)) / x - mpmath.log1p(1 / x)

        low, high, ratio = mpmath.mpf(-20), mpmath.mpf(45), (mpmath.sqrt(5) - 1) / 2
        c, d = high - ratio * (high - low), low + ratio * (high - low)
        fc, fd = bound(c), bound(d)
        for _ in range(90):
            if fc < fd:
                high, d, fd = d, c, fc
                c = high - ratio * (high - low)
                fc = bound(c)
            else:
                low, c, fc = c, d, fd
                d = low + ratio * (high - low)
                fd = bound(d)
        return max(mpmath.mpf(0), min(fc, fd))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_promise_is_never_below_the_true_one_and_wastes_nothing(epsilon: float) -> None:
    for delta in DELTAS:
        rho = rho_from_epsilon(epsilon, delta)
        true, told = true_epsilon(rho, delta), epsilon_from_rho(rho, delta)
        assert true <= told <= epsilon, (epsilon, delta)
        assert told <= true * (1 + 1e-10) + 1e-14
        assert true >= epsilon * (1 - 1e-6)  # the budget is used


def test_planted_relative_slack_understates_small_epsilons() -> None:
    """The bug that was there: a slack of 10⁻¹² of ε, where the logarithms it is the rest of are accurate to 10⁻¹⁶."""
    broken = 0
    for epsilon, delta in SMALL:
        rho = rho_from_epsilon(epsilon, delta)
        broken += _estimate(float(rho), delta) < true_epsilon(rho, delta)
    assert broken >= 5


@pytest.mark.parametrize("rho", [5e-324, 1e-300, 1e-40, 1e-20, 1e-12, 1e8])
def test_the_edges_of_rho(rho: float) -> None:
    assert epsilon_from_rho(rho, 1e-6) >= 0
    if rho >= 1e-12:
        assert epsilon_from_rho(rho, 1e-6) >= true_epsilon(Fraction(rho), 1e-6)
    assert epsilon_from_rho(Fraction(1, 10**400), 1e-6) >= 0  # no float: rounded up, not to 0


KNOWN = [
    (0.0001, 1e-06, Fraction(726376505762617, 2**79)),
    (0.01, 1e-09, Fraction(2533224744935021207, 2**80)),
    (0.1, 1e-06, Fraction(388122842185487660837, 2**80)),
    (1.0, 1e-06, Fraction(14722280714664387793653, 2**79)),
    (3.0, 1e-05, Fraction(16943788094957601050561, 2**76)),
    (20.0, 1e-12, Fraction(1743828244517158953723865, 2**79)),
    (1000.0, 1e-06, Fraction(479740559387606759986139721, 2**79)),
]
KNOWN_SAMPLED = [
    (1.0, 0.05, 20, 1, Fraction(2182150705974369957554071, 2**79)),
    (0.5, 0.01, 300, 2, Fraction(12801007873604082803012125, 2**79)),
]


def test_studies_keep_the_noise_they_were_approved_with() -> None:
    """The budgets of b305a84, to the last bit: they are sound there, and plans and receipts rest on them."""
    for epsilon, delta, rho in KNOWN:
        assert rho_from_epsilon(epsilon, delta) == rho
    for epsilon, rate, rounds, honest, rho in KNOWN_SAMPLED:
        shares = [Fraction(1, rounds)] * rounds
        assert sampled_budget(epsilon, 1e-6, rate=rate, shares=shares, orders=ORDERS, honest=honest) == rho


# -- sampled rounds ----------------------------------------------------------------------------------------------------


def true_curve(rho: float, rate: float, order: int, honest: int) -> Any:
    with mpmath.workdps(60):
        r, q = mpmath.mpf(rho), mpmath.mpf(rate)

        def weight(count: int) -> Any:
            return mpmath.binomial(order, count) * (1 - q) ** (order - count) * q**count

        def moment(count: int) -> Any:
            return mpmath.exp((count * count - count) * r)

        if honest == 1:
            total = mpmath.fsum(weight(c) * moment(c) for c in range(order + 1))
        else:
            total = (1 - q) ** (order - 1) * (order * q - q + 1) + weight(2) * moment(2)
            total += 3 * mpmath.fsum(weight(c) * moment(c) for c in range(3, order + 1))
        return min(mpmath.log(total) / (order - 1), r * order)


GRID = list(itertools.product((1e-12, 1e-8, 1e-4, 0.02, 3.0), (1e-6, 1e-3, 0.1, 0.9), (2, 3, 32, 256), (1, 2)))


def understated(curve: Callable[..., float]) -> int:
    below = 0
    for rho, rate, order, honest in GRID:
        true = true_curve(rho, rate, order, honest)
        below += curve(rho, rate, order, honest=honest) < true * (1 - mpmath.mpf(2) ** -52)  # ρα is rounded to nearest
    return below


def test_a_sampled_round_is_never_understated() -> None:
    assert understated(sampled_curve) == 0
    for rho, rate, order, honest in GRID:
        true = true_curve(rho, rate, order, honest)
        assert sampled_curve(rho, rate, order, honest=honest) <= true * (1 + 2e-9) + 2e-18


def test_planted_sums_near_one_are_understated() -> None:
    """The bug that was there: ln(1 + S) by the sum as it stands, with a slack of 10⁻⁹ of what is left of S."""
    assert understated(_estimated_curve) > 10


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-9), (0.05, 1e-6), (1.0, 1e-6), (8.0, 1e-12), (0.5, 0.01)])
def test_a_sampled_budget_keeps_its_promise(epsilon: float, delta: float) -> None:
    rate, rounds = 0.02, 50
    rho = sampled_budget(epsilon, delta, rate=rate, shares=[Fraction(1, rounds)] * rounds, orders=ORDERS, honest=1)
    curve = [rounds * c for c in round_curve(float(rho / rounds), rate, ORDERS, honest=1)]
    told = curve_epsilon(curve, ORDERS, delta)
    assert true_conversion(curve, delta) <= told <= epsilon


def true_conversion(curve: list[float], delta: float) -> Any:
    with mpmath.workdps(40):
        log_delta = -mpmath.log(mpmath.mpf(delta))
        found = [
            mpmath.mpf(value) + (log_delta + (a - 1) * mpmath.log1p(-1 / a) - mpmath.log(a)) / (a - 1)
            for value, a in zip(curve, map(exact, ORDERS))
        ]
        return max(mpmath.mpf(0), min(found))


def test_a_curve_is_never_understated_and_the_relative_slack_was() -> None:
    """At large orders and δ the shift is negative, and what a curve leaves above it may be its last bits alone."""
    broken = 0
    for delta, at in itertools.product((0.1, 0.01), range(60, len(ORDERS), 3)):
        with mpmath.workdps(40):
            a = exact(ORDERS[at])
            shift = (-mpmath.log(mpmath.mpf(delta)) + (a - 1) * mpmath.log1p(-1 / a) - mpmath.log(a)) / (a - 1)
        if shift >= 0:
            continue
        for factor in (1, 1 + 2.0**-52, 1 + 2.0**-50):
            curve = [1e9] * len(ORDERS)
            curve[at] = float(-shift) * factor
            true = true_conversion(curve, delta)
            assert true <= curve_epsilon(curve, ORDERS, delta) <= true + 1e-13
            broken += _estimated_epsilon(curve, ORDERS, delta) < true
    assert broken > 10  # the planted bug


# -- ledgers -----------------------------------------------------------------------------------------------------------


def test_caps_are_never_above_the_true_ones() -> None:
    for epsilon, delta in itertools.product(EPSILONS, DELTAS):
        with mpmath.workdps(60):
            log_delta = -mpmath.log(mpmath.mpf(delta))
            for cap, a in zip(_caps(epsilon, delta), map(exact, ORDERS)):
                shift = (log_delta + (a - 1) * mpmath.log1p(-1 / a) - mpmath.log(a)) / (a - 1)
                assert mpmath.mpf(cap) / STEPS <= mpmath.mpf(epsilon) - shift


def test_what_is_admitted_is_within_the_true_promise() -> None:
    for epsilon, delta in itertools.product((1e-6, 1e-5, 1e-3, 1.0), (1e-12, 1e-6, 1e-3)):
        budget, whole = Budget(epsilon=epsilon, delta=delta), rho_from_epsilon(epsilon, delta)
        for part in (Fraction(1), 1 + Fraction(1, 10**12), 1 + Fraction(1, 10**9), 1 + Fraction(1, 10**6)):
            rho = whole * part
            curve = tuple(Fraction(steps(rho * a), STEPS) for a in ORDERS)
            charge = Charge(study=bytes(32), curve=curve, rho=rho, pure_epsilon=None)
            if covers_sum(budget, UnitTotals.of(charge)):
                assert true_epsilon(rho, delta) <= epsilon


def test_a_pure_sum_is_stated_rounded_up() -> None:
    third = Fraction(1, 3)
    assert Fraction(rounded_up(third)) >= third > Fraction(math.nextafter(rounded_up(third), 0))
    ledger = Ledger()
    for number in range(3):
        curve = tuple(Fraction(steps(third), STEPS) for _ in ORDERS)
        ledger.reserve(Charge(study=bytes([number]) * 32, curve=curve, rho=third**2 / 2, pure_epsilon=third / 10**6))
    told = ledger.spent().epsilon
    assert told is not None
    assert Fraction(told) >= 3 * third / 10**6
