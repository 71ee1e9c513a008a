"""Parts in a study's masked sums: what both have in common, the client's and the reducer's.

Parameters are equal at every party; each has one machine and one driver. The clients' keys of the study are those of
the roster: drawn when a client takes part, signed by its identity for this study, erased at its end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import pack_state
from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import digest, format_hash
from tallystick.crypto.field import HALF
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.engines.engine import Computed
from tallystick.engines.replica import Replica
from tallystick.engines.round_vectors import RoundNoise, result_limit
from tallystick.engines.setup import Setup
from tallystick.protocol import masked_sum as sums
from tallystick.protocol.boots import Witness
from tallystick.protocol.fields import damaged
from tallystick.protocol.instructions import Aborted, Finished, Held
from tallystick.protocol.masked_sum.machine import MaskedSumMachine
from tallystick.protocol.masked_sum.messages import (
    Dealing,
    Evidence,
    Masked,
    Message,
    Quorum,
    Relay,
    Revealed,
    Signed,
    Survivors,
    TiedSurvivors,
)
from tallystick.protocol.masked_sum.peer import kept_totals, why_stopped
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import decode as decode_study
from tallystick.protocol.study.messages import StudyStart, result_digest
from tallystick.protocol.study.roster import Roster, make_roster
from tallystick.roles.holders.client_part import HoldersClientPart
from tallystick.roles.holders.reducing import ReducesWithLabels
from tallystick.roles.processes.coordinated_rounds import pack_outcome
from tallystick.roles.processes.part import ROUNDS, CoordinatorPart, Driver, Part
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.network.admission import Sink
from tallystick.transport.wire import SEALED, SUM, head
from tallystick.trust.masks.graphs import graph_for

_log = logging.getLogger("tallystick.roles")
RETRY_SECONDS = 2.0
LEAST_AGREEMENT_SECONDS = 10.0  # a party that crashed may take so long to be back, however short the rounds are
_SENT = {
    Dealing: "dealing-sent",
    Relay: "packets-relayed",
    Masked: "masked-sum-sent",
    Survivors: "survivors-named",
    TiedSurvivors: "survivors-named",
    Evidence: "evidence-sent",
    Signed: "survivors-signed",
    Quorum: "quorum-told",
    Revealed: "shares-revealed",
}


def parameters_of(session: Any, setup: Setup, roster: Roster) -> sums.MaskedSumParameters:
    """The masked sum's parameters: the same at every party whose study and roster are the same."""
    section, records = setup.study.trust, setup.study.data.records
    limit = HALF if records is None else result_limit(setup.sum_plan, records)
    return sums.MaskedSumParameters(
        study_hash=roster.session,
        clients=roster.clients,
        reducer=roster.coordinator,
        identities={name: session.cast.identities[name] for name in roster.clients},
        keys=roster.keys,
        graph=graph_for(section, roster.clients, roster.session),  # type: ignore[arg-type]
        size=setup.size,
        min_clients=roster.min_clients,
        result_limit=min(limit, HALF),
        model_size=len(pack_state(setup.design.program.query(setup.template))) // 8,
        secret_models=setup.design.tells_of_people,
        round_seconds=section.round_timeout_s,
        agreement_seconds=max(LEAST_AGREEMENT_SECONDS, section.round_timeout_s),
        retry_seconds=RETRY_SECONDS,
        last_round=setup.plan.claim.rounds,
        every_peer=section.every_peer,  # type: ignore[attr-defined]
    )


class MasksPart(Part):
    """A party's part in masked sums. A subclass makes ``machine`` and ``first``, what it wants at the beginning."""

    machine: MaskedSumMachine
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
        if kind == SEALED:  # what clients seal for each other is inside the reducer's messages
            raise RemoteProtocolError("a sealed message has no place in a masked sum", party=sender)
        self.drive(self.machine.receive_bytes(sender, bytes(payload), self.session.process.now()))

    def sink(self, sender: str, length: int) -> Sink | None:
        return None  # a model or a masked sum, in memory

    def tick(self) -> None:
        self.drive(self.machine.tick(self.session.process.now()))

    def send(self, to: str, message: Message) -> None:
        """Hand over a message."""
        self.session.process.send(to, self.encoded(message))
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)

    def encoded(self, message: Message) -> bytes:
        """A message as it goes out."""
        return head(SUM, self.session.study_hash) + sums.encode(message)

    def step(self, step: sums.Instruction) -> None:
        """An instruction that the driver does not know."""
        if isinstance(step, Witness):
            self.session.process.store.boots(self.session.study_hash).note(step)
        elif isinstance(step, Aborted):
            _log.warning("no part in this round's result: %s", step.error)


class MaskingPart(HoldersClientPart, MasksPart):
    """A client's: it deals, masks the sum of its records and its noise, and helps to unmask the total."""

    STREAM = b"masks"
    machine: sums.ClientMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process, study = session.process, session.study_hash
        records, kept = process.store.records(study), process.store.key(study, "x25519")
        if kept is None:
            raise RemoteProtocolError("a study started whose key is gone", remedy="Propose it anew, as a new version.")

        def keyed(*labels: bytes) -> Any:
            return process.parts.streams(study, *labels)

        noise = RoundNoise(setup.sum_plan, setup.size, process.name, keyed, admitted=records.get("prices"))
        parts: sums.MaskerParts = {
            "key": process.parts.identity.signing,
            "agreement": AgreementKey(kept),
            "noise": noise,
            "boot": process.store.boot,
            "boot_value": process.store.boot_value,
            "boots": process.store.boots(study),
        }
        p, name = self.parameters, process.name
        if p.every_peer:
            own = Replica(setup.design.program, setup.public, setup.sum_plan)
            self.machine, self.first = sums.PeerMachine.restore(p, name, records, **parts, replica=own)
        else:
            self.machine, self.first = sums.ClientMachine.restore(p, name, records, **parts)

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        process = self.session.process
        self.drive(self.machine.contribute(round, values, self.source(round), process.now()))
        process.health.rounds = round

    def send(self, to: str, message: Message) -> None:
        if isinstance(message, Signed):
            self._note(message)
        super().send(to, message)

    def _note(self, message: Signed) -> None:
        """Before its signature leaves: over whom the total is that it helps to unmask; for its attestation."""
        store, study, survivors = self.session.process.store, self.session.study_hash, self.machine.survivors
        if survivors is None or message.round in {round for round, _ in store.releases(study)}:
            return
        names = [self.parameters.clients[i] for i in survivors.clients]
        note = {"participants": names, "partial": format_hash(digest(message.agreement))}
        store.put_release(study, message.round, json.dumps(note).encode())

    @classmethod
    def dispute(cls, setup: Setup, cast: Cast, records: Mapping[str, bytes], result: bytes) -> str | None:
        """Where every peer adds up itself: its own run of the program must have come to this very result."""
        if not setup.study.trust.every_peer:  # type: ignore[attr-defined]
            return None
        if stopped := why_stopped(records):
            raise VerificationError(
                f"this client takes no further part in the study: {stopped}",
                party=cast.coordinator,
                remedy="Do not use the result. Compare with the other clients; then look at the reducer.",
            )
        start = decode_study(records["study/start"])
        if not isinstance(start, StudyStart):
            raise damaged()
        own = Replica(setup.design.program, setup.public, setup.sum_plan)
        clients = make_roster(cast, start).clients
        for found in kept_totals(records):
            if found.clients:
                own.take(found.summed(clients))
            else:
                own.skip(found.round)
        if result in set(_results(own, setup)):
            return None
        if own.round:
            return f"it has added up no total of round {own.round}, and cannot say whether the result is right"
        raise VerificationError(
            "the result is not what this client has come to itself, from the totals that it has added up",
            party=cast.coordinator,
            remedy="Do not use it. Compare with the other clients; then look at the reducer.",
        )

    def erase(self) -> None:
        self.machine.erase()
        super().erase()


def _results(own: Replica, setup: Setup) -> Iterator[bytes]:
    """What a result may be called, by what this client has seen: the whole of it, or what an early end left."""
    whole, study = own.computed, setup.study.hash
    if own.round == 0 and own.error is None:
        yield result_digest(study, pack_outcome(whole))
    for done in range(1, len(whole.history) + 1):
        part = Computed(
            history=whole.history[:done], contributors=whole.contributors[:done], dropped=whole.dropped[:done]
        )
        yield result_digest(study, pack_outcome(part, ended_early=setup.plan.claim.rounds))


class ReducerPart(ReducesWithLabels, MasksPart, CoordinatorPart):
    """The reducer's: it opens rounds, relays, adds up, and unmasks what enough survivors have signed."""

    machine: sums.ReducerMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process = session.process
        self.machine, self.first = sums.ReducerMachine.restore(
            self.parameters, process.store.records(session.study_hash), process.now()
        )

    def begin(self) -> None:
        held = [step for step in self.first if isinstance(step, (Finished, Aborted))]
        self.drive([step for step in self.first if step not in held])
        for step in held:  # the last round had ended: its total may not have been kept as a release yet
            self.session.ended_before(step.result if isinstance(step, Finished) else step.error)

    def connected(self, peer: str) -> None:
        """Clients inquire by themselves."""

    def open_round(self, round: int, model: bytes) -> None:
        self.drive(self.machine.open_round(round, model, self.session.process.now(), blind=self.blind(round)))
        crashpoint("round-sent")

    def encoded(self, message: Message) -> bytes:
        encoded: bytes = self.session.encoded(SUM, message, sums.encode)  # the same one to all is made once
        return encoded

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
