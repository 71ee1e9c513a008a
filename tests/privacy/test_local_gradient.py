"""Perturbed gradients: sensitivity by brute force, the budget in exact fractions, and answers beyond it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tallystick.algorithms.gossip.golf.kernels import noisy_walk
from tallystick.algorithms.gossip.golf.settings import GolfSettings
from tallystick.algorithms.gossip.golf.walks import GradientWalk, use_counts
from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.crypto.prg import AesStream
from tallystick.privacy.local.gradient import UNIT, GradientBudget, on_grid


def _sum_of_gradients(records: np.ndarray, labels: list[float], weights: list[float], learner: int) -> np.ndarray:
    """The integers that noise is added to: from one visit with no noise, whose step is chosen to be undone exactly."""
    w = np.array(weights)
    age, rate = 1, 2.0 * len(records) * UNIT  # age 2: w/2 + total
    noisy_walk(
        w, age, on_grid(records), np.array(labels), np.zeros(1, np.int64), np.zeros((1, 2), np.int64),
        len(records), float(UNIT), learner, rate,
    )  # fmt: skip
    return np.rint(w - np.array(weights) / 2).astype(np.int64)


_RECORDS = [
    *[(0.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.5, 0.5), (-0.25, 0.75), (1e-9, -1.0)],
    *[(3.0, -4.0), (1e300, 1.0), (math.nan, 1.0)],  # too long, and none at all
]
_WEIGHTS = [(0.0, 0.0), (1.5, -0.5), (-40.0, 3.0), (1e5, 1e5)]


@pytest.mark.parametrize("learner", [0, 1])
def test_replacing_one_record_moves_the_sum_by_at_most_twice_the_unit(learner: int) -> None:
    """Every pair of records and labels, at every model, alone and beside two others: ‖g − g'‖₁ ≤ 2U, attained."""
    furthest = 0
    people = list(itertools.product(_RECORDS, (-1.0, 1.0)))
    for weights in _WEIGHTS:
        for others in ([], [((0.25, -0.5), 1.0), ((-1.0, 0.0), -1.0)]):
            sums = []
            for record, label in people:
                rows = [record, *(x for x, _ in others)]
                sums.append(_sum_of_gradients(np.array(rows), [label, *(y for _, y in others)], weights, learner))
            for a, b in itertools.combinations(sums, 2):
                furthest = max(furthest, int(np.abs(a - b).sum()))
    assert furthest <= 2 * UNIT
    assert furthest > (2 if learner == 0 else 1.9) * UNIT - 5


def test_a_grid_that_rounds_to_nearest_would_break_the_bound() -> None:
    """The planted bug: 0.5 and more of a grid unit on many coordinates adds up beyond the unit."""
    columns = 1000
    row = np.full((1, columns), (math.floor(UNIT / columns) + 0.53) / UNIT)
    assert np.abs(row).sum() <= 1
    assert np.abs(np.rint(row * UNIT)).sum() > UNIT
    assert np.abs(on_grid(row)).sum() <= UNIT


def test_records_on_the_grid() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 7)) * np.exp(rng.normal(size=(200, 1)) * 20)
    rows[3], rows[4, 2], rows[5] = 0.0, np.inf, 0.0
    grid = on_grid(rows)
    assert np.abs(grid.astype(np.int64)).sum(axis=1).max() <= UNIT
    assert not grid[3:6].any()  # nothing, and a bad record: zeros
    long = np.abs(rows).sum(axis=1) > 1.001
    long[4] = False
    assert np.abs(grid[long]).sum(axis=1).min() > UNIT - 14  # a long one keeps its direction and the whole length
    assert on_grid(rows[:1]).tobytes() == grid[:1].tobytes()  # by itself


@pytest.mark.parametrize(
    "strategy, uses, answers",
    [("once", 1, 1), ("uses", 5, 5), ("halving", 1, 24)],
)
@pytest.mark.parametrize("problems", [1, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0, 1 / 3])
def test_all_answers_together_cost_at_most_the_budget(
    strategy: str, uses: int, answers: int, problems: int, epsilon: float
) -> None:
    budget = GradientBudget(epsilon=epsilon, strategy=strategy, uses=uses, problems=problems)  # type: ignore[arg-type]
    assert budget.answers == answers
    spent = budget.spent(answers)
    assert spent <= Fraction(epsilon)
    assert spent >= Fraction(epsilon) * (1 - Fraction(1, 2**24))
    for use in range(1, answers + 1):
        # the law: ln P(y|g)/P(y|g') = Σ(|y − g'| − |y − g|)/scale ≤ ‖g − g'‖₁/scale
        assert Fraction(2 * UNIT) / budget.scale(use) <= budget.epsilon_of(use)
        assert Fraction(2 * UNIT) / budget.scale(use) > budget.epsilon_of(use) * (1 - Fraction(1, 10**6))
    with pytest.raises(PrivacyRefused, match="beyond"):
        budget.epsilon_of(answers + 1)
    with pytest.raises(PrivacyRefused):
        budget.epsilon_of(0)  # halving begun at t = 0 would cost twice the budget


def test_the_smallest_law_by_brute_force() -> None:
    """P(y | g) of discrete Laplace noise at the budget's scale, over all outputs of a wide window: within e^ε'."""
    budget = GradientBudget(epsilon=2.0, strategy="uses", uses=2)
    unit = 3  # records on a grid of unit 3: g from −3 to 3, one column
    scale = budget.scale(1) * Fraction(unit, UNIT)
    window = np.arange(-60, 61)
    laws = {g: np.exp(-np.abs(window - g) / float(scale)) for g in range(-unit, unit + 1)}
    worst = max(float(np.log(laws[g] / laws[h]).max()) for g in laws for h in laws)
    assert worst <= 1.0 + 1e-12
    assert worst > 0.999


def test_a_spent_peer_says_nothing_more() -> None:
    grid, signs = on_grid(np.array([[1.0, 0.0], [0.0, 1.0]])), np.ones((1, 2))
    budget = GradientBudget(epsilon=50.0, strategy="uses", uses=2)
    walk = GradientWalk(grid, signs, GolfSettings(), budget)
    source = AesStream(bytes(32), b"test")
    walk.visit(np.array([0, 0, 1]), [source])
    assert walk.uses.tolist() == [2, 1]
    before = walk.weights.copy()
    walk.visit(np.array([0, 0, 0]), [source])
    assert walk.weights.tobytes() == before.tobytes()
    walk.visit(np.array([1, 0, 1]), [source])
    assert walk.uses.tolist() == [2, 2]
    assert walk.weights.tobytes() != before.tobytes()


def test_uses_are_counted_in_the_order_of_visits() -> None:
    visits = np.array([3, 1, 3, 3, 0, 1])
    assert use_counts(visits).tolist() == [1, 1, 2, 3, 1, 2]
    assert use_counts(np.empty(0, np.int64)).tolist() == []


def test_noise_has_the_scale_of_its_use() -> None:
    budget = GradientBudget(epsilon=1.0, strategy="halving")
    uses = np.repeat([1, 2, 5], 2000)
    drawn = budget.noise(uses, 3, AesStream(bytes(32), b"test")).astype(float)
    for use in (1, 2, 5):
        expected = math.sqrt(2) * float(budget.scale(use))
        assert abs(drawn[uses == use].std() / expected - 1) < 0.06  # 6,000 draws: 4 standard errors
        assert abs(drawn[uses == use].std() / (2 * expected) - 1) > 0.3


def test_bad_budgets_and_records_are_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivacyRefused):
            GradientBudget(epsilon=epsilon)
    for wrong in ({"strategy": "never"}, {"uses": 2}, {"strategy": "uses", "uses": 0}, {"problems": 0}):
        with pytest.raises(StudyError):
            GradientBudget(epsilon=1.0, **wrong)  # type: ignore[arg-type]
    grid, signs, budget = on_grid(np.eye(3)), np.ones((1, 3)), GradientBudget(epsilon=1.0)
    with pytest.raises(StudyError, match="longer"):
        GradientWalk(2 * grid, signs, GolfSettings(), budget)
    with pytest.raises(StudyError, match="problems"):
        GradientWalk(grid, np.ones((2, 3)), GolfSettings(), budget)
    with pytest.raises(StudyError, match="at each peer"):
        GradientWalk(grid, signs, GolfSettings(), budget, batch=4)
