"""Mehrotra's predictor-corrector for support vector machines, every exchange an exact sum over all records.

    exchange 1   matrix and right-hand side at the present point              → affine direction; the gap
    exchange 2   violations on a grid of affine steps, parts of the corrector → σ, τ and the corrected direction
    exchange 3   violations on the grid of steps                              → the step; next iteration

A learner's variables (four per record and class) stay with it (:mod:`…interior_kernels`). Released are at most
(d+1)(d+2)/2 + 2(d+1) + 3 numbers an exchange and class. Step lengths are sums too: how many records would leave the
interior at each of 24 public candidates; the largest at which none does is taken.

The result does not depend on how records are split over learners, to the bit. Matrices of all records in every
iteration tell much: with few records more numbers leave than are held (the design counts them, and asks).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.consensus_svm.admm import Learner, Rows, learner, relative_gap
from tallystick.algorithms.consensus_svm.interior_kernels import (
    count_violations,
    direct,
    sum_correction,
    sum_system,
    take_step,
)
from tallystick.algorithms.consensus_svm.wide_numbers import packed, packed_size, unpacked
from tallystick.algorithms.local_program import LocalProgram, check_learners
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError

CANDIDATES = np.array(
    [
        0.03, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.64, 0.68,
        0.72, 0.76, 0.8, 0.84, 0.87, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 1.0,
    ]
)  # fmt: skip
_WITHIN = 0.995
"""Of the largest step at which every variable is still positive."""
_START_EXCESS = 3.0
_LARGEST = 2.0**31


class PointQuery(NamedTuple):
    """What learners step at."""

    exchange: float
    """0, 1, 2 within an iteration."""
    iteration: float
    active: NDArray[np.float64]
    """Whether each class is still being solved."""
    weights: NDArray[np.float64]
    """Weights and bias, one row per class."""
    change: NDArray[np.float64]
    tau: NDArray[np.float64]
    step: NDArray[np.float64]


class PointState(NamedTuple):
    """Everything released so far that the next exchange needs."""

    exchange: float
    iteration: float
    active: NDArray[np.float64]
    weights: NDArray[np.float64]
    change: NDArray[np.float64]
    tau: NDArray[np.float64]
    step: NDArray[np.float64]
    learners: float
    records: float
    matrix: NDArray[np.float64]
    """Upper triangles."""
    right: NDArray[np.float64]
    total: NDArray[np.float64]
    """Σ(sλ + ξμ)."""
    objective: NDArray[np.float64]
    bound: NDArray[np.float64]


class PointMemory(NamedTuple):
    """A learner's own: ten numbers per class and record (:func:`…interior_kernels.take_step`)."""

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
    def _numbers(size: int) -> tuple[int, int]:
        """Wide numbers of one class in exchanges 1 and 2; exchange 3 has counts alone."""
        d = size + 1
        return d * (d + 1) // 2 + 2 * d + 3, 2 * d + 2

    @classmethod
    def told(cls, size: int, outputs: int, iterations: int) -> int:
        """Exact numbers released in so many iterations, at most."""
        first, second = cls._numbers(size)
        return iterations * outputs * (first + second + 2 * len(CANDIDATES))

    def numbers_told(self, iterations: int) -> int:
        """The same for this program."""
        return self.told(self.size, self.outputs, iterations)

    def sizes(self, iterations: int) -> tuple[int, ...]:
        """Entries of a client's vector in each round; the last round measures the last point."""
        first, second = self._numbers(self.size)
        k, steps = self.outputs, self.outputs * len(CANDIDATES)
        one = packed_size(k * first, 1), packed_size(k * second, steps), packed_size(0, steps)
        return one * iterations + one[:1]

    # -- the program ------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> PointState:
        k, d = self.outputs, self.size + 1
        return PointState(
            exchange=0.0, iteration=0.0, active=np.ones(k), weights=np.zeros((k, d)), change=np.zeros((k, d)),
            tau=np.zeros(k), step=np.zeros(k), learners=0.0, records=0.0, matrix=np.zeros((k, d * (d + 1) // 2)),
            right=np.zeros((k, d)), total=np.zeros(k), objective=np.zeros(k), bound=np.zeros(k),
        )  # fmt: skip

    def query(self, state: PointState | PointQuery) -> PointQuery:
        return PointQuery(*(getattr(state, name) for name in PointQuery._fields))

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Learner:
        made = learner(features, target, self.classes, self._rows)
        if self._shift:
            made.rows = np.ldexp(made.rows, -self._shift)
        return made

    def start_in_client(self, prepared: Learner) -> PointMemory:
        made = np.zeros((self.outputs, 10, len(prepared.rows)))
        made[:, :2] = self.C / 2
        made[:, 2], made[:, 3] = _START_EXCESS - 1, _START_EXCESS  # w = 0, b = 0: s = ξ − 1 holds
        return PointMemory(variables=made)

    def step_in_client(
        self, prepared: Learner, state: PointQuery, memory: PointMemory
    ) -> tuple[NDArray[np.int64], PointMemory]:
        self._check(state)
        after, exchange = memory.variables.copy(), int(state.exchange)
        numbers = (*self._numbers(self.size), 0)[exchange]
        steps = 0 if exchange == 0 else len(CANDIDATES)
        high, low = (np.zeros((self.outputs, numbers), dtype=np.int64) for _ in range(2))
        counts = np.zeros((self.outputs, steps), dtype=np.int64)
        for k in range(self.outputs):
            if state.active[k]:
                self._step(exchange, prepared, state, after[k], k, high[k], low[k], counts[k])
        own = 0 if self.records is not None else len(prepared.rows)
        counted = counts.reshape(-1) if exchange else np.array([own], dtype=np.int64)
        return packed(high.reshape(-1), low.reshape(-1), counted), PointMemory(variables=after)

    def _step(
        self, exchange: int, own: Learner, state: PointQuery, variables: NDArray[np.float64], k: int,
        high: NDArray[np.int64], low: NDArray[np.int64], counts: NDArray[np.int64],
    ) -> None:  # fmt: skip
        rows, signs, weights, change = own.rows, own.signs[k], state.weights[k], state.change[k]
        if exchange == 0:
            if state.iteration > 0:
                take_step(variables, state.step[k])
            sum_system(rows, signs, weights, variables, high, low)
        elif exchange == 1:
            direct(rows, signs, weights, change, variables, 0.0, False)
            count_violations(variables, 7, CANDIDATES, counts)
            sum_correction(rows, signs, variables, high, low)
        else:
            direct(rows, signs, weights, change, variables, state.tau[k], True)
            count_violations(variables, 4, CANDIDATES, counts)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: PointState) -> PointState:
        exchange, k = int(state.exchange), self.outputs
        numbers = k * (*self._numbers(self.size), 0)[exchange]
        counted, counts, sums = unpacked(total, numbers, k * len(CANDIDATES) if exchange else 1)
        learners = check_learners(counted, state.learners)
        table = sums.reshape(k, -1)
        if exchange == 0:
            return self._predicted(
                table, state._replace(learners=float(learners), records=float(self.records or counts[0]))
            )
        steps = _largest_steps(counts.reshape(k, len(CANDIDATES)))
        if exchange == 1:
            return self._corrected(table, steps, state)
        moved = _WITHIN * steps * state.active
        return state._replace(
            exchange=0.0,
            iteration=state.iteration + 1,
            weights=state.weights + moved[:, None] * state.change,
            step=moved,
        )

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
        right = affine - np.hstack([free, np.zeros((len(free), 1))])
        return state._replace(
            exchange=1.0,
            active=still.astype(np.float64),
            matrix=np.where(was[:, None], matrix, 0.0),
            right=np.where(was[:, None], right, 0.0),
            total=np.where(was, total, 0.0),
            objective=np.where(was, objective, state.objective),
            bound=np.where(was, bound, state.bound),
            change=self._solved(matrix, right, still),
        )

    def _corrected(self, table: NDArray[np.float64], steps: NDArray[np.float64], state: PointState) -> PointState:
        """σ = (what the affine step would leave)³, as Mehrotra has it; the corrector from parts that are there."""
        d = self.size + 1
        linear, quadratic = table[:, 0], table[:, 1]
        centring, curving = table[:, 2 : 2 + d], table[:, 2 + d :]
        left = np.maximum(state.total + steps * linear + steps**2 * quadratic, 0.0)
        still = state.active > 0
        part = np.divide(left, state.total, out=np.zeros_like(left), where=still & (state.total > 0))
        tau = np.minimum(part, 1.0) ** 3 * state.total / (2 * max(1.0, state.records))
        right = state.right + tau[:, None] * centring + curving
        return state._replace(exchange=2.0, tau=tau, change=self._solved(state.matrix, right, still))

    def _solved(
        self, triangles: NDArray[np.float64], right: NDArray[np.float64], active: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """(I₀ + Σ θx̃x̃ᵀ)⁻¹ right, by rows and columns of unit diagonal: θ spans many powers of ten."""
        d, out = self.size + 1, np.zeros_like(right)
        for k in np.flatnonzero(active):
            matrix = np.zeros((d, d))
            matrix[self._triangle] = triangles[k]
            matrix = matrix + np.triu(matrix, 1).T
            matrix[np.arange(d - 1), np.arange(d - 1)] += 1.0
            diagonal = np.arange(d)
            matrix[diagonal, diagonal] = np.maximum(np.diag(matrix), 2.0**-40)  # without a record the bias has none
            scale = 1 / np.sqrt(np.diag(matrix))
            even = matrix * np.outer(scale, scale)
            found = np.linalg.solve(even, scale * right[k])
            found = scale * (found + np.linalg.solve(even, scale * right[k] - even @ found))  # refined once
            out[k] = np.clip(found, -_LARGEST, _LARGEST)
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
        sizes = [np.max(np.abs(part), initial=0.0) for part in (query.weights, query.change, query.tau)]
        steps = np.all((query.step >= 0) & (query.step <= 1)) and np.all((query.active == 0) | (query.active == 1))
        if query.exchange not in (0, 1, 2) or max(sizes) > 2 * _LARGEST or not steps or np.any(query.tau < 0):
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
    """The largest candidate that no record objects to, for each class; 0 if there is none. A convex set: the steps
    that keep one record's variables positive are an interval from 0 on."""
    steps: NDArray[np.float64] = np.where(counts == 0, CANDIDATES, 0.0).max(axis=1)
    return steps
