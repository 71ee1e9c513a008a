"""Lemma 1 of mechanisms/rounded_gaussian.md to many digits, and true hockey sticks of the discrete noise of plans.

The second part knows no theorem: it adds up, over all integers that matter, how much likelier one data set makes an
outcome than e^ε times the other, for the very noise that a plan asks for.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.claims import servers_claim

from tallystick.privacy import round_plan
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.grid import Group
from tallystick.privacy.mechanisms.rounded_gaussian import ROUNDING, coordinate_distance
from tallystick.privacy.sum_plan import SumPlan, make_plan

DIGITS = 70
Array = NDArray[np.float64]


def discrete(variance: Any, reach: int) -> list[Any]:
    """The pmf of N_Z(0, s²) at 0, 1, …, reach."""
    whole = mpmath.sqrt(2 * mpmath.pi * variance)
    whole *= 1 + 2 * sum(mpmath.exp(-2 * mpmath.pi**2 * variance * k * k) for k in range(1, 8))
    return [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * variance)) / whole for x in range(reach + 1)]


def rounded(variance: Any, reach: int) -> list[Any]:
    """The pmf of round(N(0, v)) at 0, 1, …, reach."""
    tails = [mpmath.erfc((x - mpmath.mpf(1) / 2) / mpmath.sqrt(2 * variance)) / 2 for x in range(reach + 2)]
    return [a - b for a, b in itertools.pairwise(tails)]


def distance(p: list[Any], q: list[Any]) -> Any:
    return (abs(p[0] - q[0]) + 2 * sum(abs(a - b) for a, b in zip(p[1:], q[1:]))) / 2


def fraction(value: Any) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


@pytest.mark.parametrize("variance", [4, Fraction(81, 16), 9, 25, 100, 900, 10_000])
def test_the_distance_is_below_its_bound(variance: Fraction) -> None:
    bound = coordinate_distance(Fraction(variance), 1)
    assert bound is not None
    with mpmath.workdps(DIGITS):
        s2, reach = fraction(Fraction(variance)), 14 * math.isqrt(int(variance)) + 40
        found = distance(discrete(s2, reach), rounded(s2 - fraction(ROUNDING), reach))
        assert found <= fraction(bound)
        assert found > fraction(bound) / 3  # and the bound is no wild guess
        wrong = distance(discrete(s2, reach), rounded(s2, reach))
        assert wrong > fraction(bound)  # planted: the rounding's own variance forgotten
        assert 0.018 < wrong * s2 < 0.021


@pytest.mark.parametrize("honest", [2, 3])
def test_sums_of_shares_are_below_theirs(honest: int) -> None:
    """Shares of variance 4: their sum is no discrete Gaussian, by some 10⁻¹⁸."""
    with mpmath.workdps(DIGITS):
        one = discrete(mpmath.mpf(4), 60)
        share = [*reversed(one[1:]), *one]
        total = share
        for _ in range(honest - 1):
            total = [
                sum(total[k] * share[n - k] for k in range(max(0, n - len(share) + 1), min(n, len(total) - 1) + 1))
                for n in range(len(total) + len(share) - 1)
            ]
        middle = len(total) // 2
        found = distance(total[middle:], discrete(mpmath.mpf(4 * honest), middle))
        extra = coordinate_distance(Fraction(4 * honest), honest)
        alone = coordinate_distance(Fraction(4 * honest), 1)
        assert extra is not None
        assert alone is not None
        assert mpmath.mpf(10) ** -25 < found <= fraction(extra - alone)


def test_nothing_is_said_where_nothing_is_proved() -> None:
    assert coordinate_distance(Fraction(399, 100), 1) is None
    assert coordinate_distance(Fraction(11), 3) is None
    assert coordinate_distance(Fraction(12), 3) is not None


# -- what plans ask for ------------------------------------------------------------------------------------------------


def plan_of(bits: int, *, size: int = 1, rounds: int = 1, groups: int = 1, **facts: Any) -> SumPlan:
    told = {"epsilon": 1.0, "delta": 1e-3, "neighbours": "add-remove", "mechanism": "gaussian", "rounds": rounds}
    share = 1 / groups
    of_round = tuple(Group(name=f"g{i}", size=size, bound=1.0, share=share) for i in range(groups))
    return make_plan(servers_claim(**{**told, **facts}), [of_round] * rounds, fraction_bits=bits)


def law(variance: Fraction, honest: int, reach: int) -> Array:
    """The pmf of the sum of ``honest`` discrete Gaussians on −reach … reach."""
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2 * float(variance)))
    one /= one.sum()
    total = one
    for _ in range(honest - 1):
        total = np.convolve(total, one)
    return total


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def shifted(p: Array, by: int) -> tuple[Array, Array]:
    return np.pad(p, (by, 0)), np.pad(p, (0, by))


@pytest.mark.parametrize(("servers", "colluding"), [(2, 1), (4, 1)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_the_true_delta_of_one_coordinate(epsilon: float, delta: float, servers: int, colluding: int) -> None:
    plan = plan_of(8, epsilon=epsilon, delta=delta, servers=servers, colluding=colluding)
    assert plan.gaussian_distance is not None
    (noise,) = plan.rounds[0].noise
    p = law(noise.parameter, plan.honest, 12 * math.isqrt(int(noise.parameter)) + 40)
    true = hockey_stick(*shifted(p, noise.sensitivity), epsilon)
    assert true <= delta
    assert true > 0.99 * delta  # all of it is used
    assert hockey_stick(*shifted(p, noise.sensitivity), epsilon * 0.99) > delta * 0.99
    less = law(noise.parameter * Fraction(98, 100), plan.honest, 12 * math.isqrt(int(noise.parameter)) + 40)
    assert hockey_stick(*shifted(less, noise.sensitivity), epsilon) > delta  # planted: 1 % less noise


@pytest.mark.parametrize("moved", [(1.0, 0.0), (0.6, 0.8), (math.sqrt(0.5), math.sqrt(0.5))])
def test_the_true_delta_of_two_coordinates(moved: tuple[float, float]) -> None:
    plan = plan_of(6, size=2, delta=1e-4)
    assert plan.gaussian_distance is not None
    (noise,) = plan.rounds[0].noise
    by = [math.floor(part * noise.sensitivity) for part in moved]
    p = law(noise.parameter, 1, 8 * math.isqrt(int(noise.parameter)))
    (a, b), (c, d) = shifted(p, by[0]), shifted(p, by[1])
    true = hockey_stick(np.outer(a, c), np.outer(b, d), 1.0)
    assert 0.9 * 1e-4 < true <= 1e-4


def test_the_true_delta_of_two_rounds_and_of_two_groups() -> None:
    """Independent releases of one shift each: the law of both, as a product."""
    for plan in (plan_of(5, rounds=2, delta=1e-4), plan_of(6, groups=2, delta=1e-4)):
        assert plan.gaussian_distance is not None
        noises = [n for r in plan.rounds for n in r.noise]
        pairs = [shifted(law(n.parameter, 1, 8 * math.isqrt(int(n.parameter))), n.sensitivity) for n in noises]
        true = hockey_stick(np.outer(pairs[0][0], pairs[1][0]), np.outer(pairs[0][1], pairs[1][1]), 1.0)
        assert 0.99e-4 < true <= 1e-4


def test_a_plan_counts_every_coordinate_of_every_round() -> None:
    one = plan_of(12).gaussian_distance
    many = plan_of(12, size=50, rounds=7, groups=3).gaussian_distance
    ticks = plan_of(12, size=50, rounds=7, groups=3, parallel=True).gaussian_distance
    assert one is not None
    assert many is not None
    assert ticks is not None
    for distance, plan in ((many, plan_of(12, size=50, rounds=7, groups=3)), (one, plan_of(12))):
        least = min(n.parameter for r in plan.rounds for n in r.noise)
        each = coordinate_distance(least, 1)
        count = sum(n.group.size for r in plan.rounds for n in r.noise)
        assert each is not None
        assert float(distance) == pytest.approx(float(each) * count, rel=1e-9)
    # A tick has seven times the ρ, and only one of seven has the record.
    assert float(ticks) == pytest.approx(float(many) * 7**2 / 7, rel=0.01)


def test_a_grid_too_coarse_for_it_has_the_old_noise_and_says_so() -> None:
    """Planted: a slack that is forgotten would take the exact curve on any grid."""
    coarse = plan_of(3, size=1000, delta=1e-6)
    assert coarse.gaussian_distance is None
    assert any("conversion from zCDP" in note for note in coarse.notes)
    assert coarse.rho <= rho_from_epsilon(1.0, 1e-6)
    with patch.object(round_plan, "coordinate_distance", lambda variance, honest: Fraction(0)):
        assert plan_of(3, size=1000, delta=1e-6).gaussian_distance == 0  # it would be seen here
    fine = plan_of(20, size=1000, delta=1e-6)
    assert fine.gaussian_distance is not None
    assert not fine.notes


@pytest.mark.parametrize("facts", [{"sampling": 0.5}, {"mechanism": "laplace", "delta": 0.0}], ids=str)
def test_what_is_not_all_gaussian_is_not_taken_for_it(facts: dict[str, Any]) -> None:
    assert plan_of(12, rounds=3, **facts).gaussian_distance is None
    assert plan_of(12, sampling=1.0).gaussian_distance is not None  # every record: no sample
