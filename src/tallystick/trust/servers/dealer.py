"""``tallystick dealer start``: deals the masks of products between institutions that hold different columns.

It sees no record, no opened row and no share, has no other part in the study, and is told nothing but that a holder
wants its mask. A dealer and one institution together could read the others' rows: it is run by somebody else.
"""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import RemoteProtocolError
from tallystick.engines.setup import Setup
from tallystick.protocol.joint_products import DealerMachine, encode
from tallystick.protocol.joint_products.messages import Deal
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.facts import holders_limit, products_of
from tallystick.roles.holders.packing import pack, unpack
from tallystick.roles.processes.part import ROUNDS, Driver, Part
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.wire import SEALED


class DealerPart(Part):
    """A study's masks: made once, kept before any of them leaves, told to each holder when it asks."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.message_limit = holders_limit(setup)
        self.machine = DealerMachine(products_of(setup, roster))
        self.drive = Driver(session, ROUNDS, send=self.send, other=lambda _: None)

    def begin(self) -> None:
        process, study = self.session.process, self.session.study_hash
        kept = process.store.records(study).get("dealt")
        self.machine.restore(kept)
        if kept is None:
            self.drive(self.machine.deal(process.parts.streams(study, b"deal")))

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        if kind != SEALED or self.session.seals is None or sender not in self.machine.parameters.holders:
            raise RemoteProtocolError("a dealer is asked by holders, and what they say is sealed", party=sender)
        raw = unpack(bytes(self.session.seals.open(sender, payload)), sender)
        self.drive(self.machine.receive_bytes(sender, raw, self.session.process.now(), limit=self.message_limit))

    def tick(self) -> None:
        """It waits for nothing."""

    def send(self, to: str, message: Any) -> None:
        """Hand over a message, sealed to its holder."""
        pieces, _ = self.session.seals.seal(to, pack(encode(message), 0))
        raw = b"".join(bytes(p if isinstance(p, memoryview) else p.view()) for p in pieces)
        self.session.process.send(to, raw)
        if isinstance(message, Deal):
            crashpoint("deal-sent")
