"""How an algorithm answers a study: its program, and what each round may cost and add.

A design is made from public facts alone (schema, number of records, budget, trust), before any record is read. The plan
turns it into noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tallystick.algorithms.program import Program
from tallystick.core.errors import StudyError
from tallystick.privacy.grid import Group
from tallystick.privacy.plan import Plan
from tallystick.privacy.rules import Claim
from tallystick.privacy.selection_plan import SelectionPlan, Step, make_selection_plan
from tallystick.privacy.sum_plan import SumPlan, make_plan


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

    def part(self, share: float) -> PublicBudget:
        """The budget of a program that has this share of it, beside others in the same study."""
        return replace(self, rho=share * self.rho, epsilon=share * self.epsilon)

    @property
    def sensitivity_factor(self) -> int:
        """Sensitivity over bound: 2 for replace-one, 1 for add-remove."""
        return 1 if self.neighbours == "add-remove" else 2


@dataclass(frozen=True, kw_only=True)
class Design(ABC):
    """An algorithm's answer to a study, whatever its trust model does with it: a program, and what to tell the user."""

    kind: ClassVar[str]
    """What has to be computed, e.g. ``"sums"``; a trust model says which kinds it computes."""
    joint: ClassVar[bool] = False
    """Whether it is of institutions that hold different columns of the same people."""
    tells_of_people: ClassVar[bool] = False
    """Whether exact numbers of single people go through its rounds: then they are kept as secrets are, and erased."""
    program: Any
    notes: tuple[str, ...] = ()
    hopeless: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Number of rounds."""

    @property
    def only_simulated(self) -> StudyError | None:
        """Why real parties do not run this; None if they do."""
        return None

    @property
    def if_a_party_is_lost(self) -> str:
        """What becomes of a study with this design that loses a party half-way, in words for before it starts."""
        if self.rounds > 1 and getattr(self.program, "interim", False):
            return "If a party is lost half-way, the last state is released, marked as ended early, and the rest waits."
        return (
            "If a party is lost, nothing is released before it is back: no state before the last round is usable. "
            "A study that is closed then ends without a result."
        )

    @abstractmethod
    def plan(self, claim: Claim, *, threshold: float | None = None) -> Plan:
        """What it costs under this claim; refused by the first privacy rule that does not hold."""


@dataclass(frozen=True, kw_only=True)
class SumDesign(Design):
    """A program with its rounds of sums: groups per round, and the budget's split over rounds."""

    kind = "sums"
    program: Program
    groups: tuple[tuple[Group, ...], ...]
    weights: tuple[float, ...] | None = None
    fraction_bits: int | None = None
    split: str = "as the program declares it"
    """Why the groups of a round have the shares they have: a note of the plan where there are several."""
    least_price: int | None = None
    """The program chooses each round's price as it goes, within the whole budget
    (:mod:`tallystick.privacy.open_budget`); none is lower than this. Its states begin with the next round's price."""

    @property
    def rounds(self) -> int:
        return len(self.groups)

    def plan(self, claim: Claim, *, threshold: float | None = None) -> SumPlan:
        return make_plan(
            claim,
            self.groups,
            fraction_bits=self.fraction_bits,
            weights=self.weights,
            notes=self.notes,
            hopeless=self.hopeless,
            threshold=threshold,
            least_price=self.least_price,
            details=self.details,
        )


@dataclass(frozen=True, kw_only=True)
class SelectionDesign(Design):
    """A program whose last answer is selected, not summed: rounds of counts, if any, and draws."""

    kind = "selections"
    program: Program
    steps: tuple[Step, ...]

    @property
    def rounds(self) -> int:
        return len(self.steps)

    @property
    def if_a_party_is_lost(self) -> str:
        return (
            "If a party is lost before a draw, the study waits for it. If one is lost in the middle of a draw, the "
            "study ends without a result, and what it costs stays charged: no draw is made twice."
        )

    def plan(self, claim: Claim, *, threshold: float | None = None) -> SelectionPlan:
        return make_selection_plan(
            claim,
            self.steps,
            notes=self.notes,
            hopeless=self.hopeless,
            threshold=threshold,
            details=self.details,
        )
