"""What a client's part has where institutions hold different columns: work of its own before its first round, and
beside it what other institutions, their dealer or whoever reduces with the labels still want to hear."""

from __future__ import annotations

from typing import Any

from tallystick.algorithms.joint_moments.program import JointDesign
from tallystick.algorithms.local_program import ReducedAtLabels
from tallystick.engines.joint_map import JointMap
from tallystick.engines.setup import Setup
from tallystick.protocol.instructions import Compute
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.aligning import AligningWork
from tallystick.roles.holders.facts import holders_limit
from tallystick.roles.holders.learning import LearningWork
from tallystick.roles.holders.work import HoldersWork
from tallystick.roles.processes.sum_client import SumClientPart
from tallystick.transport.network.admission import Sink


class HoldersClientPart(SumClientPart):
    """A client's part in sums; in a study of whole records there is nothing more to it."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.message_limit = max(self.message_limit, holders_limit(setup))
        self.apart: AligningWork | None = None
        if isinstance(setup.design, JointDesign):
            self.apart = HoldersWork(session, setup, roster, ended=self._go_on)
        elif isinstance(setup.design.program, ReducedAtLabels):
            self.apart = LearningWork(session, setup, roster, ended=self._go_on)
        self._asked: Compute | None = None

    def begin(self) -> None:
        super().begin()  # type: ignore[safe-super]
        if self.apart is not None and self.apart.had_begun:
            self.apart.begin(self.session.own.source())

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        if self.apart is not None and self.apart.takes(sender, kind, payload):
            self.apart.receive(sender, kind, payload)
        else:
            super().receive(sender, kind, payload)  # type: ignore[safe-super]

    def sink(self, sender: str, length: int) -> Sink | None:
        if self.apart is not None and sender in self.apart.speakers:
            return None  # in memory
        return super().sink(sender, length)

    def tick(self) -> None:
        super().tick()  # type: ignore[safe-super]
        if self.apart is not None:
            self.apart.tick()

    def answer(self, step: Compute, prepared: Any) -> None:
        """``prepared`` is where the records are, if rows are to be aligned first: then the round waits for that."""
        apart = self.apart
        if apart is None:
            super().answer(step, prepared)
        elif apart.failure is not None:
            self.session.cannot_answer(step.round, apart.failure)
        elif isinstance(apart.ready, JointMap):
            self.contribute_products(step.round, apart.ready)
        elif apart.ready is not None:
            super().answer(step, apart.ready)
        else:
            self._asked = step
            apart.begin(prepared)

    def contribute_products(self, round: int, products: JointMap) -> None:
        """Let the vector of joint moments out; it is a share, and no sum of its own."""
        raise NotImplementedError

    def _go_on(self) -> None:
        """The work has ended: a round that has asked meanwhile is answered, if this client may still."""
        step, self._asked = self._asked, None
        if step is not None and step.round == self.round:
            self.session.compute(step)
