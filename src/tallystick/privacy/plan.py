"""The plan of a study: what is claimed, what it costs and what is said of it, derived once from public facts.

This is what every trust model has, whether it adds up, selects or gossips: ledger, governance, receipts and the one
exit read nothing else. What a *sum* has besides (grids, the noise of each round) is in
:mod:`tallystick.privacy.sum_plan`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tallystick.privacy.accountant import ORDERS, epsilon_from_rho, rounded_up
from tallystick.privacy.gaussian_curve import distance_delta, gaussian_epsilon
from tallystick.privacy.rules import Claim
from tallystick.privacy.sampling import curve_epsilon


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(ABC):
    """Everything that will be spent. Public: it may be shown to anyone."""

    claim: Claim
    notes: tuple[str, ...] = ()
    gaussian_distance: Fraction | None = None
    """Where all noise is Gaussian and the promise is the exact curve's of μ² = 2ρ: how far, in total variation, what is
    released may be from rounded Gaussians (mechanisms/rounded_gaussian.md). None: the promise is by Rényi curves."""
    hopeless: str | None = None
    """Why the planner expects nothing but noise, if it does."""
    details: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        claim = self.claim
        promise = f"epsilon={claim.epsilon:g}, delta={claim.delta:g}" if self.differentially_private else "no noise"
        noise = ", ".join(f"{name} {std:.4g}" for name, std in self.noise_std.items())
        doubt = "; hopeless" if self.hopeless else ""
        return f"<{type(self).__name__}: {promise}, {claim.neighbours}; {claim.rounds} round(s), noise {noise}{doubt}>"

    @property
    @abstractmethod
    def rho(self) -> Fraction:
        """Whole zCDP cost: what the ledger reserves before anything is computed."""

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Whole pure cost, where it has one."""
        return None

    def renyi_curve(self) -> list[float] | None:
        """The Rényi curve at the public orders where it may lie below ρα, as that of sampled rounds does."""
        return None

    @property
    @abstractmethod
    def noise_std(self) -> dict[str, float]:
        """The ``noise_std`` object of a result: what one noise maker adds, and all of them together."""

    @abstractmethod
    def noise_parameters(self, rounds: int | None = None) -> list[list[Fraction]]:
        """What a noise maker vouches for: the exact parameters of its noise in each of the first ``rounds`` rounds."""

    @property
    def differentially_private(self) -> bool:
        """False only for mechanism "none"."""
        return self.claim.mechanism != "none"

    def spent_epsilon(self) -> float | None:
        """The ε that the whole cost promises at the claim's δ (where it is pure: that ε); None without noise."""
        if not self.differentially_private:
            return None
        if self.pure_epsilon is not None:
            return rounded_up(self.pure_epsilon)
        if self.gaussian_distance is not None:
            aside = distance_delta(self.gaussian_distance, Fraction(self.claim.epsilon))
            return gaussian_epsilon(self.rho, Fraction(self.claim.noise_delta) - aside)
        curve = self.renyi_curve()
        if curve is not None:
            return curve_epsilon(curve, ORDERS, self.claim.noise_delta)
        return epsilon_from_rho(self.rho, self.claim.noise_delta)
