"""The plan of a study with perturbed gradients: what all answers about a record cost, and how noisy they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tallystick.privacy.accountant import pure_rho
from tallystick.privacy.local.gradient import UNIT, GradientBudget, Strategy
from tallystick.privacy.local.plan import LocalPlan, local_claim
from tallystick.privacy.mechanisms import discrete_laplace
from tallystick.privacy.rules import Claim

_WORDS = (
    "holds against everybody, all other peers and whoever carries their messages together: local differential privacy; "
    "of a record nothing leaves its peer but gradients with noise, and all that is said of it costs epsilon together."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientPlan(LocalPlan):
    """What each peer spends on each of its records, over all its answers to walking models."""

    budget: GradientBudget

    @property
    def rho(self) -> Fraction:
        return pure_rho(Fraction(self.claim.epsilon))

    @property
    def noise_std(self) -> dict[str, float]:
        """Of one coordinate of a peer's first answer, in units of a record of L1 norm 1, before it is divided by k."""
        return {f"per_{self.claim.trust.maker}": discrete_laplace.standard_deviation(self.budget.scale(1)) / UNIT}

    def noise_parameters(self, rounds: int | None = None) -> list[list[Fraction]]:
        return [[self.budget.scale(use) for use in range(1, self.budget.answers + 1)]]


def make_gradient_plan(
    claim: Claim,
    *,
    strategy: Strategy,
    uses: int,
    problems: int,
    weak_epsilon: bool = False,
    notes: Sequence[str] = (),
    hopeless: str | None = None,
    details: dict[str, Any] | None = None,
) -> GradientPlan:
    """Derive the plan from public facts. A person's records share its ε: each has ε over their number."""
    claim = replace(claim, trust=replace(claim.trust, words=_WORDS))
    claim = local_claim(claim, "laplace", weak_epsilon=weak_epsilon)
    persons = claim.max_records * claim.max_institutions
    budget = GradientBudget(epsilon=Fraction(claim.epsilon) / persons, strategy=strategy, uses=uses, problems=problems)
    each = {"once": "once", "uses": f"{uses} times", "halving": f"{budget.answers} times, with half of the rest each"}
    first = math.sqrt(2) * float(budget.scale(1)) / UNIT
    told = (
        f"each record is used {each[strategy]} for each of {problems} problem(s); in its first answer Laplace noise of "
        f"standard deviation {first:.4g} is added to every coordinate of a sum of gradients, a record having L1 norm 1"
    )
    return GradientPlan(
        claim=claim,
        randomiser=None,
        record_share=persons,
        budget=budget,
        notes=(*notes, told),
        hopeless=hopeless,
        details=dict(details or {}),
    )
