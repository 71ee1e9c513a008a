"""Differentially private ridge regression across institutions, from sufficient statistics in one round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tallystick.algorithms.linear.ridge import RidgeProgram
from tallystick.algorithms.program import State
from tallystick.core.errors import BoundsError, StudyError
from tallystick.data.encoding import Records
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.evaluation import regression_scores
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study.schema import Column, FeatureLayout, Number

__all__ = ["Ridge"]


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear least squares with the penalty alpha·‖w‖², from noisy X'X and X'y.

    One round. The target is a number with declared bounds; the noise that was added is known and enters the solution:
    entries that drown in it are shrunk, the matrix is projected to a positive semidefinite one, and directions below
    the noise are dropped (``docs/results/linear.md``).

    Parameters
    ----------
    alpha : float
        Penalty on the coefficients of the *encoded* columns (numbers scaled to [-1, 1]), beside the sum of squares, as
        in scikit-learn. The noise raises it where needed.
    fit_intercept : bool
        The intercept is not penalised.
    target_bounds : (lower, upper), optional
        Public bounds of ``y`` for plain ``fit(X, y)``, where the schema does not declare it.
    epsilon, delta, neighbours, mechanism, schema, bounds
        As for every estimator.

    Attributes
    ----------
    coef_, intercept_
        In the target's units; of the encoded columns after ``fit(federation)``, of the columns of ``X`` in their own
        units after ``fit(X, y)``.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "ridge"

    alpha: float = 1.0
    fit_intercept: bool = True
    target_bounds: tuple[float, float] | None = None

    def _study_program(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "fit_intercept": self.fit_intercept}

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program = self._program
        if not isinstance(program, RidgeProgram):
            raise StudyError("the run was not a ridge regression")
        noise = rounds_of(self.plan_)[0]
        std = {n.group.name: noise.std_of(n.group.name) for n in noise.noise}
        self.intercept_, self.coef_ = program.model(state, std)
        self._encoded_model = (self.intercept_, self.coef_)

    # -- scikit-learn -----------------------------------------------------------------------------------------------

    def _check_plain(self, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        return X, y

    def _check_labels(self, y: Any) -> Any:
        if y is None:
            raise StudyError("Ridge needs y", remedy="Use fit(X, y).")
        return y if hasattr(y, "name") else column_or_1d(y)

    def _declared_target(self) -> Column | None:
        if self.target_bounds is None:
            return None
        if not isinstance(self.target_bounds, (tuple, list)) or len(self.target_bounds) != 2:
            raise BoundsError("target_bounds is not a pair", remedy="Write target_bounds=(lower, upper).")
        return Number(*self.target_bounds)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if set(self._layout.kinds) != {"number"}:
            return  # one-hot or logarithmic columns: coefficients refer to the encoded columns
        centre, scale = np.array(self._layout.centre), np.array(self._layout.scale)
        intercept, weights = self._encoded_model
        self.coef_ = weights / scale
        self.intercept_ = intercept - float(self.coef_ @ centre)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The target of every row, linear in its columns."""
        check_is_fitted(self)
        return self.predict_encoded(self._encode(X))

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for rows that are already encoded by the study's schema."""
        intercept, weights = self._encoded_model
        return np.asarray(features @ weights + intercept)

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """R² and root mean square error on records kept back, beside scikit-learn's ridge regression."""
        return regression_scores(self.predict_encoded(test.features), train, test, alpha=self.alpha)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "coef": self.coef_.tolist(),
            "intercept": self.intercept_,
            "target": self._layout.target,
            "features": list(map(str, self._layout.names)),
        }
