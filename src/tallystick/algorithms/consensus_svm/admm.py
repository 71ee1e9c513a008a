"""Consensus ADMM for linear support vector machines, with the updates as they follow from the problem [decision 15].

    round 1        learners are counted: M                                                  → ρ
    round t + 1    (hat)  λ by coordinate descent; ŵ = αw + (1−α)z, b̂ likewise; sent: ŵ + g, b̂ + e
                   reduce z = mean(ŵ + g), s = mean(b̂ + e)                                  → next, g = (ŵ + g) − z

The published updates differ: they drop the bias from the learner's problem and bring it back as an equality that makes
b stay where it is for ever (``tests/algorithms/test_consensus_svm.py`` shows it). α = 1.6 is over-relaxation.

How far it is, from released numbers alone. Each learner adds Σ hinge at the public z and Σλ. With them the objective at
z is known, and a lower bound of the best one: the multipliers of all learners together are a dual point, of which

    Σ λyx = w̄ + ρM(w̄ − z),   Σ λy = ρM(b̄ − s) =: δ,   w̄ = z + (z⁺ − z)/α   (Σ g = 0 after the first round),

and D = Σλ − ½‖Σ λyx‖² − B|δ| bounds the objective of every (w, b) with |b| ≤ B; B = 2|s| + 1 is taken. The relative gap
between the two is the stopping rule, and is kept in the history.

Nothing here is differentially private: z is a function of all records, exact, in every round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.consensus_svm.coordinate_descent import (
    descend,
    hinge_total,
    squared_lengths,
    stride,
    weighted_rows,
)
from tallystick.algorithms.consensus_svm.wide_numbers import packed, packed_size, unpacked, wide
from tallystick.algorithms.local_program import LocalProgram, check_learners
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError

_LARGEST = 2.0**31
"""Beyond any honest weight, and within what is sent."""
_AFRESH = 64
"""Every so many rounds Σ λyx is summed anew, so that rounding does not gather."""

Rows = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Encoded records to the rows that are learned from: as they are, or by a public feature map."""


class AdmmQuery(NamedTuple):
    """What learners step at."""

    round: float
    learners: float
    rho: float
    z: NDArray[np.float64]
    """One row of weights per class (one for two classes)."""
    s: NDArray[np.float64]


class AdmmState(NamedTuple):
    """Everything released so far that the next step needs."""

    round: float
    learners: float
    rho: float
    z: NDArray[np.float64]
    s: NDArray[np.float64]
    objective: NDArray[np.float64]
    """The least that was seen, per class; 0 before there is one."""
    bound: NDArray[np.float64]
    """The best lower bound."""
    best_z: NDArray[np.float64]
    best_s: NDArray[np.float64]
    moved: float
    """How far z and s moved in the last round, in parts of their own length."""


class AdmmMemory(NamedTuple):
    """A learner's own, per class: multipliers, Σ λyx and Σ λy, and the last (ŵ + g, b̂ + e)."""

    multipliers: NDArray[np.float64]
    sums: NDArray[np.float64]
    biases: NDArray[np.float64]
    sent_w: NDArray[np.float64]
    sent_b: NDArray[np.float64]


@dataclass(repr=False)
class Learner:
    """A client's records as the solvers read them."""

    rows: NDArray[np.float64]
    signs: NDArray[np.float64]
    """±1, one row per class (one for two classes)."""
    squares: NDArray[np.float64]


def learner(features: NDArray[np.float64], target: NDArray[np.float64] | None, classes: int, rows: Rows) -> Learner:
    """All rows in memory: coordinate descent jumps between them."""
    mapped = np.ascontiguousarray(rows(features))
    return Learner(rows=mapped, signs=class_signs(target, classes), squares=squared_lengths(mapped))


def class_signs(target: NDArray[np.float64] | None, classes: int) -> NDArray[np.float64]:
    """±1, one row per class: one against the rest, or with two classes the second against the first alone."""
    if target is None:
        raise RemoteProtocolError("the study names no target")
    wanted = [1] if classes <= 2 else range(classes)
    return np.array([np.where(target == k, 1.0, -1.0) for k in wanted]).reshape(len(wanted), len(target))


@dataclass(frozen=True, kw_only=True)
class AdmmSettings:
    """What the method is told; ``rho`` None is chosen from public facts once the learners are counted."""

    C: float
    rho: float | None = None
    relaxation: float = 1.6
    sweeps: int = 5
    precision: float = 1e-4
    """Of a learner's own problem: the largest gradient left."""
    tolerance: float = 1e-3
    """The relative gap to end at; 0 runs all rounds."""
    certify: bool = True
    """Whether learners add what the gap is made of."""


class AdmmProgram(LocalProgram):
    """See the module. Fields are public facts."""

    def __init__(
        self,
        public: Public,
        settings: AdmmSettings,
        *,
        size: int,
        rows: Rows,
        typical_square: float,
    ) -> None:
        self.settings, self.size, self._rows = settings, size, rows
        self.typical_square, self.records = typical_square, public.records
        self.classes = len(public.classes)
        self.outputs = 1 if self.classes <= 2 else self.classes

    @property
    def tolerance(self) -> float:
        """The relative gap to end at."""
        return self.settings.tolerance

    @property
    def numbers(self) -> int:
        """Released in a round, the count of learners apart."""
        return self.outputs * (self.size + 1 + 2 * self.settings.certify)

    def vector_size(self) -> int:
        """Entries of a client's vector."""
        return packed_size(self.numbers)

    # -- the program ------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> AdmmState:
        k, d = self.outputs, self.size
        return AdmmState(
            round=0.0,
            learners=0.0,
            rho=0.0 if self.settings.rho is None else self.settings.rho,
            z=np.zeros((k, d)),
            s=np.zeros(k),
            objective=np.zeros(k),
            bound=np.zeros(k),
            best_z=np.zeros((k, d)),
            best_s=np.zeros(k),
            moved=1.0,
        )

    def query(self, state: AdmmState | AdmmQuery) -> AdmmQuery:
        return AdmmQuery(round=state.round, learners=state.learners, rho=state.rho, z=state.z, s=state.s)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Learner:
        return learner(features, target, self.classes, self._rows)

    def start_in_client(self, prepared: Learner) -> AdmmMemory:
        k, n, d = self.outputs, len(prepared.rows), self.size
        return AdmmMemory(np.zeros((k, n)), np.zeros((k, d)), np.zeros(k), np.zeros((k, d)), np.zeros(k))

    def step_in_client(
        self, prepared: Learner, state: AdmmQuery, memory: AdmmMemory
    ) -> tuple[NDArray[np.int64], AdmmMemory]:
        self._check(state)
        if state.learners == 0:
            return packed(*wide(np.zeros(self.numbers)), np.zeros(0, dtype=np.int64)), memory
        after = AdmmMemory(*(part.copy() for part in memory))
        parts = [self._step(prepared, state, after, k) for k in range(self.outputs)]
        return self.encoded(np.concatenate(parts)), after

    def encoded(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """A client's numbers of one round on the grid."""
        return packed(*wide(values), np.zeros(0, dtype=np.int64))

    def decoded(self, total: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """(how many learners, the sums) from a round's total."""
        learners, _, sums = unpacked(total, self.numbers)
        return learners, sums

    def _step(self, own: Learner, state: AdmmQuery, memory: AdmmMemory, k: int) -> NDArray[np.float64]:
        """One class's step; ``memory`` is brought up to date. Returns (ŵ + g, b̂ + e), and what the gap is made of."""
        c, rho = self.settings, state.rho
        kappa = rho + 1 / state.learners
        z, s = state.z[k], float(state.s[k])
        first = state.round == 1
        g = np.zeros_like(z) if first else memory.sent_w[k] - z
        e = 0.0 if first else float(memory.sent_b[k]) - s
        if int(state.round) % _AFRESH == 0:
            memory.biases[k] = weighted_rows(own.rows, own.signs[k], memory.multipliers[k], memory.sums[k])
        w = (rho * (z - g) + memory.sums[k]) / kappa
        b, _ = descend(
            own.rows, own.signs[k], own.squares, memory.multipliers[k], w, s - e + float(memory.biases[k]) / rho,
            c.C, kappa, rho, stride(len(own.rows)), c.sweeps, c.precision,
        )  # fmt: skip
        memory.sums[k], memory.biases[k] = kappa * w - rho * (z - g), rho * (b - s + e)
        memory.sent_w[k] = c.relaxation * w + (1 - c.relaxation) * z + g
        memory.sent_b[k] = c.relaxation * b + (1 - c.relaxation) * s + e
        certificate = [hinge_total(own.rows, own.signs[k], z, s), float(memory.multipliers[k].sum())]
        return np.concatenate([memory.sent_w[k], memory.sent_b[k : k + 1], certificate if c.certify else []])

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: AdmmState) -> AdmmState:
        counted, sums = self.decoded(total)
        learners = check_learners(counted, state.learners)
        if state.learners == 0:
            rho = self.chosen_rho(learners) if self.settings.rho is None else self.settings.rho
            return state._replace(round=1.0, learners=float(learners), rho=rho)
        table = sums.reshape(self.outputs, -1)
        z, s = table[:, : self.size] / learners, table[:, self.size] / learners
        length = math.hypot(float(np.linalg.norm(z)), float(np.linalg.norm(s)))
        away = math.hypot(float(np.linalg.norm(z - state.z)), float(np.linalg.norm(s - state.s)))
        after = state._replace(round=state.round + 1, z=z, s=s, moved=away / max(length, 2.0**-40))
        return self._measured(table[:, self.size + 1 :], after, state) if self.settings.certify else after

    def finished(self, state: AdmmState) -> bool:
        return self.settings.certify and state.round > 2 and float(np.max(self.gaps(state))) <= self.settings.tolerance

    # -- public arithmetic ------------------------------------------------------------------------------------------

    def chosen_rho(self, learners: int) -> float:
        """ρ = 0.6·√(C·n·S/(d·M)) from public facts: n records, d columns, rows of squared length S.

        A rule of thumb: ρ wants to grow with what a learner's records pull and to fall with how freely w can move. The
        exponents and 0.6 were read off the best of a grid of ρ on three public sets in two scalings and one set of
        random features, C = 1 and 50, M = 4 and 20 (docs/results/svm.md): mostly within a factor of 3 of it.
        """
        records = self.records or 1000 * learners
        pull = self.settings.C * records * self.typical_square / (self.size * learners)
        return min(max(0.6 * math.sqrt(pull), 2.0**-20), 2.0**30)

    def _measured(self, certificate: NDArray[np.float64], after: AdmmState, state: AdmmState) -> AdmmState:
        c, alpha = self.settings, self.settings.relaxation
        objective = 0.5 * np.einsum("kd,kd->k", state.z, state.z) + c.C * certificate[:, 0]
        strength = state.rho * state.learners
        step_w, step_b = (after.z - state.z) / alpha, (after.s - state.s) / alpha
        joint = state.z + step_w * (1 + strength)
        gap_b = (2 * np.abs(state.s) + 1) * np.abs(strength * step_b)
        bound = certificate[:, 1] - 0.5 * np.einsum("kd,kd->k", joint, joint) - gap_b
        first = state.round == 1
        better = objective < state.objective if not first else np.ones(self.outputs, dtype=bool)
        return after._replace(
            objective=np.where(better, objective, state.objective),
            bound=bound if first else np.maximum(bound, state.bound),
            best_z=np.where(better[:, None], state.z, state.best_z),
            best_s=np.where(better, state.s, state.best_s),
        )

    def gaps(self, state: AdmmState) -> NDArray[np.float64]:
        """The relative gap of each class between its best objective and the best lower bound."""
        return relative_gap(state.objective, state.bound, self.settings.C)

    def _check(self, query: AdmmQuery) -> None:
        """Refuse a query no honest aggregator sends: within these ranges nothing overflows."""
        fine = np.all(np.abs(query.z) <= _LARGEST) and np.all(np.abs(query.s) <= _LARGEST)
        counted = query.learners == 0 or (query.learners >= 1 and 2.0**-40 <= query.rho <= 2.0**60)
        if not (fine and counted):
            raise RemoteProtocolError(
                "the weights lie outside what can be learned", remedy="The aggregator is faulty. Nothing was shared."
            )

    def model(self, state: AdmmState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercepts, weights) of the mapped columns, one row per class."""
        if not self.settings.certify or state.round <= 2:
            return state.s.copy(), state.z.copy()
        return state.best_s.copy(), state.best_z.copy()

    def progress(self, state: AdmmState) -> dict[str, Any]:
        """What the answer tells of it."""
        told: dict[str, Any] = {"solver": "admm", "learners": int(state.learners), "rho": float(state.rho)}
        return told | ({"relative_gap": float(np.max(self.gaps(state)))} if self.settings.certify else {})


def relative_gap(objective: NDArray[np.float64], bound: NDArray[np.float64], C: float) -> NDArray[np.float64]:
    """(objective − lower bound)/objective; an objective near 0 (classes far apart) is measured by C."""
    scale = np.maximum(np.abs(objective), 1e-3 * C)
    found: NDArray[np.float64] = np.maximum(objective - bound, 0.0) / scale
    return found if math.isfinite(float(np.sum(found))) else np.ones_like(found)
