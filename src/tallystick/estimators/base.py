"""The common half of every estimator: parameters in, a study out; a released result in, fitted attributes out.

Estimators keep scikit-learn's rules. ``fit`` takes a federation, or plain ``X, y`` with declared bounds; a missing
bound is an error that says what to declare, never a guess from the data. What a fitted estimator carries was released:
the allow-list in ``tests/estimators`` checks every attribute.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tallystick.algorithms.design import Design
from tallystick.algorithms.program import State
from tallystick.core.errors import PrivacyRefused, PrivacyWarning, StudyError
from tallystick.data.dataset import Dataset
from tallystick.data.encoding import Records, encode
from tallystick.engines.designs import design_of
from tallystick.engines.engine import Progress, Result
from tallystick.engines.federation import Federation, SimulatedFederation
from tallystick.engines.planning import layout_of, public_facts
from tallystick.engines.thresholding import state_bytes
from tallystick.estimators.answer import Answer
from tallystick.estimators.plain import frame_columns, matrix_columns, target_column, undeclared, with_target
from tallystick.estimators.plots import draw
from tallystick.privacy.ledger import Ledger
from tallystick.privacy.plan import Plan
from tallystick.privacy.release import state_privacy
from tallystick.privacy.rules import epsilon_warning
from tallystick.study import Study
from tallystick.study.columns import Column, Missing
from tallystick.study.schema import FeatureLayout, Schema

PROMISE = ("epsilon", "delta", "neighbours", "mechanism")
"""The keywords of every estimator that are keys of [privacy]."""


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class; a subclass names its ``program_name`` and writes :meth:`_accept`."""

    program_name: ClassVar[str]
    evaluates_its_own_records: ClassVar[bool] = False
    """Whether a simulation without records kept back measures the model on those it was fitted to (clusters, sets)."""

    evaluated_by: ClassVar[str | None] = None
    """The mechanism of ``ts.evaluate``, where it is not the fit's: an exact fit does not ask for exact counts."""

    plain_trust: ClassVar[str] = "servers"
    """The trust model of ``fit(X, y)``, all of whose parties are the caller."""

    ignores_y: ClassVar[bool] = False
    """Whether ``y`` of ``fit(X, y)`` is there for pipelines alone, as unsupervised estimators have it."""

    epsilon: float = 1.0
    delta: float | None = None
    neighbours: str = "replace-one"
    mechanism: str = "gaussian"
    schema: Schema | None = None
    bounds: Any = None

    @abstractmethod
    def _accept(self, state: State, layout: FeatureLayout) -> None:
        """Set the fitted attributes from the released final state."""

    def __sklearn_tags__(self) -> Any:
        """Two fits differ by their noise: that is the point."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _study_program(self) -> dict[str, Any]:
        """The [program] section: the estimator's own keywords."""
        common = {f.name for f in fields(PrivateEstimator)}
        return {k: v for k, v in self.get_params(deep=False).items() if k not in common}

    def _promise(self, fed: Federation) -> dict[str, Any]:
        """The [privacy] section: the promise as it was asked for."""
        return {name: getattr(self, name) for name in PROMISE}

    # -- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        name: str | None = None,
        purpose: str | None = None,
    ) -> Self:
        """Fit on a federation (``target`` names a column of its schema), or on plain ``X, y``.

        ``name`` and ``purpose`` are what the stewards of a connected federation read before they decide. Plain data
        have no ledger: every fit is charged to nobody, and k fits compose. ``ts.Dataset`` counts them.
        """
        if (weak := epsilon_warning(self.epsilon, self.mechanism)) is not None:
            warnings.warn(weak, PrivacyWarning, stacklevel=2)
        if isinstance(X, (Federation, Dataset)):
            fed = X if isinstance(X, Federation) else federation_of(X, self.schema)
            if y is not None:
                raise StudyError("fit(federation, y): name the target column", remedy='Use fit(fed, target="…").')
            study = self.study_for(fed, target=target, features=features, name=name)
            return self.fit_study(fed, study if purpose is None else study.replace("study", purpose=purpose))
        if any(option is not None for option in (target, features, name, purpose)) or _is_several(X):
            raise StudyError(
                "target, features, name and purpose are for a federation, and this is "
                + ("a list of tables" if _is_several(X) else f"a {type(X).__name__}"),
                rule="fit-a-federation",
                remedy="Make one: fed = ts.Federation.simulate([frame_a, frame_b, frame_c], schema=schema), then "
                'fit(fed, target="…"); or fit plain data: fit(X, y).',
            )
        return self._fit_plain(X, y)

    def study_for(
        self,
        fed: Federation,
        *,
        target: str | None,
        features: Sequence[str] | None,
        name: str | None = None,
        schema: Schema | None = None,
    ) -> Study:
        """The study this estimator proposes to a federation; ``schema`` goes before the estimator's and the other's."""
        schema = next((s for s in (schema, self.schema, fed.schema) if s is not None), None)
        if schema is None:
            raise undeclared(next(iter(getattr(fed, "frames", ())), None))
        missing = getattr(fed, "missing", None)
        _check_kinds(schema, missing, features)
        raw: dict[str, Any] = {
            "study": {
                "name": name or f"{self.program_name} on a federation",
                "program": self.program_name,
                "target": target,
                "features": None if features is None else list(features),
                "accept_noise": True,
            },
            "program": self._study_program(),
            "privacy": self._promise(fed),
            "trust": fed.trust_settings(),
            "data": {
                "columns": schema.to_dict(),
                "missing": None if missing is None else missing.to_dict(),
                **fed.apart(schema, target=target, features=features),
            },
        }
        return Study.from_dict(raw)

    def fit_study(self, fed: Federation, study: Study, *, progress: Progress | None = None) -> Self:
        """Fit a study that is already written (``tallystick simulate`` and the roles come in here)."""
        layout = layout_of(study)
        if study.data.records is None and study.counts_are_public:
            held = fed.count_records(study)
            if held == 0:
                raise StudyError(
                    "no institution holds a record",
                    rule="no-records",
                    remedy="Look at the tables that were given: each row is a record.",
                )
            study = study.replace("data", records=held)
        design = self.design_for(study, layout)
        if design.hopeless and study.study.accept_noise:
            warnings.warn(f"the planner expects little but noise: {design.hopeless}", PrivacyWarning, stacklevel=3)
        elif design.hopeless:
            raise PrivacyRefused(
                f"the planner expects nothing but noise: {design.hopeless}",
                rule="result-above-noise",
                remedy="Raise epsilon, gather more records, use fewer columns, or set accept_noise = true "
                "under [study].",
            )
        told = self._warning(design)
        if told is not None:
            warnings.warn(told, PrivacyWarning, stacklevel=3)
        return self.take_result(design, fed.run(study, design, progress=progress))

    def _warning(self, design: Design) -> str | None:
        """What a caller is told of a design before anything is run; None: nothing."""
        return None

    def take_result(self, design: Design, result: Result) -> Self:
        """The fitted attributes of a study that was run elsewhere, or earlier."""
        outcome = result.outcome
        cost: dict[str, Any] = {
            "rounds": len(outcome.history),
            "bytes_up_per_client": result.bytes_up_per_client,
            "bytes_down_per_client": result.bytes_down_per_client,
        }
        if result.study.privacy.threshold is not None:
            public = public_facts(result.study, result.layout)
            states = state_bytes(design.program, public, outcome.history)
            cost |= {"bytes_state_per_client": states.sent, "bytes_state_dense_per_client": states.dense}
        if result.study.stream is not None:
            self.lost_ticks_ = outcome.lost
        return self.take_state(
            design,
            result.study,
            result.plan,
            outcome.release.value,
            history=outcome.history,
            contributors=next(names for names in reversed(outcome.contributors) if names),
            dropped=outcome.dropped,
            min_clients=result.min_clients,
            cost=cost,
        )

    def take_state(
        self,
        design: Design,
        study: Study,
        plan: Plan,
        state: State,
        *,
        history: tuple[State, ...],
        contributors: tuple[str, ...],
        dropped: tuple[tuple[str, ...], ...],
        min_clients: int,
        cost: dict[str, Any],
    ) -> Self:
        """The fitted attributes that follow from a released final state; ``history`` may hold the last one alone."""
        layout = layout_of(study)
        self._program: Any = design.program
        self._layout = layout
        self._schema = study.schema_of_data()
        self._missing = study.missing_policy()
        self._by_name = True
        self.privacy_ = state_privacy(plan)
        self.plan_, self.study_ = plan, study
        self.contributors_, self.dropped_, self.min_clients_ = contributors, dropped, min_clients
        self.history_, self.n_iter_, self.cost_ = history, cost["rounds"], cost
        self.feature_names_in_ = np.array(layout.names, dtype=object)
        self.n_features_in_ = len(layout)
        self._accept(state, layout)
        return self

    def design_for(self, study: Study, layout: FeatureLayout) -> Design:
        """The design of a study, by the keywords it states, as every role has it; reads no record."""
        if study.study.program != self.program_name:
            raise StudyError(f"the study is one of {study.study.program}, not of {self.program_name}")
        return design_of(study, layout, None)

    # -- the answer ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _answer(self) -> Answer:
        """The released answer as a table."""

    def answer(self) -> Answer:
        """The answer as a table with notes: what the command line prints."""
        check_is_fitted(self)
        return self._answer()

    def to_frame(self) -> Any:
        """The answer as a polars frame; ``.to_pandas()`` where pandas is wanted."""
        return self.answer().frame()

    def plot(self) -> Any:
        """The answer as a matplotlib figure, with the noise intervals it has; needs ``tallystick[plot]``."""
        return draw(self.answer())

    def _html_repr(self) -> str:
        """What a notebook shows of a fitted model: its answer and its promise."""
        if not hasattr(self, "plan_"):
            return str(super()._html_repr())
        return f"<h4>{escape(type(self).__name__)}</h4>{self.answer().html()}<p>{escape(self.privacy_.statement)}</p>"

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """How well the model does on ``test``, beside what ``train`` gives without privacy. Only a simulation asks:
        these numbers are exact. None unless a subclass has a measure; see ``docs/contract.md`` for their names.
        """
        return {}

    # -- plain X, y ---------------------------------------------------------------------------------------------

    def _fit_plain(self, X: Any, y: Any) -> Self:
        if self.schema is None and self.bounds is None:
            raise undeclared(X)
        by_name = self.schema is not None and (isinstance(X, Mapping) or hasattr(X, "columns"))
        target = target_column(self.schema, y)
        y = None if self.ignores_y else y
        if by_name and self.schema is not None:
            y, schema = self._check_labels(y), self.schema
            frame = frame_columns(X, y, schema, target)
        else:
            X, y = self._check_plain(X, y)
            given = getattr(self, "feature_names_in_", None)
            names = [f"x{i}" for i in range(X.shape[1])] if given is None else [str(n) for n in given]
            frame, schema = matrix_columns(X, names=names, schema=self.schema, bounds=self.bounds, target=target)
        data = with_target(frame, schema, y, target, labels=self._labels(y), declared=self._declared_target())
        warnings.warn(
            "fit(X, y) has no ledger: each further fit on the same records spends epsilon again. "
            "Use ts.Dataset(frame, budget=...) or a federation to have fits counted."
            + ("" if data.classes is None else " The classes were read from y; declare them in a schema to hide them."),
            PrivacyWarning,
            stacklevel=3,
        )
        fed = SimulatedFederation(
            frames=(data.frame,),
            schema=data.schema,
            trust={"model": self.plain_trust},
            names=("caller",),
            ledger=Ledger(),
            refuse_useless=False,
        )
        given = getattr(self, "feature_names_in_", None)
        study = self.study_for(fed, target=data.target, features=data.features, schema=data.schema)
        self.fit_study(fed, study)
        if not by_name:
            self._by_name = False
            self.n_features_in_ = X.shape[1]
            if given is not None:
                self.feature_names_in_ = given
            else:
                del self.feature_names_in_
        self._accept_plain(data.classes)
        return self

    def _check_plain(self, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        """Arrays validated as scikit-learn has it."""
        if y is None:
            return validate_data(self, X, dtype=np.float64), None
        X, y = validate_data(self, X, y, dtype=np.float64)
        return X, y

    def _check_labels(self, y: Any) -> Any:
        """The target beside a frame that is read by name."""
        return y

    def _labels(self, y: Any) -> NDArray[Any] | None:
        """The distinct labels of an undeclared target, for classifiers."""
        return None

    def _declared_target(self) -> Column | None:
        """The declaration of ``y`` where the estimator has one of its own, for data without it in a schema."""
        return None

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        """Put classes back and coefficients into the caller's own units."""

    def _encode(self, X: Any) -> NDArray[np.float64]:
        """New data as the model reads it: encoded by the public schema of the fit."""
        check_is_fitted(self)
        columns = list(self._layout.columns)
        # A prediction is asked for every row; the caller decides what to do with incomplete ones.
        own = {name: self._schema[name] for name in columns}
        schema = Schema({n: replace(c, missing="none") if c.missing == "drop" else c for n, c in own.items()})
        if not self._by_name:
            X = validate_data(self, X, reset=False, dtype=np.float64)
            return encode({name: X[:, i] for i, name in enumerate(columns)}, schema, features=columns).features
        missing = self._missing
        if missing is not None and missing.policy == "drop":
            missing = None
        return encode(X, schema, features=columns, missing=missing).features


def federation_of(data: Dataset, schema: Schema | None = None) -> Federation:
    """A data set as a federation of one institution, on the data set's own account."""
    fed = Federation.simulate([data.frame], schema=data.schema if schema is None else schema, names=["dataset"])
    fed.ledger = data.ledger
    return fed


def _is_several(X: Any) -> bool:
    """Whether this is a list of tables, which a federation would be made from."""
    return isinstance(X, (list, tuple)) and bool(X) and hasattr(X[0], "columns")


def _check_kinds(schema: Any, missing: Any, features: Any) -> None:
    """What is nearly right by its look, named before it fails somewhere inside."""
    if not isinstance(schema, Schema):
        raise StudyError(
            f"the schema is a {type(schema).__name__}", remedy='Write schema=ts.Schema({"age": ts.Number(17, 90), …}).'
        )
    if missing is not None and not isinstance(missing, Missing):
        raise StudyError(f"missing is a {type(missing).__name__}", remedy='Write missing=ts.Missing("?", "drop").')
    if isinstance(features, str):  # its letters would be taken for columns
        raise StudyError("features is one text", remedy=f"Write features=[{features[:80]!r}].")
