"""An institution's work before its rounds of a program with a memory: its columns of the aligned people, and, at one of
them, the labels for whoever reduces.

    aligned rows  ->  what answers every round, with its memory        labels  ->  sealed to who reduces, when it asks

All institutions take the people in the order of their identifiers, which each of them knows of those it shares: so a
simulation, which sorts them too, comes to the same bits. A digest of what was read is kept before any of it is used;
after a restart the same columns give the same bytes, and others are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.data.held_columns import HeldColumns, read_held
from tallystick.data.identifiers import Identifiers
from tallystick.engines.local_map import LocalMap
from tallystick.engines.setup import Setup
from tallystick.protocol import labels
from tallystick.protocol.instructions import Persist
from tallystick.protocol.labels.codec import MAGIC
from tallystick.protocol.labels.messages import Labels
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.aligning import AligningWork
from tallystick.roles.holders.facts import labels_of
from tallystick.roles.processes.part import ROUNDS, Driver
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.memories import StoredMemories
from tallystick.transport.wire import SUM, head

_READ = "columns-read"


class LearningWork(AligningWork):
    """See the module. What answers the rounds is a :class:`LocalMap`."""

    def __init__(self, session: Any, setup: Setup, roster: Roster, *, ended: Callable[[], None]) -> None:
        super().__init__(session, setup, roster, ended=ended)
        self._reducer = roster.coordinator
        self._teller: labels.TellingMachine | None = None
        self._drive_labels = Driver(session, ROUNDS, send=self._tell, other=self._step)
        if setup.public.label_holder == self.name:
            self._teller = labels.TellingMachine(labels_of(setup, roster, session.cast), self._records())

    # -- the labels ---------------------------------------------------------------------------------------------------

    def takes(self, sender: str, kind: int, payload: memoryview) -> bool:
        return super().takes(sender, kind, payload) or (kind == SUM and payload[: len(MAGIC)] == MAGIC)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        if sender in self.speakers:
            super().receive(sender, kind, payload)
            return
        teller = self._teller
        if teller is None or sender != self._reducer:
            raise RemoteProtocolError("labels are told by who has them, to whoever reduces", party=sender)
        raw, now = bytes(payload), self._session.process.now()
        if self.failure is None:
            self._guarded(lambda: self._drive_labels(teller.receive_bytes(sender, raw, now, limit=self._limit)))

    def _tell(self, to: str, message: Any) -> None:
        if not isinstance(message, Labels):
            self._session.process.send(to, head(SUM, self._session.study_hash) + labels.encode(message))
            return
        self._seal(to, labels.encode(message))
        crashpoint("labels-sent")

    def _step(self, step: Any) -> None:
        if isinstance(step, labels.Held):
            self._session.seals.meet(step.key)
        else:
            super()._step(step)

    # -- the columns --------------------------------------------------------------------------------------------------

    def _read(self, found: Identifiers, positions: NDArray[np.int64]) -> None:
        """Their rows by name, and zeros for as many as the study states beyond them."""
        setup, process = self._setup, self._session.process
        in_order = np.array(sorted(positions.tolist(), key=found.names.__getitem__), dtype=np.int64)
        held = read_held(setup.study, self.name, self._table, found.rows[in_order], lenient=True)
        rows = held.among(setup.design.program.records)
        self._keep_digest(rows)
        if self._teller is not None:
            if rows.labels is None:
                raise LocalProtocolError("the labels are not here", party=self.name)
            self._drive_labels(self._teller.have(rows.labels, process.parts.identity.signing))
        memories = StoredMemories(process.store, self._session.study_hash, keeps=lambda: bool(self._session.keeps))
        self._done(LocalMap(setup.design.program.at(self.name), rows, setup.template, memories))
        self._session.tell(held.records.tallies)

    def _keep_digest(self, rows: HeldColumns) -> None:
        told = b"" if rows.labels is None else rows.labels.astype("<f8").tobytes()
        read = digest(b"tallystick/columns-read/1", rows.features.astype("<f8").tobytes(), told)
        kept = self._records().get(_READ)
        if kept is None:
            self._drive([Persist(_READ, read, secret=True)])
        elif kept != read:
            raise DataError(
                "the records have changed since this institution took part in a round with them",
                rule="records-are-those-shown",
                party=self.name,
                remedy="Nothing more was sent. Leave the data as it is while a study runs; run it anew, as a new "
                "version.",
            )
