"""Models of records whose columns are at different institutions: regression and classification from joint moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tallystick.algorithms.elementwise import sigmoid
from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.algorithms.program import State
from tallystick.core.errors import StudyError
from tallystick.estimators.answer import Answer
from tallystick.estimators.coefficients import coefficient_rows, undo_scaling, unit_notes
from tallystick.estimators.linear import LinearModel, Ridge
from tallystick.estimators.scored_classes import ScoredClasses
from tallystick.privacy.sum_plan import rounds_of
from tallystick.privacy.trust import ALIGNED
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout

_BLOCKS = "Columns beyond their institution's declared norm were shortened: "


class ColumnsApart:
    """What estimators for institutions with different columns have in common."""

    study_: Any

    def _fit_plain(self, X: Any, y: Any) -> Self:
        raise StudyError(
            f"{type(self).__name__} learns from institutions that hold different columns of the same people",
            rule="holders-are-named",
            remedy="Make a federation: ts.Federation.simulate([bank, hospital], vertical=True, …), or "
            "connect(…, holders={…}); for one table use ts.Ridge or ts.LogisticRegression.",
        )

    def _about_alignment(self) -> list[str]:
        """What every answer says besides."""
        held = self.study_.data.holders or {}
        norms = ", ".join(f"{name} {h.norm:.4g}" for name, h in held.items() if h.norm is not None)
        return [_BLOCKS + f"{norms}.", ALIGNED]


class VerticalRidge(ColumnsApart, Ridge):
    """Ridge regression where institutions hold different columns of the same people, from noisy joint moments.

    One round. Products of columns at two institutions are computed on secret shares, so nobody sees them before they
    are noised. The target is a number with declared bounds, at one of them (``docs/protocols/vertical.md``).

    Parameters
    ----------
    alpha : float
        Penalty on the coefficients of the *encoded* columns (numbers scaled to [-1, 1]), beside the sum of squares.
    fit_intercept : bool
        The intercept is not penalised.
    epsilon, delta, mechanism, schema
        As for every estimator; neighbours are replaced records, of people whom all institutions have in common.

    Attributes
    ----------
    coef_, intercept_
        In the target's units, of the encoded columns.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "vertical_ridge"

    def _answer(self) -> Answer:
        answer = super()._answer()
        return Answer.of(answer.rows, [*answer.notes, *self._about_alignment()])


@dataclass(kw_only=True, eq=False, repr=False)
class VerticalClassifier(ColumnsApart, ScoredClasses, LinearModel):
    """A linear classifier with probabilities where institutions hold different columns of the same people.

    One round of noisy joint moments; least squares scores and a normal model of them give each class's log-odds
    (``docs/protocols/vertical.md``). The labels are at one of the institutions.

    Parameters
    ----------
    alpha : float
        Penalty on the coefficients of the encoded columns, beside the sum of squares. The noise raises it where needed.
    epsilon, delta, mechanism, schema
        As for every estimator; neighbours are replaced records, of people whom all institutions have in common.

    Attributes
    ----------
    coef_, intercept_, classes_
        Of the log-odds, in the encoded columns; one row for two classes.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "vertical_classifier"

    alpha: float = 1.0

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        noise = rounds_of(self.plan_)[0]
        std = {n.group.name: noise.std_of(n.group.name) for n in noise.noise}
        self._take_model(*self._program.model(state, std))
        self._take_classes(layout.classes)

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        intercept, weights = self._encoded_model
        scores: NDArray[np.float64] = features @ weights.T + intercept
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, of the normal model."""
        scores = self._scores(self._encode(X))
        if scores.ndim == 1:
            p = sigmoid(scores)
            return np.column_stack([1 - p, p])
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))

    def _answer(self) -> Answer:
        classes, rows = [label_text(c) for c in self.classes_.tolist()], []
        intercepts, weights = undo_scaling(*self._encoded_model, self._layout)
        for at, (intercept, row) in enumerate(zip(intercepts, weights)):
            of = {} if len(intercepts) == 1 else {"class": classes[at]}
            rows += [{**of, **term} for term in coefficient_rows(intercept, row, self._layout)]
        meaning = f"The sum of the terms is the log-odds of {classes[-1]!r}; above 0 that is predicted."
        if len(intercepts) > 1:
            meaning = "The sum of a class's terms is its log-odds; the largest is predicted."
        return Answer.of(rows, [meaning, *unit_notes(self._layout), *self._about_alignment()])

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
