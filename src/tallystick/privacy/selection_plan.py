"""The plan of a selection: rounds of noisy counts, if any, draws of the exponential mechanism, comparisons with a
threshold; pure ε throughout.

The budget's split over the rounds is fixed before anything runs, in exact rationals: a round of counts costs the ε of
its discrete Laplace noise (every party adds all of it, so that one honest party's noise alone carries the promise), a
draw the exact ε of its table (:mod:`tallystick.privacy.draws`), a comparison that of its noise
(:mod:`tallystick.privacy.sparse_vector`). ε adds up over rounds; so does ρ, of which a draw takes
a quarter of what a count of the same ε does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.draws import (
    WORD_ENTRIES,
    DrawRound,
    GroupedChoice,
    Kind,
    check_places,
    compared_round,
    draw_round,
    halving_choice,
    rank_choice,
    score_choice,
)
from tallystick.privacy.grid import Group
from tallystick.privacy.mechanisms.names import EXPONENTIAL
from tallystick.privacy.open_budget import Prices
from tallystick.privacy.round_plan import RoundPlan, plan_round
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.sensitivity import Neighbours, rank_sensitivity
from tallystick.privacy.sparse_vector import sparse_vector
from tallystick.privacy.sum_plan import SumPlan


@dataclass(frozen=True, kw_only=True)
class CountStep:
    """A round that releases noisy counts of ``cells`` cells, of which a record is in one at most."""

    cells: int
    share: Fraction


@dataclass(frozen=True, kw_only=True)
class DrawStep:
    """A round that draws one of ``cells`` places; ``rank`` = (a, b) wants rank a·n/b, ``bound`` is the largest score
    that one record gives one candidate."""

    kind: Kind
    cells: int
    share: Fraction
    rank: tuple[int, int] = (0, 1)
    bound: int = 1
    groups: int = 0
    """Of ranks: a draw for each of so many groups of which a record is in one; 0: for all records together."""
    halvings: int | None = None
    """Weights 2^(u/2^d) for this d, or −1 for the smallest d that the budget pays for; None: weights for the ε itself
    (:func:`tallystick.privacy.draws.halving_choice`)."""


@dataclass(frozen=True, kw_only=True)
class CompareStep:
    """A round that tells which of ``cells`` counts reach a threshold, the first ``most`` of them at most; a record adds
    0 or 1 to each count."""

    cells: int
    share: Fraction
    threshold: int
    most: int


Step = CountStep | DrawStep | CompareStep


@dataclass(frozen=True, kw_only=True, repr=False)
class SelectionPlan(SumPlan):
    """Rounds of sums of which some are drawn from instead of released."""

    @property
    def size(self) -> int:
        """Room for what every party draws and keeps, and for the answer that each of them says."""
        said = max((r.choice.digits for _, r in self.draws), default=1) * self.claim.trust.makers.count
        return max(super().size, WORD_ENTRIES, said, *(r.choice.kept_entries for _, r in self.draws))

    @property
    def pure_epsilon(self) -> Fraction:
        return self._composed([(r.epsilon or Fraction(0), times) for r, times in self._distinct_rounds()])

    @property
    def draws(self) -> tuple[tuple[int, DrawRound], ...]:
        """(round, draw) for every round that is drawn from."""
        return tuple((n, r) for n, r in enumerate(self.rounds, start=1) if isinstance(r, DrawRound))

    @property
    def noise_std(self) -> dict[str, float]:
        """Of the last round with noise; a draw has none that would have a standard deviation."""
        counts = [r for r in self.rounds if r.per_maker_std > 0]
        if not counts:
            return {}
        return {f"per_{self.claim.trust.maker}": counts[-1].per_maker_std, "total": counts[-1].total_std}

    def noise_parameters(self, rounds: int | None = None, prices: Prices | None = None) -> list[list[Fraction]]:
        """Of counts the scale of the Laplace noise; of a draw or a comparison what its own kind has."""
        used = self.rounds if rounds is None else self.rounds[:rounds]
        return [r.choice.parameters if isinstance(r, DrawRound) else [n.parameter for n in r.noise] for r in used]


def make_selection_plan(
    claim: Claim,
    steps: Sequence[Step],
    *,
    notes: Sequence[str] = (),
    hopeless: str | None = None,
    threshold: float | None = None,
    details: dict[str, Any] | None = None,
) -> SelectionPlan:
    """Derive the plan; the steps' shares of ε must not exceed 1."""
    check_claim(claim)
    _check_kind(claim, steps, threshold)
    budget = Fraction(claim.epsilon)
    cache: dict[Step, RoundPlan] = {}
    for step in steps:
        if step not in cache:
            cache[step] = _planned(claim, step, budget * step.share)
    rounds = tuple(cache[step] for step in steps)
    return SelectionPlan(
        claim=claim,
        rounds=rounds,
        notes=(*notes, *_cost_notes(rounds)),
        hopeless=hopeless,
        details=dict(details or {}),
    )


def _check_kind(claim: Claim, steps: Sequence[Step], threshold: float | None) -> None:
    compared = [isinstance(step, CompareStep) for step in steps]
    if any(compared) and (claim.mechanism != "laplace" or not all(compared)):
        raise PrivacyRefused(
            f'mechanism = "{claim.mechanism}" does not compare counts with a threshold: that is done by Laplace noise',
            rule="a-comparison-has-laplace-noise",
            remedy='Write mechanism = "laplace" under [privacy], without delta: its promise is pure epsilon.',
        )
    if not any(compared) and claim.mechanism != EXPONENTIAL:
        raise PrivacyRefused(
            f'mechanism = "{claim.mechanism}" does not select: the parties draw by the exponential mechanism',
            rule="a-draw-is-exponential",
            remedy='Write mechanism = "exponential" under [privacy], without delta: its promise is pure epsilon.',
        )
    if claim.sampling is not None or claim.parallel or threshold is not None:
        raise PrivacyRefused(
            "sampling, thresholds and streams are for sums",
            rule="a-draw-sees-all-records",
            remedy="Leave sampling and threshold out of [privacy], and [stream] out of the study.",
        )
    shares = [step.share for step in steps]
    if not steps or len(steps) != claim.rounds or any(s <= 0 for s in shares) or sum(shares) > 1:
        raise PrivacyRefused(
            "the budget's split over the steps of a selection is not one",
            rule="shares-sum-to-one",
            remedy="Give every step a positive share; together at most the whole.",
        )


def _planned(claim: Claim, step: Step, epsilon: Fraction) -> RoundPlan:
    neighbours: Neighbours = "add-remove" if claim.neighbours == "add-remove" else "replace-one"
    persons = claim.max_records
    if isinstance(step, CountStep):
        group = Group(name="counts", size=step.cells, bound=1.0, nonnegative=True)
        return plan_round(replace(claim, mechanism="laplace"), (group,), "l1", epsilon, 0)
    check_places(step.cells if isinstance(step, CompareStep) else step.cells * max(1, step.groups))
    times = persons * claim.max_institutions
    if isinstance(step, CompareStep):
        # Every count is bounded by itself, 0 to max_records of a person at one institution; in how many counts a record
        # is does not matter. Under add-remove all counts rise together, or all fall.
        size = float(persons)
        group = Group(name="counts", size=step.cells, bound=size * step.cells, nonnegative=True, ceiling=size)
        compared = sparse_vector(
            cells=step.cells, threshold=step.threshold, most=step.most, sensitivity=times,
            one_way=neighbours == "add-remove", epsilon=epsilon,
        )  # fmt: skip
        return compared_round(compared, group, claim.trust.makers.count)
    if step.groups:
        # A record, with all it has in one cell of one group; a person's records together in so many cells.
        size = (step.cells + 2) * step.groups
        group = Group(name="ranks", size=size, bound=float(persons), nonnegative=True)
        moved = times if neighbours == "add-remove" else 2 * times
        one = rank_choice(step.cells, step.rank, rank_sensitivity(*step.rank, "add-remove"), epsilon / moved)
        grouped = GroupedChoice(each=one, groups=step.groups, times=moved)
        return draw_round(grouped, group, claim.trust.makers.count)
    if step.kind == "ranks":
        # A record is in one cell at most; a person's records together in so many.
        group = Group(name="ranks", size=step.cells + 2, bound=float(persons), nonnegative=True)
        most = rank_sensitivity(*step.rank, neighbours) * times
        if step.halvings is None:
            choice = rank_choice(step.cells, step.rank, most, epsilon)
        else:
            fixed = None if step.halvings < 0 else step.halvings
            choice = halving_choice(step.cells, step.rank, most, epsilon, fixed)
    else:
        # The whole vector is bounded only by its coordinates: each candidate's score lies in [0, bound].
        most = step.bound * persons
        group = Group(
            name="scores", size=step.cells, bound=float(most * step.cells), nonnegative=True, ceiling=float(most)
        )
        choice = score_choice(step.cells, step.bound * times, neighbours, epsilon)
    return draw_round(choice, group, claim.trust.makers.count)


def _cost_notes(rounds: Sequence[RoundPlan]) -> list[str]:
    """What each step costs, and all together: the promise is about their sum."""
    lines = []
    for number, r in enumerate(rounds, start=1):
        cost = float(r.epsilon or 0)
        if isinstance(r, DrawRound):
            lines.append(f"step {number} {r.choice.words} and costs epsilon = {cost:.6g}")
        else:
            lines.append(f"step {number} releases {r.grid.size} noisy counts and costs epsilon = {cost:.6g}")
    whole = float(sum((r.epsilon or Fraction(0) for r in rounds), Fraction(0)))
    lines.append(f"all {len(rounds)} step(s) together cost epsilon = {whole:.6g}, pure")
    return lines
