"""What a server and a client have in common: they are asked, decide, take part, and erase their keys at the end.

Durability. ``Persist`` is written (SQLite, synchronous=FULL) before the instruction after it is carried out; a private
key is on disk before its public half is signed. Whatever is killed, whenever, comes back with the same bytes.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from tallystick.core.errors import NotApproved, RemoteProtocolError, RoundAborted, TallystickError
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.engines.setup import Setup, set_up
from tallystick.protocol import secure_sum as sums
from tallystick.protocol import study as studies
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.taking_part import check_approved
from tallystick.protocol.secure_sum.codec import encode_parts
from tallystick.protocol.secure_sum.machine import Machine as SumMachine
from tallystick.protocol.secure_sum.messages import Message as SumMessage
from tallystick.protocol.secure_sum.messages import Share
from tallystick.protocol.study.messages import StudyCode, StudyDeclined, StudyEnd, StudyOpen, StudyReady
from tallystick.protocol.study.participant import ParticipantMachine, ParticipantState
from tallystick.protocol.study.roster import Members, Roster
from tallystick.roles.governance.refusals import Refusals
from tallystick.roles.identity.consortium_watch import change_of_members, left
from tallystick.roles.processes.process import Parts, RoleProcess, Session
from tallystick.roles.storage.crash_points import CrashPoint, after_forget, after_persist, crashpoint
from tallystick.roles.storage.stores import is_storage_failure
from tallystick.transport.wire import SEALED, STUDY, SUM, Seals, head

__all__ = ["ParticipantProcess", "ParticipantSession"]

_log = logging.getLogger("tallystick.roles")
_KEY = "x25519"
_IDLE = (ParticipantState.IDLE, ParticipantState.DECLINED, ParticipantState.ENDED)


class ParticipantSession(Session):
    """A study at a server or a client."""

    key_kept: ClassVar[CrashPoint]
    ready_sent: ClassVar[CrashPoint]
    keys_erased: ClassVar[CrashPoint]

    def __init__(self, process: RoleProcess, study_hash: bytes) -> None:
        super().__init__(process, study_hash)
        self.setup: Setup | None = None
        self.seals: Seals | None = None
        self.sum: SumMachine | None = None
        self._stored = process.store.study(study_hash) is not None
        records = process.store.records(study_hash) if self._stored else {}
        self._machine, first = ParticipantMachine.restore(
            process.members, process.name, study_hash, records, process.now(), retry_seconds=2.0
        )
        self._first = first

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

    @abstractmethod
    def make_sum(self, setup: Setup, roster: Roster) -> tuple[SumMachine, Sequence[sums.Instruction]]:
        """The secure-sum machine, restored from its records, and what it wants first."""

    @abstractmethod
    def sum_step(self, step: sums.Instruction) -> None:
        """An instruction only this role knows."""

    # -- events ---------------------------------------------------------------------------------------------------

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        now = self.process.now()
        if kind == STUDY:
            self._study(self._machine.receive_bytes(sender, bytes(payload), now))
            return
        if self.sum is None:
            raise RemoteProtocolError("a message of a sum that has not started here", party=sender)
        if kind == SEALED:
            if self.seals is None:
                raise RemoteProtocolError("a sealed message outside its study", party=sender)
            raw = self.seals.open(sender, payload)
        else:
            raw = bytes(payload)
        self.sums(self.sum.receive_bytes(sender, raw, now))

    def tick(self, layer: str) -> None:
        now = self.process.now()
        if layer == "study":
            if self._still_willing():
                self._study(self._machine.tick(now))
        elif self.sum is not None:
            self.sums(self.sum.tick(now))

    def connected(self, peer: str) -> None:
        if not self.over:
            self.tick("study" if peer == self.process.members.aggregator else "sum")

    def members_changed(self, members: Members) -> None:
        """A client that has left is missing from the rounds, no more; without a server there are none."""
        started = self._machine.state is ParticipantState.RUNNING
        needed = (self.process.members.aggregator, *self.process.members.servers)
        gone = [name for name in left(self.process.members, members) if name in needed or name == self.process.name]
        if self.idle or (started and not gone):
            return
        self._study(self._machine.give_up(*change_of_members(gone)))

    # -- carrying out ---------------------------------------------------------------------------------------------

    def _study(self, instructions: Sequence[studies.Instruction]) -> None:
        for step in instructions:
            match step:
                case studies.Persist(key=key, record=record):
                    if self._stored:  # of a study that was turned down before it was stored nothing is kept
                        self.process.store.persist(self.study_hash, key, record)
                        after_persist(self.process.role, key)
                case studies.Send(to=to, message=message):
                    self.process.send(to, head(STUDY, self.study_hash) + studies.encode(message))
                    if isinstance(message, StudyReady):
                        crashpoint(self.ready_sent)
                case studies.Wake(at=at):
                    self.process.wake(at, self, "study")
                case studies.Review():
                    self._review(step)
                case studies.Confirm(attempt=attempt):
                    if self._still_willing():
                        self._study(self._machine.begin(attempt=attempt, now=self.process.now()))
                case studies.Started(roster=roster):
                    self._started(roster)
                case studies.Erase():
                    self._erase()
                case studies.Ended(result=result, error=error):
                    self._ended(result, error)
                case _:
                    pass

    def sums(self, instructions: Sequence[sums.Instruction]) -> None:
        """Do what the secure-sum machine asks, in order."""
        for step in instructions:
            match step:
                case sums.Persist(key=key, record=record, secret=secret):
                    self.process.store.persist(self.study_hash, key, record, secret=secret)
                    after_persist(self.process.role, key)
                case sums.Forget(key=key):
                    self.process.store.forget(self.study_hash, key)
                    after_forget(self.process.role, key)
                case sums.Send(to=to, message=message):
                    self._send(to, message)
                case sums.Witness():
                    self.process.store.boots(self.study_hash).note(step)
                case sums.Wake(at=at):
                    self.process.wake(at, self, "sum")
                case sums.Aborted(error=error):
                    _log.warning("no part in this round's result: %s", error)
                case _:
                    self.sum_step(step)

    def _send(self, to: str, message: SumMessage) -> None:
        if isinstance(message, Share) and self.seals is not None:
            pieces, length = self.seals.seal(to, *encode_parts(message))
            self.process.send(to, pieces, length)
        else:
            self.process.send(to, head(SUM, self.study_hash) + sums.encode(message))
        self.sent(to, message)

    def finished(self, result: bytes | None, error: TallystickError | None) -> None:
        """The study is over here; said again after a restart if it may not have been carried out."""

    def sent(self, to: str, message: SumMessage) -> None:
        """A message was handed over (crash points)."""

    def _review(self, step: studies.Review) -> None:
        store, name = self.process.store, self.process.name
        try:
            policy = self.process.parts.config.policy
            allowed = policy.allow_not_private if policy is not None else True
            self.approved()  # before anything of a program is so much as read, or of the study is stored
            setup = set_up(step.study, step.program, allow_not_private=allowed)
            if step.min_clients != setup.min_clients:  # the machine would decline too, with a key and a charge kept
                raise RoundAborted(
                    "the aggregator asks with another min_clients than the study has",
                    party=self.process.members.aggregator,
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
            crashpoint(self.key_kept)
        signed = AgreementKey(kept).sign(
            self.process.parts.identity.signing, study_hash=self.study_hash, party=name, role=self.process.role
        )
        store.set_status(self.study_hash, "ready")
        self._study(self._machine.approve(signed, attempt=step.attempt, min_clients=setup.min_clients))

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
        """Give up a study that has started, before anything of this party was sent."""
        self._tell_steward(error)
        self._study(self._machine.leave(StudyCode.NOT_APPROVED, error))

    def _tell_steward(self, error: TallystickError) -> None:
        """Why this party takes no part: in its log, in its health, and for ``tallystick study show``."""
        process, name = self.process, self.study_hash.hex()[:12]
        _log.warning("declined: no part in the study %s: %s", name, error, extra={"member": process.members.aggregator})
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
        self.setup = set_up(stored.canonical, stored.program, allow_not_private=True)
        source = self.process.parts.streams(self.study_hash, b"seal", self.process.name.encode())
        self.seals = Seals(AgreementKey(kept), self.process.name, roster, source, store.boot)
        parameters = self.setup.parameters(roster)
        members = self.process.members
        for peer in (*members.servers, members.aggregator, *(members.clients if self.process.role == "server" else ())):
            self.process.node.allow(max(parameters.message_limit + 4096, self.process.node.options.message_limit), peer)
        store.set_status(self.study_hash, "running")
        self.process.health.studies[self.study_hash.hex()[:12]] = "running"
        self.sum, first = self.make_sum(self.setup, roster)
        self.sums(first)

    def _erase(self) -> None:
        if self.seals is not None:
            self.seals.erase()
            self.seals = None
        self.close()  # no thread of the network writes to the study's folder from here on
        self.process.store.erase_secrets(self.study_hash)
        crashpoint(self.keys_erased)

    def _ended(self, result: bytes | None, error: TallystickError | None) -> None:
        self.over = True
        self.finished(result, error)
        self.sum = None
        if self.process.store.study(self.study_hash) is not None:
            self.process.store.set_status(self.study_hash, "finished" if error is None else "failed")
        name, health = self.study_hash.hex()[:12], self.process.health
        ended = "finished" if error is None else "failed"
        health.studies[name] = "declined" if name in health.declined else ended
        if error is not None:
            _log.warning("the study ended without a result: %s", error)
        if self.setup is not None:
            self.setup.close()
        self.close()


class ParticipantProcess(RoleProcess):
    """A server or client process."""

    session: ClassVar[type[ParticipantSession]]
    booted: ClassVar[CrashPoint]

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.refusals = Refusals(parts.config.state / "governance.sqlite", party=self.name)

    def close(self) -> None:
        super().close()
        self.refusals.close()

    def resume(self) -> None:
        crashpoint(self.booted)
        for stored in self.store.studies():
            if stored.status in ("ready", "running"):
                self._guarded(lambda known=stored.hash: self.resume_one(known))  # type: ignore[misc]
            elif stored.hash not in self.sessions:
                # It is over, or its key was never shown to anyone: what a crash has left of it is not needed.
                self._guarded(lambda known=stored.hash: self.store.erase_secrets(known))  # type: ignore[misc]

    def resume_one(self, study_hash: bytes) -> None:
        if self.store.study(study_hash) is not None:
            session = self.session(self, study_hash)
            self.sessions[study_hash] = session
            self._in(session, session.begin)

    def unknown(self, sender: str, kind: int, study_hash: bytes, payload: memoryview) -> None:
        """Asked to take part in what nobody has proposed: this party says why it does not, and keeps nothing of it."""
        if kind != STUDY or sender != self.members.aggregator or not self.exchange.may_ask(sender):
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
        if sender != self.members.aggregator or not proposed:
            return None
        return self.session(self, study_hash)
