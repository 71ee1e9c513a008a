"""The common half of linear classifiers: keywords, coefficients in public units, scores, predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.algorithms.linear.descent_program import DescentProgram
from tallystick.algorithms.program import State
from tallystick.core.errors import StudyError
from tallystick.data.encoding import Records
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.evaluation import classification_scores
from tallystick.study.schema import FeatureLayout

__all__ = ["LinearClassifier"]


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """One score per class (one for two classes), linear in the encoded columns. A subclass is a loss."""

    rounds: int | str = "auto"
    clip: float | str = "auto"
    learning_rate: float | str = "auto"
    l2: float | str = "auto"
    fit_intercept: bool = True
    standardise: bool = True
    schedule: str = "auto"
    average: bool = True

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program = self._program
        if not isinstance(program, DescentProgram):
            raise StudyError("the run was not a descent")
        intercept, weights = program.model(state)
        self.classes_ = np.array(layout.classes, dtype=object if _mixed(layout.classes) else None)
        self.coef_ = weights
        self.intercept_ = intercept
        self._encoded_model = (intercept, weights)

    # -- scikit-learn -----------------------------------------------------------------------------------------------

    def _check_plain(self, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        return X, y

    def _check_labels(self, y: Any) -> Any:
        if y is None:
            raise StudyError(f"{type(self).__name__} needs y", remedy="Use fit(X, y).")
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
        """The score of the second class, or one score per class."""
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

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Accuracy and macro F1 on records kept back, beside a model without privacy and the majority class."""
        return classification_scores(self.predict_encoded(test.features), train, test)

    def public_classifier(self) -> dict[str, Any]:
        """The released model as a public table: what ``ts.evaluate`` puts into its study."""
        check_is_fitted(self)
        return linear_table(*self._encoded_model)

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
