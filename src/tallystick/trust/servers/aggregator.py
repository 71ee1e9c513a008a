"""The aggregator's part: it opens a round, waits for all the servers' noisy sums, and adds them."""

from __future__ import annotations

from typing import Any

from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.messages import Message
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.part import CoordinatorPart
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.wire import SUM
from tallystick.trust.servers.part import SumPart


class AggregatorPart(SumPart, CoordinatorPart):
    """A study's rounds at the aggregator."""

    machine: sums.AggregatorMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        store, study = session.process.store, session.study_hash
        self.machine, self.first = sums.AggregatorMachine.restore(
            self.parameters, store.records(study), session.process.now(), boots=store.boots(study)
        )

    @property
    def round(self) -> int:
        return self.machine.round

    def begin(self) -> None:
        held = [step for step in self.first if isinstance(step, (sums.Finished, sums.Aborted))]
        self.drive([step for step in self.first if step not in held])
        for step in held:  # the last round had ended: its total may not have been kept as a release yet
            self.session.ended_before(step.result if isinstance(step, sums.Finished) else step.error)

    def connected(self, peer: str) -> None:
        if peer in self.roster.helpers:  # clients inquire by themselves
            self.tick()

    def open_round(self, round: int, model: bytes) -> None:
        self.drive(self.machine.open_round(round, model, self.session.process.now()))
        crashpoint("round-sent")

    def send(self, to: str, message: Message) -> None:
        self.session.process.send(to, self.session.encoded(SUM, message, sums.encode))

    def step(self, step: sums.Instruction) -> None:
        match step:
            case sums.Finished(result=result):
                self.session.round_finished(result)
            case sums.Aborted(error=error):
                self.session.round_aborted(error)
            case _:
                super().step(step)
