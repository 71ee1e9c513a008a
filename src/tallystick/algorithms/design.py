"""How an algorithm answers a study: its program, and what each round may cost and add.

A design is made from public facts alone (schema, number of records, budget, trust), before any record is read. The plan
turns it into noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tallystick.algorithms.program import Program
from tallystick.privacy.grid import Group

__all__ = ["Design", "PublicBudget"]


@dataclass(frozen=True, kw_only=True)
class PublicBudget:
    """The whole budget as a designer sees it: ρ for the Gaussian, ε for Laplace, and the price of the trust model.

    ``variance_factor`` is total noise variance over what one trusted curator would need.
    """

    mechanism: str
    rho: float
    epsilon: float
    neighbours: str
    variance_factor: float
    person_factor: int = 1
    ticks: int | None = None
    """Of a stream: ``rho`` and ``epsilon`` are then those of all ticks together, and every round has 1/ticks of it."""

    def share_of_one(self, share: float) -> float:
        """What one round has that is to have this share; a stream's rounds are equal, whatever their weights."""
        return share if self.ticks is None or self.ticks == 1 else 1 / self.ticks

    def noise(self, sensitivity: float, share: float) -> float:
        """Standard deviation of one coordinate, all servers together, when ``share`` of the budget buys its round."""
        if self.mechanism == "none":
            return 0.0
        if self.mechanism == "laplace":
            return sensitivity / (share * self.epsilon) * math.sqrt(2 * self.variance_factor)
        return sensitivity * math.sqrt(self.variance_factor / (2 * share * self.rho))

    @property
    def sensitivity_factor(self) -> int:
        """Sensitivity over bound: 2 for replace-one, 1 for add-remove."""
        return 1 if self.neighbours == "add-remove" else 2


@dataclass(frozen=True, kw_only=True)
class Design:
    """A program with its rounds: groups per round, the budget's split over rounds, and what to tell the user."""

    program: Program
    groups: tuple[tuple[Group, ...], ...]
    weights: tuple[float, ...] | None = None
    fraction_bits: int | None = None
    notes: tuple[str, ...] = ()
    hopeless: str | None = None
    split: str = "as the program declares it"
    """Why the groups of a round have the shares they have: a note of the plan where there are several."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.groups)
