"""What classifiers have in common: how ``y`` is checked, and how a simulation measures them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from tallystick.core.errors import DataError, StudyError
from tallystick.data.encoding import Records


class ClassLabels:
    """The labels beside plain ``X``, validated as scikit-learn has it."""

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


def class_scores(predicted: NDArray[np.int64], train: Records, test: Records, baseline: Any) -> dict[str, float]:
    """Accuracy and macro F1 on records kept back, beside a model without privacy and the majority class."""
    from sklearn.metrics import accuracy_score, f1_score

    train_y, test_y = (kept_back(records).astype(np.int64) for records in (train, test))
    majority = float(np.mean(test_y == np.bincount(train_y).argmax()))
    plain = majority
    if len(np.unique(train_y)) > 1:
        plain = float(accuracy_score(test_y, baseline.fit(train.features, train_y).predict(test.features)))
    return {
        "accuracy": float(accuracy_score(test_y, predicted)),
        "f1_macro": float(f1_score(test_y, predicted, average="macro", zero_division=0)),
        "baseline_accuracy": plain,
        "majority_accuracy": majority,
    }


def kept_back(records: Records) -> NDArray[np.float64]:
    """The targets of records that a simulation may look at; a real study has none."""
    if records.target is None:
        raise StudyError("the study names no target to evaluate")
    if len(records) == 0:
        raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
    return records.target
