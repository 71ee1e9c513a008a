"""What sampling does to the noise of an estimate of the whole: the ratio the plan notes and docs/privacy.md states."""

from __future__ import annotations

from typing import Any

import pytest
from tests.claims import servers_claim

from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.sum_plan import make_plan

CONVERSION = float(gaussian_rho(0.1, 1e-6) / rho_from_epsilon(0.1, 1e-6)) ** 0.5
"""More noise by Rényi curves, as sampled rounds have it, than by the exact Gaussian curve."""


def plan(rate: float | None, rounds: int, epsilon: float, *, servers: int = 2, weights: Any = None) -> Any:
    claim = servers_claim(
        epsilon=epsilon, delta=1e-6, neighbours="add-remove", mechanism="gaussian",
        rounds=rounds, servers=servers, colluding=1, sampling=rate,
    )  # fmt: skip
    return make_plan(claim, [(Group(name="all", size=3, bound=1.0),)] * rounds, weights=weights)


def measured(rate: float, rounds: int, epsilon: float, **options: Any) -> float:
    """From the noise itself: that of the sampled total over the rate, over that of the whole total."""
    sampled, whole = plan(rate, rounds, epsilon, **options), plan(None, rounds, epsilon, **options)
    ratio = float(sampled.rounds[0].total_std / rate / whole.rounds[0].total_std)
    assert sampled.sampling_price() == pytest.approx(ratio, rel=1e-6)
    assert whole.sampling_price() is None
    return ratio


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_many_rounds_at_a_small_epsilon_cost_hardly_more(rate: float, epsilon: float) -> None:
    assert 1.0 <= measured(rate, 200, epsilon) < 1.4


def test_one_round_or_a_large_epsilon_costs_much_more() -> None:
    assert measured(0.02, 1, 5.0) == pytest.approx(28.6, abs=0.1)
    assert measured(0.02, 200, 5.0) == pytest.approx(2.81, abs=0.01)
    assert measured(0.1, 1, 1.0) == pytest.approx(3.85, abs=0.01)


def test_several_honest_servers_may_save_nothing() -> None:
    """The general bound [ZW19] is no better than no sampling here: 1/rate is lost, and the exact curve."""
    assert measured(0.1, 200, 0.1, servers=3) == pytest.approx(10.0 * CONVERSION, rel=0.02)


def test_uneven_rounds_are_compared_alike() -> None:
    assert measured(0.1, 4, 1.0, weights=[1.0, 2.0, 3.0, 4.0]) >= 1.0


def test_a_rate_of_one_is_no_sample() -> None:
    assert plan(1.0, 10, 1.0).sampling_price() is None
