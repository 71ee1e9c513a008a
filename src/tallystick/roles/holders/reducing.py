"""At whoever coordinates a study that is reduced with labels: it asks the institution that has them, and keeps them.

It has a key for the study like its parties, drawn here, signed by its identity and erased at the end; the labels are
sealed to it. They are kept, as a secret, before the program goes on from the first sum. A holder that does not tell
them in the time of a round has the study paused: it is asked again when the study goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import ReducedAtLabels
from tallystick.core.errors import RemoteProtocolError, RoundAborted
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.engines.engine import Computed, Progress, Released
from tallystick.engines.rounds import run_at_labels
from tallystick.engines.setup import Setup
from tallystick.engines.totals import NoisyTotal
from tallystick.protocol import labels
from tallystick.protocol.instructions import Aborted
from tallystick.protocol.labels.codec import MAGIC
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.facts import holders_limit, labels_of
from tallystick.roles.processes.part import ROUNDS, CoordinatorPart, Driver
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.wire import SEALED, SUM, Seals, head

_KEY = "x25519"


class ReducesWithLabels(CoordinatorPart):
    """Before the part that all parties of a protocol have, in a class's list of bases; of other studies it is none."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.message_limit = max(self.message_limit, holders_limit(setup))
        self.asking: LabelsWork | None = None
        if isinstance(setup.design.program, ReducedAtLabels):
            self.asking = LabelsWork(session, setup, roster)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        if self.asking is not None and (kind == SEALED or payload[: len(MAGIC)] == MAGIC):
            self.asking.receive(sender, kind, payload)
        else:
            super().receive(sender, kind, payload)  # type: ignore[safe-super]

    def tick(self) -> None:
        super().tick()  # type: ignore[safe-super]
        if self.asking is not None:
            self.asking.tick()

    def compute(self, *, progress: Progress, released: Released | None) -> Computed:
        setup, asking = self.setup, self.asking
        if asking is None:
            return super().compute(progress=progress, released=released)
        return run_at_labels(
            setup.design.program, asking.wait, setup.public, setup.sum_plan, self.session, progress=progress
        )


class LabelsWork:
    """See the module."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        self._session, process, study = session, session.process, session.study_hash
        streams, name = process.parts.streams, process.name
        kept = process.store.key(study, _KEY)
        if kept is None:
            kept = AgreementKey.generate(streams(study, b"study-key", name.encode())).reveal()
            process.store.put_key(study, _KEY, kept)
            crashpoint("study-key-kept")
        signed = AgreementKey(kept).sign(
            process.parts.identity.signing, study_hash=study, party=name, role=process.role
        )
        if session.seals is None:  # those of before a pause count on
            source = streams(study, b"seal", name.encode())
            there = replace(roster, keys={**roster.keys, name: signed})
            session.seals = Seals(AgreementKey(kept), name, there, source, process.store.boot)
        self._parameters = labels_of(setup, roster, session.cast)
        self._machine = labels.TakingMachine(self._parameters, signed, process.store.records(study))
        self._drive = Driver(session, ROUNDS, send=self._send, other=self._step)
        self._limit, self._patience = holders_limit(setup), setup.study.trust.round_timeout_s
        self._until: float | None = None

    def wait(self) -> NDArray[np.float64]:
        """The labels; on the program's thread."""
        self._session.process.post_for(self._session, self._begin)
        told: NoisyTotal = self._session.labels()
        return told.values.astype(np.float64)

    def _begin(self) -> None:
        process = self._session.process
        self._until = process.now() + self._patience
        process.wake(self._until, self._session, ROUNDS)
        self._drive(self._machine.begin(process.now()))

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        """A message about the labels; what is sealed is opened for nobody but who tells them."""
        session = self._session
        if kind == SEALED and (sender != self._parameters.holder or session.seals is None):
            raise RemoteProtocolError("labels are told by the institution that has them", party=sender)
        if kind not in (SEALED, SUM):
            raise RemoteProtocolError("a message about labels of an unknown kind", party=sender)
        try:
            raw = bytes(session.seals.open(sender, payload) if kind == SEALED else payload)
        except RemoteProtocolError as error:
            if error.rule == "replayed":
                return
            raise
        self._drive(self._machine.receive_bytes(sender, raw, session.process.now(), limit=self._limit))

    def tick(self) -> None:
        """Ask again, for as long as a round waits; then the study is paused."""
        if self._until is None:
            return
        now, holder = self._session.process.now(), self._parameters.holder
        if now < self._until:
            self._drive(self._machine.tick(now))
            return
        self._until = None
        self._session.round_held(
            RoundAborted(
                f"{holder} has not told the labels in {self._patience:g} s",
                party=holder,
                round=1,
                rule="missing-labels",
            )
        )

    def _send(self, to: str, message: Any) -> None:
        session = self._session
        session.process.send(to, head(SUM, session.study_hash) + labels.encode(message))
        crashpoint("labels-wanted")

    def _step(self, step: Any) -> None:
        match step:
            case labels.Told(labels=told):
                self._until = None
                values, holder = told.astype(np.int64), self._parameters.holder
                self._session.tell_labels(NoisyTotal(values=values, participants=(holder,), dropped=(), makers=None))
            case Aborted(error=error) if self._until is not None:
                self._until = None
                self._session.tell_labels(error)
            case _:
                pass
