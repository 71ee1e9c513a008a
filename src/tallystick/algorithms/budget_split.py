"""ε-splitting: how the budget of a round is best divided over its groups of coordinates.

A group of m coordinates and sensitivity Δ that gets the share s of the budget has noise of variance

    Gaussian   Δ²/(2 s ρ)        on each coordinate (zCDP adds up:  Σ s = 1)
    Laplace    2 (Δ/(s ε))²      on each coordinate (ε adds up:     Σ s = 1)

so with w the weight of a squared error in it, the whole error is Σ w m Δ²/s, or Σ w m Δ²/s². Setting the derivative by
each s to the same Lagrange multiplier gives

    Gaussian   s ∝ (w m Δ²)^(1/2),        Laplace   s ∝ (w m Δ²)^(1/3).

Both sums are convex in the shares, so this is the least error there is. One Gaussian on the joined vector, each group
scaled by its own factor, is no better: the groups' norms add up, and the best factors give the same Σ (m^(1/2) Δ)².
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tallystick.algorithms.design import PublicBudget
from tallystick.privacy.grid import Group

LEAST_ERROR = "proposed: the least error"


def group_sensitivity(group: Group, budget: PublicBudget) -> float:
    """How far one record (or person) moves the group's sum, in real units: as ``privacy/sensitivity`` has it."""
    replaced = budget.sensitivity_factor == 2
    root = group.nonnegative and replaced and budget.mechanism != "laplace"
    return group.bound * budget.person_factor * (math.sqrt(2) if root else budget.sensitivity_factor)


def least_error(
    groups: Sequence[Group], budget: PublicBudget, weights: Mapping[str, float] | None = None
) -> tuple[Group, ...]:
    """The groups with the shares that make the weighted sum of all coordinates' squared errors least."""
    power = 1 / 3 if budget.mechanism == "laplace" else 1 / 2
    errors = [(weights or {}).get(g.name, 1.0) * g.size * group_sensitivity(g, budget) ** 2 for g in groups]
    parts = [e**power for e in errors]
    return tuple(replace(g, share=p / sum(parts)) for g, p in zip(groups, parts))


def split_note(groups: Sequence[Group], *, why: str) -> str:
    """One line of the plan: which split was taken, and why."""
    shares = ", ".join(f"{g.name} {g.share:.3g}" for g in groups)
    return f"split of the budget over groups: {shares} ({why})"
