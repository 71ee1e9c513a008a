"""The second kind of program: each client works on all its records, keeps a memory, and sends one vector a round.

    step_in_client(records, state, memory) → vector, memory

Consensus ADMM and interior points are like that: a learner's own variables (a multiplier for each record) go on from
round to round and never leave it. The vector is whole numbers on the round's grid, so that sums are exact; a program
whose answer must not depend on how records are split over clients encodes each record's part by itself and adds up
integers.

The price: no record's part is clipped, so nothing here is differentially private unless the program brings a theorem
of its own (:mod:`tallystick.privacy.client_vectors`).

A client that misses a round has a memory that no longer fits the others', so such a study ends there: every vector
begins with a 1, and ``reduce_in_aggregator`` counts (:func:`check_learners`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import Design
from tallystick.algorithms.program import BuiltInProgram, State
from tallystick.core.errors import RoundAborted, StudyError
from tallystick.privacy.client_vectors import CLIENTS, FRACTION_BITS, client_plan
from tallystick.privacy.rules import Claim
from tallystick.privacy.sum_plan import SumPlan


class LocalProgram(BuiltInProgram):
    """Base of programs with a memory at the client. Fields are public facts; records and memories are arguments."""

    @abstractmethod
    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        """Local, once per study; what it returns never leaves the client."""

    @abstractmethod
    def start_in_client(self, prepared: Any) -> State:
        """The memory before the first round: arrays of float64, whose shapes stay."""

    @abstractmethod
    def step_in_client(self, prepared: Any, state: State, memory: State) -> tuple[NDArray[np.int64], State]:
        """This round's vector in grid units, and the memory afterwards; ``memory`` itself is left as it is.

        The same arguments give the same bits: a client that was killed computes the round again.
        """


Labels = Callable[[], NDArray[np.float64]]
"""±1 for each person, 0 where there is no label that can be used; waits until they are there."""


class ReducedAtLabels(LocalProgram):
    """One of institutions with different columns, whose sums only who knows the labels can go on from."""

    records: int
    """People of a round, as the study states; those beyond the ones that are there are zeros, and have no label."""

    @abstractmethod
    def at(self, holder: str) -> LocalProgram:
        """The program as one institution has it, for its own columns."""

    @abstractmethod
    def reducing(self, labels: Labels) -> LocalProgram:
        """The program as who reduces has it: the labels are asked for when they are needed, and stay in it."""


@dataclass(frozen=True, kw_only=True)
class LocalDesign(Design):
    """A program with its rounds of clients' vectors: how long each is; with a theorem, how far a record moves it."""

    kind = "sums"
    program: LocalProgram
    sizes: tuple[int, ...]
    fraction_bits: int = FRACTION_BITS
    sensitivities: tuple[float, ...] | None = None
    """The L2 distance that one record (as the study's neighbours have it) moves each round's sum; None: not known."""
    weights: tuple[float, ...] | None = None

    @property
    def rounds(self) -> int:
        return len(self.sizes)

    @property
    def if_a_party_is_lost(self) -> str:
        return (
            "Every institution has to take part in every round: each keeps variables that go on from one to the next. "
            "If one is lost, the study ends without a result."
        )

    def plan(self, claim: Claim, *, threshold: float | None = None) -> SumPlan:
        asked = {"threshold": threshold, "sampling": claim.sampling, "[stream]": claim.parallel or None}
        for what in [name for name, value in asked.items() if value is not None]:
            raise StudyError(
                f"{what} is for sums of records, and this program sums what each client works out from all of them",
                rule="client-vectors-are-whole",
                remedy=f"Leave {what} out.",
            )
        made = client_plan(
            claim,
            self.sizes,
            fraction_bits=self.fraction_bits,
            sensitivities=self.sensitivities,
            weights=self.weights,
            notes=self.notes,
        )
        return replace(made, hopeless=self.hopeless, details=dict(self.details))


def check_learners(counted: float, expected: float) -> int:
    """How many clients are in a total, by the ones that their vectors begin with; ``expected`` 0 in the first round."""
    learners = int(counted)
    if learners != counted or not 1 <= learners <= CLIENTS:
        raise RoundAborted(
            f"a total says that {counted:g} clients are in it, and from 1 to {CLIENTS} can be",
            rule="learners-are-counted",
            remedy="Somebody's software differs: compare versions. Nothing more is computed.",
        )
    if expected and learners != expected:
        raise RoundAborted(
            f"{learners} of {int(expected)} learners are in this round: one has dropped out, and the others' variables "
            "do not fit any more",
            rule="a-learner-dropped-out",
            remedy="What was computed so far is given up. Run the study again, as a new version, with those who can "
            "stay until its end.",
        )
    return learners


def grid_values(values: Sequence[float] | NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Real numbers on a grid of 2^-bits; those too large for 64 bits become the largest there is, which is refused."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), bits))
    return np.clip(scaled, -(2.0**62), 2.0**62).astype(np.int64)
