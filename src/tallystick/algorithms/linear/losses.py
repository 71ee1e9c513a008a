"""The losses of linear classifiers; the descent is :mod:`…descent_program`.

Logistic regression (softmax for more than two classes): the residual of two classes is σ(score) − y, of norm ½ at
weights 0 and at most 1; of more, softmax(scores) − e_y, of norm √(1 − 1/K) and at most √2.

Linear support vector machine (one against the rest for more than two classes): the hinge max(0, 1 − m) of a margin
m = s·score, s = ±1, has a corner that a noisy descent cannot use: rounds end where its gradient jumps. It is smoothed
over a width γ ([CMS11] smooth it for privacy, by a like quadratic piece):

    ℓ(m) = 0 for m ≥ 1,   (1 − m)²/(2γ) for 1 − γ ≤ m ≤ 1,   1 − m − γ/2 for m ≤ 1 − γ

so that the residual dℓ/d score = −s·min(max((1 − m)/γ, 0), 1) never exceeds 1 and has the curvature 1/γ.

Several classes: K scores, each of one class against the rest, and a record has K residuals at once. At weights 0 all of
them are at their worst and the gradient would be √K long, noise in proportion. So the descent starts at intercepts of
−1, "no class": then the record's own class has the residual −1 and the others, whose margins are 1, none; the
gradient starts with the length 1, whatever K is. It may grow to √K (without an intercept it starts there).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.elementwise import grid_scores, hinge_residuals, logistic_residuals, softmax_residuals
from tallystick.algorithms.linear.descent import LOGISTIC, DescentSettings, Loss
from tallystick.algorithms.linear.descent_program import DescentProgram
from tallystick.algorithms.program import Public
from tallystick.privacy.contribution import GridRows

WIDTH = 1.0
"""γ: the corner is rounded over margins from 0 to 1."""
_SPREAD = 0.75
"""Scores of this standard deviation are what the rule aims at: most records beside their margin, not on it."""


class LogisticProgram(DescentProgram):
    """Cross entropy of a linear score, or of one per class."""

    title = "logistic regression"
    loss = LOGISTIC

    def residuals(
        self, rows: GridRows, weights: NDArray[np.float64], target: NDArray[np.float64], clip: float
    ) -> NDArray[np.float64]:
        scores = grid_scores(rows, weights)
        if self.outputs == 1:
            return np.asarray(logistic_residuals(scores[:, 0], target, clip)[:, None])
        return np.asarray(softmax_residuals(scores, target, clip, self.l1))


def hinge_bounds(classes: int, *, l1: bool, intercept: bool = True) -> tuple[float, float, float]:
    """(norm of the residuals at the start, their worst case, curvature of the loss per unit of score)."""
    if classes <= 2:
        return min(1.0, 1 / WIDTH), 1.0, 1 / WIDTH
    worst = float(classes) if l1 else math.sqrt(classes)
    return (1.0 if intercept else worst * min(1.0, 1 / WIDTH)), worst, 1 / WIDTH


class HingeProgram(DescentProgram):
    """Smoothed hinge of a linear score, or of one per class against the rest."""

    title = "linear SVC"

    def __init__(self, public: Public, budget: PublicBudget, settings: DescentSettings) -> None:
        bounds = partial(hinge_bounds, intercept=settings.fit_intercept)
        self.loss = Loss(residual_bounds=bounds, spread=_SPREAD)
        super().__init__(public, budget, settings)

    def start(self) -> NDArray[np.float64]:
        out = super().start()
        if self.outputs > 1:
            out[:, 0] = -1 / self.intercept if self.intercept else 0.0
        return out

    def residuals(
        self, rows: GridRows, weights: NDArray[np.float64], target: NDArray[np.float64], clip: float
    ) -> NDArray[np.float64]:
        return np.asarray(hinge_residuals(grid_scores(rows, weights), target, WIDTH, clip, self.l1))
