"""The coordinator of studies: takes a proposal, gathers the parties, has the program run, and says how it ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from typing import Any

from tallystick.core.errors import NotApproved, RemoteProtocolError, RoundAborted, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.engines.setup import set_up
from tallystick.protocol import study as studies
from tallystick.protocol.governance.standing import ENDED_EARLY
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Members
from tallystick.protocol.study.gathering import AggregatorState
from tallystick.protocol.study.machine import error_of
from tallystick.protocol.study.messages import (
    Failed,
    Propose,
    Result,
    StudyEnd,
    StudyOpen,
    StudyStart,
    result_digest,
)
from tallystick.protocol.study.roster import Roster
from tallystick.roles.governance.attestation import attest
from tallystick.roles.governance.messages import Op
from tallystick.roles.governance.receipts import complete_receipt
from tallystick.roles.governance.results import ended_early, may_see, seal_result
from tallystick.roles.governance.unapproved import answer_of, not_approved
from tallystick.roles.identity.consortium_watch import change_of_members, left
from tallystick.roles.processes.part import CoordinatorPart, Driver
from tallystick.roles.processes.pausable_rounds import PausableRounds
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.processes.relaying import Relay
from tallystick.roles.processes.session import Session
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.study import Study, study_digest
from tallystick.transport.wire import STUDY, Seals, head

_log = logging.getLogger("tallystick.roles")
READY_SECONDS = 30.0
READY_SECONDS_A_CLIENT = 0.05  # a thousand answers take their time
_SENT = {
    StudyOpen: "study-opening-sent",
    StudyStart: "start-sent",
    StudyEnd: "end-sent",
}


class CoordinatorSession(PausableRounds):
    """A study at its coordinator."""

    def __init__(self, process: RoleProcess, study_hash: bytes) -> None:
        super().__init__(process, study_hash)
        self.seals: Seals | None = None
        self._consortium = process.parts.consortium  # which it is run under
        self._noted = -1
        self._last: tuple[object, bytes] = (None, b"")
        records = process.store.records(study_hash) if process.store.study(study_hash) is not None else {}
        self._machine, self._first = studies.AggregatorMachine.restore(
            self.cast, study_hash, records, process.now(), retry_seconds=2.0
        )
        self._study = Driver(self, "study", send=self._say, other=self._step)

    def begin(self) -> None:
        """What the durable records say is to be done first."""
        self._study(self._first)
        end = self._machine.ending
        if isinstance(end, Result):  # killed, perhaps, between keeping the end and saying it
            self._say_outcome(result_digest(self.study_hash, end.packed), None)
            self._vouch()
        elif end is not None:
            self._say_outcome(None, error_of(end))
        if end is not None and (isinstance(end, Result) or end.final):
            self._erase()
        self.try_receipt()
        self.watch_pause()

    def try_receipt(self) -> None:
        """Put the privacy receipt together once the last signature is in, and give it to everybody."""
        end, process = self._machine.ending, self.process
        done = process.receipts.get(self.study_hash) is not None and not process.receipts.is_early(self.study_hash)
        if not isinstance(end, Result) or done or ended_early(end.packed) is not None:
            return  # a study that ended early has its receipt since its pause
        raw = complete_receipt(
            process.exchange.docket(self.study_hash),
            self._consortium,
            json.loads(end.packed)["contributors"],
            now=process.exchange.wall(),
            key=process.parts.identity.signing,
        )
        if raw is not None:
            self.give_receipt(raw)

    def result_for(self, party: str, asked: bytes) -> bytes:
        """The result, sealed to who asks, if the study shows it to them; of a running stream, what it has released."""
        end, stored = self._machine.ending, self.process.store.study(self.study_hash)
        packed = end.packed if isinstance(end, Result) else self.interim() if end is None else None
        if packed is None or stored is None:
            raise NotApproved("the study has no result", party=party, rule="no-result")
        proposal = self.process.exchange.standing(self.study_hash).proposal
        study = Study.from_canonical(stored.canonical)
        if not may_see(study, party, proposer=proposal.signer if proposal is not None else ""):
            raise NotApproved(
                f"the study shows its result to {', '.join(study.results.visible_to) or 'its proposer'} only",
                party=party,
                rule="results-visible-to",
            )
        parts = self.process.parts
        return seal_result(
            self.study_hash,
            packed,
            asked=asked,
            party=party,
            identity=self.process.members.identities[party],
            own=self.process.name,
            signing=parts.identity.signing,
            source=parts.streams(self.study_hash, b"result", party.encode()),
        )

    # -- events ---------------------------------------------------------------------------------------------------

    def _note_approvers(self) -> None:
        """Who may be in the start, as the board has it now; looked up anew when something new is on it."""
        last = self.process.exchange.store.last()
        if self._machine.state is AggregatorState.GATHERING and self._noted != last:
            self._noted = last
            self._machine.approvers = frozenset(self.process.exchange.standing(self.study_hash).approvals)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        now = self.process.now()
        self._note_approvers()
        if kind == STUDY:
            raw = bytes(payload)
            message = studies.decode(raw)
            if isinstance(message, Propose) and sender in self.process.members.analysts:
                if study_digest(message.study) != self.study_hash:
                    raise RemoteProtocolError("a study that does not have its hash", party=sender)
                self.process.store.add_study(self.study_hash, message.study, message.program)
            if not self.may_wish(sender, message):
                raise RemoteProtocolError("only who proposed a study resumes or closes it", party=sender)
            self._study(self._machine.receive(sender, message, now))
        elif self.part is not None:
            self.part.receive(sender, kind, payload)
        elif not self._machine.waits:  # in a pause some have not heard of it yet
            raise RemoteProtocolError("a message of a round that is not running", party=sender)

    def tick(self, layer: str) -> None:
        now = self.process.now()
        self._note_approvers()
        if layer == "study":
            self._study(self._machine.tick(now))
        else:
            super().tick(layer)

    def connected(self, peer: str) -> None:
        if self.over:
            return
        if self._machine.state is AggregatorState.GATHERING:
            self._study(self._machine.ask_again(peer))
        if self.part is not None:
            self.part.connected(peer)

    @property
    def members_under_way(self) -> tuple[str, ...]:
        """The clients of the study while it runs: not before its start, in a pause, or once it is over."""
        running, roster = self._machine.state is AggregatorState.RUNNING, self._machine.roster
        return roster.clients if running and roster is not None else ()

    @property
    def idle(self) -> bool:
        end = self._machine.ending
        return self._machine.state is AggregatorState.IDLE or (isinstance(end, Failed) and not end.final)

    def members_changed(self, members: Members) -> None:
        """A study that has not started is given up; one that runs, if a helper has left. A client is just missing."""
        state = self._machine.state
        gone = [name for name in left(self.process.members, members) if name in self.cast.helpers]
        if state in (AggregatorState.FINISHED, AggregatorState.FAILED, AggregatorState.IDLE):
            self._machine.cast = self.cast = self.cast.among(members)  # who may ask how it ended
        elif self._machine.waits and gone:
            self.close_early(RoundAborted(change_of_members(gone)[0], rule="other-consortium"))
        elif not (state is AggregatorState.RUNNING or self._machine.waits) or gone:
            cause, party = change_of_members(gone)
            error = RoundAborted(
                cause,
                party=party,
                rule="other-consortium",
                remedy="Propose the study again, as a new version if it had started.",
            )
            self._study(self._machine.give_up(error))
            self.close()  # the program waits for no more totals

    # -- carrying out ---------------------------------------------------------------------------------------------

    def encoded(self, kind: int, message: Any, encode: Callable[[Any], bytes]) -> bytes:
        """A message as it goes out; the same one to a thousand parties is made once, and is in memory once."""
        if self._last[0] is not message:
            self._last = message, head(kind, self.study_hash) + encode(message)
        return self._last[1]

    def _say(self, to: str, message: Any) -> None:
        if isinstance(message, StudyOpen):
            self.process.exchange.tell_docket(self.study_hash, to)
        elif isinstance(message, Result):  # it travels sealed, to who may see it: see governance/results
            message = Result(study_hash=message.study_hash, attempt=message.attempt, packed=b"")
        self.process.send(to, self.encoded(STUDY, message, studies.encode))
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)

    def _step(self, step: studies.Instruction) -> None:
        match step:
            case studies.Review():
                self._review(step)
            case studies.Started(roster=roster):
                self._started(roster)
            case studies.Close():
                self.close_early(RoundAborted("the analyst has closed it", rule="closed"))
            case studies.Ended(result=result, error=error):
                self._ended(result, error)
            case _:
                pass

    def _review(self, step: studies.Review) -> None:
        self.over = False  # an earlier attempt may have ended before its start
        try:
            setup = set_up(step.study, step.program, allow_not_private=True)
            setup.check_cast(self.cast)
            self._approved()
        except TallystickError as error:
            self._study(self._machine.reject(error))
            return
        patience = READY_SECONDS + READY_SECONDS_A_CLIENT * len(self.process.members.clients)
        ready = min(patience, setup.study.trust.round_timeout_s)
        self._study(self._machine.accept(min_clients=setup.min_clients, ready_seconds=ready, now=self.process.now()))

    def _approved(self) -> None:
        standing = self.process.exchange.standing(self.study_hash)
        if standing.state != "approved":
            raise not_approved(standing)

    def _say_start(self, roster: Roster) -> None:
        """For the record, once: which approvals the study rests on. What is decided later cannot change it."""
        exchange, standing = self.process.exchange, self.process.exchange.standing(self.study_hash)
        if standing.start is not None or standing.proposal is None:
            return
        approvals = {name: standing.approvals[name].ident for name in roster.clients if name in standing.approvals}
        body = {
            "hash": format_hash(self.study_hash),
            "proposal": standing.proposal.ident,
            "attempt": roster.attempt,
            "at": int(exchange.wall()),
            "parties": [*roster.helpers, *approvals],  # one that took its approval back meanwhile leaves by itself
            "approvals": approvals,
        }
        exchange.say("start", body)

    def _say_outcome(self, result: bytes | None, error: TallystickError | None) -> None:
        exchange, standing = self.process.exchange, self.process.exchange.standing(self.study_hash)
        if standing.start is None or standing.outcome is not None:
            return  # it never started: it may be tried again
        end = self._machine.ending
        early = isinstance(end, Result) and ended_early(end.packed) is not None
        body = {
            "hash": format_hash(self.study_hash),
            "result": format_hash(result) if result is not None else "",
            "code": ENDED_EARLY if early else "finished" if error is None else (error.rule or "failed")[:200],
            "at": int(exchange.wall()),
        }
        exchange.say("outcome", body)

    def _started(self, roster: Roster) -> None:
        self._say_start(roster)
        self.say_resumed()
        stored = self.process.store.study(self.study_hash)
        if stored is None:
            raise RemoteProtocolError("a study started that is not stored here")
        if self.setup is None:
            self.setup = set_up(stored.canonical, stored.program, allow_not_private=True)
        model, process = self.cast.model, self.process
        part: CoordinatorPart = model.load(model.parts[process.role])(self, self.setup, roster)
        for peer in (*process.members.parties, *process.members.analysts):
            process.node.allow(part.message_limit + 4096, peer, study=self.study_hash)
        self.process.store.set_status(self.study_hash, "running")
        self.process.health.studies[self.study_hash.hex()[:12]] = "running"
        self.run_rounds(self.setup, part)

    def progressed(self, done: int, rounds: int) -> None:
        self._study(self._machine.progress(done, rounds))

    def failed(self, error: TallystickError) -> None:
        self._study(self._machine.fail(error))

    def finish(self, packed: bytes) -> None:
        self._study(self._machine.finish(packed))

    def _ended(self, result: bytes | None, error: TallystickError | None) -> None:
        self.over = True
        self.process.node.allow_no_more(self.study_hash)
        self._say_outcome(result, error)
        status = "finished" if error is None else "failed"
        self.process.store.set_status(self.study_hash, status)
        self.process.health.studies[self.study_hash.hex()[:12]] = status
        if error is None:
            self._vouch()
        self._erase()
        if self.setup is not None:
            self.setup.close()

    def _erase(self) -> None:
        """The study is over: what is secret of it here, if anything is, goes."""
        if self.part is not None:
            self.part.erase()
        if self.seals is not None:
            self.seals.erase()
            self.seals = None
        self.process.store.erase_secrets(self.study_hash)

    def _vouch(self) -> None:
        """Where who coordinates makes noise too: attest the rounds of a study that has a result, once."""
        stored = self.process.store.study(self.study_hash)
        if self.process.role not in self.cast.model.maker_roles or stored is None:
            return
        setup = self.setup or set_up(stored.canonical, stored.program, allow_not_private=True)
        notes = self._notes(secret=setup.design.tells_of_people)
        attest(self.process.exchange, self.process.store, self.study_hash, setup, notes)


class CoordinatorProcess(Relay):
    """``tallystick aggregator start``."""

    session = CoordinatorSession

    def speakers(self, study_hash: bytes, kind: int) -> Collection[str] | None:
        session = self.sessions.get(study_hash)
        if not isinstance(session, CoordinatorSession) or session.setup is None:
            return None
        return session.members_under_way if self.speak_in(session.setup.study) else None

    def speak_in(self, study: Study) -> bool:
        """Whether clients say anything to each other in this study."""
        return study.vertical

    def resume(self) -> None:
        crashpoint("boot-counted")
        for stored in self.store.studies():
            self._guarded(lambda known=stored.hash: self.resume_one(known))  # type: ignore[misc]

    def heard(self, statement: Statement) -> None:
        if statement.kind in ("charge", "countersignature", "attestation", "outcome"):
            session = self.sessions.get(statement.study_hash)
            if isinstance(session, CoordinatorSession):
                session.try_receipt()

    def governance(self, sender: str, study_hash: bytes, op: int, body: bytes) -> None:
        if op == Op.RECEIPT_WANTED:
            receipt = self.receipts.get(study_hash)
            if receipt is not None and self.exchange.may_answer(sender, len(receipt)):
                self.exchange.send(sender, Op.RECEIPT, receipt, study_hash)
            return
        if op != Op.RESULT_WANTED:
            super().governance(sender, study_hash, op, body)
            return
        session = self.sessions.get(study_hash)
        try:
            if not isinstance(session, CoordinatorSession):
                raise NotApproved("no such study was run here", party=sender, rule="unknown-study")
            result = session.result_for(sender, body)
            if self.exchange.may_answer(sender, len(result)):
                self.exchange.send(sender, Op.RESULT, result, study_hash)
        except NotApproved as error:
            self.exchange.send(sender, Op.NO_RESULT, error.cause.encode(), study_hash)

    def make_session(self, study_hash: bytes, sender: str) -> Session | None:
        """A study is taken up, and stored, once its stewards have approved it."""
        known = study_hash in self.exchange.proposed and self.exchange.standing(study_hash).state == "approved"
        return CoordinatorSession(self, study_hash) if known and sender in self.members.analysts else None

    def unknown(self, sender: str, kind: int, study_hash: bytes, payload: memoryview) -> None:
        """An analyst that asks for what is not approved is told so; nothing of it is kept."""
        if kind != STUDY or sender not in self.members.analysts or not self.exchange.may_ask(sender):
            return
        answer = answer_of(studies.decode(bytes(payload)), study_hash, self.exchange.standing(study_hash))
        self.send(sender, head(STUDY, study_hash) + studies.encode(answer))
