"""Differentially private logistic regression across institutions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.elementwise import sigmoid
from tallystick.algorithms.logistic import LogisticProgram, design_from_keywords
from tallystick.algorithms.program import Public, State
from tallystick.core.errors import StudyError
from tallystick.data.encoding import Records
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.evaluation import classification_scores
from tallystick.privacy.schema import FeatureLayout, Schema

__all__ = ["LogisticRegression"]


class LogisticRegression(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
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

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        neighbours: str = "replace-one",
        mechanism: str = "gaussian",
        schema: Schema | None = None,
        bounds: Any = None,
        rounds: int | str = "auto",
        clip: float | str = "auto",
        learning_rate: float | str = "auto",
        l2: float | str = "auto",
        fit_intercept: bool = True,
        standardise: bool = True,
        schedule: str = "auto",
        average: bool = True,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbours = neighbours
        self.mechanism = mechanism
        self.schema = schema
        self.bounds = bounds
        self.rounds = rounds
        self.clip = clip
        self.learning_rate = learning_rate
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.standardise = standardise
        self.schedule = schedule
        self.average = average

    def _design(self, public: Public, budget: PublicBudget) -> Design:
        return design_from_keywords(self._study_program(), public, budget)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program = self._program
        if not isinstance(program, LogisticProgram):
            raise StudyError("the run was not a logistic regression")
        intercept, weights = program.model(state)
        self.classes_ = np.array(layout.classes, dtype=object if _mixed(layout.classes) else None)
        self.coef_ = weights
        self.intercept_ = intercept
        self._encoded_model = (intercept, weights)
        self._residual_clip = float(state.clip)

    # -- scikit-learn -----------------------------------------------------------------------------------------------

    def _check_plain(self, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        return X, y

    def _check_labels(self, y: Any) -> Any:
        if y is None:
            raise StudyError("logistic regression needs y", remedy="Use fit(X, y).")
        y = column_or_1d(y)
        check_classification_targets(y)
        return y

    def _labels(self, y: Any) -> NDArray[Any] | None:
        return np.unique(y)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes
        if set(self._layout.kinds) != {"number"}:
            return  # one-hot or logarithmic columns: coefficients refer to the encoded columns
        # Encoded = (x − centre)/scale, so w·encoded + b = (w/scale)·x + (b − (w/scale)·centre).
        centre, scale = np.array(self._layout.centre), np.array(self._layout.scale)
        intercept, weights = self._encoded_model
        self.coef_ = weights / scale
        self.intercept_ = intercept - self.coef_ @ centre

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Log-odds of the second class, or one score per class."""
        check_is_fitted(self)
        return self._scores(self._encode(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of every row."""
        check_is_fitted(self)
        return self.classes_[self.predict_encoded(self._encode(X))]

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class indices for rows that are already encoded by the study's schema."""
        scores = self._scores(features)
        if len(self.classes_) == 1:
            return np.zeros(len(features), dtype=np.int64)
        return (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)

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

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Accuracy and macro F1 on records kept back, beside a model without privacy and the majority class."""
        return classification_scores(self.predict_encoded(test.features), train, test)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "coef": self.coef_.tolist(),
            "intercept": self.intercept_.tolist(),
            "classes": self.classes_.tolist(),
            "features": list(map(str, self._layout.names)),
        }

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        intercept, weights = self._encoded_model
        scores = features @ weights.T + intercept
        return scores[:, 0] if scores.shape[1] == 1 else scores


def _mixed(classes: Any) -> bool:
    return len({type(c) for c in classes or ()}) > 1
