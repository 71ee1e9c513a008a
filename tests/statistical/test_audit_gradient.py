"""The ε audit of perturbed gradients: what a peer has said of a record in all its answers stays below the claim.

One peer, walked to as often as it answers, with the record (1, 0) or (−1, 0) and whatever it holds besides; the model's
λ is so large that every gradient is the record itself, the worst case. The answers are read off the public model as any
listener could. Event: every answer is at least one unit above what the others add; each then has a likelihood ratio of
e^ε' and all together of e^ε: nothing tells the two better apart. The bound holds at 1 − 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from audit_bounds import epsilon_lower_bound

from tallystick.algorithms.gossip.golf.settings import GolfSettings
from tallystick.algorithms.gossip.golf.walks import GradientWalk
from tallystick.crypto.prg import AesStream
from tallystick.privacy.local.gradient import UNIT, GradientBudget, on_grid

EPSILON, ALPHA, RUNS = 1.5, 1e-4, 6000
_LAMBDA = 1e12
_OTHERS = np.array([[0.25, 0.5], [-0.5, 0.5], [0.25, -0.75]])


class _HalfTheSensitivity(GradientBudget):
    def scale(self, use: int) -> Fraction:
        return super().scale(use) / 2


class _HalvingFromZero(GradientBudget):
    def epsilon_of(self, use: int) -> Fraction:
        return 2 * super().epsilon_of(use)


class _NoiseForTheMeanOnTheSum(GradientBudget):
    def scale(self, use: int) -> Fraction:
        return super().scale(use) / 4


class _UsesNotCounted(GradientBudget):
    @property
    def answers(self) -> int:
        return 4

    def epsilon_of(self, use: int) -> Fraction:
        return super().epsilon_of(1)


class _EveryProblemInFull(GradientBudget):
    def epsilon_of(self, use: int) -> Fraction:
        return super().epsilon_of(use) * self.problems


def _answers(sign: float, budget: GradientBudget, visits: int, batch: int, runs: int, stream: AesStream) -> np.ndarray:
    """(runs, answers to all problems): the first coordinate of each answer beyond what the other records add."""
    grid = on_grid(np.vstack([[[sign, 0.0]], _OTHERS])[:batch])
    others = int(grid[1:, 0].sum())
    signs = np.ones((budget.problems, batch))
    heard = []
    for _ in range(runs):
        walk = GradientWalk(grid, signs, GolfSettings(lambda_=_LAMBDA), budget, batch=batch)
        before = walk.weights.copy()
        said: list[float] = []
        for age in range(1, visits + 1):
            walk.visit(np.zeros(1, np.int64), [stream] * budget.problems)
            step = 1 / _LAMBDA / age / (batch * UNIT)
            said += ((walk.weights - (1 - 1 / age) * before)[:, 0] / step).tolist()
            before = walk.weights.copy()
        heard.append(said)
    return np.rint(heard) - others


def _bound(budget: GradientBudget, visits: int, batch: int = 1) -> float:
    stream = AesStream(bytes(32), b"audit of gradients")
    hits = [
        int((_answers(sign, budget, visits, batch, RUNS, stream) >= UNIT).all(axis=1).sum()) for sign in (1.0, -1.0)
    ]
    return epsilon_lower_bound(*hits, RUNS, delta=0.0, alpha=ALPHA)


@pytest.mark.audit
@pytest.mark.parametrize(
    "budget, visits, batch",
    [
        (GradientBudget(epsilon=EPSILON), 1, 1),
        (GradientBudget(epsilon=EPSILON), 1, 4),
        (GradientBudget(epsilon=EPSILON, strategy="uses", uses=2), 2, 1),
        (GradientBudget(epsilon=EPSILON, strategy="halving"), 2, 1),
        (GradientBudget(epsilon=EPSILON, problems=2), 1, 1),
    ],
    ids=["once", "a batch of 4", "two uses", "halving", "two problems"],
)
def test_all_answers_of_a_peer_stay_within_epsilon(budget: GradientBudget, visits: int, batch: int) -> None:
    found = _bound(budget, visits, batch)
    assert found <= EPSILON
    assert found > 0.55 * EPSILON  # and the audit sees most of it (two answers of halving are three quarters)


@pytest.mark.audit
@pytest.mark.parametrize(
    "broken, visits, batch",
    [
        (lambda: _HalfTheSensitivity(epsilon=EPSILON), 1, 1),
        (lambda: _HalvingFromZero(epsilon=EPSILON, strategy="halving"), 3, 1),
        (lambda: _NoiseForTheMeanOnTheSum(epsilon=EPSILON), 1, 4),
        (lambda: _UsesNotCounted(epsilon=EPSILON), 2, 1),
        (lambda: _EveryProblemInFull(epsilon=EPSILON, problems=2), 1, 1),
    ],
    ids=["half the sensitivity", "halving from 0", "the mean's noise on the sum", "uses not counted", "in full"],
)
def test_planted_bugs_are_seen(broken: Callable[[], GradientBudget], visits: int, batch: int) -> None:
    assert _bound(broken(), visits, batch) > EPSILON
