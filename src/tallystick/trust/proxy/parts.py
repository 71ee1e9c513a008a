"""Parts in a study's encrypted sums: what all three have in common, the owner's and the data user's.

Parameters are equal at every party; each has one machine and one driver. The proxy's own part has a module to itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import pack_state
from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.homomorphic.scheme import scheme_for
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.setup import Setup
from tallystick.protocol import encrypted_sum as sums
from tallystick.protocol.boots import Witness
from tallystick.protocol.encrypted_sum.machine import EncryptedSumMachine
from tallystick.protocol.encrypted_sum.messages import Chunk, Message
from tallystick.protocol.encrypted_sum.noise_maker import MakerParts
from tallystick.protocol.instructions import Aborted, Finished, Held
from tallystick.protocol.study.roster import Roster
from tallystick.roles.holders.client_part import HoldersClientPart
from tallystick.roles.holders.reducing import ReducesWithLabels
from tallystick.roles.processes.part import ROUNDS, CoordinatorPart, Driver, Part
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.network.admission import Sink
from tallystick.transport.wire import SEALED, SUM, head
from tallystick.trust.proxy.extent import extent_of

_log = logging.getLogger("tallystick.roles")
RETRY_SECONDS = 2.0
LEAST_AGREEMENT_SECONDS = 10.0  # a party that crashed may take so long to be back, however short the rounds are


def parameters_of(session: Any, setup: Setup, roster: Roster) -> sums.EncryptedSumParameters:
    """The encrypted sum's parameters: the same at every party whose study and roster are the same."""
    section = setup.study.trust
    extent = extent_of(section, setup.sum_plan, setup.study.data.records)  # type: ignore[arg-type]
    return sums.EncryptedSumParameters(
        study_hash=roster.session,
        clients=roster.clients,
        proxy=roster.helpers[0],
        data_user=roster.coordinator,
        proxy_key=roster.helper_identities[0],
        data_user_key=session.cast.identities[roster.coordinator],
        scheme=scheme_for(section.scheme, extent),  # type: ignore[attr-defined]
        min_clients=roster.min_clients,
        model_size=len(pack_state(setup.design.program.query(setup.template))) // 8,
        secret_models=setup.design.tells_of_people,
        round_seconds=section.round_timeout_s,
        agreement_seconds=max(LEAST_AGREEMENT_SECONDS, section.round_timeout_s),
        retry_seconds=RETRY_SECONDS,
        last_round=setup.plan.claim.rounds,
    )


class EncryptedPart(Part):
    """A party's part in encrypted sums. A subclass makes ``machine`` and ``first``, what it wants at the beginning."""

    machine: EncryptedSumMachine
    first: Sequence[sums.Instruction]

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.parameters = parameters_of(session, setup, roster)
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

    def sink(self, sender: str, length: int) -> Sink | None:
        return None  # a chunk is short enough for memory

    def tick(self) -> None:
        self.drive(self.machine.tick(self.session.process.now()))

    def post(self, work: Callable[[], None]) -> None:
        """Have the process's loop do something for this part, if its session is still the current one by then."""
        self.session.process.post_for(self.session, work)

    def send(self, to: str, message: Message) -> None:
        """Hand over a message; uploads travel sealed: who holds the key must not see one on the way."""
        process, session = self.session.process, self.session
        if isinstance(message, Chunk):
            pieces, length = session.seals.seal(to, *sums.encode_parts(message))
            process.send(to, pieces, length)
        else:
            process.send(to, head(SUM, session.study_hash) + sums.encode(message))

    def step(self, step: sums.Instruction) -> None:
        """An instruction that the driver does not know."""
        if isinstance(step, Witness):
            self.session.process.store.boots(self.session.study_hash).note(step)
        elif isinstance(step, Aborted):
            _log.warning("no part in this round's result: %s", step.error)

    def maker_parts(self) -> MakerParts:
        """What a noise maker's machine is made of here."""
        process, study, setup = self.session.process, self.session.study_hash, self.setup

        def keyed(*labels: bytes) -> Any:
            return process.parts.streams(study, *labels)

        admitted = process.store.records(study).get("prices")
        return MakerParts(
            key=process.parts.identity.signing,
            noise=RoundNoise(setup.sum_plan, setup.size, process.name, keyed, admitted=admitted),
            source=process.parts.streams(study, b"blinds", process.name.encode()),
            boot=process.store.boot,
            boot_value=process.store.boot_value,
            boots=process.store.boots(study),
        )


class OwnerPart(HoldersClientPart, EncryptedPart):
    """A client's: it encrypts the sum of its records, and sees the proxy keep it."""

    STREAM = b"ciphertexts"
    machine: sums.OwnerMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process = session.process
        self.machine, self.first = sums.OwnerMachine.restore(
            self.parameters, process.name, process.store.records(session.study_hash)
        )

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        process = self.session.process
        self.drive(self.machine.contribute(round, values, self.source(round), process.now()))
        process.health.rounds = round


class DataUserPart(ReducesWithLabels, EncryptedPart, CoordinatorPart):
    """The data user's: it makes the key, opens rounds, decrypts what the proxy has noised, and noises it again."""

    machine: sums.DataUserMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process = session.process
        self.machine, self.first = sums.DataUserMachine.restore(
            self.parameters, process.store.records(session.study_hash), now=process.now(), **self.maker_parts()
        )

    def begin(self) -> None:
        held = [step for step in self.first if isinstance(step, (Finished, Aborted))]
        self.drive([step for step in self.first if step not in held])
        for step in held:  # the last round had ended: its total may not have been kept as a release yet
            self.session.ended_before(step.result if isinstance(step, Finished) else step.error)

    def connected(self, peer: str) -> None:
        if peer in self.roster.helpers:  # clients inquire by themselves
            self.tick()

    def open_round(self, round: int, model: bytes) -> None:
        self.drive(self.machine.open_round(round, model, self.session.process.now(), blind=self.blind(round)))
        crashpoint("round-sent")

    def send(self, to: str, message: Message) -> None:
        self.session.process.send(to, self.session.encoded(SUM, message, sums.encode))

    def step(self, step: sums.Instruction) -> None:
        match step:
            case Finished(result=result):
                self.session.round_finished(result)
            case Held(error=error):
                self.session.round_held(error)
            case Aborted(error=error):
                self.session.round_aborted(error)
            case _:
                super().step(step)

    def erase(self) -> None:
        self.machine.erase()
        super().erase()
