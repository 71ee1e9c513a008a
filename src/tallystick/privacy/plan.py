"""The plan: noise, clipping and budget of every round, derived once from public facts, shown before anything is spent.

Calibration. m parties add noise to every total, and whoever looks at it sees the true sum plus the noise of the h among
them that are honest and not itself (:mod:`tallystick.privacy.trust`); so the *honest* noise alone must suffice.

* Gaussian: each adds N_Z(0, s²/h); s² = D²/(2ρ_g). A sum of h discrete Gaussians is not exactly discrete
  Gaussian; the difference is charged [KLS21, Prop. 4 and Thm. 1]:
  ε_c = min( √(D²/s² + τd/2), D/s + τ√d ), ρ = ε_c²/2, τ = 10 Σ_{k<h} exp(−2π² (s²/h) k/(k+1)); share variance ≥ 4.
* Laplace: pure ε, and no exact way to split the noise, so each adds the full discrete Laplace of scale D/ε_g.

Budget: ρ_total from (ε, δ) by the tight conversion (or ε itself for Laplace) is split over rounds by ``weights`` and
within a round over groups by their shares; both splits are exact rationals that never add up to more than the whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, assert_never

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import ORDERS, epsilon_from_rho, pure_rho, rho_for, rho_from_epsilon, rounded_up
from tallystick.privacy.grid import Grid, Group, Norm, fraction_bits_for
from tallystick.privacy.mechanisms import Mechanism, round_up_scale, round_up_variance
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.sampling import curve_epsilon, round_curve, sampled_budget
from tallystick.privacy.sensitivity import (
    Neighbours,
    blocks_sensitivity,
    counts_sensitivity,
    nonnegative_sensitivity,
    person_multiplier,
    vector_sensitivity,
)

__all__ = ["GroupNoise", "Plan", "RoundPlan", "check_shares", "make_plan"]

_MIN_SHARE_VARIANCE = 4


@dataclass(frozen=True, kw_only=True)
class GroupNoise:
    """What one noise maker adds to each coordinate of one group, in grid units."""

    group: Group
    sensitivity: int
    parameter: Fraction
    """Variance of the discrete Gaussian, or scale of the discrete Laplace; 0 for no noise."""
    variance: float
    """Variance of one noise maker's noise, in grid units."""
    rho: Fraction
    epsilon: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One round: the grid its vectors live on, the noise of each group, and what it costs."""

    grid: Grid
    noise: tuple[GroupNoise, ...]
    mechanism: Mechanism
    makers: int
    """How many add this noise, if all do."""

    @property
    def rho(self) -> Fraction:
        """zCDP cost of the round."""
        return sum((n.rho for n in self.noise), Fraction(0))

    @property
    def epsilon(self) -> Fraction | None:
        """Pure cost of the round, for Laplace."""
        if self.mechanism is not Mechanism.LAPLACE:
            return None
        return sum((n.epsilon or Fraction(0) for n in self.noise), Fraction(0))

    @property
    def per_maker_std(self) -> float:
        """Largest standard deviation one noise maker adds to a coordinate, in real units."""
        return math.sqrt(max(n.variance for n in self.noise)) / self.grid.scale

    @property
    def total_std(self) -> float:
        """Standard deviation on a coordinate of the total, all noise makers together, in real units."""
        return self.per_maker_std * math.sqrt(self.makers)

    def std_of(self, name: str) -> float:
        """Standard deviation on the total of one group's coordinates, in real units."""
        variance = next(n.variance for n in self.noise if n.group.name == name)
        return math.sqrt(variance * self.makers) / self.grid.scale


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that will be spent and added, round by round. Public: it may be shown to anyone."""

    claim: Claim
    rounds: tuple[RoundPlan, ...]
    notes: tuple[str, ...] = ()
    hopeless: str | None = None
    """Why the planner expects nothing but noise, if it does."""
    threshold: float | None = None
    """Coordinates of a noisy total below so many standard deviations of their noise become 0, at no cost."""
    details: dict[str, Any] = field(default_factory=dict)

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
        return self._composed([(r.rho, times) for r, times in self._distinct_rounds()])

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Whole pure cost, for Laplace; composed as :attr:`rho` is."""
        if self.claim.mechanism != "laplace":
            return None
        return self._composed([(r.epsilon or Fraction(0), times) for r, times in self._distinct_rounds()])

    def _composed(self, costs: Sequence[tuple[Fraction, int]]) -> Fraction:
        if self.claim.parallel:
            return max(cost for cost, _ in costs)
        return sum((cost * times for cost, times in costs), Fraction(0))

    def _distinct_rounds(self) -> list[tuple[RoundPlan, int]]:
        """Rounds that are the same object, and how many: a plan of 100,000 rounds is mostly one of them."""
        times = Counter(map(id, self.rounds))
        return [(r, times[key]) for key, r in {id(r): r for r in self.rounds}.items()]

    def sampled_curve(self) -> list[float] | None:
        """The Rényi curve at the public orders where records are sampled (:mod:`tallystick.privacy.sampling`)."""
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
        if rate is None or self.sampled_curve() is None:
            return None
        whole = rho_from_epsilon(self.claim.epsilon, self.claim.delta)
        return math.sqrt(whole / self.rho) / rate

    @property
    def differentially_private(self) -> bool:
        """False only for mechanism "none"."""
        return self.claim.mechanism != "none"

    def spent_epsilon(self) -> float | None:
        """The ε that the rounds' cost promises at the claim's δ (for Laplace: their ε); None without noise."""
        if self.claim.mechanism == "none":
            return None
        if self.pure_epsilon is not None:
            return rounded_up(self.pure_epsilon)
        sampled = self.sampled_curve()
        if sampled is not None:
            return curve_epsilon(sampled, ORDERS, self.claim.delta)
        return epsilon_from_rho(self.rho, self.claim.delta)


def make_plan(
    claim: Claim,
    groups: Sequence[Sequence[Group]],
    *,
    fraction_bits: int | None = None,
    weights: Sequence[float] | None = None,
    notes: Sequence[str] = (),
    hopeless: str | None = None,
    threshold: float | None = None,
    details: dict[str, Any] | None = None,
) -> Plan:
    """Derive the plan of ``len(groups)`` rounds; ``weights`` split the budget over them (equal by default)."""
    shares = [Fraction(w) for w in weights] if weights is not None else [Fraction(1)] * len(groups)
    if len(shares) != len(groups) or len(groups) != claim.rounds or any(s <= 0 for s in shares):
        raise PrivacyRefused(
            "the budget's split over rounds does not fit the number of rounds",
            rule="rounds-are-bounded",
            remedy="Give one positive weight and one set of groups per round.",
        )
    check_claim(claim)
    for round_groups in groups:
        check_shares([g.share for g in round_groups])
    whole = Fraction(1) if claim.parallel else sum(shares)
    if claim.parallel:
        shares = [Fraction(1)] * len(groups)  # every tick has records of its own, and so the whole budget
    budget = _budget(claim, [share / whole for share in shares])
    norm: Norm = "l1" if claim.mechanism == "laplace" else "l2"
    cache: dict[tuple[tuple[Group, ...], Fraction], RoundPlan] = {}
    rounds = []
    for round_groups, share in zip(groups, shares):
        key = (tuple(round_groups), share)
        if key not in cache:
            cache[key] = _plan_round(claim, tuple(round_groups), norm, budget * share / whole, fraction_bits)
        rounds.append(cache[key])
    return Plan(
        claim=claim,
        rounds=tuple(rounds),
        notes=tuple(notes),
        hopeless=hopeless,
        threshold=threshold,
        details=dict(details or {}),
    )


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
            claim.delta,
            rate=claim.sampling,
            shares=shares,
            orders=ORDERS,
            honest=claim.trust.makers.honest,
        )
    return rho_from_epsilon(claim.epsilon, claim.delta)


def _plan_round(
    claim: Claim, groups: tuple[Group, ...], norm: Norm, budget: Fraction, fraction_bits: int | None
) -> RoundPlan:
    # Unit "person": the SUM of a person's records at one institution is clipped to max_records times the record's
    # bound, and the sensitivity is multiplied by the number of institutions a person may be known to.
    persons = claim.unit == "person" or claim.max_records > 1
    groups = tuple(_of_person(g, claim, norm) if persons else g for g in groups)
    if fraction_bits is None:
        fraction_bits = min(fraction_bits_for(max(g.bound, g.count)) for g in groups)
    grid = Grid(groups=groups, fraction_bits=fraction_bits, norm=norm)
    mechanism, honest = Mechanism(claim.mechanism), claim.trust.makers.honest
    # Shares arrive as floats that sum to 1 up to rounding: dividing by the exact sum keeps Σ shares ≤ 1.
    whole = sum(Fraction(g.share) for g in groups)
    noise = []
    for group, bound, count, ceiling in zip(groups, grid.integer_bounds, grid.integer_counts, grid.integer_ceilings):
        neighbours: Neighbours = "add-remove" if claim.neighbours == "add-remove" else "replace-one"
        own = _sensitivity(group, bound, count, ceiling, neighbours, norm)
        sensitivity = int(own * person_multiplier(claim.max_institutions))
        part = budget * Fraction(group.share) / whole
        match mechanism:
            case Mechanism.GAUSSIAN:
                noise.append(_gaussian(group, sensitivity, part, honest))
            case Mechanism.LAPLACE:
                noise.append(_laplace(group, sensitivity, part))
            case Mechanism.NONE:
                nothing = Fraction(0)
                noise.append(
                    GroupNoise(group=group, sensitivity=sensitivity, parameter=nothing, variance=0.0, rho=nothing)
                )
            case _:
                assert_never(mechanism)
    return RoundPlan(grid=grid, noise=tuple(noise), mechanism=mechanism, makers=claim.trust.makers.count)


def _of_person(group: Group, claim: Claim, norm: Norm) -> Group:
    """The group that a person's sum at one institution is clipped to: max_records records of it together.

    A sum of non-negative vectors is one. Records in several blocks add up to no block: only the norm of the whole is
    bounded then, ‖(c, s)‖ ≤ √(B² + c²) per record (L1: B + c).
    """
    bound = group.bound
    if group.one_of:
        bound = bound + group.count if norm == "l1" else math.hypot(bound, group.count)
    times = claim.max_records
    return replace(group, bound=bound * times, ceiling=group.ceiling * times, one_of=0, count=0.0)


def _sensitivity(group: Group, bound: int, count: int, ceiling: int, neighbours: Neighbours, norm: Norm) -> int:
    """The registry's row for what the group declares, in grid units."""
    l1 = norm == "l1"
    if group.one_of:
        return blocks_sensitivity(bound, count, neighbours, l1=l1, nonnegative=group.nonnegative)
    if group.ceiling:
        return counts_sensitivity(bound, ceiling, group.size, neighbours, l1=l1)
    if group.nonnegative:
        return nonnegative_sensitivity(bound, neighbours, l1=l1)
    return vector_sensitivity(bound, neighbours)


def _gaussian(group: Group, sensitivity: int, rho: Fraction, honest: int) -> GroupNoise:
    variance = round_up_variance(Fraction(sensitivity) ** 2 / (2 * rho * honest))
    while honest > 1 and (
        variance < _MIN_SHARE_VARIANCE or _charged_rho(sensitivity, variance, honest, group.size) > rho
    ):
        variance = round_up_variance(max(Fraction(_MIN_SHARE_VARIANCE), variance * Fraction(1001, 1000)))
    charged = _charged_rho(sensitivity, variance, honest, group.size)
    if charged > rho:
        raise PrivacyRefused("the noise of a group falls short of its budget", rule="noise-covers-budget")
    return GroupNoise(group=group, sensitivity=sensitivity, parameter=variance, variance=float(variance), rho=charged)


def _charged_rho(sensitivity: int, share_variance: Fraction, honest: int, size: int) -> Fraction:
    """ρ of the honest ones' h shares together [KLS21]; exactly D²/(2s²) for h = 1."""
    exact = rho_for(sensitivity, share_variance * honest)
    if honest == 1:
        return exact
    v = float(share_variance)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * v * k / (k + 1)) for k in range(1, honest))
    if tau == 0.0:
        return exact
    ratio = math.sqrt(2 * float(exact))  # D/s
    charged = min(math.sqrt(ratio**2 + tau * size / 2), ratio + tau * math.sqrt(size)) ** 2 / 2
    return max(exact, Fraction(charged * (1 + 1e-12)))


def _laplace(group: Group, sensitivity: int, epsilon: Fraction) -> GroupNoise:
    scale = round_up_scale(Fraction(sensitivity) / epsilon)
    charged = Fraction(sensitivity) / scale  # e^{-|x|/scale}: each coordinate unit costs 1/scale [GRS09; CKS20 §5]
    # Variance of the discrete Laplace with a = e^{-1/scale}: 2a/(1−a)².
    a = math.exp(-1 / float(scale))
    variance = 2 * a / math.expm1(-1 / float(scale)) ** 2
    return GroupNoise(
        group=group,
        sensitivity=sensitivity,
        parameter=scale,
        variance=variance,
        rho=pure_rho(charged),
        epsilon=charged,
    )
