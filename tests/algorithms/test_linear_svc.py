"""Linear SVC: the smoothed hinge on the private descent, row-independent, bounded, and right without noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, numbers, plan_of, random_records, run, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from row_independence import RowsDependError, check_row_independence
from scipy.optimize import minimize

import tallystick.algorithms.linear.losses as linear_svc
from tallystick.algorithms.elementwise import hinge_residuals
from tallystick.algorithms.linear.descent import DescentSettings
from tallystick.algorithms.linear.losses import HingeProgram, hinge_bounds
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import GridRows, densify, total

CLASSES = {1: ("a",), 2: ("a", "b"), 3: ("a", "b", "c"), 10: tuple("abcdefghij")}


def hinge(margin: float, width: float) -> float:
    """The loss as the module's head has it."""
    if margin >= 1:
        return 0.0
    if margin >= 1 - width:
        return (1 - margin) ** 2 / (2 * width)
    return 1 - margin - width / 2


def noise_of(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda _, plan: np.rint(rng.normal(0, plan.total_std, plan.grid.size) * plan.grid.scale).astype(np.int64)


def rounds_of(public: Any, mechanism: str, own: DescentSettings, seed: int) -> Any:
    budget = budget_of(mechanism)
    design = HingeProgram.design(public, budget, own)
    features, target = random_records(public, 60, np.random.default_rng(seed))
    states = walk(design, plan_of(design, budget, 60), public, features, target, noise_of(seed))
    pairs = [(design.program.query(before), plan.grid) for plan, before, _ in states]
    return design, features, target, [pairs[i] for i in sorted({0, 1, 2, len(pairs) // 2, len(pairs) - 1})]


# -- the residual -----------------------------------------------------------------------------------------------------


@given(st.floats(-5, 5), st.booleans(), st.sampled_from([0.5, 1.0, 2.0]))
@settings(deadline=None, max_examples=200)
def test_the_residual_is_the_derivative_of_the_loss(score: float, positive: bool, width: float) -> None:
    side = 1.0 if positive else -1.0
    step = 1e-6
    slope = (hinge(side * (score + step), width) - hinge(side * (score - step), width)) / (2 * step)
    found = hinge_residuals(np.array([[score]]), np.array([float(positive)]), width, 9.0, False)
    assert found[0, 0] == pytest.approx(slope, abs=2e-6 / width)


@pytest.mark.parametrize("l1", [False, True])
def test_the_kernel_is_its_plain_form(l1: bool) -> None:
    rng = np.random.default_rng(1)
    scores, target = rng.normal(0, 2, (200, 4)), rng.integers(0, 4, 200)
    side = np.where(np.arange(4) == target[:, None], 1.0, -1.0)
    expected = -side * np.clip((1 - side * scores) / 1.0, 0, 1)
    size = np.abs(expected).sum(axis=1) if l1 else np.sqrt((expected**2).sum(axis=1))
    expected *= np.minimum(1, 1.2 / np.maximum(size, 1e-300))[:, None]
    found = hinge_residuals(scores, target.astype(float), 1.0, 1.2, l1)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    norms = np.abs(found).sum(axis=1) if l1 else np.sqrt((found**2).sum(axis=1))
    assert norms.max() <= 1.2 * (1 + 1e-12)


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
def test_bounds_are_the_norms_at_the_start_and_at_worst(classes: int, l1: bool, intercept: bool) -> None:
    low, high, curvature = hinge_bounds(classes, l1=l1, intercept=intercept)
    outputs = 1 if classes <= 2 else classes
    public = numbers(2, records=50, classes=CLASSES[classes])
    budget = budget_of("laplace" if l1 else "gaussian")
    program = HingeProgram(public, budget, DescentSettings(fit_intercept=intercept))
    start = program.start()[:, 0] * program.intercept

    def norm(scores: NDArray[np.float64], target: int) -> float:
        r = hinge_residuals(scores[None, :], np.array([float(target)]), linear_svc.WIDTH, 1e9, l1)
        return float(np.abs(r).sum() if l1 else np.sqrt((r**2).sum()))

    for target in range(classes):
        assert norm(start, target) == pytest.approx(low)
        worst = np.full(outputs, 9.0)
        if outputs > 1:
            worst[target] = -9.0
        elif target == 1:
            worst[0] = -9.0
        assert norm(worst, target) == pytest.approx(high)
    assert curvature == 1 / linear_svc.WIDTH


# -- row independence and sensitivity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_rows_are_independent_to_the_bit(mechanism: str, classes: int) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    design, features, target, rounds = rounds_of(public, mechanism, DescentSettings(rounds=8), seed=classes)
    check_row_independence(design.program, features, target, rounds)


class CentredByItsBlock(HingeProgram):
    """Planted: residuals are centred by the mean of the block's own records."""

    def residuals(self, rows: GridRows, weights: Any, target: Any, clip: float) -> NDArray[np.float64]:
        found = super().residuals(rows, weights, target, clip)
        return found - found.mean(axis=0) if len(found) else found


def test_a_planted_block_mean_is_caught() -> None:
    public = mixed(records=60, classes=CLASSES[3])
    own = DescentSettings(rounds=8)
    _, features, target, rounds = rounds_of(public, "gaussian", own, seed=1)
    with pytest.raises(RowsDependError):
        check_row_independence(CentredByItsBlock(public, budget_of("gaussian"), own), features, target, rounds)


def test_a_planted_float_blas_score_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    public = numbers(61, records=60, classes=CLASSES[3])
    design, features, target, rounds = rounds_of(public, "gaussian", DescentSettings(rounds=8), seed=1)
    check_row_independence(design.program, features, target, rounds)
    monkeypatch.setattr(linear_svc, "grid_scores", lambda rows, w: np.ldexp(rows.values, -rows.bits) @ w.T)
    with pytest.raises(RowsDependError, match="vectors differ"):
        check_row_independence(design.program, features, target, rounds)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_neighbour_moves_every_total_within_the_planned_sensitivity(mechanism: str, classes: int) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    design, _, _, rounds = rounds_of(public, mechanism, DescentSettings(rounds=6), seed=3)
    plan = plan_of(design, budget_of(mechanism), 60)
    assert {r.noise[0].sensitivity for r in plan.rounds} == {2 * 2**30}
    program = design.program
    for query, grid in rounds:
        pool, labels = random_records(public, 300, np.random.default_rng(classes))
        vectors = densify(program.map_block(program.prepare(pool, labels), query), grid)
        at = sorted({int(v) for v in np.abs(vectors).argmax(axis=0)} | set(range(20)))
        totals = [
            total(program.map_block(program.prepare(pool[i : i + 1], labels[i : i + 1]), query), grid) for i in at
        ]
        sizes = [
            sum(map(abs, map(int, a - b))) if program.l1 else math.sqrt(sum(int(v) ** 2 for v in a - b))
            for a in totals
            for b in totals
        ]
        assert 0.4 * 2**30 <= max(sizes) <= 2 * 2**30


def test_a_crafted_query_is_refused() -> None:
    public = mixed(records=60, classes=CLASSES[10])
    design, features, target, rounds = rounds_of(public, "gaussian", DescentSettings(rounds=4), seed=1)
    query = rounds[1][0]
    prepared = design.program.prepare(features, target)
    design.program.map_block(prepared, query._replace(clip=math.sqrt(10)))  # honest where the budget is ample
    for crafted in (query._replace(clip=3.3), query._replace(scale=query.scale * 0), query._replace(clip=0.0)):
        with pytest.raises(RemoteProtocolError, match="a linear SVC can reach"):
            design.program.map_block(prepared, crafted)


# -- without noise it is the support vector machine --------------------------------------------------------------------


def _data(classes: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal((400, 4))
    scores = plain @ rng.standard_normal((4, classes)) + rng.normal(0, 0.7, (400, classes))
    return np.clip(plain / 3 + 0.1, -1, 1), scores.argmax(axis=1)


def _objective(w: NDArray[np.float64], rows: Any, side: Any, l2: float) -> float:
    margins = side * (rows @ w)
    return float(np.mean([hinge(m, linear_svc.WIDTH) for m in margins]) + l2 / 2 * (w[1:] @ w[1:]))


@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_it_reaches_the_optimum_of_each_class_against_the_rest(classes: int) -> None:
    features, target = _data(classes, seed=classes)
    l2 = 0.05
    public = numbers(4, records=400, classes=CLASSES[classes])
    budget = budget_of("none")
    design = HingeProgram.design(public, budget, DescentSettings(l2=l2, rounds=400))
    state = run(design, plan_of(design, budget, 400), public, features, target.astype(float))
    intercept, weights = design.program.model(state)
    rows = np.hstack([np.ones((400, 1)), features])
    for k in range(1 if classes == 2 else classes):
        side = np.where(target == (1 if classes == 2 else k), 1.0, -1.0)
        best = minimize(_objective, np.zeros(5), args=(rows, side, l2), method="BFGS", options={"gtol": 1e-7})
        reached = _objective(np.concatenate([[intercept[k]], weights[k]]), rows, side, l2)
        assert reached == pytest.approx(best.fun, rel=2e-3)
        np.testing.assert_allclose(weights[k], best.x[1:], atol=0.05)


def test_the_order_of_classes_does_not_matter() -> None:
    """Without noise: one against the rest treats classes alike."""
    features, target = _data(3, seed=9)
    public = numbers(4, records=400, classes=CLASSES[3])
    budget = budget_of("none")
    design = HingeProgram.design(public, budget, DescentSettings(rounds=40))
    order = np.array([2, 0, 1])
    models = []
    for labels in (target, order[target]):
        state = run(design, plan_of(design, budget, 400), public, features, labels.astype(float))
        models.append(design.program.model(state))
    np.testing.assert_allclose(models[0][1], models[1][1][order], atol=1e-6)
    np.testing.assert_allclose(models[0][0], models[1][0][order], atol=1e-6)


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize(("records", "epsilon"), [(1, 0.01), (60, 9.0)])
@pytest.mark.parametrize("intercept", [True, False])
def test_every_corner_stays_finite(classes: int, mechanism: str, records: int, epsilon: float, intercept: bool) -> None:
    public = mixed(records=records, classes=CLASSES[classes])
    features, target = random_records(public, records, np.random.default_rng(3))
    budget = budget_of(mechanism, epsilon)
    design = HingeProgram.design(public, budget, DescentSettings(fit_intercept=intercept, rounds=8))
    state = run(design, plan_of(design, budget, records), public, features, target, noise_of(2))
    assert all(np.isfinite(part).all() for part in (*state, *design.program.model(state)))


def test_a_target_that_is_a_number_is_refused() -> None:
    with pytest.raises(StudyError, match="linear SVC needs a category"):
        HingeProgram.design(numbers(2, records=9, classes=()), budget_of("gaussian"), DescentSettings())
