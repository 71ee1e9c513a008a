"""A sum of the honest servers' discrete Gaussians is not one: what that costs, and the least variance, where they bite.

On fine grids both are invisible (below 10⁻¹⁰⁰ of the cost), so every case here is on a coarse one. The
formula [KLS21, Prop. 4 and Thm. 1] is computed a second time, in 60 digits, from the paper and not from the source.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pytest
from tests.claims import servers_claim

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy import round_plan as plans
from tallystick.privacy.grid import Group
from tallystick.privacy.rules import Claim
from tallystick.privacy.sum_plan import make_plan

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
LEAST = Fraction(4)


def charge(sensitivity: int, variance: Fraction, honest: int, size: int) -> Decimal:
    """ρ = ε²/2, ε = min(√(D²/(hv) + τd/2), D/√(hv) + τ√d), τ = 10 Σ_{k=1}^{h−1} exp(−2π² v k/(k+1))."""
    with localcontext() as context:
        context.prec = 60
        v = Decimal(variance.numerator) / Decimal(variance.denominator)
        tau = 10 * sum(((-2 * PI**2 * v * k / (k + 1)).exp() for k in range(1, honest)), Decimal(0))
        square = Decimal(sensitivity) ** 2 / (honest * v)
        first = (square + tau * size / 2).sqrt()
        second = square.sqrt() + tau * Decimal(size).sqrt()
        return min(first, second) ** 2 / 2


def decimal(value: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(value.numerator) / Decimal(value.denominator)


CASES = [
    (sensitivity, Fraction(variance), honest, size)
    for sensitivity in (1, 2, 14)
    for variance in ("1/4", "1/2", "1", "2", "4")
    for honest in (2, 3, 7)
    for size in (1, 100, 10**6)
]


def test_the_charge_is_the_papers_where_it_bites() -> None:
    bites = 0
    for case in CASES:
        exact, said = charge(*case), decimal(plans._charged_rho(*case))
        assert exact <= said <= exact * (1 + Decimal("1e-9")), case  # never below, and not padded either
        sensitivity, variance, honest, _ = case
        bites += said > decimal(Fraction(sensitivity**2) / (2 * honest * variance)) * (1 + Decimal("1e-9"))
    assert bites > 40  # at the others it is real but tiny


def test_each_branch_of_the_minimum_is_taken() -> None:
    """√(x² + τd/2) for long vectors of small sensitivity, x + τ√d for short ones."""
    taken = set()
    for sensitivity, variance, honest, size in CASES:
        v, tau = (
            float(variance),
            10 * sum(math.exp(-2 * math.pi**2 * float(variance) * k / (k + 1)) for k in range(1, honest)),
        )
        x = sensitivity / math.sqrt(honest * v)
        taken.add(math.sqrt(x**2 + tau * size / 2) < x + tau * math.sqrt(size))
    assert taken == {True, False}


def test_one_honest_server_is_one_discrete_gaussian() -> None:
    assert plans._charged_rho(3, Fraction(1, 7), 1, 10**6) == Fraction(9 * 7, 2)


GROUP = Group(name="all", size=10**6, bound=1.0)


def gaussian(sensitivity: int, rho: Fraction, honest: int) -> plans.GroupNoise:
    nothing = Fraction(0)
    silent = plans.GroupNoise(group=GROUP, sensitivity=sensitivity, parameter=nothing, variance=0.0, rho=nothing)
    return plans.gaussian_noise(silent, rho, honest)


def test_the_least_variance_of_a_share() -> None:
    """D = 2, h = 3: a budget of 1/3 asks for shares of variance 2, and gets 4; exactly 4, and what that costs."""
    noise = gaussian(2, Fraction(1, 3), 3)
    assert noise.parameter == LEAST
    assert noise.variance == 4.0
    assert Fraction(1, 6) < noise.rho <= Fraction(1, 3)
    assert charge(2, LEAST, 3, GROUP.size) <= decimal(noise.rho)
    # without a second honest server there is no sum, and no least variance
    alone = gaussian(2, Fraction(1, 3), 1)
    assert (alone.parameter, alone.rho) == (Fraction(6), Fraction(1, 3))
    alone = gaussian(2, Fraction(2), 1)
    assert (alone.parameter, alone.rho) == (Fraction(1), Fraction(2))


def test_noise_grows_until_its_charge_fits_the_budget() -> None:
    """D = 2, h = 3, ρ = 1/6: shares of variance 4 would do for Gaussians, and cost a little more than ρ as they are."""
    budget = Fraction(1, 6)
    assert charge(2, LEAST, 3, GROUP.size) > decimal(budget)
    noise = gaussian(2, budget, 3)
    assert noise.parameter == Fraction(1001, 250)  # the next step of one in a thousand, exactly
    assert charge(2, noise.parameter, 3, GROUP.size) <= decimal(noise.rho) <= decimal(budget)


def claim(**changes: Any) -> Claim:
    facts = {"epsilon": 8.0, "delta": 1e-6, "neighbours": "replace-one", "mechanism": "gaussian", "rounds": 1}
    return servers_claim(**{**facts, "servers": 4, "colluding": 1, "records": 1000, **changes})


def test_a_plan_on_a_coarse_grid() -> None:
    """The whole way: whole numbers for a grid, four servers, one of them curious."""
    plan = make_plan(claim(), [[GROUP]], fraction_bits=0)
    (noise,) = plan.rounds[0].noise
    assert (noise.sensitivity, plan.honest, noise.parameter) == (2, 3, LEAST)
    assert charge(2, LEAST, 3, GROUP.size) <= decimal(noise.rho)
    assert noise.rho > Fraction(4, 2 * 3 * 4)


REAL = plans._charged_rho
BUGS: dict[str, tuple[str, Callable[..., Any] | int]] = {
    "no least variance": ("MIN_SHARE_VARIANCE", 0),
    "a least variance of the whole, not of a share": ("MIN_SHARE_VARIANCE", 2),
    "charged as one Gaussian": ("_charged_rho", lambda d, v, h, size: Fraction(d) ** 2 / (2 * v * h)),
    "the sum runs to h": ("_charged_rho", lambda d, v, h, size: REAL(d, v, h + 1, size) * (h + 1) / h),
    "one coordinate's difference": ("_charged_rho", lambda d, v, h, size: REAL(d, v, h, 1)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug: str) -> None:
    tests = (
        test_the_charge_is_the_papers_where_it_bites,
        test_the_least_variance_of_a_share,
        test_noise_grows_until_its_charge_fits_the_budget,
        test_a_plan_on_a_coarse_grid,
    )
    caught = 0
    with patch.object(plans, *BUGS[bug]):
        for test in tests:
            try:
                test()
            except (AssertionError, PrivacyRefused):
                caught += 1
    assert caught
