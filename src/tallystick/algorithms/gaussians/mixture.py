"""A mixture of diagonal Gaussians by expectation and maximisation, each step a secure sum.

    round 1          moments of the columns             → components spread as made-up records with these moments are
    rounds 2 … T+1   Σ r ⊗ (1, v/b)/√2                  → weights, means, variances

r are a record's probabilities of the components under the released model (Σ r = 1, r ≥ 0, so ‖r‖₂ ≤ ‖r‖₁ = 1) and v its
moments, no longer than b: a record's vector has norm ‖r‖·‖(1, v/b)‖/√2 ≤ 1, and replacing it moves the sum by at most 2
(:func:`tallystick.privacy.sensitivity.vector_sensitivity`; in L1 divided by 2 instead of √2). It is a factored
contribution, coefficient × row, summed by one exact product.

Row independence: the scores behind r are linear in (x, x²), taken on the grid; the rest is element by element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.clustering.start import spread_from_moments, start_centres
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.elementwise import grid_scores, softmax
from tallystick.algorithms.gaussians.diagonal import Gaussians, from_moments, moments_of, score_weights
from tallystick.algorithms.keywords import whole, whole_or_auto
from tallystick.algorithms.linear.descent import MOMENT_SHARE, noise_of_mean
from tallystick.algorithms.linear.moments import ColumnShapes, MomentRound, moment_vectors
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Contribution, Factored, GridRows
from tallystick.privacy.grid import Group

_STEPS = 8
_ROW_BITS = 16
_BLOCK = 8192
_DROWNED = 1.0


@dataclass(frozen=True, kw_only=True)
class MixtureSettings:
    """What a study may say under [program]."""

    n_components: int = 1
    rounds: int | None = None
    seed: int = 0


def mixture_settings(keywords: Mapping[str, Any]) -> MixtureSettings:
    """Checked; refused with what to write."""
    return MixtureSettings(
        n_components=whole("n_components", keywords.get("n_components", 1), 1, 10_000),
        rounds=whole_or_auto("rounds", keywords.get("rounds", "auto"), 100_000),
        seed=whole("seed", keywords.get("seed", 0), 0, 2**31 - 1),
    )


class MixtureState(NamedTuple):
    """Everything released so far."""

    stage: float
    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    records: float


def design_mixture(public: Public, budget: PublicBudget, settings: MixtureSettings) -> SumDesign:
    """The program and its rounds, from public facts alone."""
    if public.records is not None and settings.n_components > public.records:
        raise StudyError(
            f"{settings.n_components} components of {public.records} records",
            rule="components-within-records",
            remedy="Use fewer components than records.",
        )
    program = MixtureProgram(public, budget, settings)
    k, width = settings.n_components, program.shapes.moment_size + 1
    step = Group(name="components", size=k * width, bound=1.0)
    hopeless = None
    if public.records is not None:
        noise = noise_of_mean(budget, program.step_share, program.longest * program.halves, public.records / k)
        if noise > _DROWNED * math.sqrt(program.steps):
            hopeless = f"the noise on a component's mean is {noise:.1f} times half the width of a column's bounds"
    return SumDesign(
        program=program,
        groups=((program.moments.group(),), *((step,),) * program.steps),
        weights=program.moments.weights(program.steps),
        hopeless=hopeless,
        details={"components": k, "steps": program.steps, "columns": program.shapes.size},
    )


class MixtureProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    interim = True
    block_records = _BLOCK

    def __init__(self, public: Public, budget: PublicBudget, settings: MixtureSettings) -> None:
        self.settings, self.budget = settings, budget
        l1 = budget.mechanism == "laplace"
        self.shapes = ColumnShapes.of(public, l1=l1)
        self.moments = MomentRound(public, budget, self.shapes)
        self.components = settings.n_components
        self.steps = settings.rounds or _STEPS
        self.rounds = self.steps + 1
        self.records = public.records
        self.longest = self.shapes.moment_bound * (1 + 2.0**-20)
        self.halves = 2.0 if l1 else math.sqrt(2)
        self.step_share = budget.share_of_one((1 - MOMENT_SHARE) / self.steps)

    def init(self, public: Public) -> MixtureState:
        k, d = self.components, self.shapes.size
        return MixtureState(
            stage=0.0,
            weights=np.full(k, 1 / k),
            means=np.zeros((k, d)),
            variances=np.ones((k, d)),
            records=float(self.records or 1),
        )

    def query(self, state: MixtureState) -> MixtureState:
        return state

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        d = features.shape[1]
        rows = np.ones((len(features), self.shapes.moment_size + 1))
        rows[:, 1:] = moment_vectors(features, self.shapes) / self.longest
        limit = 2.0 if self.halves == 2 else math.sqrt(2)
        return (
            features,
            GridRows.make(np.hstack([features, features**2]), bits=_ROW_BITS, limit=math.sqrt(2 * d) + 1.0),
            GridRows.make(rows / self.halves, bits=_ROW_BITS, limit=limit / self.halves * (1 + 2.0**-10)),
        )

    def map_block(self, prepared: Any, state: MixtureState) -> Contribution:
        self._check(state)
        features, squared, rows = prepared
        if state.stage == 0:
            return self.moments.contribution(features)
        weights, constants = score_weights(Gaussians(state.weights, state.means, state.variances))
        return Factored(coefficients=softmax(grid_scores(squared, weights) + constants), rows=rows)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: MixtureState) -> MixtureState:
        if state.stage == 0:
            moments, noise, records = self.moments.means(total, state.records)
            spread = spread_from_moments(moments, noise, self.shapes)
            means = start_centres(spread, self.shapes, self.components, self.settings.seed)
            variance = np.clip(spread.variance, 1e-3, 1.0)
            variances = np.tile(variance, (self.components, 1))
            return state._replace(stage=1.0, means=means, variances=variances, records=records)
        blocks = total.reshape(self.components, -1) * self.halves
        anchor = moments_of(Gaussians(state.weights, state.means, state.variances), self.shapes)
        noise = self.noise()
        sums = blocks[:, 1:] * self.longest
        made = from_moments(blocks[:, 0], sums, noise * self.longest, noise, anchor, self.shapes)
        return state._replace(stage=state.stage + 1, **made._asdict())

    def noise(self) -> float:
        """Standard deviation on a component's count, and on its moments in units of the longest."""
        unit = self.budget.sensitivity_factor * self.budget.person_factor
        return self.budget.noise(unit, self.step_share) * self.halves

    def usable(self, state: MixtureState) -> bool:
        return state.stage > 1

    def _check(self, state: MixtureState) -> None:
        """Refuse a query no honest aggregator sends, by public facts alone: within these ranges nothing overflows."""
        honest = np.all(np.abs(state.means) <= 1.0) and np.all((state.variances >= 1e-5) & (state.variances <= 1.0))
        honest = honest and np.all((state.weights >= 0) & (state.weights <= 1))
        if not honest:
            raise RemoteProtocolError(
                "the components lie outside the declared bounds",
                remedy="The aggregator is faulty. Nothing was shared.",
            )
