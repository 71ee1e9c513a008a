"""What helpers and clients have in common: they are asked, decide, take part, and erase their keys at the end.

Durability. ``Persist`` is written (SQLite, synchronous=FULL) before the instruction after it is carried out; a private
key is on disk before its public half is signed. Whatever is killed, whenever, comes back with the same bytes.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from typing import Any

from tallystick.core.errors import NotApproved, RemoteProtocolError, RoundAborted, TallystickError
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.engines.setup import Setup, set_up
from tallystick.protocol import study as studies
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.taking_part import check_approved
from tallystick.protocol.members import Members
from tallystick.protocol.study.messages import StudyCode, StudyDeclined, StudyEnd, StudyOpen, StudyReady
from tallystick.protocol.study.participant import ParticipantMachine
from tallystick.protocol.study.roster import Roster
from tallystick.protocol.study.waiting import ParticipantState
from tallystick.roles.governance.messages import Op
from tallystick.roles.identity.consortium_watch import change_of_members, left
from tallystick.roles.processes.part import Driver, Part
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.processes.session import Parts, Session
from tallystick.roles.steward.refusals import Refusals
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.database import is_storage_failure
from tallystick.roles.streams.ticks import pack_tick, unpack_tick
from tallystick.transport.network.admission import Sink, Unwanted
from tallystick.transport.wire import HEADER_BYTES, SEALED, STUDY, Seals, head

_log = logging.getLogger("tallystick.roles")
_KEY, _HELD = "x25519", "held"
WAIT_SECONDS = 8 * 86400  # in a pause; the coordinator closes the study a day before
_IDLE = (ParticipantState.IDLE, ParticipantState.DECLINED, ParticipantState.ENDED)


class ParticipantSession(Session):
    """A study at a party that is asked to take part."""

    def __init__(self, process: RoleProcess, study_hash: bytes) -> None:
        super().__init__(process, study_hash)
        self.setup: Setup | None = None
        self.seals: Seals | None = None
        self.part: Part | None = None
        self.cast = process.cast(study_hash)
        self._stored = process.store.study(study_hash) is not None
        records = process.store.records(study_hash) if self._stored else {}
        self._machine, first = ParticipantMachine.restore(
            self.cast, process.name, study_hash, records, process.now(), retry_seconds=2.0
        )
        self._first = first
        self._study = Driver(self, "study", send=self._say, other=self._step)

    @property
    def keeps(self) -> bool:
        return self._stored

    def begin(self) -> None:
        """What the durable records say is to be done first. A party that had not started decides anew."""
        if self._machine.state is ParticipantState.DECLINED:  # kept, but not noted as over
            self._erase()
            self._not_taking_part(RoundAborted("this party had declined"))
        elif self._machine.state is ParticipantState.IDLE and self._stored:
            # Killed before its answer was kept. Nobody has heard of the key, and nobody may ever ask again.
            self._erase()
            self._not_taking_part(RoundAborted("this party had not answered"), status="proposed")
        elif self._still_willing():
            self._study(self._first)
        end = self.process.store.records(self.study_hash).get("study/end")
        if end is not None and self._machine.state is ParticipantState.ENDED:  # kept, but not noted as over
            said = studies.decode(end)
            self.over = True
            finished = isinstance(said, StudyEnd) and said.code == StudyCode.FINISHED
            if isinstance(said, StudyEnd):
                unfinished = None if finished else RoundAborted("the study ended without a result")
                self.finished(said.result if finished else None, unfinished)
            self.process.store.set_status(self.study_hash, "finished" if finished else "failed")

    @property
    def held_round(self) -> int:
        """The round this party was in when the study was paused last, as it has kept it itself; 0 if it never was."""
        return self._kept_pause()[0]

    def _kept_pause(self) -> tuple[int, int]:
        """That round, and until when this party waits."""
        kept = self.process.store.records(self.study_hash).get(_HELD)
        return (0, 0) if kept is None else tuple(json.loads(kept))

    def _pause(self) -> None:
        """Keep everything there is, keys too, and take no part in the rounds until the study goes on."""
        until = int(self.process.parts.wall()) + WAIT_SECONDS
        held = self.part.round if self.part is not None else self.held_round
        self.process.store.persist(self.study_hash, _HELD, json.dumps([held, until]).encode())
        self.close()
        self.part = None
        self.process.health.studies[self.study_hash.hex()[:12]] = "paused"
        _log.warning("the study %s is paused; what it needs is kept here", self.study_hash.hex()[:12])

    @property
    def idle(self) -> bool:
        return self.over or self._machine.state in _IDLE

    def approved(self) -> None:
        """Raise :class:`NotApproved` unless the stewards' signed decisions, as they are kept here, carry the study now.

        Whatever the aggregator says it has started: this is asked as long as this party has not started itself.
        """
        exchange = self.process.exchange
        check_approved(exchange.docket(self.study_hash), exchange.wall())

    def reconsider(self) -> None:
        """Raise unless this party would still take part: between its answer and its start."""
        self.approved()

    # -- to be written by the role --------------------------------------------------------------------------------

    @abstractmethod
    def decide(self, setup: Setup) -> None:
        """Return to take part; raise to decline. Reads no record."""

    # -- events ---------------------------------------------------------------------------------------------------

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        now = self.process.now()
        if kind == STUDY:
            self._study(self._machine.receive_bytes(sender, bytes(payload), now))
            return
        if self.part is None:
            if self._machine.state is ParticipantState.PAUSED:
                return  # it is said again when the study goes on
            raise RemoteProtocolError("a message of a round that has not started here", party=sender)
        self.part.receive(sender, kind, payload)

    def tick(self, layer: str) -> None:
        now = self.process.now()
        if layer == "study":
            if self._machine.state is ParticipantState.PAUSED and self.process.parts.wall() >= self._kept_pause()[1]:
                self._study(self._machine.expire())
            if self._still_willing():
                self._study(self._machine.tick(now))
        elif self.part is not None:
            self.part.tick()

    def connected(self, peer: str) -> None:
        if not self.over:
            if peer == self.cast.coordinator:
                self.tick("study")
            if self.part is not None:
                self.part.connected(peer)

    def members_changed(self, members: Members) -> None:
        """A client that has left is missing from the rounds, no more; without a helper there are none."""
        started = self._machine.state in (ParticipantState.RUNNING, ParticipantState.PAUSED)
        needed = (self.cast.coordinator, *self.cast.helpers)
        gone = [name for name in left(self.process.members, members) if name in needed or name == self.process.name]
        if self.idle or (started and not gone):
            return
        self._study(self._machine.give_up(*change_of_members(gone)))

    # -- carrying out ---------------------------------------------------------------------------------------------

    def _say(self, to: str, message: Any) -> None:
        self.process.send(to, head(STUDY, self.study_hash) + studies.encode(message))
        if isinstance(message, StudyReady):
            crashpoint("ready-sent")

    def _step(self, step: studies.Instruction) -> None:
        match step:
            case studies.Review():
                self._review(step)
            case studies.Confirm(attempt=attempt):
                if self._machine.state is ParticipantState.PAUSED:
                    self._go_on()
                elif self._still_willing():
                    self._study(self._machine.begin(attempt=attempt, now=self.process.now()))
            case studies.Started(roster=roster):
                self._started(roster)
            case studies.Paused():
                self._pause()
            case studies.Erase():
                self._erase()
            case studies.Ended(result=result, error=error):
                self._ended(result, error)
            case _:
                pass

    def finished(self, result: bytes | None, error: TallystickError | None) -> None:
        """The study is over here; said again after a restart if it may not have been carried out."""

    def _review(self, step: studies.Review) -> None:
        self.over = False  # an earlier attempt may have ended before its start
        store, name = self.process.store, self.process.name
        try:
            policy = self.process.parts.config.policy
            allowed = policy.allow_not_private if policy is not None else True
            self.approved()  # before anything of a program is so much as read, or of the study is stored
            setup = set_up(step.study, step.program, allow_not_private=allowed)
            if step.min_clients != setup.min_clients:  # the machine would decline too, with a key and a charge kept
                raise RoundAborted(
                    "the study is opened with another min_clients than it has",
                    party=self.cast.coordinator,
                )
            self.decide(setup)
        except TallystickError as error:
            self._decline(error)
            return
        store.add_study(self.study_hash, step.study, step.program)
        self._stored = True
        kept = store.key(self.study_hash, _KEY)
        if kept is None:
            source = self.process.parts.streams(self.study_hash, b"study-key", name.encode())
            kept = AgreementKey.generate(source).reveal()
            store.put_key(self.study_hash, _KEY, kept)
            crashpoint("study-key-kept")
        signed = AgreementKey(kept).sign(
            self.process.parts.identity.signing, study_hash=self.study_hash, party=name, role=self.process.role
        )
        store.set_status(self.study_hash, "ready")
        self._study(self._machine.approve(signed, attempt=step.attempt, min_clients=setup.min_clients))

    def still_approved(self) -> None:
        """Raise unless this party would go on after a pause."""

    def goes_on(self) -> bool:
        """Whether this party still takes part in what was paused; it leaves for good if not."""
        try:
            self.still_approved()
        except TallystickError as error:
            if is_storage_failure(error):
                raise
            self.leave(error)
            return False
        return True

    def _go_on(self) -> None:
        if self.goes_on():
            self._study(self._machine.go_on(self.process.now()))

    def _still_willing(self) -> bool:
        """Whether this party, if it has said that it is ready, still is; it takes its word back if not."""
        if self._machine.state is ParticipantState.READY:
            try:
                self.reconsider()
            except TallystickError as error:
                if is_storage_failure(error):
                    raise
                self._decline(error)
                return False
        return True

    def _decline(self, error: TallystickError) -> None:
        steps = self._machine.decline(StudyCode.NOT_APPROVED, error.cause, attempt=self._machine.attempt)
        if steps:
            self._tell_steward(error)
            self._study(steps)
            self._not_taking_part(error)

    def leave(self, error: TallystickError) -> None:
        """Give up a study that has started: before anything of this party was sent, or instead of going on."""
        self._tell_steward(error)
        self._study(self._machine.leave(StudyCode.NOT_APPROVED, error))

    def _tell_steward(self, error: TallystickError) -> None:
        """Why this party takes no part: in its log, in its health, and for ``tallystick study show``."""
        process, name = self.process, self.study_hash.hex()[:12]
        _log.warning("declined: no part in the study %s: %s", name, error, extra={"member": self.cast.coordinator})
        process.health.decline(name, str(error))
        if process.exchange.docket(self.study_hash).statements("proposal") and isinstance(process, ParticipantProcess):
            process.health.studies[name] = "declined"
            process.refusals.note(
                self.study_hash, at=process.exchange.wall(), rule=error.rule or "declined", cause=error.cause
            )

    def _not_taking_part(self, error: TallystickError, *, status: str = "declined") -> None:
        """After it is kept that this party declines: what it had set aside for the study is given back."""
        self.finished(None, error)
        if self._stored:
            self.process.store.set_status(self.study_hash, status)

    def _started(self, roster: Roster) -> None:
        store = self.process.store
        if isinstance(self.process, ParticipantProcess):
            self.process.refusals.clear(self.study_hash)
        self.process.health.declined.pop(self.study_hash.hex()[:12], None)
        kept, stored = store.key(self.study_hash, _KEY), store.study(self.study_hash)
        if kept is None or stored is None:
            raise RemoteProtocolError("a study started whose key is gone", remedy="Propose it anew, as a new version.")
        if self.setup is None:
            self.setup = set_up(stored.canonical, stored.program, allow_not_private=True)
        if self.seals is None:  # those of before a pause count on: no number is used twice
            source = self.process.parts.streams(self.study_hash, b"seal", self.process.name.encode())
            self.seals = Seals(AgreementKey(kept), self.process.name, roster, source, store.boot)
        model = self.cast.model
        part: Part = model.load(model.parts[self.process.role])(self, self.setup, roster)
        self.part, node = part, self.process.node
        limit = max(part.message_limit + 4096, node.options.message_limit)
        for peer in (self.cast.coordinator, *self.cast.parties):
            node.allow(limit, peer, study=self.study_hash)
        store.set_status(self.study_hash, "running")
        self.process.health.studies[self.study_hash.hex()[:12]] = "running"
        part.begin()

    def _erase(self) -> None:
        if self.seals is not None:
            self.seals.erase()
            self.seals = None
        if self.part is not None:
            self.part.erase()  # no thread of the network writes to the study's folder from here on
        self.process.store.erase_secrets(self.study_hash)
        crashpoint("keys-erased")

    def _ended(self, result: bytes | None, error: TallystickError | None) -> None:
        self.over = True
        self.process.node.allow_no_more(self.study_hash)
        self.finished(result, error)
        self.close()
        self.part = None
        if self.process.store.study(self.study_hash) is not None:
            self.process.store.set_status(self.study_hash, "finished" if error is None else "failed")
        name, health = self.study_hash.hex()[:12], self.process.health
        ended = "finished" if error is None else "failed"
        health.studies[name] = "declined" if name in health.declined else ended
        if error is not None:
            _log.warning("the study ended without a result: %s", error)
        if self.setup is not None:
            self.setup.close()

    def close(self) -> None:
        if self.part is not None:
            self.part.close()


class ParticipantProcess(RoleProcess):
    """The process of a party that is asked to take part."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.refusals = Refusals(parts.config.state / "governance.sqlite", party=self.name)

    def close(self) -> None:
        super().close()
        self.refusals.close()

    def resume(self) -> None:
        crashpoint("boot-counted")
        for stored in self.store.studies():
            if stored.status in ("ready", "running"):
                self._guarded(lambda known=stored.hash: self.resume_one(known))  # type: ignore[misc]
            elif stored.hash not in self.sessions:
                # It is over, or its key was never shown to anyone: what a crash has left of it is not needed.
                self._guarded(lambda known=stored.hash: self.store.erase_secrets(known))  # type: ignore[misc]

    def sink_for(self, sender: str, length: int, head: bytes) -> Sink | None:
        if head[0] != SEALED:
            return super().sink_for(sender, length, head)
        session = self.sessions.get(head[1:HEADER_BYTES])
        part = session.part if isinstance(session, ParticipantSession) else None
        if part is None:
            raise Unwanted
        return part.sink(sender, length)

    def governance(self, sender: str, study_hash: bytes, op: int, body: bytes) -> None:
        """Beside what every role is told: a client asks which tick of a stream was seen last."""
        if op != Op.TICK or sender not in self.members.clients or self.witness is None:
            super().governance(sender, study_hash, op, body)
            return
        session = self.sessions.get(study_hash)
        asked, _ = unpack_tick(body, sender)
        if isinstance(session, ParticipantSession) and session.part is not None:  # not up yet: it asks again
            answer = pack_tick(asked, session.part.last_round_of(sender))
            self.exchange.send(sender, Op.TICK_SEEN, answer, study_hash)

    def unknown(self, sender: str, kind: int, study_hash: bytes, payload: memoryview) -> None:
        """Asked to take part in what nobody has proposed: this party says why it does not, and keeps nothing of it."""
        if kind != STUDY or sender not in self.members.coordinators or not self.exchange.may_ask(sender):
            return
        asked = studies.decode(bytes(payload))
        if not isinstance(asked, StudyOpen):
            return
        try:
            check_approved(Docket(study_hash, self.members), self.exchange.wall())
        except NotApproved as error:
            name = study_hash.hex()[:12]
            _log.warning("declined: no part in the study %s: %s", name, error, extra={"member": sender})
            self.health.decline(name, str(error))
            code = StudyCode.NOT_APPROVED
            said = StudyDeclined(
                study_hash=study_hash, attempt=asked.attempt, party=self.name, code=code, cause=error.cause
            )
            self.send(sender, head(STUDY, study_hash) + studies.encode(said))

    def make_session(self, study_hash: bytes, sender: str) -> Session | None:
        proposed = study_hash in self.exchange.proposed or self.store.study(study_hash) is not None
        if not proposed or sender != self.cast(study_hash).coordinator:
            return None
        return self.session(self, study_hash)
