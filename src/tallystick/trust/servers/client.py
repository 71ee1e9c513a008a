"""A client's part: it splits the sum of its records, and sees every server accept its share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto.field import encode_signed
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.messages import Inquiry, Message, Share
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.part import ClientPart
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.trust.servers.part import SumPart


class ServersClientPart(SumPart, ClientPart):
    """A study's rounds at a client."""

    machine: sums.ClientMachine
    _shares_out = 0

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process = session.process
        self.machine, self.first = sums.ClientMachine.restore(
            self.parameters, process.name, process.store.records(session.study_hash)
        )

    @property
    def round(self) -> int:
        return self.machine.round

    def connected(self, peer: str) -> None:
        self.tick()
        if peer == self.roster.coordinator:
            # Whatever was said while there was no line is lost: ask which round is open.
            question = Inquiry(study_hash=self.parameters.study_hash, round=self.machine.round)
            self.drive([sums.Send(to=peer, message=question)])

    def step(self, step: sums.Instruction) -> None:
        if isinstance(step, sums.Compute):
            self.session.compute(step)
        else:
            super().step(step)

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        process, study = self.session.process, self.session.study_hash
        source = process.parts.streams(study, b"shares", round.to_bytes(8, "little"), process.name.encode())
        self._shares_out = 0
        self.drive(self.machine.contribute(round, encode_signed(values), source, process.now()))

    def withdraw(self, round: int) -> None:
        self.drive(self.machine.withdraw(round))

    def send(self, to: str, message: Message) -> None:
        super().send(to, message)
        if isinstance(message, Share):
            self._shares_out += 1
            crashpoint("share-sent-to-one-server")
            if self._shares_out == len(self.roster.helpers):
                self.session.process.health.rounds = message.round
                crashpoint("shares-sent-to-all-servers")
