"""``ts.evaluate``: how good a released classifier is on a federation's records, itself differentially private."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.evaluation.confusion_counts import estimates
from tallystick.algorithms.program import State
from tallystick.core.errors import StudyError
from tallystick.data.dataset import Dataset
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator, federation_of
from tallystick.estimators.noise_intervals import LEVEL, interval, quantile
from tallystick.estimators.plots import draw
from tallystick.privacy.plan import Plan
from tallystick.privacy.release import PrivacyStatement
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study import Study
from tallystick.study.columns import Category, Missing
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout, Schema


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation:
    """A classifier's accuracy and confusion matrix, released: everything here may be shown.

    Intervals cover what the *noise* may have done, at ``level``: the number for these very records lies in them.
    ``population_interval`` adds the sampling error, for the accuracy on further records of the same kind; it means that
    only where the records were not those of the fit.
    """

    classes: tuple[Any, ...]
    accuracy: float
    accuracy_std: float
    accuracy_interval: tuple[float, float]
    population_interval: tuple[float, float]
    confusion: NDArray[np.float64]
    confusion_std: NDArray[np.float64]
    confusion_interval: tuple[NDArray[np.float64], NDArray[np.float64]]
    level: float
    privacy: PrivacyStatement
    plan: Plan
    contributors: tuple[str, ...]
    dropped: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        low, high = self.accuracy_interval
        return f"Evaluation(accuracy={self.accuracy:.4f}, {self.level:.0%} interval {low:.4f} to {high:.4f})"

    def answer(self) -> Answer:
        """As a table: the accuracy, then the confusion matrix row by row."""
        rows = [
            _figure("accuracy", None, None, self.accuracy, *self.accuracy_interval),
            _figure("accuracy on further records", None, None, self.accuracy, *self.population_interval),
        ]
        low, high = self.confusion_interval
        for i, true in enumerate(self.classes):
            for j, predicted in enumerate(self.classes):
                ends = low[i, j], high[i, j]
                rows.append(_figure("records", label_text(true), label_text(predicted), self.confusion[i, j], *ends))
        note = (
            f"Intervals of {self.level:.0%}. That of the accuracy and of the records cover the noise that was added; "
            "that of further records covers chance too, and means it where the model was not fitted to these records."
        )
        return Answer.of(rows, [note])

    def to_frame(self) -> Any:
        """The same as a polars frame."""
        return self.answer().frame()

    def plot(self) -> Any:
        """The same as a matplotlib figure; needs ``tallystick[plot]``."""
        return draw(self.answer())

    def _repr_html_(self) -> str:
        return f"{self.answer().html()}<p>{escape(self.privacy.statement)}</p>"

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        low, high = self.confusion_interval
        return {
            "accuracy": self.accuracy,
            "accuracy_std": self.accuracy_std,
            "accuracy_interval": list(self.accuracy_interval),
            "population_interval": list(self.population_interval),
            "classes": list(self.classes),
            "confusion": self.confusion.tolist(),
            "confusion_std": self.confusion_std.tolist(),
            "confusion_interval": [low.tolist(), high.tolist()],
            "level": self.level,
        }


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierEvaluation(PrivateEstimator):
    """The evaluation as an estimator, for study files (``program = "evaluation"``); ``ts.evaluate`` is the short way.

    ``classifier`` is the released model as a public table, such as ``model.public_classifier()`` gives. The fitted
    attribute is ``evaluation_``.
    """

    program_name: ClassVar[str] = "evaluation"

    classifier: Any = None

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        classes = tuple(layout.classes or ())
        noise = rounds_of(self.plan_)[0]
        found = estimates(
            state, len(classes), std_correct=noise.std_of("correct"), std_confusion=noise.std_of("confusion")
        )
        z = quantile(LEVEL, self.plan_.claim.mechanism)
        a = found.accuracy
        sampling = a * (1 - a) / max(found.records, 1.0)
        whole = float(np.hypot(found.accuracy_std, np.sqrt(sampling)))
        low, high = interval(found.confusion, found.confusion_std, z, lower=0.0)
        self.evaluation_ = Evaluation(
            classes=classes,
            accuracy=a,
            accuracy_std=found.accuracy_std,
            accuracy_interval=_pair(interval(a, found.accuracy_std, z, lower=0.0, upper=1.0)),
            population_interval=_pair(interval(a, whole, z, lower=0.0, upper=1.0)),
            confusion=found.confusion,
            confusion_std=found.confusion_std,
            confusion_interval=(low, high),
            level=LEVEL,
            privacy=self.privacy_,
            plan=self.plan_,
            contributors=self.contributors_,
            dropped=self.dropped_,
        )

    def _answer(self) -> Answer:
        return self.evaluation_.answer()

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {"type": "Evaluation", **self.evaluation_.as_dict()}


def evaluate(
    model: Any,
    fed: Federation | Dataset,
    *,
    target: str,
    epsilon: float,
    delta: float | None = None,
) -> Evaluation:
    """Differentially private accuracy and confusion matrix of a released classifier, with intervals.

    One round of sums with its own charge on the federation's ledger; neighbours, mechanism and unit are those of the
    model: what was fitted for persons is evaluated for the same persons, whose counts are bounded together in the same
    way. The model is public, so it travels in the study; records stay where they are.
    """
    describe = getattr(model, "public_classifier", None)
    if describe is None or not hasattr(model, "study_"):
        raise StudyError(
            f"a {type(model).__name__} cannot be evaluated",
            rule="evaluate-a-fitted-classifier",
            remedy="Pass a fitted classifier of this library (LogisticRegression, LinearSVC, ...).",
        )
    if isinstance(fed, Dataset):
        fed = federation_of(fed)
    if not isinstance(fed, Federation):
        raise StudyError("evaluate needs a federation", remedy="Use ts.Federation.simulate(…) or .connect(…).")
    columns = list(model._layout.columns)
    estimator = ClassifierEvaluation(
        classifier=describe(),
        epsilon=epsilon,
        delta=delta,
        neighbours=model.study_.privacy.neighbours,
        mechanism=model.evaluated_by or model.study_.privacy.mechanism,
        schema=Schema({**{c: model._schema[c] for c in columns}, target: _target(model, fed, target)}),
    )
    study = estimator.study_for(fed, target=target, features=columns, name=f"evaluation of {type(model).__name__}")
    study = _with_unit(study, model.study_)
    return estimator.fit_study(fed, _with_missing(study, model._missing, getattr(fed, "missing", None))).evaluation_


def _target(model: Any, fed: Federation, target: str) -> Category:
    """The target as the model knows it: its classes in the order of its scores."""
    known = model._schema.get(target)
    if isinstance(known, Category) and target == model._layout.target and model._by_name:
        return known
    declared = None if fed.schema is None else fed.schema.get(target)
    labels = [label_text(v) for v in model.classes_.tolist()]
    if isinstance(declared, Category):
        if sorted(declared.labels) != sorted(labels):
            raise StudyError(
                f"the classes of {target!r} are not those of the model",
                rule="classes-are-the-models",
                remedy=f"The model knows {', '.join(labels)}.",
            )
    elif declared is not None:
        raise StudyError(f"the target {target!r} is not a category", remedy="Name the column of the model's classes.")
    return Category(tuple(model.classes_.tolist()))


def _with_unit(study: Study, model: Study) -> Study:
    """For whom the model was fitted: otherwise the evaluation would tell of its persons record by record."""
    if model.privacy.unit == "record":
        return study
    names = ("unit", "person", "max_records", "max_institutions")
    return study.replace("privacy", **{name: getattr(model.privacy, name) for name in names})


def _with_missing(study: Study, model: Missing | None, fed: Missing | None) -> Study:
    """Missing values as the model was fitted with them: a mark of their own is one of its columns."""
    chosen = model
    if model is None and fed is not None and fed.policy != "category":
        chosen = fed
    return study.replace("data", missing=chosen and chosen.to_dict())


def _figure(what: str, true: str | None, predicted: str | None, *values: float) -> dict[str, Any]:
    named = zip(("estimate", "lower", "upper"), map(float, values))
    return {"figure": what, "true": true, "predicted": predicted, **dict(named)}


def _pair(values: tuple[Any, Any]) -> tuple[float, float]:
    return float(values[0]), float(values[1])
