"""A computing party's part: a server's, that draws from the total together with its peers where a round ends so.

Messages of a draw travel between parties as shares do, sealed to their receiver. They live in this process's memory: a
party that is stopped in the middle does not go on (:mod:`tallystick.protocol.secure_sum.server_drawing`). The machine
of a draw is kept until the round is over everywhere, for a peer may still ask for the last message again.
"""

from __future__ import annotations

import logging
from typing import Any

from tallystick.core.errors import RemoteProtocolError
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.selection import Chosen, SelectionMachine, codec
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.part import ROUNDS, Driver
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.network.admission import Sink
from tallystick.transport.wire import SEALED
from tallystick.trust.parties.parts import Assembler, cut
from tallystick.trust.parties.questions import longest_message, question_of, share_of, word_of
from tallystick.trust.servers.parts import RETRY_SECONDS
from tallystick.trust.servers.server import ServerPart, ServerProcess

_log = logging.getLogger("tallystick.roles")
LEAST_PATIENCE = 10.0
"""Seconds that a silent peer has, however short the rounds are."""
PATIENCE_OF_A_DRAW = 5
"""All layers of a draw together have so many times what a silent peer has in one."""
_MOST_EARLY = 4
"""Messages of a draw that wait here for its beginning, of each peer; whoever sent more says them again."""


class PartyPart(ServerPart):
    """A study's rounds at a computing party."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        self.drawing: SelectionMachine | None = None
        self._early: list[tuple[str, bytes]] = []
        super().__init__(session, setup, roster)
        parties = len(roster.helpers)
        self.message_limit = max(self.message_limit, longest_message(setup.study, setup.sum_plan, parties))
        self._assembler = Assembler(self.message_limit)
        self.drive_draw = Driver(session, ROUNDS, send=self._say_of_draw, other=self._step_of_draw)

    # -- what arrives ------------------------------------------------------------------------------------------------

    def sink(self, sender: str, length: int) -> Sink | None:
        if sender in self.roster.helpers:
            return None  # a draw's messages are assembled in memory
        return super().sink(sender, length)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        seals = self.session.seals
        if kind != SEALED or sender not in self.roster.helpers or seals is None:
            super().receive(sender, kind, payload)
            return
        raw = self._assembler.take(sender, seals.open(sender, payload))
        if raw is None:
            return
        machine = self.drawing
        if machine is not None and machine.round == codec.decode(raw, limit=self.message_limit).round:
            self.drive_draw(machine.receive_bytes(sender, raw, self.session.process.now()))
        elif sum(name == sender for name, _ in self._early) < _MOST_EARLY:
            self._early.append((sender, raw))  # a peer that heard of the agreement first has begun

    def tick(self) -> None:
        super().tick()
        if self.drawing is not None:
            self.drive_draw(self.drawing.tick(self.session.process.now()))

    # -- what is asked -----------------------------------------------------------------------------------------------

    def step(self, step: sums.Instruction) -> None:
        if isinstance(step, sums.Draw):
            self._begin(step)
        else:
            if isinstance(step, sums.Aborted):
                self._forget()
            super().step(step)

    def _begin(self, step: sums.Draw) -> None:
        process, setup = self.session.process, self.setup
        question = question_of(setup.study, setup.sum_plan, step.round)
        labels = (b"computing", step.round.to_bytes(8, "little"), process.name.encode())
        patience = max(LEAST_PATIENCE, setup.study.trust.round_timeout_s)
        self.drawing = SelectionMachine(
            process.name,
            self.parameters.study_hash,
            self.parameters.servers,
            colluding=max(1, setup.study.trust.coalition),  # type: ignore[attr-defined]
            round=step.round,
            question=question,
            share=share_of(question, step.share),
            word=word_of(question, step.noise),
            source=process.parts.streams(self.session.study_hash, *labels),
            retry_seconds=RETRY_SECONDS,
            give_up_seconds=patience,
            whole_seconds=PATIENCE_OF_A_DRAW * patience,
        )
        machine, early, self._early = self.drawing, self._early, []
        _log.info("round %d: drawing among %d places", step.round, question.cells)
        self.drive_draw(machine.begin(process.now()))
        for sender, raw in early:
            if self.drawing is machine:
                self.drive_draw(machine.receive_bytes(sender, raw, process.now()))

    def _say_of_draw(self, to: str, message: Any) -> None:
        seals = self.session.seals
        if seals is None:
            raise RemoteProtocolError("a draw outside its study", party=to)
        for part in cut(*codec.encode_parts(message)):
            pieces, length = seals.seal(to, part)
            self.session.process.send(to, pieces, length)
        crashpoint("draw-message-sent")

    def _step_of_draw(self, step: Any) -> None:
        machine = self.drawing
        if machine is None:
            return
        if isinstance(step, Chosen):
            self.drive(self.machine.drawn(machine.round, step.place))
        elif isinstance(step, sums.Aborted):
            error = step.error
            self.drawing = None
            self.drive(self.machine.not_drawn(machine.round, error.party or self.session.process.name, error.cause))

    def _forget(self) -> None:
        self.drawing, self._early = None, []

    def close(self) -> None:
        self._forget()
        super().close()


class PartyProcess(ServerProcess):
    """``tallystick party start``."""
