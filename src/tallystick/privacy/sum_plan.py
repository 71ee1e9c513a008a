"""The plan of a sum: noise, clipping and budget of every round, derived once from public facts.

Budget: ρ_total from (ε, δ) by the exact Gaussian curve where all noise is Gaussian, fine enough and on whole records
(:mod:`tallystick.privacy.gaussian_curve`), else by the conversion from zCDP (or ε itself for Laplace), is split over
rounds by ``weights`` and within a round over groups by their shares; both splits are exact rationals that never add up
to more than the whole. Or the rounds' prices are left open, and only what they may cost together is planned
(:mod:`tallystick.privacy.open_budget`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import ORDERS, pure_rho, rho_from_epsilon
from tallystick.privacy.gaussian_curve import RESERVED, distance_delta, gaussian_rho
from tallystick.privacy.grid import Group, Norm
from tallystick.privacy.mechanisms.names import EXPONENTIAL
from tallystick.privacy.mechanisms.rounded_gaussian import short
from tallystick.privacy.open_budget import PARTS, OpenBudget, Prices, shares_overhead
from tallystick.privacy.plan import Plan
from tallystick.privacy.round_plan import RoundPlan, plan_round
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.sampling import round_curve, sampled_budget


@dataclass(frozen=True, kw_only=True, repr=False)
class SumPlan(Plan):
    """The plan of rounds of sums: what is added to each."""

    rounds: tuple[RoundPlan, ...]
    """Of an open budget: as noisy as they may get, at the least price."""
    threshold: float | None = None
    """Coordinates of a noisy total below so many standard deviations of their noise become 0, at no cost."""
    open: OpenBudget | None = None
    """Where each round's price is chosen as it comes: what all of them together may cost."""
    reserved: Fraction | None = None
    """Of an open budget: the whole ρ, or ε for Laplace, with what is set aside for the sums of shares."""

    @property
    def size(self) -> int:
        """The one length of the study's vectors; shorter rounds are padded."""
        return max(r.grid.size for r in self.rounds)

    @property
    def honest(self) -> int:
        """Noise makers whose noise alone carries the guarantee."""
        return self.claim.trust.makers.honest

    @cached_property
    def rho(self) -> Fraction:
        """Whole zCDP cost: rounds add up, those of a stream cost their maximum (each record is in one of them).

        Parallel composition: neighbours differ in one record, which is in the batch of one tick, so all other ticks
        have the same law given the past and the divergence of the whole is that of this tick, whichever it is.
        """
        if self.reserved is not None:
            return self.reserved if self.claim.mechanism == "gaussian" else pure_rho(self.reserved)
        return self._composed([(r.rho, times) for r, times in self._distinct_rounds()])

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Whole pure cost, for Laplace; composed as :attr:`rho` is."""
        if self.claim.mechanism != "laplace" or self.reserved is not None:
            return self.reserved if self.claim.mechanism == "laplace" else None
        return self._composed([(r.epsilon or Fraction(0), times) for r, times in self._distinct_rounds()])

    def _composed(self, costs: Sequence[tuple[Fraction, int]]) -> Fraction:
        if self.claim.parallel:
            return max(cost for cost, _ in costs)
        return sum((cost * times for cost, times in costs), Fraction(0))

    def _distinct_rounds(self) -> list[tuple[RoundPlan, int]]:
        """Rounds that are the same object, and how many: a plan of 100,000 rounds is mostly one of them."""
        times = Counter(map(id, self.rounds))
        return [(r, times[key]) for key, r in {id(r): r for r in self.rounds}.items()]

    def renyi_curve(self) -> list[float] | None:
        """The curve where records are sampled (:mod:`tallystick.privacy.sampling`)."""
        return None if self._sampled_curve is None else list(self._sampled_curve)

    @cached_property
    def _sampled_curve(self) -> list[float] | None:
        rate = self.claim.sampling
        if rate is None or rate >= 1 or self.claim.mechanism != "gaussian":
            return None
        counts: dict[Fraction, int] = {}
        for r in self.rounds:
            counts[r.rho] = counts.get(r.rho, 0) + 1
        total = [0.0] * len(ORDERS)
        for rho, count in counts.items():
            curve = round_curve(float(rho) * (1 + 1e-12), rate, ORDERS, honest=self.honest)
            total = [t + count * c for t, c in zip(total, curve)]
        return total

    def sampling_price(self) -> float | None:
        """Noise on an estimate of the whole, over that of the same study with every record in every round.

        The total of a sample is divided by the rate q, and its noise with it. Noise is ∝ 1/√ρ and both studies split
        their ρ alike, so the ratio is √(ρ_whole/ρ_sampled)/q. Never seen below 1 (tests/privacy/test_sampling_price).
        """
        rate = self.claim.sampling
        if rate is None or self.renyi_curve() is None:
            return None
        whole = curve_budget(self.claim)
        return math.sqrt(whole / self.rho) / rate

    def round_at(self, number: int, model: bytes) -> RoundPlan:
        """The round that this public state opens; its noise follows from the price in it where the budget is open."""
        round_plan = self.rounds[number - 1]
        if self.open is None:
            return round_plan
        return self.open.priced(round_plan, self.open.price_in(model, number))

    @property
    def noise_std(self) -> dict[str, float]:
        """Of the last round; of an open budget, of a round that has an equal part of it."""
        last = self.rounds[-1]
        if self.open is not None:
            last = self.open.priced(last, max(self.open.least, PARTS // len(self.rounds)))
        return {f"per_{self.claim.trust.maker}": last.per_maker_std, "total": last.total_std}

    def noise_parameters(self, rounds: int | None = None, prices: Prices | None = None) -> list[list[Fraction]]:
        """Per group the discrete Gaussian's variance or the discrete Laplace's scale, in grid units; of an open budget
        at the prices that were admitted, and none of a round that was not."""
        used = self.rounds if rounds is None else self.rounds[:rounds]
        noise = [r.noise for r in used]
        if self.open is not None and prices is not None:
            at = prices.by_round
            noise = [self.open.priced(r, at[i]).noise if i in at else () for i, r in enumerate(used, start=1)]
        return [[n.parameter for n in of_round] for of_round in noise]


def rounds_of(plan: Plan) -> tuple[RoundPlan, ...]:
    """The rounds of a plan, if it is one of sums."""
    return plan.rounds if isinstance(plan, SumPlan) else ()


def make_plan(
    claim: Claim,
    groups: Sequence[Sequence[Group]],
    *,
    fraction_bits: int | None = None,
    weights: Sequence[float] | None = None,
    notes: Sequence[str] = (),
    hopeless: str | None = None,
    threshold: float | None = None,
    least_price: int | None = None,
    details: dict[str, Any] | None = None,
) -> SumPlan:
    """Derive the plan of ``len(groups)`` rounds; ``weights`` split the budget over them (equal by default).

    ``least_price``: the rounds' prices are left open within the whole budget, each at least so many parts of it.
    """
    shares = [Fraction(w) for w in weights] if weights is not None else [Fraction(1)] * len(groups)
    if len(shares) != len(groups) or len(groups) != claim.rounds or any(s <= 0 for s in shares):
        raise PrivacyRefused(
            "the budget's split over rounds does not fit the number of rounds",
            rule="rounds-are-bounded",
            remedy="Give one positive weight and one set of groups per round.",
        )
    check_claim(claim)
    if claim.mechanism == EXPONENTIAL:
        raise PrivacyRefused(
            'mechanism = "exponential" is for what the parties select; this study sums',
            rule="a-sum-has-noise",
            remedy='Use mechanism = "gaussian", or "laplace" for pure epsilon.',
        )
    for round_groups in groups:
        check_shares([g.share for g in round_groups])
    whole = Fraction(1) if claim.parallel else sum(shares)
    if claim.parallel:
        shares = [Fraction(1)] * len(groups)  # every tick has records of its own, and so the whole budget
    norm: Norm = "l1" if claim.mechanism == "laplace" else "l2"

    def planned(budget: Fraction, *, on_curve: bool) -> SumPlan:
        cache: dict[tuple[tuple[Group, ...], Fraction], RoundPlan] = {}
        rounds = []
        for round_groups, share in zip(groups, shares):
            key = (tuple(round_groups), share)
            if key not in cache:
                part = budget * share / whole
                cache[key] = plan_round(claim, tuple(round_groups), norm, part, fraction_bits, on_curve=on_curve)
            rounds.append(cache[key])
        plan = SumPlan(
            claim=claim,
            rounds=tuple(rounds),
            notes=tuple(notes),
            hopeless=hopeless,
            threshold=threshold,
            details=dict(details or {}),
        )
        return plan if least_price is None else _opened(plan, budget, least_price, on_curve=on_curve)

    coarse: tuple[str, ...] = ()
    if is_all_gaussian(claim):
        plan = planned(curve_budget(claim), on_curve=True)
        distance = _distance(plan)
        if distance is not None and distance_delta(distance, Fraction(claim.epsilon)) <= _most_distance(claim):
            return replace(plan, gaussian_distance=distance)
        coarse = (_COARSE,)
    plan = planned(_budget(claim, [share / whole for share in shares]), on_curve=False)
    return replace(plan, notes=(*plan.notes, *coarse)) if coarse else plan


_COARSE = (
    "noise is so small on this grid, or epsilon so large, that the exact Gaussian curve does not apply: it is set by "
    "the conversion from zCDP, which takes some more of it; more fraction bits or a smaller epsilon would avoid that"
)


def is_all_gaussian(claim: Claim) -> bool:
    """Whether all noise of such a study of sums is Gaussian, on sums over all its records."""
    return claim.mechanism == "gaussian" and (claim.sampling is None or claim.sampling >= 1)


def curve_budget(claim: Claim) -> Fraction:
    """The ρ of the exact Gaussian curve at (ε, δ), a millionth of δ being kept for what is not exactly Gaussian."""
    return gaussian_rho(claim.epsilon, Fraction(claim.noise_delta) * (1 - RESERVED))


def _most_distance(claim: Claim) -> Fraction:
    """A little less than what is kept, so that nothing ever depends on the last digit of either."""
    return Fraction(claim.noise_delta) * RESERVED * Fraction(15, 16)


def _distance(plan: SumPlan) -> Fraction | None:
    """How far the whole may be from rounded Gaussians: distances of rounds add up, whatever each is chosen by.

    Of a stream's ticks one has the record that differs; the others have the same law given the past, as they are, so
    that only its own distance counts (mechanisms/rounded_gaussian.md, Theorem).
    """
    if plan.open is not None:
        found = plan.open.gaussian_distance(plan.rounds[0], len(plan.rounds))
        return None if found is None else short(found)
    costs = []
    for r, times in plan._distinct_rounds():
        distance = r.gaussian_distance(plan.honest)
        if distance is None:
            return None
        costs.append((distance, times))
    return short(plan._composed(costs))


def _opened(plan: SumPlan, budget: Fraction, least: int, *, on_curve: bool) -> SumPlan:
    """The same rounds with their prices left open."""
    rounds, honest = plan.rounds, plan.honest
    joined = any(r.grid.outer_groups for r in rounds)  # their prices are not per group
    several = any(r != rounds[0] for r in rounds) or joined or plan.claim.parallel or plan.claim.sampling is not None
    if several or not 1 <= least <= PARTS // len(rounds):
        raise PrivacyRefused(
            "prices can be left open only where all rounds are alike, of the same records, and could all be paid for",
            rule="open-rounds-are-alike",
            remedy="Give every round the same groups, and a least price that all rounds together can pay.",
        )
    splits = plan.claim.mechanism == "gaussian"
    whole = budget - len(rounds) * shares_overhead(rounds[0], honest) if splits else budget
    if plan.differentially_private and whole <= 0:
        raise PrivacyRefused(
            f"so small an epsilon does not cover what noise costs that {honest} makers share, beyond that of one",
            rule="noise-covers-budget",
            remedy=f"Raise epsilon, tenfold say; or count on one honest maker's noise alone: colluding = "
            f"{plan.claim.trust.makers.count - 1} under [trust].",
        )
    made = OpenBudget(whole=whole, least=least, honest=honest, on_curve=on_curve)
    return replace(plan, open=made, reserved=budget, rounds=(made.priced(rounds[0], least),) * len(rounds))


def check_shares(shares: Sequence[float]) -> None:
    """Refuse a split of a round's budget that is not one: what it spends beyond 1 nobody would charge."""
    if abs(sum(shares) - 1) > 1e-9:
        raise PrivacyRefused(
            f"the groups' shares {tuple(shares)} do not sum to 1.",
            rule="shares-sum-to-one",
            remedy="Shares are positive and sum to 1.",
        )


def _budget(claim: Claim, shares: Sequence[Fraction]) -> Fraction:
    if claim.mechanism == "none":
        return Fraction(0)
    if claim.mechanism == "laplace":
        return Fraction(claim.epsilon)
    if claim.sampling is not None and claim.sampling < 1:
        return sampled_budget(
            claim.epsilon,
            claim.noise_delta,
            rate=claim.sampling,
            shares=shares,
            orders=ORDERS,
            honest=claim.trust.makers.honest,
        )
    return rho_from_epsilon(claim.epsilon, claim.noise_delta)
