"""An interior point for support vector machines, every exchange an exact sum over all records.

    exchange 1   matrix and right-hand side at the present point              → affine direction; the gap
    exchange 2   parts of Mehrotra's corrector                                → a direction for each of three τ
    exchange 3   violations of each on a grid of steps, parts of Gondzio's    → a better centred direction for each τ
                 corrector
    exchange 4   violations of those                                          → τ, direction and step

A learner's variables (four per record and class) stay with it (:mod:`…interior_kernels`). Released are at most
(d+1)(d+2)/2 + 2(d+1) + 3 numbers an exchange and class. Step lengths are sums too: how many records would leave the
interior at each of 12 public candidates; the largest at which none does is taken.

How far τ may fall is the one thing that must be guessed well. Mehrotra guesses it from how far the affine direction
goes, which among many records is how far the worst of them lets it go, so that τ falls the slower the more records
there are (docs/results/svm.md). Here the directions of three τ are tried side by side, before and after a centrality
correction [Gon96], and the one that leaves least of the gap is taken.

The result does not depend on how records are split over learners, to the bit. Matrices of all records in every
iteration tell much: with few records more numbers leave than are held (the design counts them, and asks).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.consensus_svm.admm import Rows, class_signs, relative_gap
from tallystick.algorithms.consensus_svm.interior_kernels import sum_correction, sum_system, take_step, try_directions
from tallystick.algorithms.consensus_svm.mapped_blocks import MappedBlocks
from tallystick.algorithms.consensus_svm.wide_numbers import packed, packed_size, unpacked
from tallystick.algorithms.local_program import LocalProgram, check_learners
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError

EXCHANGES = 4
CANDIDATES = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 1.0])
REDUCTIONS = np.array([0.02, 0.15, 0.5])
"""τ in parts of the present mean of sλ and ξμ."""
_WITHIN = 0.995
"""Of the largest step at which every variable is still positive."""
_START_EXCESS = 3.0
_LARGEST = 2.0**31


class PointQuery(NamedTuple):
    """What learners step at. Directions are of weights and bias, by class and by τ."""

    exchange: float
    """0 to 3 within an iteration."""
    iteration: float
    active: NDArray[np.float64]
    """Whether each class is still being solved."""
    before: NDArray[np.float64]
    """The weights that the directions below are at; in exchange 0 those of the iteration before."""
    weights: NDArray[np.float64]
    """Weights and bias, one row per class."""
    affine: NDArray[np.float64]
    changes: NDArray[np.float64]
    centred: NDArray[np.float64]
    tau: NDArray[np.float64]
    chosen: NDArray[np.float64]
    """Which τ was taken, and below whether its centred direction was."""
    is_centred: NDArray[np.float64]
    step: NDArray[np.float64]


class PointState(NamedTuple):
    """Everything released so far that the next exchange needs."""

    exchange: float
    iteration: float
    active: NDArray[np.float64]
    before: NDArray[np.float64]
    weights: NDArray[np.float64]
    affine: NDArray[np.float64]
    changes: NDArray[np.float64]
    centred: NDArray[np.float64]
    tau: NDArray[np.float64]
    chosen: NDArray[np.float64]
    is_centred: NDArray[np.float64]
    step: NDArray[np.float64]
    learners: float
    records: float
    matrix: NDArray[np.float64]
    """Upper triangles."""
    right: NDArray[np.float64]
    """Right-hand sides by class and τ; before there is a τ, all are the affine one."""
    steps: NDArray[np.float64]
    """The largest steps along ``changes``."""
    total: NDArray[np.float64]
    """Σ(sλ + ξμ)."""
    objective: NDArray[np.float64]
    bound: NDArray[np.float64]


class PointMemory(NamedTuple):
    """A learner's own: λ, μ, s and ξ of each class and record."""

    variables: NDArray[np.float64]


class InteriorPointProgram(LocalProgram):
    """See the module. Fields are public facts."""

    def __init__(
        self, public: Public, *, C: float, tolerance: float, size: int, rows: Rows, longest: float = 1.0
    ) -> None:
        # 40 fraction bits are meant for entries within [−1, 1], as encoded columns have them. Rows that may be longer
        # are scaled by a power of two, which changes no bit of them: x/2^k with C·4^k has the weights w·2^k.
        self._shift = max(0, math.ceil(math.log2(max(longest, 1.0))))
        self.C, self.tolerance, self.size = math.ldexp(C, 2 * self._shift), tolerance, size
        self._rows = rows
        self.classes, self.records = len(public.classes), public.records
        self.outputs = 1 if self.classes <= 2 else self.classes
        self._triangle = np.triu_indices(size + 1)

    # -- how much is told -------------------------------------------------------------------------------------------

    @staticmethod
    def _numbers(size: int) -> tuple[int, int, int, int]:
        """Wide numbers of one class in each exchange."""
        d = size + 1
        return d * (d + 1) // 2 + 2 * d + 3, 2 * d, len(REDUCTIONS) * d, 0

    @staticmethod
    def _counts() -> tuple[int, int, int, int]:
        """Counts of one class; the first exchange has one for all classes besides, how many records there are."""
        tried = len(REDUCTIONS) * len(CANDIDATES)
        return 0, 0, tried, tried

    @classmethod
    def told(cls, size: int, outputs: int, iterations: int) -> int:
        """Exact numbers released in so many iterations, at most."""
        return iterations * outputs * (sum(cls._numbers(size)) + sum(cls._counts()))

    def numbers_told(self, iterations: int) -> int:
        """The same for this program."""
        return self.told(self.size, self.outputs, iterations)

    def sizes(self, iterations: int) -> tuple[int, ...]:
        """Entries of a client's vector in each round; the last round measures the last point."""
        k = self.outputs
        one = tuple(
            packed_size(k * numbers, k * counts + (at == 0))
            for at, (numbers, counts) in enumerate(zip(self._numbers(self.size), self._counts()))
        )
        return one * iterations + one[:1]

    # -- the program ------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> PointState:
        k, d, t = self.outputs, self.size + 1, len(REDUCTIONS)
        one, many, each = np.zeros(k), np.zeros((k, d)), np.zeros((k, t, d))
        return PointState(
            exchange=0.0, iteration=0.0, active=np.ones(k), before=many, weights=many, affine=many, changes=each,
            centred=each, tau=np.zeros((k, t)), chosen=one, is_centred=one, step=one, learners=0.0, records=0.0,
            matrix=np.zeros((k, d * (d + 1) // 2)), right=each, steps=np.zeros((k, t)), total=one, objective=one,
            bound=one,
        )  # fmt: skip

    def query(self, state: PointState | PointQuery) -> PointQuery:
        return PointQuery(*(getattr(state, name) for name in PointQuery._fields))

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> MappedBlocks:
        shift, rows = self._shift, self._rows

        def scaled(block: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.ldexp(rows(block), -shift) if shift else rows(block)

        return MappedBlocks(features, class_signs(target, self.classes), self.size, scaled)

    def start_in_client(self, prepared: MappedBlocks) -> PointMemory:
        made = np.empty((self.outputs, 4, len(prepared)))
        made[:, :2] = self.C / 2
        made[:, 2], made[:, 3] = _START_EXCESS - 1, _START_EXCESS  # w = 0, b = 0: s = ξ − 1 holds
        return PointMemory(variables=made)

    def step_in_client(
        self, prepared: MappedBlocks, state: PointQuery, memory: PointMemory
    ) -> tuple[NDArray[np.int64], PointMemory]:
        self._check(state)
        exchange = int(state.exchange)
        high, low = (np.zeros((self.outputs, self._numbers(self.size)[exchange]), dtype=np.int64) for _ in range(2))
        counts = np.zeros((self.outputs, self._counts()[exchange]), dtype=np.int64)
        own = memory.variables
        if exchange == 0 and state.iteration > 0:
            own = own.copy()  # the one exchange that moves anything
        for first, rows in prepared.blocks():
            for k in map(int, np.flatnonzero(state.active)):
                self._step(exchange, first, rows, prepared.signs[k], state, own[k], k, high[k], low[k], counts[k])
        counted = counts.reshape(-1)
        if exchange == 0:
            counted = np.array([0 if self.records is not None else len(prepared)], dtype=np.int64)
        return packed(high.reshape(-1), low.reshape(-1), counted), PointMemory(variables=own)

    def _step(
        self, exchange: int, first: int, rows: NDArray[np.float64], signs: NDArray[np.float64], state: PointQuery,
        own: NDArray[np.float64], k: int, high: NDArray[np.int64], low: NDArray[np.int64], counts: NDArray[np.int64],
    ) -> None:  # fmt: skip
        weights, affine = state.weights[k], state.affine[k]
        if exchange == 0:
            if state.iteration > 0:
                t = int(state.chosen[k])
                take_step(
                    rows, first, signs, own, state.before[k], affine, state.changes[k, t], state.centred[k, t],
                    state.tau[k, t], bool(state.is_centred[k]), state.step[k],
                )  # fmt: skip
            sum_system(rows, first, signs, own, weights, high, low)
        elif exchange == 1:
            sum_correction(rows, first, signs, own, weights, affine, high, low)
        else:
            try_directions(
                rows, first, signs, own, weights, affine, state.changes[k], state.centred[k], state.tau[k],
                exchange == 3, CANDIDATES, high, low, counts.reshape(len(REDUCTIONS), len(CANDIDATES)),
            )  # fmt: skip

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: PointState) -> PointState:
        exchange, k = int(state.exchange), self.outputs
        many = k * self._counts()[exchange] + (exchange == 0)
        counted, counts, sums = unpacked(total, k * self._numbers(self.size)[exchange], many)
        learners = check_learners(counted, state.learners)
        table = sums.reshape(k, -1)
        if exchange == 0:
            return self._predicted(
                table, state._replace(learners=float(learners), records=float(self.records or counts[0]))
            )
        if exchange == 1:
            return self._corrected(table, state)
        steps = _largest_steps(counts.reshape(k, len(REDUCTIONS), len(CANDIDATES)))
        if exchange == 2:
            right = state.right + table.reshape(state.right.shape)
            return state._replace(exchange=3.0, steps=steps, right=right, centred=self._solved(state, right))
        return self._moved(steps, state)

    def _predicted(self, table: NDArray[np.float64], state: PointState) -> PointState:
        """The affine direction at this point, and the gap there."""
        d = self.size + 1
        pairs = d * (d + 1) // 2
        matrix, affine, dual = table[:, :pairs], table[:, pairs : pairs + d], table[:, pairs + d : pairs + 2 * d]
        total, hinge, multipliers = table[:, pairs + 2 * d :].T
        free = state.weights[:, :-1]
        objective = 0.5 * np.einsum("kd,kd->k", free, free) + self.C * hinge
        # As in ADMM: the multipliers are a dual point, up to Σ λy, which is charged at twice the bias and one.
        reach = (2 * np.abs(state.weights[:, -1]) + 1) * np.abs(dual[:, -1])
        bound = multipliers - 0.5 * np.einsum("kd,kd->k", dual[:, :-1], dual[:, :-1]) - reach
        still = (relative_gap(objective, bound, self.C) > self.tolerance) & (state.active > 0)
        if state.iteration > 0:
            still &= state.step > 0  # no candidate step was left: rounding has the last word
        was = state.active > 0
        right = np.where(was[:, None], affine - np.hstack([free, np.zeros((len(free), 1))]), 0.0)
        after = state._replace(
            exchange=1.0,
            active=still.astype(np.float64),
            before=state.weights,
            matrix=np.where(was[:, None], matrix, 0.0),
            right=np.repeat(right[:, None], len(REDUCTIONS), axis=1),
            total=np.where(was, total, 0.0),
            objective=np.where(was, objective, state.objective),
            bound=np.where(was, bound, state.bound),
        )
        return after._replace(affine=self._solved(after, after.right[:, :1])[:, 0])

    def _corrected(self, table: NDArray[np.float64], state: PointState) -> PointState:
        """Mehrotra's corrector for each τ, from parts that are there."""
        d = self.size + 1
        centring, curving = table[:, None, :d], table[:, None, d:]
        tau = np.outer(state.total, REDUCTIONS) / (2 * max(1.0, state.records))
        right = state.right + tau[:, :, None] * centring + curving
        return state._replace(exchange=2.0, tau=tau, right=right, changes=self._solved(state, right))

    def _moved(self, steps: NDArray[np.float64], state: PointState) -> PointState:
        """The τ and the direction of which the step leaves least of the mean product, and that step."""
        is_centred = steps >= state.steps  # as far, and then better centred
        best = np.where(is_centred, steps, state.steps)
        chosen = np.argmin(1 - best * (1 - REDUCTIONS), axis=1)
        each = np.arange(self.outputs)
        taken = is_centred[each, chosen]
        moved = _WITHIN * best[each, chosen] * state.active
        change = np.where(taken[:, None], state.centred[each, chosen], state.changes[each, chosen])
        return state._replace(
            exchange=0.0,
            iteration=state.iteration + 1,
            weights=state.weights + moved[:, None] * change,
            chosen=chosen.astype(np.float64),
            is_centred=taken.astype(np.float64),
            step=moved,
        )

    def _solved(self, state: PointState, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """(I₀ + Σ θx̃x̃ᵀ)⁻¹ right, by rows and columns of unit diagonal: θ spans many powers of ten."""
        d, out = self.size + 1, np.zeros_like(right)
        for k in np.flatnonzero(state.active):
            matrix = np.zeros((d, d))
            matrix[self._triangle] = state.matrix[k]
            matrix = matrix + np.triu(matrix, 1).T
            matrix[np.arange(d - 1), np.arange(d - 1)] += 1.0
            diagonal = np.arange(d)
            matrix[diagonal, diagonal] = np.maximum(np.diag(matrix), 2.0**-40)  # without a record the bias has none
            scale = 1 / np.sqrt(np.diag(matrix))
            even = matrix * np.outer(scale, scale)
            wanted = (scale * right[k]).T
            found = np.linalg.solve(even, wanted)
            found = found + np.linalg.solve(even, wanted - even @ found)  # refined once
            out[k] = np.clip(scale * found.T, -_LARGEST, _LARGEST)
        return out

    def finished(self, state: PointState) -> bool:
        return state.exchange == 1 and not np.any(state.active)

    def usable(self, state: PointState) -> bool:
        return False

    def gaps(self, state: PointState) -> NDArray[np.float64]:
        """The relative gap of each class at the point that was measured last."""
        return relative_gap(state.objective, state.bound, self.C)

    def _check(self, query: PointQuery) -> None:
        """Refuse a query no honest aggregator sends."""
        directions = (query.before, query.weights, query.affine, query.changes, query.centred, query.tau)
        sizes = [np.max(np.abs(part), initial=0.0) for part in directions]
        steps = np.all((query.step >= 0) & (query.step <= 1)) and np.all(np.isin(query.active, (0, 1)))
        choices = np.all(np.isin(query.chosen, range(len(REDUCTIONS)))) and np.all(np.isin(query.is_centred, (0, 1)))
        if (
            query.exchange not in range(EXCHANGES)
            or not max(sizes) <= 2 * _LARGEST
            or not (steps and choices)
            or np.any(query.tau < 0)
        ):
            raise RemoteProtocolError(
                "the point lies outside what can be learned", remedy="The aggregator is faulty. Nothing was shared."
            )

    def model(self, state: PointState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercepts, weights) of the mapped columns, one row per class."""
        return state.weights[:, -1].copy(), np.ldexp(state.weights[:, :-1], -self._shift)

    def progress(self, state: PointState) -> dict[str, Any]:
        """What the answer tells of it."""
        gap = float(np.max(self.gaps(state)))
        return {"solver": "interior-point", "iterations": int(state.iteration), "relative_gap": gap}


def _largest_steps(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest candidate that no record objects to; 0 if there is none. A convex set: the steps that keep one
    record's variables positive are an interval from 0 on."""
    steps: NDArray[np.float64] = np.where(counts == 0, CANDIDATES, 0.0).max(axis=-1)
    return steps
