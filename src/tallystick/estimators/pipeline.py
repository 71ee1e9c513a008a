"""Components, then a classifier of them, in one study with one budget."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tallystick.algorithms.design import Design
from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.algorithms.pipelines.program import WIDTH
from tallystick.algorithms.pipelines.settings import DEFAULT_STEPS
from tallystick.algorithms.program import State
from tallystick.core.errors import PrivacyWarning, StudyError
from tallystick.engines.engine import Result
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.scored_classes import ScoredClasses, probabilities
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout

_COMMON = tuple(f.name for f in fields(PrivateEstimator))


def _has_probabilities(pipeline: Pipeline) -> bool:
    return bool(pipeline._program_steps()[-1].get("program") == "logistic_regression")


@dataclass(kw_only=True, eq=False, repr=False)
class Pipeline(ScoredClasses, PrivateEstimator):
    """Two steps in one study with one budget: components, then a linear classifier of them.

    The components are released first; every institution projects its records on them and cuts each coordinate at three
    standard deviations, and the classifier learns from what is left. Both steps together cost ``epsilon``; the plan
    says how it is split. Where only the classifier is wanted, it is better without components (docs/results/pca.md).

    Parameters
    ----------
    steps : list
        Two steps, ``[ts.PCA(10), ts.LogisticRegression()]``; ``ts.TruncatedSVD`` and ``ts.LinearSVC`` can stand there
        too. What is promised is the pipeline's to say, not a step's. In a study file ``[[program.steps]]`` twice, each
        with its ``program`` and that program's options.
    share : "auto" or float
        The first step's part of the budget; "auto" is 0.3.
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X, y)``.

    Attributes
    ----------
    components_ : array (n_components, columns)
        Unit vectors in the encoded columns.
    explained_variance_ratio_ : array (n_components,)
        As :class:`tallystick.PCA` estimates it.
    coef_, intercept_, classes_
        Of a row's coordinates along the components, as ``project`` has them.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "pipeline"

    steps: Any = field(default=None, kw_only=False)
    share: float | str = "auto"

    def _study_program(self) -> dict[str, Any]:
        return {"steps": self._program_steps(), "share": self.share}

    def _program_steps(self) -> list[Any]:
        """The steps as a study file has them."""
        given = DEFAULT_STEPS if self.steps is None else self.steps
        return [_as_table(step) for step in given] if isinstance(given, (list, tuple)) else given

    def take_result(self, design: Design, result: Result) -> Self:
        """As every estimator; a basis for ordered columns on others is worth a warning."""
        for note in design.notes:
            if "look unordered" in note:
                warnings.warn(note, PrivacyWarning, stacklevel=4)
        return super().take_result(design, result)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program = self._program
        first, second = program.states(state)
        self.components_ = first.components.copy()
        self.explained_variance_ratio_ = first.shares.copy()
        self._mean = program.first.mean_of(first)
        lengths = program.lengths(first)
        intercept, weights = program.second.model(second)
        self.intercept_, self.coef_ = np.asarray(intercept), weights / lengths
        self._residual_clip = float(second.clip)
        self._take_classes(layout.classes)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes

    def __sklearn_tags__(self) -> Any:
        """A few components may hold little of what tells the classes apart."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    # -- scikit-learn ---------------------------------------------------------------------------------------------

    def project(self, X: Any) -> NDArray[np.float64]:
        """Every row − mean along the components, in the encoded columns."""
        return self._projected(self._encode(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, where the last step is a logistic regression."""
        return probabilities(self.decision_function(X), len(self.classes_), self._residual_clip)

    def _projected(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((self._program.first.space.rows(features) - self._mean) @ self.components_.T)

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        # Coordinates are cut where the model is learned and not where it is used: it stays linear.
        scores = self._projected(features) @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def public_classifier(self) -> dict[str, Any]:
        """The released model as a public table: what ``ts.evaluate`` puts into its study."""
        check_is_fitted(self)
        space = self._program.first.space
        if space.unit:
            raise StudyError(
                "a pipeline on rows of length 1 is not linear in its columns",
                rule="evaluate-a-fitted-classifier",
                remedy='Evaluate one that was fitted with PCA(rows="given").',
            )
        weights = self.coef_ @ self.components_
        return linear_table(self.intercept_ - weights @ (self._mean + space.origin), weights)

    # -- the answer -------------------------------------------------------------------------------------------------

    def _answer(self) -> Answer:
        rows: list[dict[str, Any]] = []
        empty = {"class": None, "component": None, "value": None}
        for at, ratio in enumerate(self.explained_variance_ratio_.tolist(), start=1):
            rows.append({"part": "explained variance ratio", **empty, "component": f"{at}", "value": ratio})
        classes = [label_text(c) for c in self.classes_.tolist()]
        for number, (intercept, weights) in enumerate(zip(self.intercept_.tolist(), self.coef_.tolist())):
            of = {"class": classes[number] if len(self.coef_) > 1 else classes[-1]}
            terms = [("(intercept)", intercept), *((f"{at}", weight) for at, weight in enumerate(weights, start=1))]
            rows += [{"part": "coefficient", **empty, **of, "component": term, "value": v} for term, v in terms]
        return Answer.of(
            rows,
            [
                "A row's coordinates are those of project: along the components, in the encoded columns, around the "
                "released mean. The sum of a class's terms is its score; above 0, or the largest, is predicted.",
                f"Coordinates were cut at {WIDTH:g} standard deviations where the model was learned.",
            ],
        )

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        first, second = self._program_steps()
        names = [f"component {at + 1}" for at in range(len(self.components_))]
        return {
            "type": type(self).__name__,
            "steps": [
                {
                    "program": first["program"],
                    "components": self.components_.tolist(),
                    "mean": self._mean.tolist(),
                    "explained_variance_ratio": self.explained_variance_ratio_.tolist(),
                    "features": list(map(str, self._layout.names)),
                },
                {
                    "program": second["program"],
                    "coef": self.coef_.tolist(),
                    "intercept": self.intercept_.tolist(),
                    "classes": self.classes_.tolist(),
                    "features": names,
                },
            ],
        }


def _as_table(step: Any) -> Any:
    """A step as a study file has it: its program and that program's options."""
    if not isinstance(step, PrivateEstimator):
        return dict(step) if isinstance(step, Mapping) else step
    defaults = {f.name: f.default for f in fields(PrivateEstimator)}
    said = [name for name in _COMMON if not _same(getattr(step, name), defaults[name])]
    if said:
        raise StudyError(
            f"{type(step).__name__}({said[0]}=…) inside a pipeline",
            rule="pipeline-promise",
            remedy=f"Say {said[0]} once, for both steps together: ts.Pipeline([…], {said[0]}=…).",
        )
    return {"program": step.program_name, **step._study_program()}


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, float, int)) and value == default)
