"""Logistic regression (softmax for more than two classes): the loss; the descent is :mod:`…descent_program`.

The residual of two classes is σ(score) − y, of norm ½ at weights 0 and at most 1; of more, softmax(scores) − e_y, of
norm √(1 − 1/K) and at most √2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.elementwise import grid_scores, logistic_residuals, softmax_residuals
from tallystick.algorithms.linear.descent import LOGISTIC
from tallystick.algorithms.linear.descent_program import DescentProgram
from tallystick.privacy.contribution import GridRows


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
