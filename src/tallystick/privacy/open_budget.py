"""Rounds whose prices are chosen as they come, within what was reserved: exact, and checked by all who add noise.

An adaptive program (a search that narrows) does not know beforehand how much each of its rounds should cost. The ledger
then reserves the whole before the first round, and each round's *price*, a whole number of :data:`PARTS` of that
reservation, is the first number of the public state that opens the round. State and price are hashed; every noise maker
reads the price there, checks it against what it has itself admitted and kept (:class:`Prices`), and refuses the round
that would exceed the reservation. All of it is integers and fractions: nobody recomputes a float.

THEOREM (filter). If every round r is ρ_r-zCDP given the past, where ρ_r may depend on what was released before, and
rounds stop before Σρ_r exceeds ρ, then the whole is ρ-zCDP [WRRW23, Thm. 1; FZ21, Thm. 3.1 at every order]. For pure ε
likewise, by basic composition [RRUV16, Thm. 3.6]. Gaussian rounds that stop before Σρ_r exceeds ρ keep the exact curve
of ρ as well (mechanisms/rounded_gaussian.md, Lemma 2: ``on_curve``).

Noise. Gaussian: a price of k parts gives group g  ρ_g = ρ·k/PARTS·(its share), and a share variance of at least
D²/(2ρ_g h), and of at least 4 where h > 1. A sum of h shares is not exactly discrete Gaussian: [KLS21, Thm. 1] charges
τd/4 more, τ ≤ 10(h − 1)e^(−π²·4) < 10(h − 1)2^−56. That much is set aside for every round before the rest is divided.
On the curve v = s² − 1/12 takes the place of s²: share variances are 1/(12h) larger, and cost D²/(2v).
Laplace: scale D/ε_g, each maker the whole of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from struct import Struct
from typing import assert_never

from tallystick.core.errors import PrivacyRefused, VerificationError
from tallystick.privacy.mechanisms import Mechanism, round_up_scale, round_up_variance
from tallystick.privacy.mechanisms.rounded_gaussian import ROUNDING
from tallystick.privacy.round_plan import MIN_SHARE_VARIANCE, GroupNoise, RoundPlan

PARTS = 2**20
"""A price is so many of these parts of the reservation."""
_FLOAT, _ENTRY = Struct("<d"), Struct("<II")


def shares_overhead(round_plan: RoundPlan, honest: int) -> Fraction:
    """What h > 1 shares may cost beyond D²/(2s²) in one round: Σ over groups of τd/4, bounded by a fraction."""
    size = sum(n.group.size for n in round_plan.noise)
    return Fraction(10 * (honest - 1) * size, 4 * 2**56)


@dataclass(frozen=True, kw_only=True)
class OpenBudget:
    """What the rounds of one study may cost together, and how a price becomes noise."""

    whole: Fraction
    """ρ (ε for Laplace) that is divided by prices."""
    least: int
    """No price is lower: so the largest noise, and with it the room a sum needs, is known beforehand."""
    honest: int
    on_curve: bool = False
    """Whether the promise is the exact Gaussian curve's."""

    def price_in(self, model: bytes, round: int) -> int:
        """The price that a round's public state begins with."""
        stated = _FLOAT.unpack_from(model)[0] if len(model) >= _FLOAT.size else -1.0
        if not (self.least <= stated <= PARTS and stated == int(stated)):
            raise PrivacyRefused(
                f"the state of round {round} begins with no price from {self.least} to {PARTS} parts",
                rule="price-is-stated",
                round=round,
                remedy="The coordinator runs another program or version; nothing was drawn.",
            )
        return int(stated)

    def costs(self, round_plan: RoundPlan) -> list[Fraction]:
        """c_g, such that noise of parameter p costs c_g/p: D²/(2h) for the Gaussian's variance, D for Laplace's.

        On the curve p is the continuous share of the variance, :attr:`rounding` less.
        """
        if round_plan.mechanism is Mechanism.LAPLACE:
            return [Fraction(n.sensitivity) for n in round_plan.noise]
        return [Fraction(n.sensitivity**2, 2 * self.honest) for n in round_plan.noise]

    @property
    def rounding(self) -> Fraction:
        """What of a maker's variance stands for the rounding: 1/(12h) on the curve."""
        return ROUNDING / self.honest if self.on_curve else Fraction(0)

    def gaussian_distance(self, round_plan: RoundPlan, rounds: int) -> Fraction | None:
        """How far all rounds may be from rounded Gaussians, whatever their prices: each as if it had the whole."""
        one = self.priced(round_plan, PARTS).gaussian_distance(self.honest)
        return None if one is None else rounds * one

    def least_parameter(self, mechanism: Mechanism) -> Fraction:
        """No maker adds less, whatever is paid: below it a sum of h > 1 shares may cost more than was set aside."""
        return Fraction(MIN_SHARE_VARIANCE if mechanism is Mechanism.GAUSSIAN and self.honest > 1 else 0)

    def priced(self, round_plan: RoundPlan, price: int) -> RoundPlan:
        """The round at this price: the same grid, other noise."""
        amount = self.whole * price / PARTS
        shares = [Fraction(n.group.share) for n in round_plan.noise]
        parts = zip(round_plan.noise, shares, self.costs(round_plan))
        noise = [self._noise(round_plan.mechanism, n, amount * s / sum(shares), cost) for n, s, cost in parts]
        return replace(round_plan, noise=tuple(noise))

    def _noise(self, mechanism: Mechanism, noise: GroupNoise, amount: Fraction, cost: Fraction) -> GroupNoise:
        match mechanism:
            case Mechanism.GAUSSIAN:
                wanted = cost / amount + self.rounding
                variance = round_up_variance(max(wanted, self.least_parameter(mechanism)))
                charged = cost / (variance - self.rounding)
                return replace(noise, parameter=variance, variance=float(variance), rho=charged)
            case Mechanism.LAPLACE:
                return noise.with_scale(round_up_scale(cost / amount))
            case Mechanism.NONE:
                return noise
            case _:
                assert_never(mechanism)


@dataclass(frozen=True)
class Prices:
    """One noise maker's own filter: the price of every round it has admitted. Kept before the noise is drawn."""

    by_round: Mapping[int, int] = field(default_factory=dict)

    def admit(self, round: int, price: int) -> Prices:
        """With this round; refused if the sum would exceed the reservation, or the round has another price already."""
        known = self.by_round.get(round, price)
        if known != price:
            raise PrivacyRefused(
                f"round {round} was admitted at another price",
                rule="one-price-a-round",
                round=round,
                remedy="The coordinator opened one round twice, differently. Nothing was drawn for the second.",
            )
        admitted = Prices({**self.by_round, round: price})
        if sum(admitted.by_round.values()) > PARTS:
            raise PrivacyRefused(
                f"round {round} would cost more than is left of what the study reserved",
                rule="price-within-reservation",
                round=round,
                remedy="Nothing was drawn. The program must stay within its reservation.",
            )
        return admitted

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(round, price) for round, price in sorted(self.by_round.items()))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Prices:
        """As it was kept; a damaged record is refused rather than guessed at."""
        if len(raw) % _ENTRY.size:
            raise VerificationError(
                "the kept prices of a study's rounds are damaged",
                remedy="Restore this party's state from its last good copy; until then it takes part in no round.",
            )
        return cls(dict(_ENTRY.iter_unpack(raw)))
