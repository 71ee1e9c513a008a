"""Private gradient descent on a linear model as rounds of secure sums: all of it but the loss.

    round 1          moments of the columns                      → shift and scale  (:mod:`…moments`)
    rounds 2 … T+1   sum of clipped gradients at the query point → one descent step (:mod:`…descent`)

A record's gradient is residual × row; the residual is the derivative of the loss by the score, one per output, and all
that a loss has to say (:mod:`…logistic`, :mod:`…linear_svc`). Both factors are bounded: the residual to C, the row
(intercept, then columns shifted and scaled) by a *weight* min(1, R/‖row‖), which shortens the gradient without moving
the record, so that the model stays linear in the declared columns. The gradient travels divided by C·R, so its bound is
1 in every round and the plan can be made before the moments are known.

Row independence: rows are made elementwise and put on the grid once; scores are exact on the grid; the residual is
evaluated element by element (:mod:`…elementwise`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.elementwise import inner_rows
from tallystick.algorithms.keywords import wrong_target
from tallystick.algorithms.linear.descent import (
    MOMENT_SHARE,
    DescentSettings,
    Loss,
    Schedule,
    choose_rounds,
    choose_schedule,
    noise_of_mean,
)
from tallystick.algorithms.linear.gradient_rows import FRACTION_BITS, GradientRows, RowRule
from tallystick.algorithms.linear.mapped_columns import map_of, mapped_intercept, mapped_loss, mapped_public
from tallystick.algorithms.linear.moments import SMALLEST_SCALE, ColumnShapes, MomentRound, standardise
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Chunked, Contribution, Factored, GridRows
from tallystick.privacy.grid import Group

_LARGEST_WEIGHT = 2.0**100
"""Beyond any honest state, and far from overflow."""
_DROWNED = 1.5
"""Measured: with noise at 1.3 times the largest mean gradient (wdbc at epsilon = 0.1) a model still beats the majority
class by 12 points; well above that, at a few hundred records, it falls below."""


class DescentQuery(NamedTuple):
    """What clients map at."""

    stage: float
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    clip: float
    row_limit: float
    longest_row: float


class _State(NamedTuple):
    """Everything released so far that the next step needs: the query, the iterate, and the sum over the tail."""

    stage: float
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    clip: float
    row_limit: float
    longest_row: float
    iterate: NDArray[np.float64]
    tail_sum: NDArray[np.float64]
    step: float
    momentum: float
    tail: float
    records: float


class DescentProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments. A subclass is a loss."""

    interim = True
    title: ClassVar[str]
    loss: Loss

    def __init__(self, public: Public, budget: PublicBudget, settings: DescentSettings) -> None:
        self.intercept = 1.0 if settings.fit_intercept else 0.0
        self.feature_map = None
        if settings.feature_map is not None:
            self.intercept, self.loss = mapped_intercept(self.intercept), mapped_loss(self.loss)
            self.feature_map = map_of(public, budget, self.loss, settings.feature_map, self.intercept)
            public, settings = mapped_public(public, self.feature_map), replace(settings, standardise=False)
        self.budget = budget
        self.settings = settings
        self.records = public.records
        self.classes = len(public.classes)
        self.outputs = 1 if self.classes <= 2 else self.classes
        self.l1 = budget.mechanism == "laplace"
        self.shapes = ColumnShapes.of(public, l1=self.l1)
        self.moments = MomentRound(public, budget, self.shapes)
        self.share = 1 - budget.share_of_one(MOMENT_SHARE) if settings.standardise else 1.0
        shapes2 = ColumnShapes.of(public, l1=False)
        if settings.standardise:
            self.public_trace = self.intercept**2 + float(shapes2.spread.sum()) + len(self.shapes.numbers)
        else:
            self.public_trace = self.intercept**2 + public.max_l2_squared
        self.typical_row = self._typical_row(self.public_trace)
        self.steps = settings.rounds or choose_rounds(
            budget,
            self.share,
            classes=self.classes,
            records=self.records,
            trace=self.public_trace,
            typical_row=self.typical_row,
            loss=self.loss,
        )
        self.rounds = self.steps + int(settings.standardise)
        # A person's records are bounded together, at several times the bound of one: coarser, so that it fits 31 bits.
        self.fraction_bits = FRACTION_BITS - (budget.person_factor - 1).bit_length()

    @classmethod
    def design(cls, public: Public, budget: PublicBudget, settings: DescentSettings) -> SumDesign:
        """The program and its rounds, from public facts alone."""
        mapped = settings.feature_map is not None
        if public.records is None and (mapped or not settings.standardise):
            counted = ", or leave standardise on: its round counts the records, with noise."
            raise StudyError(
                f"{cls.title} divides by the public number of records, and the study does not state it",
                remedy="Add `records = …` under [data] (with add-remove a planning figure will do)"
                + ("." if mapped else counted),
            )
        if public.records is not None and public.records < 1:
            raise StudyError(
                f"records = {public.records} is not a number of records", remedy="State how many there are."
            )
        if len(public.classes) < 1:
            raise wrong_target(
                cls.title,
                public.target,
                "a category",
                rule="target-is-a-category",
                instead='ts.Ridge (program = "ridge")',
            )
        if settings.schedule not in ("auto", "constant", "inverse-sqrt"):
            raise StudyError(
                f"schedule = {settings.schedule!r} is not known", remedy="Use auto, constant or inverse-sqrt."
            )
        if settings.clip is not None and not 2.0**-30 <= settings.clip <= 2.0**30:
            raise StudyError(
                f"clip = {settings.clip} is out of range", remedy='Use "auto", or a number from 1e-9 to 1e9.'
            )
        program = cls(public, budget, settings)
        gradient = Group(name="gradient", size=program.outputs * (program.shapes.size + 1), bound=1.0)
        groups: tuple[tuple[Group, ...], ...] = ((gradient,),) * program.steps
        weights: tuple[float, ...] = (1.0,) * program.steps
        if program.settings.standardise:
            groups = ((program.moments.group(),), *groups)
            weights = program.moments.weights(program.steps)
        details: dict[str, Any] = {"steps": program.steps, "columns": program.shapes.size}
        if public.records is not None:
            details["noise_of_mean_gradient"] = noise_of_mean(budget, program.share, 0.5, public.records)
        notes: tuple[str, ...] = ()
        if program.feature_map is not None:
            details["feature_map"] = {k: v for k, v in program.feature_map.facts().items() if k != "landmarks"}
            notes = (program.feature_map.describe(),)
        return SumDesign(
            program=program,
            groups=groups,
            weights=weights,
            notes=notes,
            fraction_bits=program.fraction_bits,
            hopeless=program._hopeless(),
            details=details,
        )

    def _hopeless(self) -> str | None:
        """Compare the noise, over √d coordinates, with the most a mean gradient can be: a norm of C·√tr."""
        if self.records is None:
            return None
        low, _, _ = self.loss.residual_bounds(self.classes, l1=self.l1)
        steps = math.sqrt(self.steps) if self.budget.mechanism == "laplace" else 1.0
        bound = self.settings.clip or low * self.typical_row
        noise = noise_of_mean(self.budget, self.share, bound, self.records) * steps
        noise *= math.sqrt(self.outputs * (self.shapes.size + 1))
        signal = low * math.sqrt(self.public_trace)
        if noise <= _DROWNED * signal:
            return None
        return (
            f"the noise on the mean gradient is {noise / signal:.1f} times the largest gradient there can be, with "
            f"{self.records} records and {self.shapes.size} columns"
        )

    @abstractmethod
    def residuals(
        self, rows: GridRows, weights: NDArray[np.float64], target: NDArray[np.float64], clip: float
    ) -> NDArray[np.float64]:
        """d loss/d score of every record (rows) and output (columns) at ``weights``, of a norm of at most ``clip``."""

    def start(self) -> NDArray[np.float64]:
        """Where the descent starts: one row per output, the intercept first."""
        return np.zeros((self.outputs, self.shapes.size + 1))

    def _typical_row(self, trace: float) -> float:
        """R: the root mean square row in L2; in L1 one per block and E|N(0,1)| = 0.8 per number (1 if not scaled)."""
        if not self.l1:
            return math.sqrt(trace)
        if self.feature_map is not None:  # E|cos| = 2/π of numbers whose squares average 1/2, over all features
            return self.intercept + 0.9 * math.sqrt(self.shapes.size * (trace - self.intercept**2))
        per_number = 0.8 if self.settings.standardise else 1.0
        return self.intercept + sum(ones for *_, ones in self.shapes.blocks) + per_number * len(self.shapes.numbers)

    # -- the three functions --------------------------------------------------------------------------------------

    def init(self, public: Public) -> _State:
        d, start = self.shapes.size, self.start()
        state = _State(
            stage=0.0,
            shift=np.zeros(d),
            scale=np.ones(d),
            weights=start,
            clip=1.0,
            row_limit=1.0,
            longest_row=1.0,
            iterate=start,
            tail_sum=np.zeros_like(start),
            step=0.0,
            momentum=0.0,
            tail=1.0,
            records=float(self.records or 1),
        )
        if self.settings.standardise:
            return state
        return self._scheduled(state, self.public_trace)

    def query(self, state: _State | DescentQuery) -> DescentQuery:
        return DescentQuery(*(getattr(state, name) for name in DescentQuery._fields))

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> GradientRows:
        if target is None:
            raise wrong_target(self.title, None, "a category", rule="target-is-named")
        return GradientRows(features, target, self.feature_map)

    def map_block(self, prepared: Any, state: DescentQuery) -> Contribution:
        self._check(state)
        if self.settings.standardise and state.stage == 0:
            return self.moments.contribution(prepared.features)

        def gradients() -> Iterator[Factored]:
            for part in prepared.parts(self._row_rule(state)):
                residuals = self.residuals(part.rows, state.weights * state.row_limit, part.target, state.clip)
                yield Factored(coefficients=residuals * (part.weights / state.clip)[:, None], rows=part.rows)

        return next(gradients()) if prepared.kept else Chunked(parts=gradients)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: _State) -> _State:
        if self.settings.standardise and state.stage == 0:
            return self._standardised(total, state)
        return self._descended(total, state)

    def model(self, state: _State) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercepts, weights per class) in the encoded columns' own units, from a final state."""
        mean = state.tail_sum / max(1.0, state.tail) if self.settings.average else state.iterate
        if self.settings.average and self.budget.ticks is None:  # fewer rounds than planned: a shorter tail, or none
            steps = round(state.stage) - 1 - (self.steps - state.tail)
            mean = state.tail_sum / steps if steps >= 1 else state.iterate
        weights = mean[:, 1:] / state.scale / (1.0 if self.feature_map is None else self.feature_map.norm)
        return self.intercept * mean[:, 0] - inner_rows(weights, state.shift), weights

    def usable(self, state: _State) -> bool:
        return state.stage >= 2  # a step was taken

    def _check(self, query: DescentQuery) -> None:
        """Refuse a query no honest aggregator sends, by public facts alone.

        A crafted one (a scale of 1e-300, say) could overflow for some records and not for others, and a client that
        then fails to answer has told which it holds. Within these ranges nothing overflows, whatever the record.
        """
        honest = (
            np.all(np.abs(query.shift) <= 2)
            and np.all((query.scale >= SMALLEST_SCALE) & (query.scale <= 1))
            and np.all(np.abs(query.weights) <= _LARGEST_WEIGHT)
            and 0.5 <= query.clip <= max(2.0, self.loss.residual_bounds(self.classes, l1=self.l1)[1])
            and 1 / _LARGEST_WEIGHT <= query.row_limit <= _LARGEST_WEIGHT
            and 0 <= query.longest_row <= _LARGEST_WEIGHT
        )
        if not honest:
            raise RemoteProtocolError(
                f"the model's numbers lie outside what a {self.title} can reach",
                remedy="If learning_rate is set by hand, lower it; else the aggregator is faulty. Nothing was shared.",
            )

    # -- steps ----------------------------------------------------------------------------------------------------

    def _standardised(self, total: NDArray[np.float64], state: _State) -> _State:
        mean, noise, records = self.moments.means(total, state.records)
        found = standardise(mean, noise, self.shapes, centred=self.settings.fit_intercept)
        state = state._replace(records=records, shift=found.shift, scale=found.scale)
        return self._scheduled(state, self.intercept + found.trace)

    def _scheduled(self, state: _State, trace: float) -> _State:
        longest = self.shapes.longest_row(self._row_shift(state), state.scale, self.intercept)
        plan: Schedule = choose_schedule(
            self.budget,
            self.share,
            classes=self.classes,
            records=state.records,
            rounds=self.steps,
            trace=trace,
            typical_row=self._typical_row(trace),
            longest_row=longest,
            clip=self.settings.clip,
            step=self.settings.learning_rate,
            loss=self.loss,
        )
        return state._replace(
            stage=state.stage + 1,
            clip=plan.clip,
            row_limit=plan.row_limit,
            longest_row=longest,
            step=plan.step,
            momentum=plan.momentum if self.settings.schedule == "auto" else 0.0,
            tail=float(plan.tail),
        )

    def _descended(self, total: NDArray[np.float64], state: _State) -> _State:
        t = round(state.stage)  # 1 for the first gradient
        gradient = total.reshape(self.outputs, -1) * (state.clip * state.row_limit / state.records)
        if self.l1:  # rows were not centred under L1: centre the gradient instead, which is linear in them
            gradient = gradient.copy()
            gradient[:, 1:] -= gradient[:, :1] * (state.shift - self._row_shift(state)) / state.scale
        step = state.step / math.sqrt(t) if self.settings.schedule == "inverse-sqrt" else state.step
        iterate = self._unshifted(state) - step * gradient
        # The ridge is taken at the end of the step, not at its start (a proximal step): the same optimum, and stable
        # however small a column's scale, where its penalty λ‖w/scale‖²/2 is steep.
        iterate[:, 1:] /= 1 + step * (self.settings.l2 or 0.0) / state.scale**2
        momentum = min(state.momentum, (t - 1) / (t + 2))
        point = iterate + momentum * (iterate - state.iterate)
        in_tail = t > self.steps - state.tail
        return state._replace(
            stage=state.stage + 1,
            iterate=iterate,
            tail_sum=state.tail_sum + iterate if in_tail else state.tail_sum,
            weights=self._shifted(point, state),
        )

    # Under L1 clients see rows that are not centred (a one-hot row has L1 length 1, a centred one up to 2), so the
    # intercept they are given absorbs the shift: w·(x − s) + b = w·x + (b − w·s).

    def _row_shift(self, state: _State | DescentQuery) -> NDArray[np.float64]:
        if not self.l1:
            return state.shift
        shift = np.zeros(self.shapes.size)
        shift[list(self.shapes.numbers)] = state.shift[list(self.shapes.numbers)]
        return shift

    def _offsets(self, state: _State) -> NDArray[np.float64]:
        return (state.shift - self._row_shift(state)) / state.scale

    def _shifted(self, point: NDArray[np.float64], state: _State) -> NDArray[np.float64]:
        out = point.copy()
        out[:, 0] -= inner_rows(point[:, 1:], self._offsets(state))
        return out

    def _unshifted(self, state: _State) -> NDArray[np.float64]:
        out = state.weights.copy()
        out[:, 0] += inner_rows(state.weights[:, 1:], self._offsets(state))
        return out

    def _row_rule(self, state: DescentQuery) -> RowRule:
        return RowRule(
            shift=self._row_shift(state),
            scale=state.scale,
            row_limit=state.row_limit,
            longest_row=state.longest_row,
            intercept=self.intercept,
            fraction_bits=self.fraction_bits,
            l1=self.l1,
        )
