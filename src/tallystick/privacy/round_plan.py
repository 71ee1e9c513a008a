"""One round of sums: the grid its vectors live on, and the noise that everybody who makes noise adds.

Calibration. m parties add noise to every total, and whoever looks at it sees the true sum plus the noise of the h among
them that are honest and not itself (:mod:`tallystick.privacy.trust`); so the *honest* noise alone must suffice.

* Gaussian: each adds N_Z(0, s²/h); s² = D²/(2ρ_g). A sum of h discrete Gaussians is not exactly discrete
  Gaussian; the difference is charged [KLS21, Prop. 4 and Thm. 1]:
  ε_c = min( √(D²/s² + τd/2), D/s + τ√d ), ρ = ε_c²/2, τ = 10 Σ_{k<h} exp(−2π² (s²/h) k/(k+1)); share variance ≥ 4.
  Where the promise is the exact Gaussian curve's (``on_curve``), ρ is that of the Gaussian of variance v = s² − 1/12
  whose rounding stands for the noise (mechanisms/rounded_gaussian.md): s² = D²/(2ρ_g) + 1/12, ρ = D²/(2v). As v < s²
  this is zCDP as well.
* Laplace: pure ε, and no exact way to split the noise, so each adds the full discrete Laplace of scale D/ε_g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import assert_never

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import pure_rho, rho_for
from tallystick.privacy.grid import Grid, Group, Norm, fraction_bits_for
from tallystick.privacy.mechanisms import Mechanism, round_up_scale, round_up_variance
from tallystick.privacy.mechanisms.rounded_gaussian import ROUNDING, coordinate_distance
from tallystick.privacy.rules import Claim
from tallystick.privacy.sensitivity import (
    Neighbours,
    blocks_sensitivity,
    counts_sensitivity,
    nonnegative_sensitivity,
    outer_sensitivity,
    person_multiplier,
    vector_sensitivity,
)

MIN_SHARE_VARIANCE = 4


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

    def with_scale(self, scale: Fraction) -> GroupNoise:
        """Discrete Laplace of this scale: e^{−|x|/scale}, each coordinate unit costs 1/scale [GRS09; CKS20 §5]."""
        charged = Fraction(self.sensitivity) / scale
        # Variance of the discrete Laplace with a = e^{-1/scale}: 2a/(1−a)².
        a = math.exp(-1 / float(scale))
        variance = 2 * a / math.expm1(-1 / float(scale)) ** 2
        return replace(self, parameter=scale, variance=variance, rho=pure_rho(charged), epsilon=charged)


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

    def gaussian_distance(self, honest: int) -> Fraction | None:
        """How far, in total variation, the round may be from one of rounded Gaussians; None if nothing is proved.

        Noise is independent of everything, so the distances of coordinates add up.
        """
        if self.mechanism is not Mechanism.GAUSSIAN:
            return None
        total = Fraction(0)
        for n in self.noise:
            one = coordinate_distance(n.parameter * honest, honest)
            if one is None:
                return None
            total += n.group.size * one
        return total

    def std_of(self, name: str) -> float:
        """Standard deviation on the total of one group's coordinates, in real units."""
        variance = next(n.variance for n in self.noise if n.group.name == name)
        return math.sqrt(variance * self.makers) / self.grid.scale


def plan_round(
    claim: Claim,
    groups: tuple[Group, ...],
    norm: Norm,
    budget: Fraction,
    fraction_bits: int | None,
    *,
    on_curve: bool = False,
) -> RoundPlan:
    """The round whose groups share ``budget``: a ρ (``on_curve``: of the exact Gaussian curve), or an ε for Laplace."""
    # Unit "person": the SUM of a person's records at one institution is clipped to max_records times the record's
    # bound, and the sensitivity is multiplied by the number of institutions a person may be known to.
    persons = claim.unit == "person" or claim.max_records > 1
    groups = tuple(_of_person(g, claim, norm) if persons else g for g in groups)
    if fraction_bits is None:
        fraction_bits = min(fraction_bits_for(max(g.bound, g.count)) for g in groups)
        fraction_bits -= fraction_bits % 2 if groups[-1].outer else 0  # a row has half of them
    grid = Grid(groups=groups, fraction_bits=fraction_bits, norm=norm)
    mechanism, honest = Mechanism(claim.mechanism), claim.trust.makers.honest
    # Shares arrive as floats that sum to 1 up to rounding: dividing by the exact sum keeps Σ shares ≤ 1.
    whole = sum(Fraction(g.share) for g in groups)
    noise, nothing = [], Fraction(0)
    for group, bound, count, ceiling in zip(groups, grid.integer_bounds, grid.integer_counts, grid.integer_ceilings):
        neighbours: Neighbours = "add-remove" if claim.neighbours == "add-remove" else "replace-one"
        own = _sensitivity(group, bound, count, ceiling, neighbours, norm)
        sensitivity = int(own * person_multiplier(claim.max_institutions))
        part = budget * Fraction(group.share) / whole
        silent = GroupNoise(group=group, sensitivity=sensitivity, parameter=nothing, variance=0.0, rho=nothing)
        match mechanism:
            case Mechanism.GAUSSIAN | Mechanism.LAPLACE if group.outer:
                noise.append(silent)  # below: the groups of a row's products are noised together
            case Mechanism.GAUSSIAN:
                noise.append(gaussian_noise(silent, part, honest, on_curve))
            case Mechanism.LAPLACE:
                noise.append(silent.with_scale(round_up_scale(Fraction(sensitivity) / part)))
            case Mechanism.NONE:
                noise.append(silent)
            case _:
                assert_never(mechanism)
    if grid.outer_groups and mechanism is not Mechanism.NONE:
        first = len(groups) - len(grid.outer_groups)
        part = budget * sum(Fraction(g.share) for g in grid.outer_groups) / whole
        last, gaussian = noise[first:], mechanism is Mechanism.GAUSSIAN
        noise[first:] = outer_noise(last, part, honest, on_curve=on_curve) if gaussian else _outer_laplace(last, part)
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
    if group.outer:
        return outer_sensitivity(bound, neighbours, l1=l1)
    if group.one_of:
        return blocks_sensitivity(bound, count, neighbours, l1=l1, nonnegative=group.nonnegative)
    if group.ceiling:
        return counts_sensitivity(bound, ceiling, group.size, neighbours, l1=l1)
    if group.nonnegative:
        return nonnegative_sensitivity(bound, neighbours, l1=l1)
    return vector_sensitivity(bound, neighbours)


def gaussian_noise(silent: GroupNoise, rho: Fraction, honest: int, on_curve: bool = False) -> GroupNoise:
    """The noise of one group whose sensitivity is known: enough for ``rho`` from the honest makers alone."""
    sensitivity, size = silent.sensitivity, silent.group.size
    rounding = ROUNDING if on_curve else Fraction(0)

    def charge(variance: Fraction) -> Fraction:
        charged = _charged_rho(sensitivity, variance, honest, size)
        return max(charged, rho_for(sensitivity, variance * honest - rounding)) if on_curve else charged

    variance = round_up_variance((Fraction(sensitivity) ** 2 / (2 * rho) + rounding) / honest)
    while honest > 1 and (variance < MIN_SHARE_VARIANCE or charge(variance) > rho):
        variance = round_up_variance(max(Fraction(MIN_SHARE_VARIANCE), variance * Fraction(1001, 1000)))
    charged = charge(variance)
    if charged > rho:
        raise PrivacyRefused(
            "the noise of a group falls short of its budget", rule="noise-covers-budget", remedy="Raise epsilon."
        )
    return replace(silent, parameter=variance, variance=float(variance), rho=charged)


def outer_noise(silent: list[GroupNoise], rho: Fraction, honest: int, *, on_curve: bool = False) -> list[GroupNoise]:
    """Symmetric Gaussian noise on the upper triangle of Σ u·uᵀ: variance s² on the diagonal and s²/2 beside it.

    THEOREM. A symmetric D has ‖D‖_F² = Σ D_ii² + 2 Σ_{i<j} D_ij². Independent N(0, s²) on the diagonal and N(0, s²/2)
    beside it cost ρ = ½ (Σ D_ii²/s² + Σ_{i<j} D_ij²/(s²/2)) = ‖D‖_F²/(2s²) ≤ Δ²/(2s²), Δ the sensitivity in Frobenius
    norm: the Gaussian mechanism on the vector (D_ii, √2·D_ij), which has the same length [BS16, Prop. 1.6; for discrete
    noise CKS20, Thm. 14]. In general ρ ≤ Δ²/2 · max(1/s_d², 1/(2 s_b²)), which is what is charged.

    ``equal`` groups have s² everywhere, as Analyze Gauss is published [DTTZ14]: the upper triangle of D is no longer
    than D, so Δ²/(2s²) is enough, and beside the diagonal twice as much noise as is needed.

    ``on_curve`` the same with v = s² − 1/12 of each: Δ²/2 · max(1/v_d, 1/(2 v_b)).
    """
    rounding = ROUNDING if on_curve else Fraction(0)
    sensitivity, size = silent[0].sensitivity, sum(n.group.size for n in silent)
    least = Fraction(MIN_SHARE_VARIANCE if honest > 1 else 0)
    diagonal = round_up_variance(max((Fraction(sensitivity) ** 2 / (2 * rho) + 2 * rounding) / honest, 2 * least))
    while True:
        beside = diagonal if silent[0].group.equal else round_up_variance(diagonal / 2)
        exact = min(diagonal, 2 * beside) * honest  # s² such that Δ²/(2s²) bounds the cost
        # [KLS21] as in _charged_rho; τ falls with the variance, so the smaller of both is taken for all coordinates.
        charged = _charged_rho(sensitivity, exact / honest, honest, size, share=min(diagonal, beside))
        if on_curve:
            continuous = min(diagonal * honest - rounding, 2 * (beside * honest - rounding))
            charged = max(charged, rho_for(sensitivity, continuous))
        if charged <= rho:
            break
        diagonal = round_up_variance(diagonal * Fraction(1001, 1000))
    variances = (diagonal, beside)[: len(silent)]
    cost = charged / len(silent)
    return [replace(n, parameter=v, variance=float(v), rho=cost) for n, v in zip(silent, variances)]


def _outer_laplace(silent: list[GroupNoise], epsilon: Fraction) -> list[GroupNoise]:
    """One scale Δ/ε on the whole triangle, Δ its L1 sensitivity; the cost is written half to each group."""
    scale = round_up_scale(Fraction(silent[0].sensitivity) / epsilon)
    made = [n.with_scale(scale) for n in silent]
    parts = len(made)
    return [replace(n, rho=n.rho / parts, epsilon=(n.epsilon or Fraction(0)) / parts) for n in made]


def _charged_rho(
    sensitivity: int, share_variance: Fraction, honest: int, size: int, *, share: Fraction | None = None
) -> Fraction:
    """ρ of the honest ones' h shares together [KLS21]; exactly D²/(2s²) for h = 1. ``share``: the least variance of
    one maker's share of any coordinate, where coordinates differ."""
    exact = rho_for(sensitivity, share_variance * honest)
    if honest == 1:
        return exact
    v = float(share_variance if share is None else share)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * v * k / (k + 1)) for k in range(1, honest))
    if tau == 0.0:
        return exact
    ratio = math.sqrt(2 * float(exact))  # D/s
    charged = min(math.sqrt(ratio**2 + tau * size / 2), ratio + tau * math.sqrt(size)) ** 2 / 2
    return max(exact, Fraction(charged * (1 + 1e-12)))
