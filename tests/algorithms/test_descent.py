"""The rule of descent against the formulas it was measured with (docs/decisions/0002)."""

from __future__ import annotations

import dataclasses
import math

import pytest
from block_runs import budget_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.algorithms.linear.descent import (
    MOMENT_SHARE,
    choose_rounds,
    choose_schedule,
    noise_of_mean,
    residual_bounds,
)

KAPPA, PHI, TAIL, SLACK = 1.5, 0.1, 0.25, 0.02


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def researched(mechanism: str, budget: float, n: int, classes: int, tr: float, longest: float, typical: float) -> dict:
    """T, C, R, η, β as in the measured reference; ``budget`` is ρ for the Gaussian, ε for Laplace."""
    curv = 0.25 if classes <= 2 else 0.5
    lipschitz = curv * tr
    if mechanism == "gaussian":
        root = math.sqrt((1 - PHI) * budget)
        low, high = (0.5, 1.0) if classes <= 2 else (math.sqrt(1 - 1 / classes), math.sqrt(2))
        r = math.sqrt(tr)
        bound = max(low * r, SLACK / math.sqrt(n) * n * root / 2)
        c = clip(bound / r, low, high)
        r = max(r, min(bound / c, longest))
        nu = 2 * c * r / (n * root)
        s = KAPPA / (nu * math.sqrt(tr))
        t = int(clip(math.ceil(2 * math.sqrt(s * lipschitz)), 128, 256))
    else:
        c, r = (0.5 if classes <= 2 else 2 * (1 - 1 / classes)), typical
        nu1 = 4 * c * r / (n * (1 - PHI) * budget)
        t = int(clip(math.ceil((4 * KAPPA * lipschitz / (nu1 * math.sqrt(tr))) ** 0.4), 4, 64))
        nu = nu1 * math.sqrt(t)
        s = KAPPA / (nu * math.sqrt(tr))
    a = s * lipschitz / t
    eta, beta = (s / t, 0.0) if a < 1 else (1 / lipschitz, min(1 - 1 / a, 1 - 4 / t))
    return {"T": t, "C": c, "R": r, "eta": eta, "beta": beta, "tail": max(1, int(TAIL * t))}


@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.floats(0.01, 9.9),
    st.integers(1, 10**6),
    st.sampled_from([1, 2, 3, 10]),
    st.floats(0.2, 200.0),
    st.floats(1.0, 30.0),
)
@settings(deadline=None, max_examples=300)
def test_the_schedule_is_the_researched_one(
    mechanism: str, epsilon: float, n: int, classes: int, tr: float, ratio: float
) -> None:
    budget = budget_of(mechanism, epsilon)
    typical = math.sqrt(tr) if mechanism == "gaussian" else 1 + tr
    longest = ratio * math.sqrt(tr)
    whole = budget.rho if mechanism == "gaussian" else epsilon
    expected = researched(mechanism, whole, n, classes, tr, longest, typical)
    rounds = choose_rounds(budget, 1 - MOMENT_SHARE, classes=classes, records=n, trace=tr, typical_row=typical)
    low, _, _ = residual_bounds(classes, l1=mechanism == "laplace")
    ample = expected["C"] * expected["R"] > low * typical * (1 + 1e-9)
    if ample:  # T is fixed before the moments, at the smallest clip: never fewer rounds than the researched rule
        assert expected["T"] <= rounds <= 256
    else:
        assert abs(rounds - expected["T"]) <= (0 if rounds == expected["T"] else 1)  # ceil at a rounding boundary
    plan = choose_schedule(
        budget,
        1 - MOMENT_SHARE,
        classes=classes,
        records=n,
        rounds=expected["T"],
        trace=tr,
        typical_row=typical,
        longest_row=longest,
    )
    assert plan.clip == pytest.approx(expected["C"], rel=1e-9)
    assert plan.row_limit == pytest.approx(expected["R"], rel=1e-9)
    assert plan.step == pytest.approx(expected["eta"], rel=1e-9)
    assert plan.momentum == pytest.approx(expected["beta"], rel=1e-6, abs=1e-9)
    assert plan.tail == expected["tail"]


@given(
    st.sampled_from(["gaussian", "laplace", "none"]),
    st.floats(1e-6, 1e9),
    st.integers(1, 10**9),
    st.integers(1, 10),
    st.floats(0.01, 1e4),
    st.floats(0.1, 1e5),
    st.one_of(st.none(), st.integers(1, 5)),
    st.one_of(st.none(), st.floats(1e-6, 1e6)),
    st.sampled_from(["replace-one", "add-remove"]),
)
@settings(deadline=None, max_examples=300)
def test_every_schedule_is_finite_positive_and_stable(
    mechanism: str,
    epsilon: float,
    n: int,
    classes: int,
    tr: float,
    longest: float,
    rounds: int | None,
    given_clip: float | None,
    neighbours: str,
) -> None:
    """mechanism none, one class, one record, huge and tiny ε, one column, ten classes."""
    budget = dataclasses.replace(
        budget_of(mechanism, 1.0, neighbours=neighbours), epsilon=epsilon, rho=min(epsilon, epsilon**2 / 40)
    )
    common = {"classes": classes, "records": n, "trace": tr, "typical_row": math.sqrt(tr)}
    auto = choose_rounds(budget, 0.9, **common)
    assert (4 if mechanism == "laplace" else 128) <= auto <= (64 if mechanism == "laplace" else 256)
    plan = choose_schedule(budget, 0.9, **common, rounds=rounds or auto, longest_row=longest, clip=given_clip)
    assert all(math.isfinite(v) for v in dataclasses.astuple(plan))
    assert plan.step > 0
    assert plan.row_limit > 0
    low, high, curvature = residual_bounds(classes, l1=mechanism == "laplace")
    assert low <= plan.clip <= high
    assert 0 <= plan.momentum < 1
    assert 1 <= plan.tail <= (rounds or auto)
    assert plan.step <= 1 / (curvature * tr) * (1 + 1e-9)
    if given_clip is not None:
        assert plan.clip * plan.row_limit == pytest.approx(given_clip)


def test_without_noise_nothing_is_clipped() -> None:
    plan = choose_schedule(
        budget_of("none"), 0.9, classes=2, records=50, rounds=256, trace=4.0, typical_row=2.0, longest_row=9.0
    )
    assert (plan.clip, plan.row_limit) == (1.0, 9.0)
    assert plan.momentum == 1 - 4 / 256


def test_a_given_step_has_no_momentum() -> None:
    plan = choose_schedule(
        budget_of("none"), 0.9, classes=2, records=50, rounds=9, trace=4.0, typical_row=2.0, longest_row=9.0, step=0.3
    )
    assert (plan.step, plan.momentum, plan.tail) == (0.3, 0.0, 2)


def test_the_noise_of_the_mean_is_the_plans() -> None:
    """Two servers adding full noise each: 2B/(n√ρ) for the Gaussian, two Laplace of std √2·b each for Laplace."""
    g = budget_of("gaussian")
    assert noise_of_mean(g, 0.25, 3.0, 50) == pytest.approx(2 * 3.0 / (50 * math.sqrt(0.25 * g.rho)))
    assert noise_of_mean(budget_of("laplace", 2.0), 0.25, 3.0, 50) == pytest.approx(2 * (2 * 3.0 / 0.5) / 50)
    assert noise_of_mean(budget_of("none"), 0.25, 3.0, 50) == 0.0
    one = noise_of_mean(budget_of("gaussian", neighbours="add-remove"), 1.0, 1.0, 50)
    assert noise_of_mean(g, 1.0, 1.0, 50) == pytest.approx(2 * one)
    assert noise_of_mean(budget_of("gaussian", person=3), 1.0, 1.0, 50) == pytest.approx(6 * one)


@pytest.mark.parametrize("classes", [3, 4, 10])
def test_residual_bounds_are_the_norms_at_zero_and_at_worst(classes: int) -> None:
    at_zero = [1 / classes - (c == 0) for c in range(classes)]
    worst = [-1.0, 1.0] + [0.0] * (classes - 2)
    for l1 in (False, True):
        low, high, _ = residual_bounds(classes, l1=l1)
        size = (lambda v: sum(map(abs, v))) if l1 else (lambda v: math.sqrt(sum(x * x for x in v)))
        assert low == pytest.approx(size(at_zero))
        assert high == pytest.approx(size(worst))
