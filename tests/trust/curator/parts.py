"""What a curator's study does at each role: the machines, fed by the sessions of real processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.trust.curator.machines import ClientMachine, CuratorMachine, encode

from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.setup import Setup
from tallystick.protocol.instructions import Aborted, Compute, Finished
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.part import ROUNDS, ClientPart, CoordinatorPart, Driver
from tallystick.transport.wire import SUM, head


class _Common:
    session: Any
    machine: Any
    message_limit = 1 << 24

    def _send(self, to: str, message: Any) -> None:
        self.session.process.send(to, head(SUM, self.session.study_hash) + encode(message))

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        self.drive(self.machine.receive_bytes(sender, bytes(payload), self.session.process.now()))

    def tick(self) -> None:
        self.drive(self.machine.tick(self.session.process.now()))

    @property
    def round(self) -> int:
        return int(self.machine.round)

    drive: Driver


class CuratorClientPart(_Common, ClientPart):
    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        records = session.process.store.records(session.study_hash)
        self.machine = ClientMachine(session.process.name, roster.session, roster.coordinator, records)
        self.drive = Driver(session, ROUNDS, send=self._send, other=self._step)

    def begin(self) -> None:
        """It is asked."""

    def _step(self, step: Any) -> None:
        if isinstance(step, Compute):
            self.session.compute(step)

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        self.drive(self.machine.contribute(round, values))

    def withdraw(self, round: int) -> None:
        self.drive(self.machine.withdraw(round))


class CuratorPart(_Common, CoordinatorPart):
    machine_class = CuratorMachine

    def noise(self, setup: Setup, source: Any, admitted: bytes | None) -> NoiseSource:
        return RoundNoise(setup.sum_plan, setup.size, self.session.process.name, source, admitted=admitted)

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process, study = session.process, session.study_hash

        def keyed(*labels: bytes) -> Any:
            return process.parts.streams(study, *labels)

        self.machine = self.machine_class(
            process.name,
            roster.session,
            roster.clients,
            process.store.records(study),
            min_clients=roster.min_clients,
            seconds=setup.study.trust.round_timeout_s,
            noise=self.noise(setup, keyed, process.store.records(study).get("prices")),
        )
        self.drive = Driver(session, ROUNDS, send=self._send, other=self._step)

    def begin(self) -> None:
        self.drive(self.machine.resume(self.session.process.now()))

    def open_round(self, round: int, model: bytes) -> None:
        self.drive(self.machine.open_round(round, model, self.session.process.now()))

    def _step(self, step: Any) -> None:
        if isinstance(step, Finished):
            self.session.round_finished(step.result)
        elif isinstance(step, Aborted):
            self.session.round_aborted(step.error)
