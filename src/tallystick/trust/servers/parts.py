"""Parts in a study's secure sums: what all three have in common, the client's and the aggregator's.

Parameters are equal at every party; each has one machine and one driver. The server's own part has a module to itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import pack_state
from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.field import HALF, Vector, encode_signed
from tallystick.engines.client_map import padded
from tallystick.engines.joint_map import JointMap
from tallystick.engines.round_vectors import result_limit
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.codec import encode_parts
from tallystick.protocol.secure_sum.machine import SumMachine
from tallystick.protocol.secure_sum.messages import Confirmed, Message, Share
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.client_part import HoldersClientPart
from tallystick.roles.holders.reducing import ReducesWithLabels
from tallystick.roles.processes.part import ROUNDS, CoordinatorPart, Driver, Part
from tallystick.roles.storage.crash_points import crashpoint
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
        secret_models=setup.design.tells_of_people,
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
        self.message_limit = self.parameters.message_limit
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


class ServersClientPart(HoldersClientPart, SumPart):
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

    def contribute_products(self, round: int, products: JointMap) -> None:
        crashpoint("products-shared")
        self._share(round, padded(products.vector, self.setup.size))

    # -- shares -------------------------------------------------------------------------------------------------------

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        self._share(round, encode_signed(values))

    def _share(self, round: int, vector: Vector) -> None:
        self._shares_out = 0
        self.drive(self.machine.contribute(round, vector, self.source(round), self.session.process.now()))

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


class AggregatorPart(ReducesWithLabels, SumPart, CoordinatorPart):
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
        self.drive(self.machine.open_round(round, model, self.session.process.now(), blind=self.blind(round)))
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
