"""Support vector machines where institutions hold different columns of the same people: exact, and said to be so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import State
from tallystick.algorithms.vertical_svm.settings import vertical_svm_settings
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PROMISE, PrivateEstimator
from tallystick.estimators.coefficients import coefficient_rows, undo_scaling, unit_notes
from tallystick.estimators.scored_classes import ScoredClasses
from tallystick.estimators.vertical import ColumnsApart
from tallystick.privacy.trust import KNOWN
from tallystick.study import Study
from tallystick.study.declared_values import label_text
from tallystick.study.holders import label_holder
from tallystick.study.schema import FeatureLayout, Schema


def reduced_by(study: Study) -> str:
    """Who is told the labels: the institution that runs the reducer, if the study names one, or else the party that
    coordinates, by its role. (In a simulation one person is everybody.)"""
    model = study.trust_model
    named: str = getattr(study.trust, "reducer", model.coordinator)
    return f"the {named}" if named == model.coordinator else named


@dataclass(kw_only=True, eq=False, repr=False)
class VerticalSVC(ColumnsApart, ScoredClasses, PrivateEstimator):
    """A support vector machine of columns at different institutions, exact, without showing each other a value.

    **Not differentially private.** Whoever reduces is told the labels by the institution that has them (behind masks
    that is, unless the study says otherwise, this very institution), and sees Σ X_m·w_m, one exact number for each
    person in each round. The result says so (``privacy_``, notes), and a study that promises differential
    privacy refuses it. :class:`tallystick.VerticalClassifier` is the private way.

    Parameters
    ----------
    C : float
        ½‖w‖² + C·Σ hinge, the bias unpenalised, on the *encoded* columns (numbers scaled to [-1, 1]).
    kernel : "linear", "rbf", "poly" or "sigmoid"
        A kernel is the sum of one at each institution, of its own columns, met by public features.
    gamma, degree, coef0, n_features, feature_seed
        The kernels' constants and how they are met; "auto" follows from the declared columns.
    landmarks : int, optional
        Nyström's features instead, on so many points made up within the declared bounds of each institution's columns.
    rho : "auto" or float
        ADMM's penalty; "auto" is C times the number of institutions.
    relaxation : float
        ADMM's over-relaxation.
    max_iter : "auto" or int
        Most rounds (500).
    tolerance : "auto" or float
        What may be left of the residuals, over the size of the scores (5e-4).
    mechanism : "auto" or "none"
        "auto" is "none".

    Attributes
    ----------
    classes_, coef_, intercept_
        Coefficients of a linear kernel alone, of the encoded columns.
    solution_
        In how many rounds, to which residual and objective, and what the reducer saw.
    privacy_, plan_, contributors_, dropped_, history_
        What was (not) promised, and who took part; of the states, the last alone: the others tell of single people.
    """

    program_name: ClassVar[str] = "vertical_svc"
    evaluated_by: ClassVar[str | None] = "gaussian"

    mechanism: str = "auto"
    C: float = 1.0
    kernel: str = "linear"
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float | str = "auto"
    landmarks: int | None = None
    n_features: int | str = "auto"
    feature_seed: int = 0
    rho: float | str = "auto"
    relaxation: float = 1.6
    max_iter: int | str = "auto"
    tolerance: float | str = "auto"

    def _study_program(self) -> dict[str, Any]:
        made = super()._study_program()
        vertical_svm_settings(made)
        return made

    def _promise(self, fed: Federation) -> dict[str, Any]:
        promise = {name: getattr(self, name) for name in PROMISE}
        return promise | ({"mechanism": "none"} if self.mechanism == "auto" else {})

    def study_for(
        self,
        fed: Federation,
        *,
        target: str | None,
        features: Sequence[str] | None,
        name: str | None = None,
        schema: Schema | None = None,
    ) -> Study:
        """As every estimator; behind masks whoever holds the labels is the reducer."""
        study = super().study_for(fed, target=target, features=features, name=name, schema=schema)
        holders = study.data.holders or {}
        if getattr(study.trust, "dealer", None) is not None:  # a federation's, for private ones: nothing is dealt here
            study = study.replace("trust", dealer=None)
        if study.trust.model != "masks" or not holders:
            return study
        many = len(holders)  # the reducer is one of them, and two others have to be honest
        return study.replace(
            "trust", reducer=label_holder(study) or "reducer", min_clients=many, colluding=max(0, min(1, many - 3))
        )

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        self._state = state
        self._take_classes(layout.classes)
        self.solution_ = {
            "solver": "sharing ADMM",
            "rounds": int(state.steps),
            "residual": state.residual,
            "objective": state.objective,
            "converged": state.residual <= self._program.tolerance,
            "reducer": reduced_by(self.study_),
            "reducer_saw": f"{self._program.records:,} exact numbers in each of {int(state.steps)} rounds",
        }
        if all(made is None for made in self._program.maps.values()):
            weights = np.zeros(len(layout))
            for holder in self._program.holders:
                weights[self._program.places[holder]] = state.weights[self._program.slices[holder]]
            self.coef_, self.intercept_ = weights[None, :], np.array([state.intercept])

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self._program.scores(features, self._state))

    def _answer(self) -> Answer:
        solved = self.solution_
        notes = [
            f"Solved by {solved['solver']} in {solved['rounds']} rounds, to a residual of {solved['residual']:.2g}."
            if solved["converged"]
            else f"Not solved: {solved['rounds']} rounds are used up, and the residual is {solved['residual']:.2g} "
            f"where {self._program.tolerance:g} was asked for. Use a larger max_iter, or another C or rho.",
            f"NOT differentially private. The reducer, {solved['reducer']}, saw {solved['reducer_saw']}: one for each "
            f"person, whose label it was told by {label_holder(self.study_)}.",
            KNOWN,
        ]
        if not hasattr(self, "coef_"):
            return Answer.of([{"what": key, "value": str(value)} for key, value in solved.items()], notes)
        intercepts, weights = undo_scaling(self.intercept_, self.coef_, self._layout)
        second = label_text(self.classes_.tolist()[-1])
        meaning = f"The sum of the terms is the margin of {second!r}; above 0 that is predicted."
        rows = coefficient_rows(intercepts[0], weights[0], self._layout)
        return Answer.of(rows, [meaning, *unit_notes(self._layout), *notes])

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        made = [made.facts() for made in self._program.maps.values() if made is not None]
        return {
            "type": type(self).__name__,
            "coef": self._state.weights.tolist(),
            "intercept": [float(self._state.intercept)],
            "classes": self.classes_.tolist(),
            "features": list(map(str, self._layout.names)),
            "solution": self.solution_,
            **({"feature_maps": made} if made else {}),
        }
