"""A study's rounds at one party: what its trust model has it do between the start of the study and its end.

The session owns everything around the rounds (approval, keys, ledger, the end of it) and feeds its part; the part owns
the machine of its protocol. One class for each role of a trust model, named in its registration.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto.prg import SEED_BYTES
from tallystick.engines.client_map import ClientMaps, HeldRecords, padded
from tallystick.engines.engine import Computed, Progress, Released
from tallystick.engines.rounds import run_rounds
from tallystick.engines.setup import Setup
from tallystick.protocol.instructions import Compute, Forget, Persist, Send, Wake
from tallystick.protocol.members import Cast
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.session import Session
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.memories import StoredMemories
from tallystick.transport.network.admission import Sink, Unwanted

_log = logging.getLogger("tallystick.roles")
ROUNDS = "rounds"
"""The layer that a part's wake-up calls are for."""


class Part(ABC):
    """What every party's part has."""

    message_limit: int
    """No message of the rounds is longer."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        self.session: Any = session
        self.setup, self.roster = setup, roster

    @property
    def round(self) -> int:
        """The round it is in; 0 before the first."""
        return 0

    @abstractmethod
    def begin(self) -> None:
        """What the durable records say is to be done first."""

    @abstractmethod
    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        """A message of the rounds."""

    @abstractmethod
    def tick(self) -> None:
        """A time this part asked for has come, or a line is there again."""

    def connected(self, peer: str) -> None:
        """A line is there (again)."""
        self.tick()

    def sink(self, sender: str, length: int) -> Sink | None:
        """Where a message goes that is too long for memory; on a thread of the network. None assembles it there."""
        raise Unwanted

    def last_round_of(self, client: str) -> int:
        """(Witness) the last round in which anything of this client is held or was summed here; 0 if none. Durable."""
        return 0

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """The process stops, or the study is over."""

    def erase(self) -> None:
        """What is secret in this part's own files goes."""
        self.close()


class ClientPart(Part):
    """The part of an institution: it asks its session for the sum of the records (``session.compute``)."""

    def prepare(self, records: HeldRecords) -> Any:
        """The records, read and encoded, as this part answers with them: once, before its first answer."""
        process, setup = self.session.process, self.setup
        maps = ClientMaps(setup.study, setup.design.program, setup.template)
        kept = StoredMemories(process.store, self.session.study_hash, keeps=lambda: bool(self.session.keeps))
        return maps.of(records, process.parts.streams, process.name, kept)

    def answer(self, step: Compute, prepared: Any) -> None:
        """What a round asks for may leave: the sum of the records' vectors, unless the trust model asks for other."""
        setup = self.setup
        plan = setup.sum_plan.rounds[step.round - 1]
        values = padded(prepared.contribute(step.model, plan, step.round), setup.size)
        if prepared.left_out:
            _log.warning(
                "round %d: the study's program failed on %d of %d records, which added zeros. "
                "This stays on this machine.",
                step.round,
                prepared.left_out,
                prepared.mapped,
            )
        self.contribute(step.round, values)

    @abstractmethod
    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        """Let this round's sum out, as the trust model has it."""

    @abstractmethod
    def withdraw(self, round: int) -> None:
        """Take no part in this round."""

    @classmethod
    def dispute(cls, setup: Setup, cast: Cast, records: Mapping[str, bytes], result: bytes) -> str | None:
        """Why this client cannot vouch for a study with this result, by what it has kept itself; None if it does.

        Raises ``VerificationError`` if it knows that the result is another.
        """
        return None


class CoordinatorPart(Part):
    """The part of who opens rounds and learns their totals.

    It tells its session ``round_finished(NoisySum)`` or ``round_aborted(error)``, or ``round_held(error)`` if a party
    is missed and the round may still go on; from :meth:`begin`, of a round that had ended before a restart,
    ``ended_before(NoisySum or error)``.
    """

    @abstractmethod
    def open_round(self, round: int, model: bytes) -> None:
        """Ask for this round's noisy total."""

    def blind(self, round: int) -> bytes:
        """What hides a round's model behind its hash, if it tells of single people; the machine keeps it."""
        if not self.setup.design.tells_of_people:
            return b""
        streams, study = self.session.process.parts.streams, self.session.study_hash
        return bytes(streams(study, b"model-blind", round.to_bytes(8, "little")).bytes(SEED_BYTES))

    def compute(self, *, progress: Progress, released: Released | None) -> Computed:
        """The whole computation, in a thread of its own: rounds of sums, unless the trust model does something else."""
        setup = self.setup
        return run_rounds(
            setup.design.program, setup.public, setup.sum_plan, self.session, progress=progress, released=released
        )


class Driver:
    """The one driver: does what a machine asks, in the order it asks it, whichever protocol it is of.

    ``send`` encodes and hands over; what only one role or protocol knows goes to ``other``.

    ``Persist`` and ``Forget`` are durable before the instruction after them is carried out.
    """

    def __init__(
        self, session: Session, layer: str, *, send: Callable[[str, Any], None], other: Callable[[Any], None]
    ) -> None:
        self._session, self._layer, self._send, self._other = session, layer, send, other

    def __call__(self, instructions: Iterable[Any]) -> None:
        session = self._session
        process, study = session.process, session.study_hash
        for step in instructions:
            match step:
                case Persist(key=key, record=record, secret=secret):
                    if session.keeps:
                        hidden = secret or (self._layer == ROUNDS and session.secret_rounds)
                        process.store.persist(study, key, record, secret=hidden)
                        crashpoint(f"{key}-kept")
                case Forget(key=key):
                    process.store.forget(study, key)
                    crashpoint(f"{key}-erased")
                case Send(to=to, message=message):
                    self._send(to, message)
                case Wake(at=at):
                    process.wake(at, session, self._layer)
                case _:
                    self._other(step)
