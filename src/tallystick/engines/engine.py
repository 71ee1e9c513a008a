"""One way in for every study, whether it sums, selects or gossips: ``Engine.run(study, design)``.

    plan → reserve → compute → commit → release

What lies between reserving and committing is a :class:`Computation`, and the trust model's own: rounds of sums
(:mod:`tallystick.engines.rounds`), a selection by computing parties, peers that gossip. It is handed the plan and knows
neither ledger nor release; so none of them can leave by a door of its own, and none has to pretend to be a sum.

The charge is reserved before anything is computed and stays spent from the first noisy answer on, whatever happens
then. If nothing noised has left (the first round aborted), the reservation is withdrawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.algorithms.design import Design
from tallystick.algorithms.program import Public, State
from tallystick.core.errors import RoundAborted
from tallystick.core.randomness import WordSource
from tallystick.data.held_columns import HeldColumns
from tallystick.engines.client_map import AnyMap, ClientMaps, HeldRecords
from tallystick.engines.local_map import LocalMap
from tallystick.engines.totals import NoisyTotal
from tallystick.privacy.ledger import Ledger, charge_of
from tallystick.privacy.payment import Payment, paid_from
from tallystick.privacy.plan import Plan
from tallystick.privacy.release import Release, release
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout

Progress = Callable[[int, int], None]
"""Called with (round, rounds) after every round."""
Released = Callable[[State, NoisyTotal | None], None]
"""Called with the state after every round, and the total it followed from; None if a tick was lost."""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What came of it: the state after each round, and who took part. Nothing of it leaves before it is paid for."""

    history: tuple[State, ...]
    contributors: tuple[tuple[str, ...], ...]
    dropped: tuple[tuple[str, ...], ...]

    def paid(self, plan: Plan, study: bytes, payment: Payment) -> Outcome:
        """The same, released."""
        out = release(self.history[-1], plan=plan, study=study, payment=payment)
        return Outcome(release=out, history=self.history, contributors=self.contributors, dropped=self.dropped)


@dataclass(frozen=True, kw_only=True)
class Outcome(Computed):
    """A finished run: the released final state, the released states before it, and who took part."""

    release: Release

    @property
    def lost(self) -> tuple[int, ...]:
        """Ticks of a stream that released nothing."""
        return tuple([number for number, names in enumerate(self.contributors, start=1) if not names])


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run with what it took; everything here may be shown."""

    study: Study
    plan: Plan
    outcome: Outcome
    layout: FeatureLayout
    clients: int
    min_clients: int
    bytes_up_per_client: int
    bytes_down_per_client: int


class Engine(ABC):
    """Where studies are carried out: in this process, or by the roles of a consortium."""

    @abstractmethod
    def run(self, study: Study, design: Design, *, progress: Progress | None = None) -> Result:
        """Carry out a designed study: planned, paid for, released."""


class Computation(ABC):
    """One study's computation under its trust model, all parties in this process."""

    answered: bool = False
    """Whether anything noised has come out: then the charge stays, whatever error the program ends with."""

    def bytes_per_client(self) -> tuple[int, int]:
        """Mean bytes one client sent, and received."""
        return 0, 0

    @abstractmethod
    def compute(self, *, progress: Progress | None = None, released: Released | None = None) -> Computed:
        """Compute it, or raise with nothing released; a ``RoundAborted`` of a round after the first one had answers."""


@dataclass(frozen=True, kw_only=True)
class SimulatedStudy:
    """What a trust model is handed to simulate a study: public facts, and every institution's records."""

    study: Study
    design: Design
    plan: Plan
    public: Public
    template: State
    records: Mapping[str, HeldRecords]
    frames: Mapping[str, Any]
    min_clients: int
    stream: Callable[..., WordSource]
    """A random stream for every use, by labels: the system's, or a seeded simulation's."""
    drop: float = 0.0
    """The probability that an institution misses a round."""
    held: Mapping[str, HeldColumns] = field(default_factory=dict)
    """Every institution's columns of the aligned people, where columns are apart."""

    def maps(self) -> dict[str, AnyMap]:
        """What maps each institution's records, where the design asks for sums."""
        if self.design.joint:  # each holder has columns of its own, and so a program of its own
            return {
                name: LocalMap(self.design.program.at(name), held.among(self.design.program.records), self.template, {})
                for name, held in self.held.items()
            }
        maps = ClientMaps(self.study, self.design.program, self.template)
        return {
            name: maps.simulated(records, self.stream, name, self.frames[name])
            for name, records in self.records.items()
        }

    def keyed(self, *labels: bytes) -> WordSource:
        """A stream of this study's own."""
        return self.stream(self.study.hash, *labels)


def run_paid(
    computation: Computation,
    plan: Plan,
    *,
    study: bytes,
    ledger: Ledger,
    progress: Progress | None = None,
    released: Released | None = None,
) -> Outcome:
    """Compute on the account of one ledger: reserve, compute, commit, release."""
    entry = ledger.reserve(charge_of(study, plan))
    try:
        computed = computation.compute(progress=progress, released=released)
    except RoundAborted as error:
        # Nothing noised has come out, not even to the program. (A stream's records are spent with their watermark.)
        if error.round == 1 and not computation.answered and not plan.claim.parallel:
            ledger.withdraw(entry)
        raise
    return computed.paid(plan, study, paid_from(ledger.commit(entry)))
