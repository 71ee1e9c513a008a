"""What a client's part has in every protocol of sums: it asks what it missed, computes when asked, and withdraws."""

from __future__ import annotations

from typing import Any, ClassVar

from tallystick.core.randomness import WordSource
from tallystick.protocol.instructions import Compute, Send
from tallystick.protocol.sum_messages import Inquiry
from tallystick.roles.processes.part import ClientPart, Driver


class SumClientPart(ClientPart):
    """Before the part that all parties of the protocol have, in a class's list of bases."""

    machine: Any
    parameters: Any
    drive: Driver
    STREAM: ClassVar[bytes]
    """The label of this client's randomness in a round, beside its noise."""

    def connected(self, peer: str) -> None:
        self.tick()
        if peer == self.roster.coordinator:
            # Whatever was said while there was no line is lost: ask which round is open.
            question = Inquiry(study_hash=self.parameters.study_hash, round=self.machine.round)
            self.drive([Send(to=peer, message=question)])

    def step(self, step: Any) -> None:
        """An instruction that the driver does not know."""
        if isinstance(step, Compute):
            self.session.compute(step)
        else:
            super().step(step)  # type: ignore[misc]  # the protocol's own part comes after this one

    def source(self, round: int) -> WordSource:
        """The randomness of this client's answer in a round."""
        process, study = self.session.process, self.session.study_hash
        found: WordSource = process.parts.streams(
            study, self.STREAM, round.to_bytes(8, "little"), process.name.encode()
        )
        return found

    def withdraw(self, round: int) -> None:
        self.drive(self.machine.withdraw(round))
