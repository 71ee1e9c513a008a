"""What the three parts of a secure sum have in common: parameters equal at every party, one machine, one driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.algorithms.program import pack_state
from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.field import HALF
from tallystick.engines.round_vectors import result_limit
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.codec import encode_parts
from tallystick.protocol.secure_sum.machine import SumMachine
from tallystick.protocol.secure_sum.messages import Message, Share
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.driver import Driver
from tallystick.roles.processes.part import ROUNDS, Part
from tallystick.transport.wire import SEALED, SUM, head

_log = logging.getLogger("tallystick.roles")
RETRY_SECONDS = 2.0
LEAST_AGREEMENT_SECONDS = 10.0  # a server that crashed may take so long to be back, however short the rounds are


def sum_parameters(roster: Roster, **facts: Any) -> SumParameters:
    """The secure sum among those in the roster; ``facts`` are further fields, the same at every party of the study."""
    return SumParameters(
        study_hash=roster.session,
        servers=roster.helpers,
        clients=roster.clients,
        server_keys=roster.helper_identities,
        min_clients=roster.min_clients,
        aggregator=roster.coordinator,
        **facts,
    )


def parameters_of(setup: Setup, roster: Roster) -> SumParameters:
    """The secure sum's parameters: the same at every party whose study and roster are the same."""
    records, section = setup.study.data.records, setup.study.trust
    limit = HALF if records is None else result_limit(setup.sum_plan, records)
    return sum_parameters(
        roster,
        size=setup.size,
        honest=setup.sum_plan.honest,
        colluding=section.coalition,  # type: ignore[attr-defined]
        result_limit=min(limit, HALF),
        model_size=len(pack_state(setup.design.program.query(setup.template))) // 8,
        round_seconds=section.round_timeout_s,
        agreement_seconds=max(LEAST_AGREEMENT_SECONDS, section.round_timeout_s),
        retry_seconds=RETRY_SECONDS,
        last_round=setup.plan.claim.rounds,
    )


class SumPart(Part):
    """A party's part in secure sums. A subclass makes ``machine`` and ``first``, what it wants at the beginning."""

    machine: SumMachine
    first: Sequence[sums.Instruction]

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.parameters = parameters_of(setup, roster)
        self.message_limit = self.parameters.message_limit
        self.drive = Driver(session, ROUNDS, send=self.send, other=self.step)

    def begin(self) -> None:
        self.drive(self.first)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        raw = bytes(payload)
        if kind == SEALED:
            if self.session.seals is None:
                raise RemoteProtocolError("a sealed message outside its study", party=sender)
            raw = self.session.seals.open(sender, payload)
        self.drive(self.machine.receive_bytes(sender, raw, self.session.process.now()))

    def tick(self) -> None:
        self.drive(self.machine.tick(self.session.process.now()))

    def post(self, work: Callable[[], None]) -> None:
        """Have the process's loop do something for this part, if its session is still the current one by then."""
        self.session.process.post_for(self.session, work)

    def send(self, to: str, message: Message) -> None:
        """Hand over a message; shares travel sealed."""
        process, session = self.session.process, self.session
        if isinstance(message, Share) and session.seals is not None:
            pieces, length = session.seals.seal(to, *encode_parts(message))
            process.send(to, pieces, length)
        else:
            process.send(to, head(SUM, session.study_hash) + sums.encode(message))

    def step(self, step: sums.Instruction) -> None:
        """An instruction that the driver does not know."""
        if isinstance(step, sums.Witness):
            self.session.process.store.boots(self.session.study_hash).note(step)
        elif isinstance(step, sums.Aborted):
            _log.warning("no part in this round's result: %s", step.error)
