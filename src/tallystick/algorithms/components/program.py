"""Principal components as rounds of secure sums.

    mean       Σ z/b, ‖z/b‖ ≤ 1               2 (√2 if no coordinate is negative)
    squares    Σ r∘r/‖r∘r‖, r = z − mean      √2: no coordinate is negative
    scatter    Σ u·uᵀ, ‖u‖ ≤ 1                √2 in Frobenius norm

with their L2 sensitivities under replace-one (``privacy/sensitivity``; 1 each under add-remove). z are the records'
rows (:mod:`…row_space`), in a public basis where the study asks for one; which rounds there are is :mod:`…choices`. The
mean that later rounds subtract is released, so theirs is a function of each record alone: no exactly centred
scatter, whose sensitivity would be four times as large. Every round is paid for, the mean's too.

What the aggregator makes of noisy sums is in :mod:`…shrinkage` and :mod:`…spectrum`: post-processing, at no cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.components.basis import bands, cosines
from tallystick.algorithms.components.choices import CLIPPED_AT, Choices, scatter_sensitivity
from tallystick.algorithms.components.row_space import (
    RowSpace,
    in_basis,
    squared_lengths,
    squared_rows,
    unit_rows,
)
from tallystick.algorithms.components.settings import ComponentSettings
from tallystick.algorithms.components.shrinkage import (
    prior_squares,
    shrunken_mean,
    shrunken_scatter,
    shrunken_squares,
)
from tallystick.algorithms.components.spectrum import leading, signed
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import RemoteProtocolError
from tallystick.privacy.contribution import Contribution, Dense
from tallystick.privacy.outer_products import OuterProducts, matrix_of

LENGTH_SHARE = 0.1
"""Of the first round: the mean squared length of rows, so that variances have a unit. Known where rows are unit."""
COUNT_SHARE = 0.05
"""Of the first round: the number of records, where it is secret."""
NUMBER_SHARES = {"length": LENGTH_SHARE, "count": COUNT_SHARE}
_BLOCK_NUMBERS = 1 << 23
_LARGEST = 2.0**40
_LEAST_SPREAD = 1e-4
"""Rows are not taken to lie closer together than this part of a typical row's square."""


class Query(NamedTuple):
    """What clients map at."""

    stage: float
    mean: NDArray[np.float64]
    chosen: NDArray[np.float64]
    radius: float


class State(NamedTuple):
    """Everything released so far."""

    stage: float
    mean: NDArray[np.float64]
    """Of the rows, in the basis."""
    chosen: NDArray[np.float64]
    """Coordinates whose scatter is summed."""
    radius: float
    """What rows − mean are divided by, unless each is scaled to length 1."""
    records: float
    squares: NDArray[np.float64]
    total: float
    """Mean squared length of row − mean; 0 where it is not known."""
    components: NDArray[np.float64]
    """One per row, in the encoded columns."""
    shares: NDArray[np.float64]
    """Of the total variance, estimated, for each component."""
    noisy: NDArray[np.float64]
    """Eigenvalues of the noisy scatter as it came, over the number of records; zeros where there is no scatter."""


class ComponentsProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    def __init__(
        self,
        public: Public,
        budget: PublicBudget,
        settings: ComponentSettings,
        choices: Choices,
        space: RowSpace,
        *,
        counts: bool,
    ) -> None:
        self.settings, self.choices, self.space, self.budget = settings, choices, space, budget
        self.columns = len(public.features)
        self.records, self.counts = public.records, counts
        self.centred = choices.mean > 0
        self.rounds = len(choices.stages)
        self.row_unit = space.typical if choices.normalised else space.longest
        """Rows longer than this are shortened where they are summed for the mean: none, where noise is small."""
        self.sides = settings.shape or (self.columns,)
        self.basis = cosines(self.sides) if settings.basis else None
        self.block_records = max(64, _BLOCK_NUMBERS // self.columns)

    # -- the three functions ----------------------------------------------------------------------------------------

    def init(self, public: Public) -> State:
        d, k = self.columns, self.settings.kept
        mean = np.zeros(d)
        return State(
            stage=0.0,
            mean=mean,
            chosen=np.arange(self.choices.selected, dtype=np.float64),
            radius=self.space.longest_residual(mean),
            records=float(self.records or 1),
            squares=np.zeros(d),
            total=0.0,
            components=np.zeros((k, d)),
            shares=np.zeros(k),
            noisy=np.zeros(k),
        )

    def query(self, state: State | Query) -> Query:
        return Query(stage=state.stage, mean=state.mean, chosen=state.chosen, radius=state.radius)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        if self.basis is None:
            return features, None
        return features, in_basis(self.space.rows(features), self.basis, self.space.longest)

    def map_block(self, prepared: Any, state: Query) -> Contribution:
        stage = self._stage(state)
        features, transformed = prepared
        if stage == "mean":
            rows = self.space.rows(features)
            return Dense(values=np.hstack([rows / self.row_unit, *self._numbers(rows, state)]))
        plain = self.space.rows(features) if transformed is None else transformed
        rows = plain - state.mean
        if stage == "squares":
            return Dense(values=np.hstack([squared_rows(rows, self.space.l1), *self._numbers(plain, state)]))
        if len(state.chosen) < self.columns:
            rows = np.ascontiguousarray(rows[:, state.chosen.astype(np.int64)])
        rows = unit_rows(rows, self.space.l1) if self.choices.normalised else rows / state.radius
        numbers = self._numbers(plain, state)
        return OuterProducts(rows=rows, others=np.hstack(numbers) if numbers else None)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: State) -> State:
        stage = self._stage(state)
        d, first = self.columns, state.stage == 0
        if first:
            at = 0 if stage == "scatter" else d
            names = self.numbers()
            found = dict(zip(names, total[at : at + len(names)].tolist()))
            records = max(1.0, found.get("count", state.records))
            square = found["length"] / records * self._length_unit**2 if "length" in found else 1.0
            state = state._replace(records=records, total=float(np.clip(square, 0.0, self.space.longest**2)))
        if stage == "mean":
            state = self._centre(total[:d], state)
        elif stage == "squares":
            state = self._choose(total[:d], state)
        if state.stage == self.rounds - 1:
            before = len(self.numbers()) if first else 0
            state = self._axes(state) if stage == "squares" else self._diagonalise(total[before:], state)
        return state._replace(stage=state.stage + 1)

    # -- steps ------------------------------------------------------------------------------------------------------

    def numbers(self) -> tuple[str, ...]:
        """Single numbers that the first round sums besides: they need little of its budget."""
        return ("length",) * (not self.space.unit) + ("count",) * self.counts

    @property
    def _length_unit(self) -> float:
        """Squared lengths are summed in units of this length, and cut there."""
        if self.space.l1:
            return float(np.sqrt(self.columns))
        return min(1.5 * self.row_unit, self.space.longest)

    def _numbers(self, rows: NDArray[np.float64], state: Query) -> list[NDArray[np.float64]]:
        if state.stage > 0:
            return []
        lengths = [] if self.space.unit else [squared_lengths(rows, self._length_unit)]
        return lengths + ([np.ones((len(rows), 1))] if self.counts else [])

    def noise(self, stage: str) -> float:
        """Standard deviation on a coordinate of the round's main sum; of the scatter, on its diagonal."""
        share = self.choices.weight(stage) * self.main_share(stage)
        if stage == "scatter":
            return self.budget.noise(scatter_sensitivity(self.budget), share)
        root = 2**0.5 if not self.space.l1 else 2.0
        positive = stage == "squares" or self.space.nonnegative
        replaced = root if positive else 2.0
        factor = 1.0 if self.budget.sensitivity_factor == 1 else replaced
        return self.budget.noise(factor * self.budget.person_factor, share)

    def noise_beside(self) -> float:
        """Standard deviation beside the scatter's diagonal."""
        halved = self.budget.mechanism != "laplace" and self.settings.noise != "equal"
        return self.noise("scatter") / (2**0.5 if halved else 1.0)

    def total_noise(self, state: State) -> float:
        """Standard deviation of ``state.total`` by noise, at most: of the sum of squared lengths, or of the trace."""
        if not self.choices.normalised:
            return float(np.sqrt(self.columns)) * self.noise("scatter") / state.records * state.radius**2
        if self.space.unit:
            return 0.0
        share = self.choices.weight(self.choices.stages[0]) * LENGTH_SHARE
        replaced = (2.0 if self.space.l1 else 2**0.5) if self.budget.sensitivity_factor == 2 else 1.0
        return self.budget.noise(replaced * self.budget.person_factor, share) / state.records * self._length_unit**2

    def main_share(self, stage: str) -> float:
        """Of a round's budget, what its main sum has."""
        if stage != self.choices.stages[0]:
            return 1.0
        return 1.0 - sum(NUMBER_SHARES[name] for name in self.numbers())

    def _centre(self, total: NDArray[np.float64], state: State) -> State:
        noise = self.noise("mean")
        if self.basis is None:
            noisy, total = total, shrunken_mean(total, noise, None, nonnegative=self.space.nonnegative)
        else:
            noisy = self.basis @ total
            total = shrunken_mean(noisy, noise, bands(self.sides, 2), nonnegative=False)
        scale = self.row_unit / state.records
        raw, mean = noisy * scale, total * scale
        limit = 2.0 * self.space.longest  # a count drowned in noise must not blow it up
        mean = mean * min(1.0, limit / max(float(np.linalg.norm(mean)), 1e-300))
        # E‖z − m‖² = E‖z‖² − 2 m·E z + ‖m‖² for the released m.
        square = state.total - 2 * float(raw @ mean) + float(mean @ mean)
        spread = float(np.clip(square, _LEAST_SPREAD * self.space.typical**2, max(state.total, 2.0**-20)))
        longest = max(self.space.longest_residual(mean if self.basis is None else self.basis.T @ mean), 2.0**-20)
        radius = longest
        if self.choices.bounded == "clip":
            norm = np.sqrt(spread * (self.columns if self.space.l1 else 1))
            radius = float(min(longest, max(CLIPPED_AT * norm, 2.0**-20)))
        return state._replace(mean=mean, total=spread, radius=radius)

    def _choose(self, total: NDArray[np.float64], state: State) -> State:
        band = None if self.basis is None else bands(self.sides, 4)
        squares = shrunken_squares(total, self.noise("squares"), band)
        chosen = state.chosen
        if len(chosen) < self.columns and len(chosen):
            chosen = np.sort(np.argsort(-squares, kind="stable")[: len(chosen)]).astype(np.float64)
        return state._replace(squares=squares, chosen=chosen)

    def _diagonalise(self, triangle: NDArray[np.float64], state: State) -> State:
        d, k, n = self.columns, self.settings.kept, state.records
        chosen = state.chosen.astype(np.int64)
        m = len(chosen)
        scatter = matrix_of(triangle, m)
        noisy, rows = leading(scatter, k)
        whole = n
        if not self.choices.normalised:
            whole = max(float(np.trace(scatter)), 2.0**-40 * n)
            state = state._replace(total=whole / n * state.radius**2)
        values, part = noisy, 1.0
        if self.choices.shrinks:
            prior = prior_squares(state.squares[chosen], n)
            positive = np.maximum(state.squares, 0.0)
            part = float(positive[chosen].sum() / max(positive.sum(), 1e-300)) if m < d else 1.0
            scatter = shrunken_scatter(scatter, prior, self.noise("scatter") ** 2, self.noise_beside() ** 2)
            values, rows = leading(scatter, k)
        components = np.zeros((len(rows), d))
        components[:, chosen] = rows
        shares = np.maximum(values, 0.0) / whole * part  # negative eigenvalues are noise: nearest semidefinite matrix
        shares /= max(1.0, float(shares.sum()))
        return state._replace(components=self._plain(components), shares=shares, noisy=noisy / n)

    def _axes(self, state: State) -> State:
        """Squares only: the coordinates of largest square themselves."""
        k, squares = self.settings.kept, state.squares
        order = np.argsort(-squares, kind="stable")[:k]
        components = np.zeros((k, self.columns))
        components[np.arange(k), order] = 1.0
        positive = np.maximum(squares, 0.0)
        shares = positive[order] / max(float(positive.sum()), 1e-300)
        return state._replace(components=self._plain(components), shares=shares)

    def _plain(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """From the basis back to the encoded columns."""
        return rows if self.basis is None else signed(rows @ self.basis)

    def mean_of(self, state: State) -> NDArray[np.float64]:
        """The released mean of the rows, in the encoded columns but for their origin."""
        return state.mean if self.basis is None else self.basis.T @ state.mean

    def _stage(self, state: State | Query) -> str:
        """Refuse a query no honest aggregator sends, by public facts alone: within these ranges nothing overflows."""
        at, chosen = state.stage, state.chosen
        honest = at == int(at) and 0 <= at < self.rounds and 2.0**-21 <= state.radius <= _LARGEST
        honest = honest and bool(np.all(np.abs(state.mean) <= _LARGEST))
        whole = chosen.astype(np.int64)
        honest = honest and bool(np.all(whole == chosen) and np.all(chosen >= 0) and np.all(chosen < self.columns))
        if not honest:
            raise RemoteProtocolError(
                "the public state of a round is not one of this study",
                remedy="The aggregator is faulty. Nothing was shared.",
            )
        return self.choices.stages[int(at)]
