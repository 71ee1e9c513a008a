"""Linear models: logistic regression and support vector machines by private descent, ridge regression in one round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.program import State
from tallystick.core.errors import BoundsError, StudyError
from tallystick.data.encoding import Records
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.class_labels import class_scores, kept_back
from tallystick.estimators.coefficients import coefficient_rows, exactly_one, undo_scaling, unit_map, unit_notes
from tallystick.estimators.mapped_features import ABOUT_FEATURES, feature_rows, without_unused_map
from tallystick.estimators.noise_intervals import LEVEL, OF_THE_NOISE, interval, quantile
from tallystick.estimators.scored_classes import ScoredClasses, baseline, probabilities
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study.columns import Column, Number
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(PrivateEstimator):
    """An intercept and coefficients of the encoded columns."""

    def _take_model(self, intercept: Any, weights: NDArray[np.float64]) -> None:
        self.intercept_, self.coef_ = self._encoded_model = intercept, weights

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if set(self._layout.kinds) != {"number"} or getattr(self._program, "feature_map", None) is not None:
            return  # one-hot or logarithmic columns: coefficients refer to the encoded columns
        self.intercept_, self.coef_ = undo_scaling(*self._encoded_model, self._layout)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(ScoredClasses, LinearModel):
    """One score per class (one for two classes), linear in the encoded columns. A subclass is a loss."""

    score_name: ClassVar[str] = "the score"

    rounds: int | str = "auto"
    clip: float | str = "auto"
    learning_rate: float | str = "auto"
    l2: float | str = "auto"
    fit_intercept: bool = True
    standardise: bool = True
    schedule: str = "auto"
    average: bool = True
    feature_map: str | None = None
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float | str = "auto"
    n_features: int | str = "auto"
    landmarks: Any = None
    feature_seed: int = 0

    def _study_program(self) -> dict[str, Any]:
        return without_unused_map(super()._study_program())

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        self._take_model(*self._program.model(state))
        self._take_classes(layout.classes)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes
        super()._accept_plain(classes)

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Beside scikit-learn's own on the same features: those of the map, if there is one."""
        mapped = self._feature_map
        if mapped is None:
            return super().evaluate_records(train, test)
        predicted = self.predict_encoded(test.features)
        train, test = (replace(r, features=mapped.rows(r.features)) for r in (train, test))
        return class_scores(predicted, train, test, baseline())

    def _answer(self) -> Answer:
        classes, rows = [label_text(c) for c in self.classes_.tolist()], []
        mapped = self._feature_map
        intercepts, weights = self._encoded_model
        if mapped is None:
            intercepts, weights = undo_scaling(intercepts, weights, self._layout)
        for at, (intercept, row) in enumerate(zip(intercepts, weights)):
            of = {} if len(intercepts) == 1 else {"class": classes[at]}
            terms = coefficient_rows(intercept, row, self._layout) if mapped is None else feature_rows(intercept, row)
            rows += [{**of, **term} for term in terms]
        meaning = f"The sum of the terms is {self.score_name} of {classes[-1]!r}; above 0 that is predicted."
        if len(intercepts) > 1:
            meaning = f"The sum of a class's terms is {self.score_name}; the largest is predicted."
        units = unit_notes(self._layout) if mapped is None else [ABOUT_FEATURES, mapped.describe()]
        return Answer.of(rows, [meaning, *units, self._why_no_intervals()])

    def _why_no_intervals(self) -> str:
        if not self.plan_.differentially_private:
            return "No noise was added: the coefficients are those of these records."
        return (
            f"No noise intervals: the noise of {self.n_iter_} rounds goes into the rounds after it, and no known law "
            "says how far it has moved a coefficient. ts.evaluate measures what the model is worth."
        )

    def public_classifier(self) -> dict[str, Any]:
        """The released model as a public table: what ``ts.evaluate`` puts into its study."""
        check_is_fitted(self)
        return linear_table(*self._encoded_model, feature_map=self._feature_map)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        mapped = {} if self._feature_map is None else {"feature_map": self._feature_map.facts()}
        return {
            "type": type(self).__name__,
            "coef": self.coef_.tolist(),
            "intercept": self.intercept_.tolist(),
            "classes": self.classes_.tolist(),
            "features": list(map(str, self._layout.names)),
            **mapped,
        }

    @property
    def _feature_map(self) -> FeatureMap | None:
        found: FeatureMap | None = self._program.feature_map
        return found

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        intercept, weights = self._encoded_model
        parts = [features] if self._feature_map is None else self._feature_map.parts(features)
        scores: NDArray[np.float64] = np.vstack([part @ weights.T for part in parts]) + intercept
        return scores[:, 0] if scores.shape[1] == 1 else scores


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
    feature_map : None, "rbf", "poly" or "sigmoid"
        A kernel machine: the model is linear in public random features of this kernel
        (``docs/protocols/kernel-features.md``). They are drawn from ``feature_seed``, cost no budget and hold no
        record. Columns are then not standardised.
    gamma, degree, coef0
        The kernel's constants on the encoded columns: exp(-gamma·‖x-y‖²), (gamma·xy + coef0)^degree,
        tanh(gamma·xy + coef0). "auto": gamma is one over the spread of the declared columns, coef0 is 1 (sigmoid: 0).
    n_features : "auto" or int
        How many features; "auto" as many as records and budget can tell apart, 256 to 1,600.
    landmarks : None, int or rows of numbers
        Features by Nyström's method instead: on so many points made up within the declared bounds, or on these public
        points, given in the encoded columns. Never records: they stand in the study.
    feature_seed : int
        Public: which features are drawn. Another one is another study.

    Attributes
    ----------
    coef_, intercept_, classes_
        Coefficients refer to ``feature_names_in_``: after ``fit(federation)`` the encoded columns (numbers scaled to
        [-1, 1] by their declared bounds), after ``fit(X, y)`` the columns of ``X`` in their own units. With a feature
        map, to its features.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name = "logistic_regression"
    score_name = "the log-odds"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        super()._accept(state, layout)
        self._residual_clip = float(state.clip)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities."""
        return probabilities(self._scores(self._encode(X)), len(self.classes_), self._residual_clip)


class LinearSVC(LinearClassifier):
    """Linear support vector machine (smoothed hinge; one against the rest for more than two classes).

    The descent is that of :class:`tallystick.LogisticRegression`: everything is chosen from public facts unless given.
    It has no probabilities; ``decision_function`` is the margin.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism, schema, bounds, and the descent's own
        As for :class:`tallystick.LogisticRegression`. ``l2`` is the penalty λ/2·‖w‖² beside the *mean* of the losses;
        scikit-learn's ``C`` is 1/(records·λ).

    Attributes
    ----------
    coef_, intercept_, classes_
        Coefficients refer to ``feature_names_in_``: after ``fit(federation)`` the encoded columns (numbers scaled to
        [-1, 1] by their declared bounds), after ``fit(X, y)`` the columns of ``X`` in their own units.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name = "linear_svc"


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(RegressorMixin, LinearModel):  # type: ignore[misc]
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
        self._take_model(*self._program.model(state, self._noise()))

    def _noise(self) -> dict[str, float]:
        noise = rounds_of(self.plan_)[0]
        return {n.group.name: noise.std_of(n.group.name) for n in noise.noise}

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
        super()._accept_plain(classes)
        self.intercept_ = float(self.intercept_)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The target of every row, linear in its columns."""
        return self.predict_encoded(self._encode(X))

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for rows that are already encoded by the study's schema."""
        intercept, weights = self._encoded_model
        return np.asarray(features @ weights + intercept)

    def _answer(self) -> Answer:
        rows = coefficient_rows(*undo_scaling(*self._encoded_model, self._layout), self._layout)
        intervals, why = self._intervals([row["coefficient"] for row in rows])
        rows = [{**row, "lower": low, "upper": high} for row, (low, high) in zip(rows, intervals)]
        meaning = f"The sum of the terms is the predicted {self._layout.target}, in its own unit."
        return Answer.of(rows, [meaning, *unit_notes(self._layout), why])

    def _intervals(self, coefficients: list[float]) -> tuple[list[tuple[float | None, float | None]], str]:
        """Of every row, and what they say or why there are none."""
        plan = self.plan_
        nothing: list[tuple[float | None, float | None]] = [(None, None)] * len(coefficients)
        if not plan.differentially_private:
            return nothing, "No noise was added: the coefficients are those of these records."
        plain = not self.study_.privacy.threshold and plan.claim.sampling is None
        one_hot = [b for b in self._layout.blocks if b.kind == "onehot" and exactly_one(self._schema[b.column])]
        found = self._program.errors(self.history_[-1], self._noise(), [(b.start, b.stop) for b in one_hot])
        if found is None or not plain:
            return nothing, (
                "No noise intervals: the noise is not small beside what tells the columns apart, and no formula says "
                "how far it has moved a coefficient. More records, a larger epsilon or fewer columns give them; "
                "categories need merge, so that every record has one of their values."
            )
        units = unit_map(self._layout)
        middle, std = units @ found[0], np.sqrt(np.diag(units @ found[1] @ units.T))
        low, high = interval(middle, std, quantile(LEVEL, plan.claim.mechanism))
        # The coefficient is pulled towards 0 by what is known of the noise; the interval is never without it.
        ends = zip(np.minimum(low, coefficients).tolist(), np.maximum(high, coefficients).tolist())
        return list(ends), (
            f"Intervals hold the coefficient that these records give without noise, at the same alpha, with "
            f"probability {LEVEL:.0%} each: {OF_THE_NOISE}"
        )

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """R² and root mean square error on records kept back, beside scikit-learn's ridge regression."""
        from sklearn.linear_model import Ridge as Baseline

        fitted, truth = kept_back(train), kept_back(test)
        spread = float(np.mean((truth - truth.mean()) ** 2))

        def r2(values: NDArray[np.float64]) -> float:
            error = float(np.mean((truth - values) ** 2))
            return 1 - error / spread if spread else float(error == 0)

        predicted = self.predict_encoded(test.features)
        plain = Baseline(alpha=max(self.alpha, 1e-9)).fit(train.features, fitted)
        return {
            "r2": r2(predicted),
            "rmse": float(np.sqrt(np.mean((truth - predicted) ** 2))),
            "baseline_r2": r2(plain.predict(test.features)),
        }

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "coef": self.coef_.tolist(),
            "intercept": self.intercept_,
            "target": self._layout.target,
            "features": list(map(str, self._layout.names)),
        }
