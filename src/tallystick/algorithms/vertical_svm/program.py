"""``VerticalSVC``: masked sums of X_m·w_m, and who is told the labels goes on from them. Exact, and said to be so.

A round: everybody is told p = z̄ − c̄ − u, a number for each person. Institution m solves its ridge problem
w_m ← ρ(I + ρX_mᵀX_m)⁻¹X_mᵀ(X_m w_m + p), factored once, and contributes X_m·w_m to the sum, with its ‖w_m‖². The
reducer (:mod:`…sharing`) makes the next p of the sum and the labels. In the last round w_m itself is contributed, each
at its own places, which is the model.

Not differentially private: the reducer sees Σ X_m·w_m, one exact number a person and round, and every institution p.
A kernel is the sum of one kernel at each institution, by public features of its own columns.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.feature_maps.settings import make_map
from tallystick.algorithms.keywords import wrong_target
from tallystick.algorithms.local_program import (
    Labels,
    LocalDesign,
    ReducedAtLabels,
    check_learners,
    grid_values,
)
from tallystick.algorithms.program import Public
from tallystick.algorithms.vertical_svm.settings import VerticalSvmSettings
from tallystick.algorithms.vertical_svm.sharing import hinge_step
from tallystick.core.errors import LocalProtocolError
from tallystick.privacy.client_vectors import FRACTION_BITS, not_private
from tallystick.privacy.trust import KNOWN

ROUNDS, TOLERANCE, FEATURES = 500, 5e-4, 400
_RUNNING, _WEIGHTS_WANTED, _DONE = 0.0, 1.0, 2.0
_HEAD = 2
"""Numbers before a vector's own: that it is one learner's, and ‖w_m‖²."""


class Query(NamedTuple):
    """What institutions work at."""

    stage: float
    pull: NDArray[np.float64]


class State(NamedTuple):
    """What the reducer goes on from. What is released holds no number of a single person."""

    stage: float
    pull: NDArray[np.float64]
    dual: NDArray[np.float64]
    average: NDArray[np.float64]
    """z̄."""
    steps: float
    learners: float
    intercept: float
    weights: NDArray[np.float64]
    objective: float
    residual: float


class VerticalSvmProgram(ReducedAtLabels):
    """See the module. Fields are public facts but for what ``reducing`` sets, at who reduces."""

    def __init__(self, public: Public, settings: VerticalSvmSettings, rounds: int) -> None:
        self.C, self.relaxation, self.rounds = settings.C, settings.relaxation, rounds
        self.tolerance = TOLERANCE if settings.tolerance == "auto" else float(settings.tolerance)
        self.records = public.records or 0
        self.holders = tuple(name for name, *_ in public.holders)
        self.places = {name: np.array(places, dtype=np.int64) for name, places, _ in public.holders}
        self.maps: dict[str, FeatureMap | None] = {}
        self.slices: dict[str, slice] = {}
        at, typical = 0, 0.0
        for name, places, _ in public.holders:
            own, made = held_public(public, places), None
            if settings.map is not None and places:
                made = make_map(own, settings.map, n_features=FEATURES)
            size = len(places) if made is None else made.size
            self.maps[name], self.slices[name] = made, slice(at, at + size)
            typical += own.max_l2_squared / 2 if made is None else made.typical_square
            at += size
        self.size = at
        # ρ/M·(1 − margin) meets C where the margin is off by the scores' own size.
        self.rho = len(self.holders) * settings.C if settings.rho == "auto" else float(settings.rho)
        self.holder = ""
        self._asked: Labels | None = None
        self._labels: NDArray[np.float64] | None = None

    def at(self, holder: str) -> VerticalSvmProgram:
        own = copy.copy(self)
        own.holder = holder
        return own

    def reducing(self, labels: Labels) -> VerticalSvmProgram:
        own = copy.copy(self)
        own._asked = labels
        return own

    @property
    def vector_size(self) -> int:
        """Numbers of every round's vector."""
        return _HEAD + max(self.records, self.size)

    # -- the institutions -------------------------------------------------------------------------------------------

    def rows_of(self, holder: str, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """One institution's columns as it learns from them: as they are, or the features of its kernel."""
        made = self.maps[holder]
        return features if made is None else made.rows(features)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        rows = self.rows_of(self.holder, features)
        return rows, cho_factor(np.eye(rows.shape[1]) + self.rho * rows.T @ rows)

    def start_in_client(self, prepared: Any) -> Any:
        return np.zeros(prepared[0].shape[1])

    def step_in_client(self, prepared: Any, state: Any, memory: Any) -> tuple[NDArray[np.int64], Any]:
        rows, factor = prepared
        out = np.zeros(self.vector_size)
        if state.stage == _RUNNING:
            if rows.shape[1]:
                memory = self.rho * cho_solve(factor, rows.T @ (rows @ memory + state.pull))
            out[_HEAD : _HEAD + self.records] = rows @ memory
        else:
            own = self.slices[self.holder]
            out[_HEAD + own.start : _HEAD + own.stop] = memory
        out[0], out[1] = 1.0, float(memory @ memory)
        return grid_values(out, FRACTION_BITS), memory

    # -- the reducer ------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> State:
        nobody = np.zeros(self.records)
        return State(
            stage=_RUNNING,
            pull=nobody,
            dual=nobody,
            average=nobody,
            steps=0.0,
            learners=0.0,
            intercept=0.0,
            weights=np.zeros(self.size),
            objective=0.0,
            residual=math.inf if self.records == 0 else 1e300,
        )

    def released_like(self, public: Public) -> State:
        return self._without_people(self.init(public))

    def _without_people(self, state: State) -> State:
        nobody = np.zeros(0)
        return state._replace(pull=nobody, dual=nobody, average=nobody)

    def query(self, state: State | Query) -> Query:
        return Query(stage=state.stage, pull=state.pull)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: State) -> State:
        learners = check_learners(total[0], state.learners or len(self.holders))
        if state.stage == _WEIGHTS_WANTED:
            weights = total[_HEAD : _HEAD + self.size].copy()
            return self._without_people(state)._replace(stage=_DONE, weights=weights)
        y, m, alpha = self._told(), float(learners), self.relaxation
        found = total[_HEAD : _HEAD + self.records]
        average = found / m
        relaxed = alpha * average + (1 - alpha) * state.average
        z, b = hinge_step(m * (state.dual + relaxed), y, C=self.C, ratio=self.rho / m)
        mean = z / m
        dual = state.dual + relaxed - mean
        hinge = np.maximum(0.0, 1 - y * (found + b)) * (y != 0)
        # [BPC11, §3.3]: what is not yet met of z = Σ X_m w_m, and how far z still moves, over their own sizes.
        scale = max(float(np.linalg.norm(found)), float(np.linalg.norm(z)), 1e-12)
        off = float(np.linalg.norm(found - z)) / scale
        moved = m * float(np.linalg.norm(mean - state.average)) / scale
        residual = max(off, moved)
        steps = state.steps + 1
        ends = residual <= self.tolerance or steps >= self.rounds
        return state._replace(
            stage=_WEIGHTS_WANTED if ends else _RUNNING,
            pull=np.zeros(self.records) if ends else mean - average - dual,  # weights are wanted: nobody needs it
            dual=dual,
            average=mean,
            steps=steps,
            learners=m,
            intercept=b,
            objective=0.5 * float(total[1]) + self.C * float(hinge.sum()),
            residual=residual,
        )

    def _told(self) -> NDArray[np.float64]:
        if self._labels is None:
            if self._asked is None:
                raise LocalProtocolError("who reduces has no labels")
            self._labels = self._asked()
            if self._labels.shape != (self.records,):
                raise LocalProtocolError(f"{len(self._labels)} labels of {self.records} people")
        return self._labels

    def finished(self, state: State) -> bool:
        return state.stage == _DONE

    def scores(self, features: NDArray[np.float64], state: State) -> NDArray[np.float64]:
        """The margin of the second class, of encoded rows with all columns."""
        out = np.full(len(features), state.intercept)
        for name in self.holders:
            rows = self.rows_of(name, np.ascontiguousarray(features[:, self.places[name]]))
            out += rows @ state.weights[self.slices[name]]
        return out


@dataclass(frozen=True, kw_only=True)
class VerticalLocalDesign(LocalDesign):
    """Rounds of institutions with different columns."""

    joint: ClassVar[bool] = True
    tells_of_people: ClassVar[bool] = True


def design_vertical_svc(public: Public, budget: PublicBudget, settings: VerticalSvmSettings) -> VerticalLocalDesign:
    """The program and its rounds, from public facts alone."""
    if len(public.classes) != 2:
        instead = 'ts.VerticalClassifier (program = "vertical_classifier")'
        raise wrong_target("VerticalSVC", public.target, "a category of two classes", rule="target-is-a-category",
                           instead=instead)  # fmt: skip
    if budget.mechanism != "none":
        raise not_private(budget.mechanism)
    rounds = ROUNDS if settings.max_iter == "auto" else int(settings.max_iter)
    program = VerticalSvmProgram(public, settings, rounds)
    n = program.records
    notes = (
        f"whoever reduces is told the labels by {public.label_holder}, and sees one exact number for each of {n:,} "
        f"people in each of at most {rounds} rounds, {n * rounds:,} in all; every institution is told as many",
        "each institution's columns are hidden from the others behind masked sums, and from nobody by noise: this is "
        "not differential privacy",
        KNOWN,
    )
    kernels = [made.describe() for made in program.maps.values() if made is not None]
    return VerticalLocalDesign(
        program=program,
        sizes=(program.vector_size,) * (rounds + 1),
        notes=(*dict.fromkeys(kernels), *notes),
        details={"solver": "sharing ADMM", "numbers_a_round": n, "rounds": rounds, "rho": program.rho},
    )


def held_public(public: Public, places: tuple[int, ...]) -> Public:
    """The public facts of one institution's columns alone."""
    columns, units, blocks, at = set(places), [], [], 0
    for column, start, stop, kind, ones in public.columns:
        if start in columns:
            blocks.append((column, at, at + stop - start, kind, ones))
            at += stop - start
    units = [public.units[place] for place in places] if public.units else []
    square = sum(1.0 if kind == "number" else float(ones) for *_, kind, ones in blocks)
    return replace(
        public,
        features=tuple(public.features[place] for place in places),
        units=tuple(units),
        blocks=tuple(blocks),
        max_l2_squared=square,
        max_l1=square,
        holders=(),
    )
