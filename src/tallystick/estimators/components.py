"""Differentially private principal components and singular vectors across institutions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from tallystick.algorithms.components.spectrum import noise_norm
from tallystick.algorithms.design import Design
from tallystick.algorithms.program import State
from tallystick.core.errors import DataError, PrivacyWarning, StudyError
from tallystick.data.encoding import Records
from tallystick.engines.engine import Result
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.kmeans import in_declared_units
from tallystick.estimators.noise_intervals import LEVEL
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study.schema import FeatureLayout

_LOADINGS = 8
"""Of a component, so many columns of largest weight are in the table."""


@dataclass(kw_only=True, eq=False, repr=False)
class _Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """What both have in common."""

    evaluates_its_own_records: ClassVar[bool] = True
    ignores_y: ClassVar[bool] = True

    n_components: int = field(default=2, kw_only=False)
    basis: str | None = None
    shape: Any = None
    columns: str = "auto"
    rows: str = "given"
    noise: str = "gaussian"
    top: int | None = None

    def _study_program(self) -> dict[str, Any]:
        program = super()._study_program()
        if isinstance(program["shape"], (tuple, np.ndarray)):
            program["shape"] = [int(side) for side in program["shape"]]
        return program

    def take_result(self, design: Design, result: Result) -> Self:
        """As every estimator; a basis for ordered columns on others is worth a warning."""
        for note in design.notes:
            if "look unordered" in note:
                warnings.warn(note, PrivacyWarning, stacklevel=4)
        return super().take_result(design, result)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program = self._program
        self.components_ = state.components.copy()
        self.explained_variance_ratio_ = state.shares.copy()
        self.explained_variance_ = state.shares * state.total
        self._origin = program.space.origin.copy()
        self._mean = program.mean_of(state)
        (self._ratio_low, self._ratio_high), self._why = self._ratio_intervals(state)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _rows(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._program.space.rows(self._encode(X)))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Every row − mean along the components, in the encoded columns."""
        return np.asarray((self._rows(X) - self._mean) @ self.components_.T)

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:
        """Rows back from their coordinates: in the columns' declared units, unless rows are scaled to length 1."""
        check_is_fitted(self)
        given = check_array(X, dtype=np.float64)
        if given.shape[1] != len(self.components_):
            raise StudyError(
                f"inverse_transform takes {len(self.components_)} columns and was given {given.shape[1]}",
                rule="components-are-the-columns",
                remedy="Give what transform returned.",
            )
        rows = given @ self.components_ + self._mean
        return rows if self._program.space.unit else in_declared_units(rows + self._origin, self._layout)

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """The part of the records' variance (of their square, without a mean) that the components hold, beside what
        as many components without privacy hold."""
        if len(train) == 0 or len(test) == 0:
            raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
        fitted, rows = (self._program.space.rows(r.features) for r in (train, test))
        middle = fitted.mean(axis=0) if self._program.centred else np.zeros(fitted.shape[1])
        own = rows.mean(axis=0) if self._program.centred else middle
        _, _, best = np.linalg.svd(np.linalg.qr(fitted - middle, mode="r"))
        k = len(self.components_)
        return {
            "captured_variance": captured_variance(rows - own, self.components_),
            "baseline_captured_variance": captured_variance(rows - own, best[:k]),
        }

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _ratio_intervals(self, state: State) -> tuple[tuple[NDArray[Any], NDArray[Any]], str]:
        """Of the explained variance ratios, all of them together; or why there are none."""
        program, plan = self._program, self.plan_
        none = np.full(len(state.shares), np.nan)
        if not plan.differentially_private:
            return (none, none), "No noise was added: these are the components of these records."
        if self.study_.vertical:
            return (none, none), "No intervals of explained variance: mean and scatter are of one noisy round."
        choices, rounds = program.choices, rounds_of(plan)
        refused = "No intervals of explained variance: "
        if choices.scatter == 0 or choices.selected < program.columns:
            return (none, none), refused + "they would rest on which coordinates were chosen, by noisy squares."
        if program.counts or self.study_.privacy.threshold or plan.claim.sampling is not None or any(self.dropped_):
            return (none, none), refused + "how many records were summed is not public."
        if plan.claim.mechanism != "gaussian":
            return (none, none), refused + "they hold for Gaussian noise."
        last = rounds[-1]
        beside = last.std_of("scatter") ** 2 if program.columns > 1 else 0.0
        diagonal = last.std_of("scatter_diagonal") ** 2
        width = noise_norm(program.columns, diagonal, beside, LEVEL) / state.records
        whole = 1.0
        if not choices.normalised:
            # The trace moves by independent noise on the diagonal: within 3 standard deviations but once in 370 times.
            trace = state.total / state.radius**2
            spread = 3 * np.sqrt(program.columns * diagonal) / state.records
            whole = max(trace - spread, 1e-300)
            low = np.clip((state.noisy - width) / (trace + spread), 0.0, 1.0)
        else:
            low = np.clip(state.noisy - width, 0.0, 1.0)
        high = np.clip((state.noisy + width) / whole, 0.0, 1.0)
        bounded = {"unit": " scaled to length 1", "clip": " clipped as planned", "longest": ""}[choices.bounded]
        return (np.minimum(low, state.shares), np.maximum(high, state.shares)), (
            f"Intervals hold the explained variance ratios of rows − mean{bounded}, all of them together, with "
            f"probability {LEVEL:.0%}, if all {program.records:,} records were usable: by Weyl's inequality they "
            "cover the noise of the scatter, and nothing else."
        )

    @property
    def explained_variance_ratio_interval_(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Lower and upper ends; NaN where there are none (the answer's notes say why)."""
        check_is_fitted(self)
        return self._ratio_low.copy(), self._ratio_high.copy()

    def _answer(self) -> Answer:
        rows: list[dict[str, Any]] = []
        names = list(map(str, self._layout.names))
        empty = {"component": None, "column": None, "value": None, "lower": None, "upper": None}
        ends = zip(self._ratio_low.tolist(), self._ratio_high.tolist())
        for at, (ratio, (low, high)) in enumerate(zip(self.explained_variance_ratio_.tolist(), ends), start=1):
            known = {} if np.isnan(low) else {"lower": low, "upper": high}
            rows.append({"part": "explained variance ratio", **empty, "component": f"{at}", "value": ratio, **known})
        for at, component in enumerate(self.components_.tolist(), start=1):
            largest = np.argsort(-np.abs(component), kind="stable")[:_LOADINGS]
            for column in largest.tolist():
                own = {"component": f"{at}", "column": names[column], "value": component[column]}
                rows.append({"part": f"loadings of component {at}", **empty, **own})
        unit = (
            "Loadings are in the encoded columns: numbers over half the width of their bounds, one column a category."
        )
        many = [f"The {_LOADINGS} largest loadings of a component are shown."] if len(names) > _LOADINGS else []
        return Answer.of(rows, [self._why, unit, *many])

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        low, high = self._ratio_low.tolist(), self._ratio_high.tolist()
        known = not any(map(np.isnan, low))
        return {
            "type": type(self).__name__,
            "components": self.components_.tolist(),
            "mean": self._mean_document(),
            "explained_variance": self.explained_variance_.tolist(),
            "explained_variance_ratio": self.explained_variance_ratio_.tolist(),
            "explained_variance_ratio_interval": [list(ends) for ends in zip(low, high)] if known else None,
            "features": list(map(str, self._layout.names)),
        }

    def _mean_document(self) -> Any:
        return None


@dataclass(kw_only=True, eq=False, repr=False)
class PCA(_Components):
    """Principal components with a stated privacy guarantee.

    Two or three rounds: the mean; where it helps, the columns' squares; the scatter of rows − mean, of which only the
    upper triangle travels. Which rounds there are, how rows are bounded and what the noise is shrunk by follows from
    public facts, and the plan says it in words.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X)``.
    n_components : int
        Number of components.
    basis : None or "dct"
        A public basis for ordered columns (spectra, time series, images): the cosine transform.
    shape : None or list of int
        With a basis: the sides of the grid that the columns are, e.g. [28, 28]; None means one line.
    columns : "auto", "dense", "uneven" or "sparse"
        What is known of the columns in public; "auto" goes by their bounds: those that begin at 0 are taken as uneven.
    rows : "given" or "unit"
        "unit" scales every record to length 1 first, around the columns' zero: components of directions.
    noise : "gaussian" or "equal"
        The noise matrix: half the variance beside the diagonal, or the same everywhere as Analyze Gauss is published.
    top : None or int
        Release only so many of the components.

    Attributes
    ----------
    components_ : array (n_components, columns)
        Unit vectors in the encoded columns, by falling explained variance; the largest entry of each is positive.
    mean_ : array (columns,)
        The noisy mean, in the columns' declared units; of the scaled rows with ``rows="unit"``.
    explained_variance_, explained_variance_ratio_ : array (n_components,)
        Estimates, in the encoded columns; where the plan normalises rows they are those of rows of equal length.
    explained_variance_ratio_interval_ : (lower, upper)
        What noise may have done to the ratios; NaN where nothing can be promised.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "pca"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        super()._accept(state, layout)
        unit = self._program.space.unit
        plain = self._mean[None, :] if unit else in_declared_units((self._mean + self._origin)[None, :], layout)
        self.mean_ = plain[0]

    def _mean_document(self) -> Any:
        return self.mean_.tolist()


@dataclass(kw_only=True, eq=False, repr=False)
class TruncatedSVD(_Components):
    """Singular vectors with a stated privacy guarantee: as :class:`PCA`, but rows are not centred.

    One or two rounds: where it helps the columns' squares, then the second moment of the rows around their public
    origin (0 where a column's bounds hold it, the middle of its bounds otherwise).

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X)``.
    n_components : int
        Number of components.
    basis : None or "dct"
        A public basis for ordered columns (spectra, time series, images): the cosine transform.
    shape : None or list of int
        With a basis: the sides of the grid that the columns are, e.g. [28, 28]; None means one line.
    columns : "auto", "dense", "uneven" or "sparse"
        What is known of the columns in public; "auto" goes by their bounds: those that begin at 0 are taken as uneven.
    rows : "given" or "unit"
        "unit" scales every record to length 1 first, around the columns' zero.
    noise : "gaussian" or "equal"
        The noise matrix: half the variance beside the diagonal, or the same everywhere.
    top : None or int
        Release only so many of the components.

    Attributes
    ----------
    components_ : array (n_components, columns)
        Unit vectors in the encoded columns, by falling second moment.
    explained_variance_, explained_variance_ratio_ : array (n_components,)
        Of the second moment around the origin (scikit-learn's are around the mean), with
        ``explained_variance_ratio_interval_``.
    singular_values_ : array (n_components,)
        √(records · explained variance), as released.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "truncated_svd"

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        super()._accept(state, layout)
        self.singular_values_ = np.sqrt(self.explained_variance_ * state.records)


def captured_variance(rows: NDArray[np.float64], components: NDArray[np.float64]) -> float:
    """The part of Σ‖row‖² that lies in the components' span."""
    whole = float((rows**2).sum())
    basis, _ = np.linalg.qr(components.T)
    return float(((rows @ basis) ** 2).sum()) / whole if whole > 0 else 0.0
