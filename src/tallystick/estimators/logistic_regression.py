"""Differentially private logistic regression across institutions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tallystick.algorithms.elementwise import sigmoid
from tallystick.algorithms.program import State
from tallystick.estimators.linear_classifier import LinearClassifier
from tallystick.study.schema import FeatureLayout

__all__ = ["LogisticRegression"]


class LogisticRegression(LinearClassifier):
    """Logistic regression (softmax for more than two classes) with a stated privacy guarantee.

    Everything is chosen from public facts unless given: rounds, clipping, step size, momentum, and a private
    standardisation of the columns in the first round (a tenth of the budget).

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X, y)``.
    rounds : "auto" or int
        Gradient steps.
    clip : "auto" or float
        Bound on a record's gradient, in the columns the descent works on.
    learning_rate : "auto" or float
        Step on the mean gradient; a number also switches momentum off.
    l2 : "auto" or float
        Ridge penalty on the coefficients (per record); "auto" is none: the noise-aware descent time shrinks enough.
    fit_intercept : bool
        Without it, columns are scaled but not centred.
    standardise : bool
        Spend a tenth of the budget on the columns' means and spreads first.
    schedule : "auto", "constant" or "inverse-sqrt"
        Step sizes over rounds; ``"inverse-sqrt"`` is PEM's η/√t.
    average : bool
        Return the mean of the last quarter of iterates instead of the last one.

    Attributes
    ----------
    coef_, intercept_, classes_
        Coefficients refer to ``feature_names_in_``: after ``fit(federation)`` the encoded columns (numbers scaled to
        [-1, 1] by their declared bounds), after ``fit(X, y)`` the columns of ``X`` in their own units.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name = "logistic_regression"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        super()._accept(state, layout)
        self._residual_clip = float(state.clip)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities.

        A clipped residual pulls a binary fit: at its optimum π·min(1−p, C) = (1−π)·min(p, C) for the true probability
        π, so π = a/(a + c) with a = min(p, C), c = min(1−p, C) is what is returned.
        """
        check_is_fitted(self)
        scores = self._scores(self._encode(X))
        if len(self.classes_) == 1:
            return np.ones((len(scores), 1))
        if scores.ndim == 1:
            p = sigmoid(scores)
            a, c = np.minimum(p, self._residual_clip), np.minimum(1 - p, self._residual_clip)
            positive = a / (a + c)
            return np.column_stack([1 - positive, positive])
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))
