"""Support vector machines by consensus, as a scikit-learn classifier: exact, and said to be so."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tallystick.algorithms.consensus_svm.settings import consensus_settings
from tallystick.algorithms.design import Design
from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.local_program import LocalDesign
from tallystick.algorithms.program import State
from tallystick.core.errors import StudyError
from tallystick.data.encoding import Records
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PROMISE, PrivateEstimator
from tallystick.estimators.class_labels import ClassLabels, class_scores
from tallystick.estimators.coefficients import coefficient_rows, undo_scaling, unit_notes
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusSVC(ClassifierMixin, ClassLabels, PrivateEstimator):  # type: ignore[misc]
    """A support vector machine that institutions solve together, exactly, without showing each other a record.

    **Not differentially private** unless ``privacy`` says how. What is summed is exact, round after round, and
    everybody sees it. ``fit`` warns of it, the result says so (``privacy_``), and a study that promises differential
    privacy refuses it. :class:`tallystick.LinearSVC` is the private way.

    Every institution has to stay until the end: if one drops out, the study ends without a result.

    Parameters
    ----------
    C : float
        ½‖w‖² + C·Σ hinge, the bias unpenalised, on the *encoded* columns (numbers scaled to [-1, 1]).
    solver : "interior-point" or "admm"
        An interior point takes some 20 iterations to a relative duality gap of 1e-6, and shows a matrix of all records
        in each: where that is more than a tenth of the numbers the institutions hold, ADMM is taken instead unless
        ``reveal=True``. ADMM takes hundreds of rounds to 1e-3, and shows a weight vector in each.
    kernel : "linear", "rbf", "poly" or "sigmoid"
        Kernels by public features: orthogonal random features (rbf), random products (poly), Nyström's features of
        landmarks (sigmoid, and every kernel with ``landmarks``).
    gamma, degree, coef0, n_features, feature_seed
        The kernel's constants and how it is met; "auto" follows from the declared columns.
    feature_map : "auto" or "landmarks"
        "landmarks": the published way, consensus on the values at the landmarks, by ADMM.
    landmarks : int or rows, optional
        Public points in the encoded columns, or how many to make up within the declared bounds. Never records.
    rho : "auto" or float
        ADMM's penalty; "auto" follows from records, columns, C and the number of learners.
    relaxation : float
        ADMM's over-relaxation.
    max_iter : "auto" or int
        Most rounds of ADMM (1,000), or iterations of the interior point (25).
    tolerance : "auto" or float
        Relative duality gap at which it ends: 1e-3 for ADMM, 1e-6 for the interior point.
    reveal : bool
        Let the interior point release as much as it takes.
    privacy : None, "consensus" or "output"
        Differential privacy, by noise on every sum. "consensus": ADMM of a few rounds (``max_iter``, 5), whose noise
        grows with their number; "output": each institution solves its own problem, and the noisy mean of the solutions
        is released. Both penalise the bias, shorten long rows, and want a small ``C``, since noise is in proportion to
        it. :class:`tallystick.LinearSVC` is usually better (docs/results/kernel.md).
    mechanism : "auto" or "none"
        "auto" is "none".

    Attributes
    ----------
    classes_, coef_, intercept_
        Coefficients of a linear kernel alone: of ``feature_names_in_`` after ``fit(federation)``, of the columns of
        ``X`` in their own units after ``fit(X, y)``.
    solution_
        Which solver, in how many rounds, and the relative duality gap it ended at, from released numbers.
    privacy_, plan_, contributors_, dropped_, history_
        What was (not) promised, what was released, and who took part.
    """

    program_name: ClassVar[str] = "consensus_svc"
    evaluated_by: ClassVar[str | None] = "gaussian"

    mechanism: str = "auto"
    C: float = 1.0
    solver: str = "interior-point"
    kernel: str = "linear"
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float | str = "auto"
    feature_map: str = "auto"
    landmarks: Any = None
    n_features: int | str = "auto"
    feature_seed: int = 0
    rho: float | str = "auto"
    relaxation: float = 1.6
    max_iter: int | str = "auto"
    tolerance: float | str = "auto"
    reveal: bool = False
    privacy: str | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.privacy is not None
        return tags

    def _study_program(self) -> dict[str, Any]:
        made = super()._study_program()
        if isinstance(self.landmarks, np.ndarray):
            made["landmarks"] = self.landmarks.tolist()
        consensus_settings(made)
        return made

    def _promise(self, fed: Federation) -> dict[str, Any]:
        promise = {name: getattr(self, name) for name in PROMISE}
        if self.mechanism == "auto":
            promise["mechanism"] = "none" if self.privacy is None else "gaussian"
        return promise

    def _warning(self, design: Design) -> str | None:
        if not isinstance(design, LocalDesign) or design.sensitivities is not None:
            return None
        told, held = design.details["numbers_told"], design.details["numbers_held"]
        return (
            f"exact consensus is not differentially private: everybody will see up to {told:,} exact numbers made from "
            + ("all records" if held is None else f"all records, which have {held:,}")
            + '. ts.LinearSVC is private, and so is privacy="consensus" or "output".'
        )

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        self._encoded_model = self._program.model(state)
        if self._program.feature_map is None:
            self.intercept_, self.coef_ = self._encoded_model
        mixed = len({type(c) for c in layout.classes or ()}) > 1
        self.classes_ = np.array(layout.classes, dtype=object if mixed else None)
        self.solution_ = self._program.progress(state)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes
        if self._program.feature_map is None and set(self._layout.kinds) == {"number"}:
            intercept, weights = self._encoded_model
            self.intercept_, self.coef_ = undo_scaling(intercept, weights, self._layout)

    # -- scikit-learn -----------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The margin of the second class, or one per class."""
        return self._scores(self._encode(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row."""
        codes = self.predict_encoded(self._encode(X))
        return self.classes_[codes]

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class indices for rows that are already encoded by the study's schema."""
        if len(self.classes_) == 1:
            return np.zeros(len(features), dtype=np.int64)
        scores = self._scores(features)
        return (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        made = self._program.feature_map
        intercept, weights = self._encoded_model
        scores: NDArray[np.float64] = (features if made is None else made.rows(features)) @ weights.T + intercept
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """Accuracy and macro F1 on records kept back, beside LIBLINEAR's on the same rows and the majority class."""
        from sklearn.svm import LinearSVC as Baseline

        made = self._program.feature_map
        parts = [train, test] if made is None else [_mapped(part, made) for part in (train, test)]
        baseline = Baseline(C=self.C, loss="hinge", max_iter=200)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return class_scores(self.predict_encoded(test.features), parts[0], parts[1], baseline)

    # -- the answer -------------------------------------------------------------------------------------------------

    def _answer(self) -> Answer:
        solved = self.solution_
        told, held = self.plan_.details["numbers_told"], self.plan_.details["numbers_held"]
        gap = solved.get("relative_gap")
        notes = [
            f"Solved by {solved['solver']}" + ("." if gap is None else f", to a relative duality gap of {gap:.2g}."),
            f"Revealed to everybody: at most {told:,} exact numbers"
            + ("." if held is None else f", where the institutions hold {held:,}."),
        ]
        if gap is not None and gap > self._program.tolerance:
            notes[0] = (
                f"Not solved: {solved['solver']} has used up its rounds, and the relative duality gap is {gap:.2g} "
                f"where {self._program.tolerance:g} was asked for. Use a larger max_iter, or another C or rho."
            )
        if self.plan_.differentially_private:
            notes[1] = f"Released: {told:,} numbers in {self.n_iter_} rounds, with noise on each."
        if self._program.feature_map is not None:
            return Answer.of([{"what": k, "value": str(v)} for k, v in solved.items()], notes)
        classes, rows = [label_text(c) for c in self.classes_.tolist()], []
        intercept, weights = self._encoded_model
        intercepts, weights = undo_scaling(intercept, weights, self._layout)
        for at, (intercept, row) in enumerate(zip(intercepts, weights)):
            of = {} if len(intercepts) == 1 else {"class": classes[at]}
            rows += [{**of, **term} for term in coefficient_rows(intercept, row, self._layout)]
        meaning = f"The sum of the terms is the margin of {classes[-1]!r}; above 0 that is predicted."
        if len(intercepts) > 1:
            meaning = "The sum of a class's terms is its margin; the largest is predicted."
        return Answer.of(rows, [meaning, *unit_notes(self._layout), *notes])

    def public_classifier(self) -> dict[str, Any]:
        """The released model as a public table: what ``ts.evaluate`` puts into its study; of a linear kernel."""
        check_is_fitted(self)
        if self._program.feature_map is not None:
            raise StudyError(
                "a study carries linear classifiers, and this one has a kernel",
                rule="classifier-kind",
                remedy="Evaluate a linear model, or measure this one on records of your own: model.predict(frame).",
            )
        return linear_table(*self._encoded_model)

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        intercept, weights = self._encoded_model
        made = self._program.feature_map
        document = {
            "type": type(self).__name__,
            "coef": (self.coef_ if made is None else weights).tolist(),
            "intercept": (self.intercept_ if made is None else intercept).tolist(),
            "classes": self.classes_.tolist(),
            "features": list(map(str, self._layout.names)),
            "solution": self.solution_,
        }
        return document if made is None else {**document, "feature_map": made.facts()}


def _mapped(records: Records, made: FeatureMap) -> Records:
    return replace(records, features=made.rows(records.features))
