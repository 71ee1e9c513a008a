"""What every institution with columns of its own does before it can take part in a round: it finds whom it shares.

    identifiers  ->  aligned rows  ->  what the study makes of them (a subclass)

It begins when the charge is countersigned and the round asks for the records, never before; after a restart it begins
by itself, if it had begun, because others may still need what they were told. What it says to another institution is
sealed to it, signed, and passed on by whoever coordinates. Seeds and lists are kept before what is made of them leaves,
and erased with the study's other secrets.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, NotApproved, RemoteProtocolError, TallystickError
from tallystick.data.held_columns import held_table
from tallystick.data.identifiers import Identifiers, check_shared, read_identifiers
from tallystick.engines.setup import Setup
from tallystick.protocol import alignment
from tallystick.protocol.alignment import messages as lists
from tallystick.protocol.alignment.machine import SEED
from tallystick.protocol.instructions import Aborted
from tallystick.protocol.patience import FIRST_SECONDS
from tallystick.protocol.study.roster import Roster
from tallystick.protocol.summing import rule_of
from tallystick.roles.holders.facts import alignment_of, holders_limit, longest_said
from tallystick.roles.holders.packing import least_size, pack, unpack
from tallystick.roles.processes.part import ROUNDS, Driver
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.wire import SEALED

_log = logging.getLogger("tallystick.roles")
_LISTS = alignment.codec.MAGIC


class AligningWork(ABC):
    """See the module. ``ended`` is told, once, that :attr:`ready` or :attr:`failure` is there."""

    def __init__(self, session: Any, setup: Setup, roster: Roster, *, ended: Callable[[], None]) -> None:
        self._session, self._setup, self._roster, self._ended = session, setup, roster, ended
        self.name: str = session.process.name
        self.speakers = frozenset(setup.study.data.holders or {}) - {self.name}
        """Who says something to this institution before its round, sealed."""
        self.ready: Any = None
        """What answers the rounds."""
        self.failure: TallystickError | None = None
        """Why nothing will."""
        self._drive = Driver(session, ROUNDS, send=self._send, other=self._step)
        self._limit, self._least = holders_limit(setup), least_size(longest_said(setup))
        self._table: Any = None
        self._found: Identifiers | None = None
        self._aligning: alignment.AligningMachine | None = None

    @property
    def had_begun(self) -> bool:
        """Whether anything may have left before this process started."""
        return SEED in self._records()

    def _records(self) -> Any:
        return self._session.process.store.records(self._session.study_hash)

    def begin(self, source: str | Path) -> None:
        """Start, or take up again what was begun; nothing happens the second time."""
        if self._found is not None or self.failure is not None:
            return
        process, study = self._session.process, self._setup.study
        self._guarded(lambda: self._begin(source, process, study))

    def _begin(self, source: str | Path, process: Any, study: Any) -> None:
        self._table = held_table(study, self.name, source)  # once: a file may change before its cells are wanted
        self._found = read_identifiers(self._table, study.data.identifier, party=self.name)
        self._aligning, first = alignment.AligningMachine.restore(
            alignment_of(self._session, self._setup, self._roster),
            self.name,
            self._records(),
            process.parts.streams(self._session.study_hash, b"alignment", self.name.encode()),
        )
        self._drive(first)
        self._drive(self._aligning.start(self._found.names))
        self._look_again()

    @abstractmethod
    def _read(self, found: Identifiers, positions: NDArray[np.int64]) -> None:
        """The people whom all have in common are known, by their places among the identifiers here."""

    # -- what comes in ------------------------------------------------------------------------------------------------

    def takes(self, sender: str, kind: int, payload: memoryview) -> bool:
        """Whether a message is for this work, and not for the round."""
        return sender in self.speakers

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        """Such a message; one that comes too early is asked for again."""
        if kind != SEALED or self._session.seals is None:
            raise RemoteProtocolError("what institutions and their dealer say is sealed", party=sender)
        try:
            raw = unpack(bytes(self._session.seals.open(sender, payload)), sender)
        except RemoteProtocolError as error:
            if error.rule == "replayed":  # overtaken on its way, or repeated: it is asked for again
                return
            raise
        machine = self._machines().get(raw[:4])
        if machine is not None and self.failure is None:
            now = self._session.process.now()
            self._guarded(lambda: self._drive(machine.receive_bytes(sender, raw, now, limit=self._limit)))

    def _machines(self) -> dict[bytes, Any]:
        """Those that are there, by how the messages of each begin."""
        return {_LISTS: self._aligning}

    def tick(self) -> None:
        """Ask again for what has not come."""
        now = self._session.process.now()
        for machine in self._machines().values():
            if machine is not None and self.failure is None:
                self._guarded(lambda m=machine: self._drive(m.tick(now)))  # type: ignore[misc]

    # -- carrying out -------------------------------------------------------------------------------------------------

    def _send(self, to: str, message: Any) -> None:
        self._seal(to, pack(alignment.encode(message), self._least))
        if isinstance(message, lists.BlindedList):
            crashpoint("blinded-list-sent")
        if isinstance(message, lists.Refused):
            self._fail(RemoteProtocolError(message.cause, party=to, rule=rule_of(lists.Code(message.code))))

    def _seal(self, to: str, said: bytes) -> None:
        pieces, _ = self._session.seals.seal(to, said)
        raw = b"".join(bytes(p if isinstance(p, memoryview) else p.view()) for p in pieces)
        self._session.process.send(to, raw)

    def _step(self, step: Any) -> None:
        match step:
            case alignment.Aligned(positions=positions) if self._found is not None:
                found = self._found
                _log.info(
                    "%d of %d people named here are at all institutions (%d rows named nobody, %d somebody twice). "
                    "This stays on this machine.",
                    len(positions), len(found), found.blank, found.repeated,
                )  # fmt: skip
                check_shared(len(positions))
                self._read(found, positions)
            case Aborted(error=error):
                self._fail(error)
            case _:
                pass

    def _look_again(self) -> None:
        """In a moment: what others say unasked is on its way, and need not come twice."""
        process = self._session.process
        process.wake(process.now() + FIRST_SECONDS, self._session, ROUNDS)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (DataError, NotApproved, RemoteProtocolError) as error:
            self._fail(error)

    def _done(self, ready: Any) -> None:
        self.ready, self._table = ready, None
        self._ended()

    def _fail(self, error: TallystickError) -> None:
        if self.failure is None:
            self.failure = error
            self._ended()
