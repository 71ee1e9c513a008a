"""Differentially private Gaussians with diagonal covariances: naive Bayes, and mixtures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, DensityMixin
from sklearn.utils.validation import check_is_fitted

from tallystick.algorithms.gaussians.diagonal import Gaussians, log_joint
from tallystick.algorithms.program import State
from tallystick.core.errors import DataError
from tallystick.data.encoding import Records
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.class_labels import ClassLabels, class_scores
from tallystick.estimators.kmeans import in_declared_units
from tallystick.estimators.noise_intervals import LEVEL, OF_THE_NOISE, interval, quantile
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout

_UNITS = (
    "Means are in the columns' own units; a column=value is a share of the records. Spreads are standard deviations."
)


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianNB(ClassifierMixin, ClassLabels, PrivateEstimator):  # type: ignore[misc]
    """Gaussian naive Bayes with a stated privacy guarantee: one round of counts and moments per class.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X, y)``.

    Attributes
    ----------
    theta_, var_ : array (classes, columns)
        Noisy means and variances of the encoded columns (numbers scaled to [-1, 1] by their declared bounds).
    class_prior_, class_count_, classes_
        Noisy shares and numbers of records.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "gaussian_nb"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        std = rounds_of(self.plan_)[0].std_of("classes")
        found = self._program.model(state, std)
        self.class_prior_, self.theta_, self.var_ = found.weights, found.means, found.variances
        self.class_count_ = self._program.counts(state)
        mixed = len({type(c) for c in layout.classes or ()}) > 1
        self.classes_ = np.array(layout.classes, dtype=object if mixed else None)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes

    @property
    def _gaussians(self) -> Gaussians:
        check_is_fitted(self)
        return Gaussians(self.class_prior_, self.theta_, self.var_)

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class indices for rows that are already encoded by the study's schema."""
        return np.asarray(log_joint(features, self._gaussians).argmax(axis=1), dtype=np.int64)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of every row."""
        codes = self.predict_encoded(self._encode(X))
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities."""
        return _probabilities(log_joint(self._encode(X), self._gaussians))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Their logarithms."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Accuracy and macro F1 on records kept back, beside scikit-learn's own and the majority class."""
        from sklearn.naive_bayes import GaussianNB as Baseline

        return class_scores(self.predict_encoded(test.features), train, test, Baseline(var_smoothing=1e-3))

    def _answer(self) -> Answer:
        plan, program = self.plan_, self._program
        k = len(self.classes_)
        ends: tuple[Any, Any] = ([None] * k, [None] * k)
        notes = [_UNITS]
        exact = program.records is None and not any(self.dropped_[-1:])  # not moved to add up to a stated number
        if plan.differentially_private and exact and not self.study_.privacy.threshold:
            std = rounds_of(plan)[0].std_of("classes") / program.count
            ends = interval(self.class_count_, std, quantile(LEVEL, plan.claim.mechanism), lower=0.0)
            notes.append(f"Intervals of counts hold with probability {LEVEL:.0%}: {OF_THE_NOISE}")
        else:
            notes.append("No noise intervals: means and variances are shrunk by what is known of their noise.")
        low, high = (np.asarray(end).tolist() for end in ends)
        rows = []
        for at, name in enumerate(self.classes_.tolist()):
            own = {"class": label_text(name), "count": float(self.class_count_[at])}
            own |= {"count_lower": low[at], "count_upper": high[at]}
            rows.append(own | _described(self.theta_[at], self.var_[at], self._layout, own))
        return Answer.of(rows, notes)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "theta": self.theta_.tolist(),
            "var": self.var_.tolist(),
            "class_prior": self.class_prior_.tolist(),
            "class_count": self.class_count_.tolist(),
            "classes": self.classes_.tolist(),
            "features": list(map(str, self._layout.names)),
        }


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianMixture(DensityMixin, PrivateEstimator):  # type: ignore[misc]
    """A mixture of Gaussians with diagonal covariances, by private expectation and maximisation.

    A tenth of the budget learns the columns' means and variances, from which the components are spread out; every step
    after it sums each record's moments by its probabilities of the components.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X)``.
    n_components : int
        Number of Gaussians.
    rounds : "auto" or int
        Steps of expectation and maximisation; "auto" is 8.
    seed : int
        Of the public draws that the start is made from. It is part of the study and hides nothing.

    Attributes
    ----------
    weights_, means_, covariances_ : arrays
        Noisy; means and (diagonal) covariances of the encoded columns (numbers scaled to [-1, 1] by their bounds).
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "gaussian_mixture"
    evaluates_its_own_records: ClassVar[bool] = True
    ignores_y: ClassVar[bool] = True

    n_components: int = field(default=1, kw_only=False)
    rounds: int | str = "auto"
    seed: int = 0

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        self.weights_, self.means_, self.covariances_ = state.weights, state.means, state.variances

    @property
    def _gaussians(self) -> Gaussians:
        check_is_fitted(self)
        return Gaussians(self.weights_, self.means_, self.covariances_)

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The likeliest component for rows that are already encoded by the study's schema."""
        return np.asarray(log_joint(features, self._gaussians).argmax(axis=1), dtype=np.int64)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The likeliest component of every row."""
        return self.predict_encoded(self._encode(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every component."""
        return _probabilities(log_joint(self._encode(X), self._gaussians))

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """The log-likelihood of every row, in the encoded columns."""
        return _log_likelihood(self._encode(X), self._gaussians)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """The mean log-likelihood, beside scikit-learn's mixture and one Gaussian."""
        from sklearn.mixture import GaussianMixture as Baseline

        if len(train) == 0 or len(test) == 0:
            raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
        best = Baseline(len(self.weights_), covariance_type="diag", reg_covar=1e-3, random_state=0).fit(train.features)
        one = Baseline(1, covariance_type="diag", reg_covar=1e-3).fit(train.features)
        return {
            "log_likelihood": float(np.mean(_log_likelihood(test.features, self._gaussians))),
            "baseline_log_likelihood": float(best.score(test.features)),
            "one_component_log_likelihood": float(one.score(test.features)),
        }

    def _answer(self) -> Answer:
        rows = []
        for at, weight in enumerate(self.weights_.tolist()):
            own = {"cluster": at, "value": weight}
            rows.append(own | _described(self.means_[at], self.covariances_[at], self._layout, own))
        why = "No noise intervals: a step's components depend on the noise of all steps before it."
        if not self.plan_.differentially_private:
            why = "No noise was added: these are the components of these records."
        return Answer.of(rows, ["The value of a cluster is its share of the records.", _UNITS, why])

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "weights": self.weights_.tolist(),
            "means": self.means_.tolist(),
            "covariances": self.covariances_.tolist(),
            "features": list(map(str, self._layout.names)),
        }


def _probabilities(joint: NDArray[np.float64]) -> NDArray[np.float64]:
    e = np.exp(joint - joint.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _log_likelihood(features: NDArray[np.float64], gaussians: Gaussians) -> NDArray[np.float64]:
    joint = log_joint(features, gaussians)
    top = joint.max(axis=1)
    return np.asarray(top + np.log(np.exp(joint - top[:, None]).sum(axis=1)))


def _described(
    means: NDArray[np.float64], variances: NDArray[np.float64], layout: FeatureLayout, taken: dict[str, Any]
) -> dict[str, Any]:
    """Means in declared units, and the spread of plain numbers beside them."""
    plain = in_declared_units(means[None, :], layout)[0].tolist()
    out: dict[str, Any] = {}
    for at, (name, kind) in enumerate(zip(layout.names, layout.kinds)):
        column = f"{name} (column)" if name in taken else str(name)
        out[column] = plain[at]
        if kind == "number":
            out[f"spread of {name}"] = float(np.sqrt(variances[at])) * layout.scale[at]
    return out
