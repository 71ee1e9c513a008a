"""Classifiers by scores: one score per class (one for two classes), the likelier class, and how good it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from tallystick.algorithms.elementwise import sigmoid
from tallystick.data.encoding import Records
from tallystick.estimators.class_labels import ClassLabels, class_scores


class ScoredClasses(ClassifierMixin, ClassLabels):  # type: ignore[misc]
    """What a classifier has that gives every encoded row a score; the class says how in ``_scores``."""

    classes_: NDArray[Any]

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of the second class, or one score per class, of encoded rows."""
        raise NotImplementedError

    def _encode(self, X: Any) -> NDArray[np.float64]:
        """As every estimator."""
        return np.asarray(super()._encode(X))

    def _take_classes(self, classes: Any) -> None:
        mixed = len({type(c) for c in classes or ()}) > 1
        self.classes_ = np.array(classes, dtype=object if mixed else None)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The score of the second class, or one score per class."""
        return self._scores(self._encode(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of every row."""
        codes = self.predict_encoded(self._encode(X))
        return np.asarray(self.classes_[codes])

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class indices for rows that are already encoded by the study's schema; not yet mapped, if there is a map."""
        scores = self._scores(features)
        if len(self.classes_) == 1:
            return np.zeros(len(features), dtype=np.int64)
        return (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Accuracy and macro F1 on records kept back, beside scikit-learn's own and the majority class."""
        return class_scores(self.predict_encoded(test.features), train, test, baseline())


def baseline() -> Any:
    """What a classifier is compared with where records are at hand: scikit-learn's own, without privacy."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1.0, max_iter=2000)


def probabilities(scores: NDArray[np.float64], classes: int, clip: float) -> NDArray[np.float64]:
    """Class probabilities of log-odds that were learned with residuals clipped at ``clip``.

    A clipped residual pulls a binary fit: at its optimum π·min(1−p, C) = (1−π)·min(p, C) for the true probability
    π, so π = a/(a + c) with a = min(p, C), c = min(1−p, C) is what is returned.
    """
    if classes == 1:
        return np.ones((len(scores), 1))
    if scores.ndim == 1:
        p = sigmoid(scores)
        a, c = np.minimum(p, clip), np.minimum(1 - p, clip)
        positive = a / (a + c)
        return np.column_stack([1 - positive, positive])
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))
