"""Parts in a study's secure sums: what all three have in common, the client's and the aggregator's.

Parameters are equal at every party; each has one machine and one driver. The server's own part has a module to itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.joint_moments.program import JointDesign
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import RemoteProtocolError, TallystickError
from tallystick.crypto.field import HALF, Vector, encode_signed
from tallystick.engines.client_map import padded
from tallystick.engines.round_vectors import result_limit
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.instructions import Compute
from tallystick.protocol.secure_sum.codec import encode_parts
from tallystick.protocol.secure_sum.machine import SumMachine
from tallystick.protocol.secure_sum.messages import Confirmed, Message, Share
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.facts import holders_limit
from tallystick.roles.holders.work import HoldersWork
from tallystick.roles.processes.part import ROUNDS, CoordinatorPart, Driver, Part
from tallystick.roles.processes.sum_client import SumClientPart
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.network.admission import Sink
from tallystick.transport.wire import SEALED, SUM, head

_log = logging.getLogger("tallystick.roles")
RETRY_SECONDS = 2.0
LEAST_AGREEMENT_SECONDS = 10.0  # a server that crashed may take so long to be back, however short the rounds are


def sum_parameters(roster: Roster, *, dealer: str | None = None, **facts: Any) -> SumParameters:
    """The secure sum among those in the roster, where all helpers but a dealer are servers; ``facts`` are further
    fields, the same at every party of the study."""
    identities = dict(zip(roster.helpers, roster.helper_identities))
    identities.pop(dealer or "", None)
    return SumParameters(
        study_hash=roster.session,
        servers=tuple(identities),
        clients=roster.clients,
        server_keys=tuple(identities.values()),
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
        dealer=getattr(section, "dealer", None),  # other models have this part, too
        size=setup.size,
        honest=setup.sum_plan.honest,
        colluding=section.coalition,  # type: ignore[attr-defined]
        result_limit=min(limit, HALF),
        model_size=len(pack_state(setup.design.program.query(setup.template))) // 8,
        round_seconds=section.round_timeout_s,
        agreement_seconds=max(LEAST_AGREEMENT_SECONDS, section.round_timeout_s),
        retry_seconds=RETRY_SECONDS,
        last_round=setup.plan.claim.rounds,
        holds=setup.study.stream is None,  # a stream's ticks do not wait
    )


class SumPart(Part):
    """A party's part in secure sums. A subclass makes ``machine`` and ``first``, what it wants at the beginning."""

    machine: SumMachine
    first: Sequence[sums.Instruction]

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.parameters = parameters_of(setup, roster)
        self.message_limit = max(self.parameters.message_limit, holders_limit(setup))
        self.drive = Driver(session, ROUNDS, send=self.send, other=self.step)

    @property
    def round(self) -> int:
        return self.machine.round

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


class ServersClientPart(SumClientPart, SumPart):
    """A client's: it splits the sum of its records, and sees every server accept its share."""

    STREAM = b"shares"
    machine: sums.ClientMachine
    _shares_out = 0

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process = session.process
        self.machine, self.first = sums.ClientMachine.restore(
            self.parameters, process.name, process.store.records(session.study_hash)
        )
        self.apart: HoldersWork | None = None
        if isinstance(setup.design, JointDesign):
            self.apart = HoldersWork(session, setup, roster, done=self._multiplied, failed=self._gave_up)
        self._asked = 0
        self._vector: Vector | None = None
        self._failure: TallystickError | None = None

    # -- where institutions hold different columns --------------------------------------------------------------------

    def begin(self) -> None:
        super().begin()
        if self.apart is not None and self.apart.had_begun:
            self.apart.begin(self.session.own.source())

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        if self.apart is not None and sender in self.apart.speakers:
            self.apart.receive(sender, kind, payload)
        else:
            super().receive(sender, kind, payload)

    def sink(self, sender: str, length: int) -> Sink | None:
        if self.apart is not None and sender in self.apart.speakers:
            return None  # in memory
        return super().sink(sender, length)

    def tick(self) -> None:
        super().tick()
        if self.apart is not None:
            self.apart.tick()

    def answer(self, step: Compute, prepared: Any) -> None:
        if self.apart is None:
            super().answer(step, prepared)
            return
        self._asked = step.round
        self.apart.begin(prepared)
        self._go_on()

    def _multiplied(self, vector: Vector) -> None:
        self._vector = vector
        crashpoint("products-shared")
        self._go_on()

    def _gave_up(self, error: TallystickError) -> None:
        self._failure = error
        self._go_on()

    def _go_on(self) -> None:
        """Once the round has asked and the vector is there, in whichever order."""
        round, self._asked = self._asked, 0
        if round and self._failure is not None:
            self.session.cannot_answer(round, self._failure)
        elif round and self._vector is not None:
            now = self.session.process.now()
            self._shares_out = 0
            self.drive(self.machine.contribute(round, padded(self._vector, self.setup.size), self.source(round), now))
        else:
            self._asked = round

    # -- shares -------------------------------------------------------------------------------------------------------

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        self._shares_out = 0
        now = self.session.process.now()
        self.drive(self.machine.contribute(round, encode_signed(values), self.source(round), now))

    def send(self, to: str, message: Message) -> None:
        # A server goes on with a round that was held. The aggregator may have paused servers alone: look here, too.
        if isinstance(message, Confirmed) and not self.session.goes_on():
            return
        super().send(to, message)
        if isinstance(message, Share):
            self._shares_out += 1
            crashpoint("share-sent-to-one-server")
            if self._shares_out == len(self.parameters.servers):
                self.session.process.health.rounds = message.round
                crashpoint("shares-sent-to-all-servers")


class AggregatorPart(SumPart, CoordinatorPart):
    """The aggregator's: it opens a round, waits for all the servers' noisy sums, and adds them."""

    machine: sums.AggregatorMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        store, study = session.process.store, session.study_hash
        self.machine, self.first = sums.AggregatorMachine.restore(
            self.parameters, store.records(study), session.process.now(), boots=store.boots(study)
        )

    def begin(self) -> None:
        held = [step for step in self.first if isinstance(step, (sums.Finished, sums.Aborted))]
        self.drive([step for step in self.first if step not in held])
        for step in held:  # the last round had ended: its total may not have been kept as a release yet
            self.session.ended_before(step.result if isinstance(step, sums.Finished) else step.error)

    def connected(self, peer: str) -> None:
        if peer in self.parameters.servers:  # clients inquire by themselves
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
            case sums.Held(error=error):
                self.session.round_held(error)
            case sums.Aborted(error=error):
                self.session.round_aborted(error)
            case _:
                super().step(step)
