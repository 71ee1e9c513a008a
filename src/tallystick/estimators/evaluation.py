"""How well a fitted estimator did on records that a simulation may look at; a real study has none.

Every estimator answers with measures of its own (:meth:`PrivateEstimator.evaluate_records`); what several share is
here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, StudyError
from tallystick.data.encoding import Records

__all__ = ["classification_scores", "labels_of", "regression_scores"]


def labels_of(records: Records) -> NDArray[np.int64]:
    """The class indices of records with a category as their target."""
    if records.target is None:
        raise StudyError("the study names no target to evaluate")
    if len(records) == 0:
        raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
    return records.target.astype(np.int64)


def classification_scores(predicted: NDArray[np.int64], train: Records, test: Records) -> dict[str, float]:
    """Accuracy and macro F1 on records kept back, beside scikit-learn's logistic regression and the majority class."""
    from sklearn.linear_model import LogisticRegression as Baseline
    from sklearn.metrics import accuracy_score, f1_score

    train_y, test_y = labels_of(train), labels_of(test)
    majority = np.bincount(train_y).argmax()
    baseline = float(np.mean(test_y == majority))
    if len(np.unique(train_y)) > 1:
        plain = Baseline(C=1.0, max_iter=2000).fit(train.features, train_y)
        baseline = float(accuracy_score(test_y, plain.predict(test.features)))
    return {
        "accuracy": float(accuracy_score(test_y, predicted)),
        "f1_macro": float(f1_score(test_y, predicted, average="macro", zero_division=0)),
        "baseline_accuracy": baseline,
        "majority_accuracy": float(np.mean(test_y == majority)),
    }


def regression_scores(
    predicted: NDArray[np.float64], train: Records, test: Records, *, alpha: float
) -> dict[str, float]:
    """R² and root mean square error on records kept back, beside scikit-learn's ridge regression."""
    from sklearn.linear_model import Ridge as Baseline

    if train.target is None or test.target is None:
        raise StudyError("the study names no target to evaluate")
    if len(train) == 0 or len(test) == 0:
        raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
    truth = test.target
    spread = float(np.mean((truth - truth.mean()) ** 2))

    def r2(values: NDArray[np.float64]) -> float:
        error = float(np.mean((truth - values) ** 2))
        return 1 - error / spread if spread else float(error == 0)

    plain = Baseline(alpha=max(alpha, 1e-9)).fit(train.features, train.target)
    return {
        "r2": r2(predicted),
        "rmse": float(np.sqrt(np.mean((truth - predicted) ** 2))),
        "baseline_r2": r2(plain.predict(test.features)),
    }
