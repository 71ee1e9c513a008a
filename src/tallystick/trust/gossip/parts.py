"""Parts in a gossiping study: a peer's, and the collector's at who keeps the notice board.

Where the study's learner is a walk, models travel too (``walking``), and what they have learnt is the result.

What peers say to each other is sealed to its receiver, whether it goes by a line of their own or is passed on by the
relay. Received records are kept with one write for each message: they are asked for again if they are lost. A peer's
own publication is durable before it, its attestation or anything made of it leaves.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import format_hash
from tallystick.engines.client_map import HeldRecords
from tallystick.engines.engine import Computed, Progress, Released
from tallystick.engines.setup import Setup
from tallystick.engines.totals import RoundRequest
from tallystick.protocol import gossip
from tallystick.protocol.gossip.codec import unpack_publication
from tallystick.protocol.gossip.collector import OPENED, WALKED
from tallystick.protocol.gossip.member import FROM, GossipMember
from tallystick.protocol.gossip.messages import publication_digest
from tallystick.protocol.gossip.peer import unpack_model
from tallystick.protocol.gossip.publications import Publications
from tallystick.protocol.instructions import Compute, Finished, Held
from tallystick.protocol.study.roster import Roster
from tallystick.protocol.summing import rule_of
from tallystick.roles.governance.attestation import attest, noted
from tallystick.roles.processes.part import ROUNDS, ClientPart, CoordinatorPart, Driver, Part
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.network.admission import Sink
from tallystick.transport.wire import SEALED, SUM, head
from tallystick.trust.gossip.publishing import Publishing
from tallystick.trust.gossip.vouching import vouched
from tallystick.trust.gossip.walking import Walking

_log = logging.getLogger("tallystick.roles")
CYCLE_SECONDS = 1.0
LEAST_CYCLE_SECONDS = 0.1
CYCLES = 30
"""A short study has at least so many cycles before its deadline."""
LOOK_SECONDS = 0.2
"""How often a peer looks whether it has compared notes with the board, before it draws."""
OVERHEAD = 1024
"""Bytes of a seal, and of a relay's envelope."""


def parameters_of(
    session: Any, setup: Setup, roster: Roster, publishing: Publishing, walking: Walking | None
) -> gossip.GossipParameters:
    """What gossip goes by: the same at every member whose study and roster are the same."""
    seconds = setup.study.trust.round_timeout_s
    cycles = 0 if walking is None else walking.cycles(len(roster.clients), setup.study.data.records)
    cycle_seconds = min(CYCLE_SECONDS, seconds / CYCLES)
    if cycles:  # walks are over by half of the time, if that can be
        cycle_seconds = min(cycle_seconds, max(LEAST_CYCLE_SECONDS, seconds / (2 * cycles)))
    return gossip.GossipParameters(
        study_hash=roster.session,
        study=session.study_hash,
        peers=roster.clients,
        collector=roster.coordinator,
        identities={name: session.cast.identities[name] for name in roster.clients},
        validate=publishing.check,
        body_limit=publishing.body_limit,
        min_peers=roster.min_clients,
        models=None if walking is None else walking.ball,
        cycles=cycles,
        cycle_seconds=cycle_seconds,
        round_seconds=seconds,
    )


class GossipPart(Part):
    """What both have. A subclass makes ``machine``."""

    machine: GossipMember

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.publishing = Publishing.of(setup, session.study_hash)
        self.walking = Walking.of(self.publishing)
        self.parameters = parameters_of(session, setup, roster, self.publishing, self.walking)
        self.message_limit = self.parameters.message_limit + OVERHEAD
        self.drive = Driver(session, ROUNDS, send=self.send, other=self.step)

    @property
    def round(self) -> int:
        return self.machine.round

    def source(self, label: bytes) -> Any:
        """Randomness of this party in this study."""
        process = self.session.process
        return process.parts.streams(self.session.study_hash, label, process.name.encode())

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        raw = self.opened(sender, kind, payload)
        if raw is not None:
            process = self.session.process
            with process.store.transaction():
                self.drive(self.machine.receive_bytes(sender, raw, process.now()))

    def opened(self, sender: str, kind: int, payload: memoryview) -> bytes | None:
        """A message as it was written, or None if it is one that need not be looked at."""
        if kind != SUM:
            raise RemoteProtocolError("a sealed message that is for somebody else", party=sender)
        return bytes(payload)

    def sink(self, sender: str, length: int) -> Sink | None:
        return None  # an offer or some records, in memory

    def tick(self) -> None:
        self.drive(self.machine.tick(self.session.process.now()))

    def connected(self, peer: str) -> None:
        """It is met when its turn comes."""

    def send(self, to: str, message: gossip.Message) -> None:
        """Hand over a message."""
        self.session.process.send(to, head(SUM, self.session.study_hash) + gossip.encode(message))

    def step(self, step: Any) -> None:
        """An instruction that the driver does not know."""
        process = self.session.process
        match step:
            case gossip.Noticed(party=party, code=code, cause=cause):
                _log.warning("refused: %s (%s)", cause, party, extra={"member": party})
                process.conduct.note(party, rule_of(code), told=True)
                process.health.refused += 1
            case gossip.TurnedDown(party=party, cause=cause):
                _log.warning("%s does not take what this party sent: %s", party, cause, extra={"member": party})
            case gossip.Isolated(cycles=cycles):
                _log.warning("nobody in the study has been heard for %d cycles; this party goes on trying", cycles)
            case _:
                pass


class PeerPart(GossipPart, ClientPart):
    """A peer's: it publishes its perturbed records once, and holds everybody's."""

    machine: gossip.PeerMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process = session.process
        self.machine = gossip.PeerMachine(
            self.parameters,
            process.name,
            process.store.records(session.study_hash),
            key=process.parts.identity.signing,
            source=self.source(b"partners"),
            walks=None if self.walking is None else self.walking.walks(process.name, self._books, self.source(b"walk")),
        )
        self._waiting: Compute | None = None

    def _books(self) -> Publications:
        """What is held here: all that models are trained on and measured by."""
        return self.machine.publications

    def begin(self) -> None:
        self.drive(self.machine.begin(self.session.process.now()))
        if self.machine.published is not None:  # killed between the two, perhaps
            self._give_up()

    def tick(self) -> None:
        step, self._waiting = self._waiting, None
        if step is not None:
            self.session.compute(step)
        super().tick()

    def opened(self, sender: str, kind: int, payload: memoryview) -> bytes | None:
        if sender == self.roster.coordinator:
            return super().opened(sender, kind, payload)
        if kind != SEALED:
            raise RemoteProtocolError("what a peer says to another is sealed", party=sender)
        try:
            return bytes(self.session.seals.open(sender, payload))
        except RemoteProtocolError as error:
            if error.rule == "replayed":  # overtaken on its way, or repeated: it is said again
                return None
            raise

    def send(self, to: str, message: gossip.Message) -> None:
        if to == self.roster.coordinator:
            super().send(to, message)
            return
        pieces, _ = self.session.seals.seal(to, gossip.encode(message))
        self.session.process.send(to, b"".join(bytes(p if isinstance(p, memoryview) else p.view()) for p in pieces))

    def step(self, step: Any) -> None:
        if isinstance(step, Compute):
            self.session.compute(step)
        elif isinstance(step, gossip.Published):
            self._vouch(step.digest)
        else:
            super().step(step)

    def prepare(self, records: HeldRecords) -> Any:
        return records.whole()

    def answer(self, step: Compute, prepared: Any) -> None:
        """The one draw: paid for and countersigned by now, and kept before anybody hears of it.

        A peer that was set back to an old copy of its disk, or that runs twice, draws the very same record: its words
        are a function of its own secret, of the study and of its rows (:mod:`tallystick.trust.gossip.draw_key`). Where
        it would be another one, because its rows have changed, nothing is published: not if the ledger was charged for
        other records, nor if the notice board knows of another publication. Without the board nothing is drawn, however
        long it is away. Nothing is lost by waiting, because without it no study ends.
        """
        if self.machine.published is not None:
            self._give_up()
            return
        exchange, now = self.session.process.exchange, self.session.process.now()
        own = [s for s in exchange.docket(self.session.study_hash).statements("attestation") if s.signer == self.name]
        if not own and not exchange.in_step(exchange.members.board):
            self._waiting = step  # what this peer has said before may be on its way
            self.session.process.wake(now + LOOK_SECONDS, self.session, ROUNDS)
            return
        body = self._drawn(prepared, own[0].body["partials"] if own else None)
        if body is None:
            self.withdraw(step.round)
            return
        crashpoint("records-drawn")
        self.drive(self.machine.publish(body))
        self.session.process.health.rounds = 1
        self._give_up()

    @property
    def name(self) -> str:
        """Of this peer."""
        return str(self.session.process.name)

    def _drawn(self, prepared: Any, said: Sequence[str] | None) -> bytes | None:
        """What there is to publish; ``said``: the digests that this peer has vouched for before. None: nothing."""
        study, process = self.session.study_hash, self.session.process
        lost = "This peer draws nothing, and takes its own record up if another peer has it"
        if not self.session.charged_here and not process.records_as_charged(study):
            _log.error("the records have changed since this study was charged, and this peer was restarted. %s", lost)
            return None
        body = self.publishing.drawn(prepared, self.name, process.draws.words)
        if body is None:
            _log.error("this peer has drawn in this study, and what it drew is gone: files were set back. %s", lost)
            return None
        if said is not None and format_hash(publication_digest(study, self.name, body)) not in said:
            _log.error("this peer has published other records in this study: its files were set back. %s", lost)
            return None
        return body

    def _give_up(self) -> None:
        """The record is kept: what it was drawn from goes."""
        self.session.process.draws.give_up(self.session.study_hash)

    def _vouch(self, published: bytes) -> None:
        """Attest to the noise before the records travel: it is this peer's alone, and so is the word for it."""
        session, process = self.session, self.session.process
        note = {"participants": [process.name], "partial": format_hash(published)}
        process.store.put_release(session.study_hash, 1, json.dumps(note).encode())
        crashpoint("publication-noted")
        attest(
            process.exchange, process.store, session.study_hash, self.setup, noted(process.store, session.study_hash)
        )
        crashpoint("publication-attested")

    def contribute(self, round: int, values: NDArray[np.int64]) -> None:
        raise LocalProtocolError("peers publish records, and no sums")

    def withdraw(self, round: int) -> None:
        self.drive(self.machine.withdraw())


class CollectorPart(GossipPart, CoordinatorPart):
    """The collector's: it gathers what is published, says when that is everything, and learns from it."""

    machine: gossip.CollectorMachine

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        self.machine = gossip.CollectorMachine(
            self.parameters, session.process.name, self._kept, source=self.source(b"partners")
        )

    @property
    def _kept(self) -> Mapping[str, bytes]:
        found: Mapping[str, bytes] = self.session.process.store.records(self.session.study_hash)
        return found

    def begin(self) -> None:
        store = self.session.process.store
        if OPENED in self._kept and store.release(self.session.study_hash, 1) is None:
            self.drive(self.machine.open(self.session.process.now()))

    def open_round(self, round: int, model: bytes) -> None:
        self.drive(self.machine.open(self.session.process.now()))

    def tick(self) -> None:
        self.machine.vouch(self._vouched(self.machine.unvouched))
        super().tick()

    def _vouched(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Of these, whose charge and attestation have come in."""
        if not names:
            return ()
        session = self.session
        docket = session.process.exchange.docket(session.study_hash)
        known = docket.statements("charge", "countersignature", "attestation")
        return vouched(known, session.cast, names, rho=self.setup.plan.rho)

    def step(self, step: Any) -> None:
        match step:
            case Finished(result=result):
                behind = self.machine.behind()
                if behind:
                    _log.warning("the study ends; as far as is known %s do not hold all of it", ", ".join(behind))
                self.session.round_finished(result)
            case Held(error=error):
                self.session.round_held(error)
            case _:
                super().step(step)

    def compute(self, *, progress: Progress, released: Released | None) -> Computed:
        """One question, one answer: whose records there are. What is learnt from them is post-processing."""
        answer = self.session.answer(RoundRequest(round=1, model=b""))
        kept = self._kept
        progress(1, 1)
        if self.walking is not None:  # kept before the answer was there
            state = self.walking.model(unpack_model(kept[WALKED]).weights)
        else:
            state = self.publishing.learn(
                {name: unpack_publication(kept[FROM + name]).body for name in answer.participants}
            )
        return Computed(history=(state,), contributors=(answer.participants,), dropped=(answer.dropped,))
