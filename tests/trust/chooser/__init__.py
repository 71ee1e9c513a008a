"""A toy that does not sum: a chooser is sent counts, and says which value of a column is the most frequent, no more.

Report noisy max: discrete Laplace noise on every count, and only the place of the largest leaves [DR14, §3.3]: ε-DP for
counts that a record changes by at most 1 each, at scale 2/ε. No total exists anywhere outside the chooser, so nothing
here is a sum, a grid or a round plan; ledger, governance, receipt and release are everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from tests.trust.curator import Curator

from tallystick.algorithms.built_in import BUILT_IN, BuiltIn
from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.program import Public
from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records
from tallystick.privacy.accountant import pure_rho
from tallystick.privacy.mechanisms import discrete_laplace, round_up_scale
from tallystick.privacy.plan import Plan
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.trust import NoiseMakers, Trust
from tallystick.study.sections import Real, TrustSection, Whole

__all__ = ["CHOOSER", "MOST_FREQUENT", "ChoicePlan", "install", "uninstall"]


@dataclass(frozen=True, kw_only=True)
class ChoicePlan(Plan):
    """One choice, of pure ε."""

    values: int

    @property
    def scale(self) -> Fraction:
        return round_up_scale(2 / Fraction(self.claim.epsilon))

    @property
    def pure_epsilon(self) -> Fraction:
        return 2 / self.scale

    @property
    def rho(self) -> Fraction:
        return pure_rho(self.pure_epsilon)

    @property
    def noise_std(self) -> dict[str, float]:
        return {}

    def noise_parameters(self, rounds: int | None = None) -> list[list[Fraction]]:
        return [[self.scale]]

    def draw(self, source: WordSource) -> NDArray[np.int64]:
        return discrete_laplace.sample(self.scale, self.values, source)


class Choice:
    """What is asked: which feature is 1 most often. The state is the chosen place."""

    def __init__(self, values: int) -> None:
        self.values = values

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.zeros(1)

    def query(self, state: Any) -> Any:
        return state

    def counts(self, records: Records) -> NDArray[np.int64]:
        return np.asarray(records.features.sum(axis=0), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class ChoiceDesign(Design):
    kind: ClassVar[str] = "choices"
    program: Choice

    @property
    def rounds(self) -> int:
        return 1

    def plan(self, claim: Claim, *, threshold: float | None = None) -> ChoicePlan:
        check_claim(claim)
        return ChoicePlan(claim=claim, values=self.program.values)


def _design(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> ChoiceDesign:
    return ChoiceDesign(program=Choice(len(public.features)))


MOST_FREQUENT = BuiltIn(keys=frozenset(), design=_design, estimator="tests.trust.chooser.estimator:MostFrequent")


class ChooserSection(TrustSection):
    """[trust] model = "chooser"."""

    model: Literal["chooser"] = "chooser"
    min_clients: Whole | None = None
    round_timeout_s: Real = 60


class Chooser(Curator):
    name = "chooser"
    section = "tests.trust.chooser:ChooserSection"
    computes = ("choices",)
    simulation = "tests.trust.chooser.parts:SimulatedChooser"
    parts: ClassVar[Mapping[str, str]] = {
        "client": "tests.trust.chooser.parts:ChooserClientPart",
        "curator": "tests.trust.chooser.parts:ChooserPart",
    }

    def trust(self, section: Any) -> Trust:
        return Trust(
            makers=NoiseMakers(count=1, honest=1),
            facts=(("model", self.name), ("honest", 1)),
            words="holds against everybody but the chooser, who sees every institution's counts.",
            maker="chooser",
        )


CHOOSER = Chooser()


def install() -> None:
    """Make trust model and program known to this process."""
    from tallystick.study.trust import register

    register(CHOOSER)
    BUILT_IN["most_frequent"] = MOST_FREQUENT


def uninstall() -> None:
    from tallystick.study import trust

    del trust._REGISTERED[CHOOSER.name], BUILT_IN["most_frequent"]
