"""Sampled rounds: the curve against brute force on discrete Gaussians, against dp-accounting, and planted bugs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import ORDERS
from tallystick.privacy.sampling import LARGEST, curve_epsilon, round_curve, sampled_budget, sampled_curve

CASES = [(rate, shift, variance) for rate in (0.01, 0.2, 0.7) for shift in (1, 3) for variance in (2.0, 9.0, 60.0)]


def gaussian(shift: int, variance: float, reach: int = 400) -> np.ndarray:
    """ln of a discrete Gaussian's probabilities on −reach … reach."""
    x = np.arange(-reach, reach + 1)
    logs = -((x - shift) ** 2) / (2 * variance)
    return logs - np.logaddexp.reduce(-(x**2) / (2 * variance))


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1))


def mixed(rate: float, shift: int, variance: float) -> tuple[np.ndarray, np.ndarray]:
    without, with_it = gaussian(0, variance), gaussian(shift, variance)
    return np.logaddexp(math.log1p(-rate) + without, math.log(rate) + with_it), without


@pytest.mark.parametrize(("rate", "shift", "variance"), CASES)
def test_the_curve_is_the_brute_force_divergence_in_both_directions(rate: float, shift: int, variance: float) -> None:
    sample, without = mixed(rate, shift, variance)
    rho = shift**2 / (2 * variance)
    for order in (2, 3, 5, 9, 17):
        claimed = sampled_curve(rho, rate, order)
        assert divergence(sample, without, order) == pytest.approx(min(claimed, rho * order), rel=1e-6, abs=1e-12)
        assert divergence(without, sample, order) <= claimed * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(("rate", "shift", "variance"), CASES)
def test_the_general_bound_covers_a_sum_of_two_honest_servers(rate: float, shift: int, variance: float) -> None:
    half = gaussian(0, variance / 2, 150)  # two honest servers, each with half the variance
    inside = range(-60, 61)
    total = {
        k: np.logaddexp.reduce(half[max(0, k) : 301 + min(0, k)] + half[max(0, k) : 301 + min(0, k)][::-1])
        for k in range(-70, 71)
    }
    without = np.array([total[k] for k in inside])
    with_it = np.array([total[k - shift] for k in inside])
    sample = np.logaddexp(math.log1p(-rate) + without, math.log(rate) + with_it)
    # ρ of this noise at this shift, by brute force over orders: what a curve ε(l) ≤ ρl needs.
    rho = max(divergence(with_it, without, order) / order for order in (1.01, 2, 3, 4, 5, 6, 7, 8, 9))
    for order in (2, 3, 5, 9):
        claimed = sampled_curve(rho, rate, order, honest=2)
        for p, q in ((sample, without), (without, sample)):
            assert divergence(p, q, order) <= claimed * (1 + 1e-6) + 1e-9


def test_never_above_the_unsampled_cost_and_rising_with_rate_and_rho() -> None:
    for order in (2, 7, 64, LARGEST):
        for honest in (1, 2):
            costs = [sampled_curve(0.03, rate, order, honest=honest) for rate in (0.001, 0.01, 0.1, 0.5, 1.0)]
            assert costs == sorted(costs)
            assert costs[-1] == pytest.approx(0.03 * order)
            assert sampled_curve(0.02, 0.1, order, honest=honest) <= sampled_curve(0.03, 0.1, order, honest=honest)


def test_agrees_with_dp_accounting() -> None:
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    rate, sigma, rounds, delta = 0.02, 1.3, 400, 1e-6
    orders = [float(o) for o in range(2, LARGEST + 1)]
    theirs = rdp.RdpAccountant(orders)
    event = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(sigma))
    theirs.compose(event, rounds)
    curve = [rounds * sampled_curve(1 / (2 * sigma**2), rate, int(o)) for o in orders]
    ours = curve_epsilon(curve, [Fraction(int(o)) for o in orders], delta)
    assert ours == pytest.approx(theirs.get_epsilon(delta), rel=1e-4)


@settings(deadline=None, max_examples=8)
@given(st.floats(0.002, 0.6), st.integers(1, 60), st.floats(0.05, 5), st.sampled_from([1, 2]))
def test_the_budget_is_used_up_and_not_passed(rate: float, rounds: int, epsilon: float, honest: int) -> None:
    shares = [Fraction(1, rounds)] * rounds
    whole = sampled_budget(epsilon, 1e-6, rate=rate, shares=shares, orders=ORDERS, honest=honest)
    curve = [rounds * c for c in round_curve(float(whole / rounds), rate, ORDERS, honest=honest)]
    assert epsilon * 0.99 <= curve_epsilon(curve, ORDERS, 1e-6) <= epsilon


def test_planted_bugs_are_caught_by_brute_force() -> None:
    """Amplification by the whole factor q² (right only for tiny ρ), and the rate taken twice."""
    rate, shift, variance, order = 0.2, 3, 2.0, 9
    sample, without = mixed(rate, shift, variance)
    true = divergence(sample, without, order)
    rho = shift**2 / (2 * variance)
    assert rate**2 * rho * order < true
    assert sampled_curve(rho, rate**2, order) < true
    assert sampled_curve(rho / 2, rate, order) < true


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, math.nan])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(PrivacyRefused):
        sampled_curve(0.1, rate, 2)
