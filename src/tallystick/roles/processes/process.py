"""A role as a process: its lines, its notice board, its sessions of studies; fed by one loop (:mod:`~.processes.loop`).

Randomness and clock are constructor arguments; ``roles.start`` wires the operating system's, and nothing else can.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tallystick.core.errors import RemoteProtocolError
from tallystick.protocol.governance.standing import ENDED_EARLY
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Cast
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.messages import Op
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.governance.witness import Witness
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.consortium_watch import ConsortiumWatch, left
from tallystick.roles.identity.places import members_of, node_for, peers_of
from tallystick.roles.ledger.seen_heads import SeenHeads
from tallystick.roles.operations.heap import give_back_memory
from tallystick.roles.operations.logs import tell_left_out
from tallystick.roles.processes.backlog import Backlog
from tallystick.roles.processes.loop import EventLoop
from tallystick.roles.processes.session import Parts, Session
from tallystick.study.proposed import proposed_study
from tallystick.study.trust import registered
from tallystick.transport.link import Envelope
from tallystick.transport.network.admission import Sink, Unwanted
from tallystick.transport.wire import GOVERNANCE, HEADER_BYTES, parse

_log = logging.getLogger("tallystick.roles")
POLL_SECONDS = 0.5
READ_AT_ONCE, READ_OF_ONE = 64, 8  # messages in one turn of the loop, and of one sender
RECEIPT_LIMIT = 16 << 20
GOVERNANCE_LIMIT = 16 << 20  # of what others than the aggregator say about statements, of which the longest has 8 MB
ASKED_RECEIPTS = 32  # at once, when a line comes up
TELL_SECONDS = 30.0
WATCH_SECONDS = 2.0


class RoleProcess(EventLoop):
    """The loop. ``make_session(process, hash)`` makes a session for a study nobody here has heard of yet, or None."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.members = members_of(parts.consortium)
        self._turns = threading.Semaphore(2)
        self._polled = self._told = self._watched = -TELL_SECONDS
        self._watch = ConsortiumWatch(parts.config.consortium, parts.consortium)
        self.look_again = False
        """Set by a signal: look at the consortium file whether it seems to have changed or not."""
        self.receipts = ReceiptBook(parts.config.state)
        self.exchange = Exchange(
            GovernanceStore(
                parts.config.state / "governance.sqlite", party=self.name, identities=self.members.identities
            ),
            self.members,
            self.name,
            parts.identity.signing,
            send=self.send,
            wall=parts.wall,
            heard=self.hear,
            limited=self.conduct.note,
            now=parts.clock.now,
        )
        self.witness: Witness | None = None
        if self.role in {model.witnesses for model in registered()}:
            seen = SeenHeads(parts.config.state / "governance.sqlite", party=self.name)
            self.witness = Witness(self.exchange, seen, self.conduct, self.now)
        self.node = node_for(
            parts.identity,
            parts.consortium,
            listen=parts.config.listen,
            options=parts.options,
            on_connect=lambda peer: self.post(lambda: self._connected(peer), wait=False),
            sinks=self.sink_for,
        )
        self._backlog = Backlog(
            lambda to, raw, length: self.node.offer(to, raw, length=length), self._lost, self.node.connected
        )

    # -- for sessions ---------------------------------------------------------------------------------------------

    def send(self, to: str, raw: Any, length: int | None = None) -> None:
        """Hand over, without waiting: a peer that takes nothing must not hold up what is for others.

        Messages that are lost, or do not fit on the line, are asked for again by the protocol.
        """
        self._backlog.send(to, raw, length)

    def _lost(self, to: str) -> None:
        self.conduct.note(to, "line-full", why="it does not take what is sent to it")
        self.exchange.compare_again(to)

    def sink_for(self, sender: str, length: int, head: bytes) -> Sink | None:
        """Where a large message is streamed to, on a thread of the network; None assembles it in memory.

        One about a study that nobody has proposed is not received at all, nor one that is longer than any statement.
        """
        study = head[1:HEADER_BYTES]
        if head[0] == GOVERNANCE and length > GOVERNANCE_LIMIT and sender != self.members.board:
            self.conduct.note(sender, "governance-message")  # however long the messages of a running study may be
            raise Unwanted
        if head[0] != GOVERNANCE and study not in self.sessions and study not in self.exchange.proposed:
            self.conduct.note(sender, "unknown-study")
            raise Unwanted
        return None

    def cast(self, study_hash: bytes) -> Cast:
        """Who does what in a study that is proposed, or stored, here."""
        stored = self.store.study(study_hash)
        proposal = self.exchange.standing(study_hash).proposal if stored is None else None
        text = stored.canonical.decode() if stored is not None else proposal.body["study"] if proposal else ""
        study = proposed_study(text)
        model = study.trust_model
        if model is None:
            raise RemoteProtocolError(
                "a study of a trust model that is not known here",
                rule="trust-model",
                remedy="Run the same version of tallystick everywhere.",
            )
        return self.members.cast(model, study.section("trust"))

    def directory(self, study_hash: bytes) -> Path:
        """Where a study's bulk files live."""
        return self.store.folder(study_hash)

    # -- the loop -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the lines and take up what was under way when the process last ended."""
        self.node.start()
        self._allow_receipts()
        threading.Thread(target=self._read, name=f"{self.name} reader", daemon=True).start()
        self.post(self.exchange.poll)
        self.post(self.resume)

    def _allow_receipts(self) -> None:
        self.node.allow(max(RECEIPT_LIMIT, self.node.options.message_limit), self.members.board)

    # -- another consortium file --------------------------------------------------------------------------------------

    def _look_at_consortium(self) -> None:
        always, self.look_again = self.look_again, False
        new = self._watch.look(self.parts.identity, always=always)
        if self._watch.problem != self.health.file_problem:
            self.health.file_problem = self._watch.problem
            if self._watch.problem:
                _log.error("the consortium file was replaced and is not taken: %s", self._watch.problem)
        if new is not None:
            self.adopt(new)

    def adopt(self, consortium: Consortium) -> None:
        """Go on with another consortium file.

        Studies that run go on under the file they were started with, unless somebody without whom they cannot has left;
        whoever has left has no line any more. Studies that have not started have to be proposed anew: their proposals
        name the old file.
        """
        members = members_of(consortium)
        gone = left(self.members, members)
        for session in tuple(self.sessions.values()):
            self._guarded(lambda s=session: self._in(s, lambda: s.members_changed(members)))  # type: ignore[misc]
        running = [study for study, session in self.sessions.items() if not session.idle]
        dropped = [session for study, session in self.sessions.items() if study not in running]
        self.sessions = {study: self.sessions[study] for study in running}
        for session in dropped:
            self._guarded(session.close)
        self.parts = replace(self.parts, consortium=consortium)
        self.members = members
        self.exchange.adopt(members, running)
        peers, wanted = peers_of(consortium, self.name, listening=self.parts.config.listen is not None)
        self.node.set_peers(peers, wanted)
        self._allow_receipts()
        said = "the consortium file of version %d is in force: %s; no longer in it: %s"
        _log.warning(said, consortium.version, consortium.printed_hash, ", ".join(gone) or "nobody")

    def connected_to(self, peer: str) -> None:
        """A line is there (again): ask for the receipts that were made meanwhile."""
        if peer == self.members.board:
            lacking = (study for study in reversed(self.exchange.store.hashes()) if self._lacks_receipt(study))
            for study in itertools.islice(lacking, ASKED_RECEIPTS):
                self.exchange.send(peer, Op.RECEIPT_WANTED, b"", study)

    def _lacks_receipt(self, study: bytes) -> bool:
        standing = self.exchange.standing(study)
        if self.receipts.get(study) is None:
            return bool(standing.result)
        finished = standing.outcome is not None and standing.outcome.body["code"] != ENDED_EARLY
        return finished and standing.state == "finished" and self.receipts.is_early(study)

    def heard(self, statement: Statement) -> None:
        """A signed statement is new here."""

    def hear(self, statement: Statement) -> None:
        """The same, at the moment it comes in: what takes long is put off (:meth:`between`)."""
        self.heard(statement)

    def governance(self, sender: str, study_hash: bytes, op: int, body: bytes) -> None:
        """A message beside the statements: ledger heads, results and receipts."""
        if self.witness is not None and self.witness.receive(sender, study_hash, op, body):
            return
        if op == Op.RECEIPT and sender == self.members.board:
            if study_hash not in self.exchange.proposed or self.exchange.standing(study_hash).start is None:
                raise RemoteProtocolError("a receipt of a study that was not run", party=sender, rule="unknown-study")
            self.receipts.put(study_hash, body, sender=sender)
            return
        raise RemoteProtocolError("a message that is not for this role", party=sender)

    def resume(self) -> None:
        """Sessions of studies that were not over."""

    def make_session(self, study_hash: bytes, sender: str) -> Session | None:
        """A session for a study met for the first time."""
        raise NotImplementedError

    def close(self) -> None:
        """After the loop has ended."""
        for session in self.sessions.values():
            session.close()
        self.node.stop()
        if self.witness is not None:
            self.witness.close()
        self.exchange.store.close()
        self.store.close()

    def due(self, now: float) -> None:
        if now >= self._polled + POLL_SECONDS:
            self._polled = now
            self._guarded(self.exchange.poll)
        if self.look_again or now >= self._watched + WATCH_SECONDS:
            self._watched = now
            self._guarded(self._look_at_consortium)
        if now >= self._told + TELL_SECONDS:
            self._told = now
            tell_left_out()
            if not any(state == "running" for state in self.health.studies.values()):
                give_back_memory()
        if self.puts_off:
            self._guarded(self.between)

    @property
    def puts_off(self) -> bool:
        """Whether there is work for :meth:`between`."""
        return False

    def between(self) -> None:
        """Work that can wait until the messages that are there have been taken; one piece of it."""

    def _read(self) -> None:
        while not self._stop.is_set():
            envelope = self.node.receive(timeout=0.5)
            if envelope is None:
                continue
            batch = [envelope]  # one turn of the loop for all that wait: a hundred clients answer at once
            taken = Counter([envelope.sender])
            while len(batch) < READ_AT_ONCE and taken[batch[-1].sender] < READ_OF_ONE:
                if (more := self.node.receive()) is None:
                    break
                batch.append(more)
                taken[more.sender] += 1
            while not self._turns.acquire(timeout=0.5):  # what is not taken stays with the network, which has limits
                if self._stop.is_set():
                    return
            self.post(lambda taken=tuple(batch): self._messages(taken))  # type: ignore[misc]

    def _messages(self, batch: tuple[Envelope, ...]) -> None:
        self._turns.release()
        with self.exchange.turn():
            for envelope in batch:
                self._guarded(lambda e=envelope: self._message(e), sender=envelope.sender)  # type: ignore[misc]

    def _message(self, envelope: Envelope) -> None:
        kind, study_hash, payload = parse(envelope.raw, envelope.sender)
        if kind == GOVERNANCE:
            if not payload:
                raise RemoteProtocolError("an empty message", rule="malformed", party=envelope.sender)
            op, body = payload[0], bytes(payload[1:])
            if not self.exchange.receive(envelope.sender, op, body) and self.exchange.may_ask(envelope.sender):
                self.governance(envelope.sender, study_hash, op, body)
            return
        session = self.sessions.get(study_hash)
        if session is None and study_hash in self._laid_down:
            return  # the disk failed: nothing is done until it works again; the protocol says everything again
        if session is None:
            session = self.make_session(study_hash, envelope.sender)
            if session is None:
                self.unknown(envelope.sender, kind, study_hash, payload)
                raise RemoteProtocolError(
                    "a message about a study that nobody has proposed here, or that is not this party's to take",
                    party=envelope.sender,
                    rule="unknown-study",
                )
            self._make_room()
            self.sessions[study_hash] = session
        current = session
        self._in(current, lambda: current.receive(envelope.sender, kind, payload))

    def unknown(self, sender: str, kind: int, study_hash: bytes, payload: memoryview) -> None:
        """A message about a study of which there is no session, nor will be: whether it is answered."""

    def _connected(self, peer: str) -> None:
        self._guarded(lambda: self.exchange.connected(peer))
        self._guarded(lambda: self.connected_to(peer))
        for session in tuple(self.sessions.values()):
            self._guarded(lambda s=session: self._in(s, lambda: s.connected(peer)))  # type: ignore[misc]
