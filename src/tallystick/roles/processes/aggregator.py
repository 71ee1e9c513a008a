"""The aggregator: takes a proposal, gathers the parties, and runs the program on noisy totals.

The program's loop (:func:`tallystick.engines.run.run_program`) runs in a thread of its own and asks for one noisy total
after another; the process's loop answers. Every noisy total is kept before the program sees it, and the program is
deterministic: so a restarted aggregator runs it again from the start on the totals it has, comes to the same model
bytes, and goes on with the round that was open (X18).
"""

from __future__ import annotations

import base64
import json
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallystick.algorithms.program import State, pack_state
from tallystick.core.errors import NotApproved, RemoteProtocolError, RoundAborted, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.engines.run import Outcome, is_lost_tick, run_program
from tallystick.engines.setup import Setup, set_up
from tallystick.engines.totals import NoisyTotal, RoundRequest
from tallystick.privacy.ledger import Ledger
from tallystick.protocol import secure_sum as sums
from tallystick.protocol import study as studies
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.study.aggregator import AggregatorState
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
from tallystick.protocol.study.roster import Members, Roster
from tallystick.roles.governance.exchange import Op
from tallystick.roles.governance.receipts import complete_receipt
from tallystick.roles.governance.results import may_see, seal_result
from tallystick.roles.governance.unapproved import answer_of, not_approved
from tallystick.roles.identity.consortium_watch import change_of_members, left
from tallystick.roles.processes.process import RoleProcess, Session
from tallystick.roles.storage.crash_points import CrashPoint, after_persist, crashpoint
from tallystick.roles.storage.stores import is_storage_failure
from tallystick.roles.streams.clock import StreamClock
from tallystick.roles.streams.losses import lost_of, pack_lost
from tallystick.study import Study
from tallystick.transport.wire import STUDY, SUM, head

__all__ = ["AggregatorProcess", "AggregatorSession", "pack_outcome", "pack_total", "unpack_total"]

_log = logging.getLogger("tallystick.roles")
READY_SECONDS = 30.0
_CLOCK = "clock"
READY_SECONDS_A_CLIENT = 0.05  # a thousand answers take their time
_SENT = {
    StudyOpen: CrashPoint.AGGREGATOR_OPENING_SENT,
    StudyStart: CrashPoint.AGGREGATOR_START_SENT,
    StudyEnd: CrashPoint.AGGREGATOR_END_SENT,
}


def pack_total(total: NoisyTotal) -> bytes:
    """One round's release as it is kept: noisy values and who took part."""
    facts = json.dumps([list(total.participants), list(total.dropped)]).encode()
    return len(facts).to_bytes(4, "little") + facts + total.values.astype("<i8").tobytes()


def unpack_total(body: bytes) -> NoisyTotal:
    """Inverse of :func:`pack_total`."""
    length = int.from_bytes(body[:4], "little")
    participants, dropped = json.loads(body[4 : 4 + length])
    values = np.frombuffer(body[4 + length :], dtype="<i8").astype(np.int64)
    return NoisyTotal(values=values, participants=tuple(participants), dropped=tuple(dropped))


def pack_outcome(outcome: Outcome) -> bytes:
    """What the analyst receives: released states and who took part; nothing else exists."""
    history = [base64.b64encode(pack_state(state)).decode() for state in outcome.history]
    return json.dumps(
        {
            "history": history,
            "contributors": [list(names) for names in outcome.contributors],
            "dropped": [list(names) for names in outcome.dropped],
        }
    ).encode()


def pack_interim(released: Sequence[tuple[State, NoisyTotal | None]]) -> bytes:
    """The same of a stream that is still running: what it has released so far, and marked so."""
    return json.dumps(
        {
            "history": [base64.b64encode(pack_state(state)).decode() for state, _ in released],
            "contributors": [list(total.participants) if total is not None else [] for _, total in released],
            "dropped": [list(total.dropped) if total is not None else [] for _, total in released],
            "interim": True,
        }
    ).encode()


class _Stopped(Exception):  # noqa: N818 - the process stops; the thread ends quietly
    pass


class AggregatorSession(Session):
    """A study at the aggregator."""

    def __init__(self, process: RoleProcess, study_hash: bytes) -> None:
        super().__init__(process, study_hash)
        self.setup: Setup | None = None
        self.sum: sums.AggregatorMachine | None = None
        self._consortium = process.parts.consortium  # which it is run under
        self._answers: queue.Queue[tuple[int, NoisyTotal | TallystickError] | None] = queue.Queue()  # by round
        self._size = 0
        self._noted = -1
        self._last: tuple[object, bytes] = (None, b"")
        self._clock: StreamClock | None = None
        self._awaited: RoundRequest | None = None
        self._released: list[tuple[State, NoisyTotal | None]] = []
        """What a stream has released so far."""
        records = process.store.records(study_hash) if process.store.study(study_hash) is not None else {}
        self._machine, self._first = studies.AggregatorMachine.restore(
            process.members, study_hash, records, process.now(), retry_seconds=2.0
        )

    def begin(self) -> None:
        """What the durable records say is to be done first."""
        self._study(self._first)
        end = self._machine.ending
        if isinstance(end, Result):  # killed, perhaps, between keeping the end and saying it
            self._say_outcome(result_digest(self.study_hash, end.packed), None)
        elif end is not None:
            self._say_outcome(None, error_of(end))
        self.try_receipt()

    def try_receipt(self) -> None:
        """Put the privacy receipt together once the last signature is in, and give it to everybody."""
        end, process = self._machine.ending, self.process
        if not isinstance(end, Result) or process.receipts.get(self.study_hash) is not None:
            return
        raw = complete_receipt(
            process.exchange.docket(self.study_hash),
            self._consortium,
            json.loads(end.packed)["contributors"],
            now=process.exchange.wall(),
            key=process.parts.identity.signing,
        )
        if raw is not None:
            process.receipts.put(self.study_hash, raw)
            for party in (*process.members.parties, *process.members.analysts):
                process.exchange.send(party, Op.RECEIPT, raw, self.study_hash)

    def result_for(self, party: str, asked: bytes) -> bytes:
        """The result, sealed to who asks, if the study shows it to them; of a running stream, what it has released."""
        end, stored = self._machine.ending, self.process.store.study(self.study_hash)
        running = end is None and self._clock is not None and any(total is not None for _, total in self._released)
        if not (isinstance(end, Result) or running) or stored is None:
            raise NotApproved("the study has no result", party=party, rule="no-result")
        packed = end.packed if isinstance(end, Result) else pack_interim(tuple(self._released))
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
                if studies.study_digest(message.study) != self.study_hash:
                    raise RemoteProtocolError("a study that does not have its hash", party=sender)
                self.process.store.add_study(self.study_hash, message.study, message.program)
            self._study(self._machine.receive(sender, message, now))
        elif kind == SUM and self.sum is not None:
            self._sums(self.sum.receive_bytes(sender, bytes(payload), now))
        else:
            raise RemoteProtocolError("a message of a sum that is not running", party=sender)

    def tick(self, layer: str) -> None:
        now = self.process.now()
        self._note_approvers()
        if layer == "study":
            self._study(self._machine.tick(now))
        elif layer == _CLOCK:
            if self._awaited is not None:
                self._open(self._awaited)
        elif self.sum is not None:
            self._sums(self.sum.tick(now))

    def connected(self, peer: str) -> None:
        if self.over:
            return
        if self._machine.state is AggregatorState.GATHERING:
            self._study(self._machine.ask_again(peer))
        if peer in self.process.members.servers:  # clients inquire by themselves
            self.tick("sum")

    @property
    def idle(self) -> bool:
        end = self._machine.ending
        return self._machine.state is AggregatorState.IDLE or (isinstance(end, Failed) and not end.final)

    def members_changed(self, members: Members) -> None:
        """A study that has not started is given up; one that runs, if a server has left. A client is just missing."""
        state, servers = self._machine.state, self.process.members.servers
        gone = [name for name in left(self.process.members, members) if name in servers]
        if state in (AggregatorState.FINISHED, AggregatorState.FAILED, AggregatorState.IDLE):
            self._machine.members = members  # who may ask how it ended
        elif state is not AggregatorState.RUNNING or gone:
            cause, party = change_of_members(gone)
            error = RoundAborted(
                cause,
                party=party,
                rule="other-consortium",
                remedy="Propose the study again, as a new version if it had started.",
            )
            self._study(self._machine.give_up(error))
            self.close()  # the program waits for no more totals

    def close(self) -> None:
        self._answers.put(None)

    # -- carrying out ---------------------------------------------------------------------------------------------

    def _encoded(self, kind: int, message: Any, encode: Callable[[Any], bytes]) -> bytes:
        """A message as it goes out; the same one to a thousand parties is made once, and is in memory once."""
        if self._last[0] is not message:
            self._last = message, head(kind, self.study_hash) + encode(message)
        return self._last[1]

    def _study(self, instructions: Sequence[studies.Instruction]) -> None:
        for step in instructions:
            match step:
                case studies.Persist(key=key, record=record):
                    self.process.store.persist(self.study_hash, key, record)
                    after_persist("aggregator", key)
                case studies.Send(to=to, message=message):
                    if isinstance(message, StudyOpen):
                        self.process.exchange.tell_docket(self.study_hash, to)
                    elif isinstance(message, Result):  # it travels sealed, to who may see it: see governance/results
                        message = Result(study_hash=message.study_hash, attempt=message.attempt, packed=b"")
                    self.process.send(to, self._encoded(STUDY, message, studies.encode))
                    point = _SENT.get(type(message))
                    if point is not None:
                        crashpoint(point)
                case studies.Wake(at=at):
                    self.process.wake(at, self, "study")
                case studies.Review():
                    self._review(step)
                case studies.Started(roster=roster):
                    self._started(roster)
                case studies.Ended(result=result, error=error):
                    self._ended(result, error)
                case _:
                    pass

    def _sums(self, instructions: Sequence[sums.Instruction]) -> None:
        for step in instructions:
            match step:
                case sums.Persist(key=key, record=record):
                    self.process.store.persist(self.study_hash, key, record)
                    after_persist("aggregator", key)
                case sums.Send(to=to, message=message):
                    self.process.send(to, self._encoded(SUM, message, sums.encode))
                case sums.Witness():
                    self.process.store.boots(self.study_hash).note(step)
                case sums.Wake(at=at):
                    self.process.wake(at, self, "sum")
                case sums.Finished(result=result):
                    self._finished(result)
                case sums.Aborted(error=error):
                    self._keep_loss(error)
                    self._answers.put((self.sum.round if self.sum is not None else 0, error))
                case _:
                    pass

    def _review(self, step: studies.Review) -> None:
        try:
            setup = set_up(step.study, step.program, allow_not_private=True)
            setup.check_servers(len(self.process.members.servers))
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
            "parties": [*roster.servers, *approvals],  # one that took its approval back meanwhile leaves by itself
            "approvals": approvals,
        }
        exchange.say("start", body)

    def _say_outcome(self, result: bytes | None, error: TallystickError | None) -> None:
        exchange, standing = self.process.exchange, self.process.exchange.standing(self.study_hash)
        if standing.start is None or standing.outcome is not None:
            return  # it never started: it may be tried again
        body = {
            "hash": format_hash(self.study_hash),
            "result": format_hash(result) if result is not None else "",
            "code": "finished" if error is None else (error.rule or "failed")[:200],
            "at": int(exchange.wall()),
        }
        exchange.say("outcome", body)

    def _started(self, roster: Roster) -> None:
        self._say_start(roster)
        stored = self.process.store.study(self.study_hash)
        if stored is None:
            raise RemoteProtocolError("a study started that is not stored here")
        self.setup = set_up(stored.canonical, stored.program, allow_not_private=True)
        parameters = self.setup.parameters(roster)
        self._size = parameters.size
        for peer in (*self.process.members.parties, *self.process.members.analysts):
            self.process.node.allow(parameters.message_limit + 4096, peer)
        self.process.store.set_status(self.study_hash, "running")
        self.process.health.studies[self.study_hash.hex()[:12]] = "running"
        store, now = self.process.store, self.process.now()
        self.sum, first = sums.AggregatorMachine.restore(
            parameters, store.records(self.study_hash), now, boots=store.boots(self.study_hash)
        )
        if self.setup.study.stream is not None:
            self._clock = StreamClock(
                self.setup.study.stream, store, self.study_hash, wall=self.process.parts.wall(), now=now
            )
        held = [step for step in first if isinstance(step, (sums.Finished, sums.Aborted))]
        self._sums([step for step in first if step not in held])
        for step in held:  # the last round had ended: its total may not have been kept as a release yet
            if isinstance(step, sums.Finished):
                self._keep(step.result)
            elif not self._keep_loss(step.error):
                self._answers.put((self.sum.round, step.error))
        threading.Thread(target=self._program, name=f"study {self.study_hash.hex()[:12]}", daemon=True).start()

    # -- the program's thread -------------------------------------------------------------------------------------

    def _program(self) -> None:
        setup = self.setup
        if setup is None:
            return
        try:
            outcome = run_program(
                setup.design.program,
                setup.public,
                setup.plan,
                self,
                study=self.study_hash,
                ledger=Ledger(),
                progress=lambda done, rounds: self._post(lambda: self._study(self._machine.progress(done, rounds))),
                released=None if self._clock is None else lambda state, total: self._released.append((state, total)),
            )
        except _Stopped:
            return
        except TallystickError as error:
            failure = error
            self._post(lambda: self._fail(failure))
            return
        except Exception:
            _log.exception("the program of a study failed")
            failure = RoundAborted("the program failed", remedy="See the aggregator's log.")
            self._post(lambda: self._fail(failure))
            return
        self._post(lambda: self._study(self._machine.finish(pack_outcome(outcome))))

    def _post(self, work: Callable[[], None]) -> None:
        self.process.post_for(self, work)

    def _fail(self, error: TallystickError) -> None:
        if is_storage_failure(error):
            raise error  # not the study's fault: it is taken up again once the disk works
        self._study(self._machine.fail(error))

    def noisy_total(self, request: RoundRequest) -> NoisyTotal:
        """A kept total, or a round (:class:`tallystick.engines.totals.NoisyTotals`)."""
        kept = self.process.store.release(self.study_hash, request.round)
        if kept is None:
            self._post(lambda: self._open(request))
            total = self._answer(request.round)
        else:
            total = self._kept(kept)
        values = total.values[: request.plan.grid.size]
        return NoisyTotal(values=values, participants=total.participants, dropped=total.dropped)

    def _answer(self, round: int) -> NoisyTotal:
        """Wait for the total of this round.

        A round that ends while the program asks for it is answered twice, by its end and by the question: what is left
        of an earlier round is never taken for the next one's total.
        """
        while True:
            found = self._answers.get()
            if found is None:
                raise _Stopped
            if found[0] == round:
                if isinstance(found[1], TallystickError):
                    raise found[1]
                return found[1]

    def _kept(self, body: bytes) -> NoisyTotal:
        """The total of a round that has ended; raises if it was a tick that was lost."""
        loss = lost_of(body)
        if loss is not None:
            raise loss
        return unpack_total(body)

    def _open(self, request: RoundRequest) -> None:
        if self.sum is None:
            return
        kept = self.process.store.release(self.study_hash, request.round)
        if kept is not None:
            self._answers.put((request.round, lost_of(kept) or unpack_total(kept)))
        elif self.sum.round < request.round:
            self._awaited = None
            due = 0.0 if self._clock is None else self._clock.due(request.round)
            if due > self.process.now():
                self._awaited = request
                self.process.wake(due, self, _CLOCK)
                return
            self._sums(self.sum.open_round(request.round, request.model, self.process.now()))
            crashpoint(CrashPoint.AGGREGATOR_ROUND_SENT)

    def _finished(self, result: sums.NoisySum) -> None:
        self._answers.put((result.round, self._keep(result)))

    def _keep(self, result: sums.NoisySum) -> NoisyTotal:
        total = NoisyTotal(values=result.total, participants=result.participants, dropped=result.dropped)
        self.process.store.put_release(self.study_hash, result.round, pack_total(total))
        crashpoint(CrashPoint.AGGREGATOR_MODEL_KEPT)
        self.process.health.rounds = result.round
        return total

    def _keep_loss(self, error: TallystickError) -> bool:
        """Keep that a tick was lost, if that is what it is: the stream goes on without it, also after a restart."""
        if self.setup is None or error.round is None or not is_lost_tick(self.setup.plan, error):
            return False
        self.process.store.put_release(self.study_hash, error.round, pack_lost(error))
        crashpoint(CrashPoint.AGGREGATOR_LOSS_KEPT)
        _log.warning("tick %d of the stream is lost: %s", error.round, error)
        return True

    def _ended(self, result: bytes | None, error: TallystickError | None) -> None:
        self.over = True
        self._say_outcome(result, error)
        status = "finished" if error is None else "failed"
        self.process.store.set_status(self.study_hash, status)
        self.process.health.studies[self.study_hash.hex()[:12]] = status
        if self.setup is not None:
            self.setup.close()


class AggregatorProcess(RoleProcess):
    """``tallystick aggregator start``."""

    role = "aggregator"

    def resume(self) -> None:
        crashpoint(CrashPoint.AGGREGATOR_BOOTED)
        for stored in self.store.studies():
            self._guarded(lambda known=stored.hash: self.resume_one(known))  # type: ignore[misc]

    def resume_one(self, study_hash: bytes) -> None:
        if self.store.study(study_hash) is not None:
            session = AggregatorSession(self, study_hash)
            self.sessions[study_hash] = session
            self._in(session, session.begin)

    def heard(self, statement: Statement) -> None:
        if statement.kind in ("charge", "countersignature", "attestation", "outcome"):
            session = self.sessions.get(statement.study_hash)
            if isinstance(session, AggregatorSession):
                session.try_receipt()

    def governance(self, sender: str, study_hash: bytes, op: int, body: bytes) -> None:
        if op == Op.RECEIPT_WANTED:
            receipt = self.receipts.get(study_hash)
            if receipt is not None and self.exchange.may_answer(sender, len(receipt)):
                self.exchange.send(sender, Op.RECEIPT, receipt, study_hash)
            return
        if op != Op.RESULT_WANTED:
            raise RemoteProtocolError("a message that is not for an aggregator", party=sender)
        session = self.sessions.get(study_hash)
        try:
            if not isinstance(session, AggregatorSession):
                raise NotApproved("no such study was run here", party=sender, rule="unknown-study")
            result = session.result_for(sender, body)
            if self.exchange.may_answer(sender, len(result)):
                self.exchange.send(sender, Op.RESULT, result, study_hash)
        except NotApproved as error:
            self.exchange.send(sender, Op.NO_RESULT, error.cause.encode(), study_hash)

    def make_session(self, study_hash: bytes, sender: str) -> Session | None:
        """A study is taken up, and stored, once its stewards have approved it."""
        known = study_hash in self.exchange.proposed and self.exchange.standing(study_hash).state == "approved"
        return AggregatorSession(self, study_hash) if known and sender in self.members.analysts else None

    def unknown(self, sender: str, kind: int, study_hash: bytes, payload: memoryview) -> None:
        """An analyst that asks for what is not approved is told so; nothing of it is kept."""
        if kind != STUDY or sender not in self.members.analysts or not self.exchange.may_ask(sender):
            return
        answer = answer_of(studies.decode(bytes(payload)), study_hash, self.exchange.standing(study_hash))
        self.send(sender, head(STUDY, study_hash) + studies.encode(answer))
