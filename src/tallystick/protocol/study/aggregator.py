"""The aggregator's machine: review a proposal, gather who is ready, start once, end once.

THEORY. The aggregator decides who is *asked*, never who is *believed*: each party checks every key of the start by
itself. What this machine guards is that a study has one start and one end. An attempt that failed before its start has
cost nobody anything and may be tried again under the next number. Once a start is on disk there is no other: after a
restart the same bytes go out, a failure is final, and the same study proposed again gets the answer that is stored.

It starts when every party has answered, or at the deadline, if all servers and at least ``min_clients`` clients are
ready; parties that declined or said nothing are left out. Otherwise it fails, naming who was missing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import Enum, unique
from typing import ClassVar

from tallystick.core.errors import LocalProtocolError, RoundAborted, TallystickError, TooFewParties
from tallystick.protocol.machine import Transitions
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import decode, encode
from tallystick.protocol.study.instructions import Ended, Instruction, Persist, Review, Send, Started, Wake
from tallystick.protocol.study.machine import StudyMachine, error_of, rule_of
from tallystick.protocol.study.messages import (
    Failed,
    Progress,
    Propose,
    Result,
    StudyCode,
    StudyDeclined,
    StudyEnd,
    StudyInquiry,
    StudyOpen,
    StudyReady,
    StudyRefused,
    StudyStart,
    Ticket,
    result_digest,
)
from tallystick.protocol.study.roster import Roster, check_ticket, make_roster
from tallystick.study import study_digest

__all__ = ["AggregatorEvent", "AggregatorMachine", "AggregatorState"]

NO_RESULT = bytes(32)


@unique
class AggregatorState(Enum):
    IDLE = "idle"
    REVIEWING = "reviewing"
    GATHERING = "gathering"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@unique
class AggregatorEvent(Enum):
    PROPOSE = "study proposed and kept"
    OPEN = "study accepted, parties asked"
    START = "enough are ready: start kept"
    FINISH = "result kept"
    FAIL = "failure kept"


_S, _E = AggregatorState, AggregatorEvent


class AggregatorMachine(StudyMachine):
    """One study at the aggregator."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.PROPOSE): _S.REVIEWING,
        (_S.REVIEWING, _E.OPEN): _S.GATHERING,
        (_S.REVIEWING, _E.FAIL): _S.FAILED,
        (_S.GATHERING, _E.START): _S.RUNNING,
        (_S.GATHERING, _E.FAIL): _S.FAILED,
        (_S.RUNNING, _E.FINISH): _S.FINISHED,
        (_S.RUNNING, _E.FAIL): _S.FAILED,
        (_S.FAILED, _E.PROPOSE): _S.REVIEWING,
    }

    def __init__(self, cast: Cast, study_hash: bytes, *, retry_seconds: float = 5.0) -> None:
        super().__init__(cast, cast.coordinator, study_hash, _S.IDLE)
        self._retry = retry_seconds
        self.attempt = 0
        self.roster: Roster | None = None
        self._proposal: Propose | None = None
        self._opening: StudyOpen | None = None
        self._start: StudyStart | None = None
        self._end: Result | Failed | None = None
        self._deadline = 0.0
        self._ready: dict[str, StudyReady] = {}
        self._declined: dict[str, StudyDeclined] = {}
        self._listeners: dict[str, bytes] = {}  # analyst -> its request
        self.approvers: Container[str] | None = None
        """Clients whose approval is known, if that is known: without it, one that is ready is left out of the start."""
        self._progress = (0, 0)
        self._handlers = {
            Propose: self._on_propose,
            StudyReady: self._on_ready,
            StudyDeclined: self._on_declined,
            StudyInquiry: self._on_inquiry,
            StudyRefused: self._on_refused,
        }

    @property
    def ending(self) -> Result | Failed | None:
        """How the study ended, once it has."""
        return self._end

    # -- a proposal ------------------------------------------------------------------------------------------------

    def _on_propose(self, sender: str, message: Propose, now: float) -> list[Instruction]:
        if sender not in self.cast.analysts:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only an analyst of the consortium proposes")
        if study_digest(message.study) != self.study_hash:
            return self._refuse(sender, message, StudyCode.WRONG_STUDY, "the study does not have the hash named")
        if message.consortium_hash != self.cast.consortium_hash:
            cause = "the analyst's consortium file is not the aggregator's"
            return self._refuse(sender, message, StudyCode.OTHER_CONSORTIUM, cause)
        self._listeners[sender] = message.request
        known = self._proposal
        if known is not None and message.program != known.program and self.state is not _S.FAILED:
            return self._refuse(sender, message, StudyCode.WRONG_STUDY, "another program was proposed with this study")
        again = isinstance(self._end, Failed) and not self._end.final and self._end.request != message.request
        if self.state is _S.IDLE or (self.state is _S.FAILED and again):
            self._proposal, self._end = message, None
            self._ready, self._declined = {}, {}
            self._move(_E.PROPOSE)
            return [Persist("study/proposal", encode(message)), *self._answer(sender), self._review()]
        return self._answer(sender)

    def _review(self) -> Review:
        proposal = self._proposal
        if proposal is None:
            raise LocalProtocolError("there is no proposal to review", party=self.name)
        return Review(study=proposal.study, program=proposal.program, attempt=self.attempt + 1)

    def _answer(self, analyst: str) -> list[Instruction]:
        """How the study stands, for an analyst."""
        if isinstance(self._end, Result):
            return [Send(analyst, self._end)]
        if isinstance(self._end, Failed):
            return [Send(analyst, self._failed_for(self._end, self._listeners[analyst]))]
        return [Send(analyst, self._progress_message())]

    @staticmethod
    def _failed_for(end: Failed, request: bytes) -> Failed:
        return Failed(**{name: getattr(end, name) for name in Failed.__slots__} | {"request": request})

    def _progress_message(self) -> Progress:
        return Progress(study_hash=self.study_hash, round=self._progress[0], rounds=self._progress[1])

    def accept(self, *, min_clients: int, ready_seconds: float, now: float) -> list[Instruction]:
        """The review found nothing wrong: ask the parties. ``min_clients`` is the study's."""
        proposal = self._proposal
        if self.state is not _S.REVIEWING or proposal is None:
            raise LocalProtocolError("there is no proposal to accept", party=self.name)
        self.attempt += 1
        self._opening = StudyOpen(
            study_hash=self.study_hash,
            attempt=self.attempt,
            ready_ms=max(1, int(1000 * ready_seconds)),
            min_clients=min_clients,
            consortium_hash=proposal.consortium_hash,
            study=proposal.study,
            program=proposal.program,
        )
        self._move(_E.OPEN)
        return [Persist("study/open", encode(self._opening)), *self._ask(self._opening, now)]

    def reject(self, error: TallystickError) -> list[Instruction]:
        """The review found something: the study fails with this."""
        if self.state is not _S.REVIEWING:
            raise LocalProtocolError("there is no proposal to reject", party=self.name)
        self.attempt += 1
        return self._fail(StudyCode.NOT_APPROVED, error)

    # -- gathering -------------------------------------------------------------------------------------------------

    def _ask(self, opening: StudyOpen, now: float) -> list[Instruction]:
        self._deadline = now + opening.ready_ms / 1000
        asked: list[Instruction] = [Send(party, opening) for party in self.cast.parties]
        return [*asked, Wake(min(now + self._retry, self._deadline))]

    def _on_ready(self, sender: str, message: StudyReady, now: float) -> list[Instruction]:
        if message.party != sender or self.cast.role(sender) is None:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "a party speaks for itself only")
        if message.attempt != self.attempt or self.state is _S.REVIEWING:
            return []  # of another attempt; whoever it is will be asked
        if self.state is not _S.GATHERING or self._opening is None:
            return self._late(sender, message)
        if message.min_clients != self._opening.min_clients:
            return self._refuse(sender, message, StudyCode.WRONG_STUDY, "another min_clients was approved")
        ticket = Ticket(party=sender, public=message.public, signature=message.signature)
        try:
            check_ticket(self.cast, self.study_hash, ticket)
            twins = [p for p, r in self._ready.items() if p != sender and r.public == message.public]
        except TallystickError as error:
            return self._refuse(sender, message, StudyCode.BAD_ROSTER, error.cause)
        if twins:
            return self._refuse(sender, message, StudyCode.BAD_ROSTER, "this key is another party's too")
        self._declined.pop(sender, None)
        self._ready[sender] = message
        return self._try_start(now) or [Send(sender, self._progress_message())]  # heard: no need to give up waiting

    def _on_declined(self, sender: str, message: StudyDeclined, now: float) -> list[Instruction]:
        if message.party != sender or self.cast.role(sender) is None:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "a party speaks for itself only")
        if message.attempt != self.attempt:
            return []
        if self.state is _S.GATHERING:
            self._ready.pop(sender, None)
            self._declined[sender] = message
            return self._try_start(now)
        inside = self.roster is not None and sender in self.roster.keys
        fatal = sender in self.cast.helpers or message.code == StudyCode.BAD_ROSTER
        if self.state is _S.RUNNING and inside and fatal:
            return self.fail(self._left(sender, message))
        return []  # a client that goes away is left out of the rounds

    @staticmethod
    def _left(sender: str, message: StudyDeclined) -> RoundAborted:
        return RoundAborted(
            f"{sender} does not take part: {message.cause}",
            party=sender,
            rule=rule_of(message.code),
            remedy="Ask that party's operator; then propose the study again, as a new version if it had started.",
        )

    def _try_start(self, now: float) -> list[Instruction]:
        """Start when all have answered or time is up; fail as soon as it can no longer succeed."""
        opening = self._opening
        if self.state is not _S.GATHERING or opening is None:
            return []
        cast = self.cast
        for server in cast.helpers:
            if server in self._declined:
                return self._fail(StudyCode.MISSING_SERVER, self._left(server, self._declined[server]))
        over = now >= self._deadline
        self._leave_out()
        clients = [name for name in cast.clients if name in self._ready]
        possible = len(cast.clients) - sum(name in self._declined for name in cast.clients)
        if possible < opening.min_clients or (over and len(clients) < opening.min_clients):
            return self._fail(StudyCode.TOO_FEW_CLIENTS, self._too_few(len(clients), opening.min_clients))
        missing = [name for name in cast.helpers if name not in self._ready]
        if missing and over:
            error = RoundAborted(
                f"no answer from {', '.join(missing)} in time",
                party=missing[0],
                rule=rule_of(StudyCode.MISSING_SERVER),
                remedy="Start that server, then propose the study again.",
            )
            return self._fail(StudyCode.MISSING_SERVER, error)
        if missing or not (over or len(clients) == possible):
            return []
        tickets = [
            Ticket(party=name, public=self._ready[name].public, signature=self._ready[name].signature)
            for name in (*cast.helpers, *clients)
        ]
        start = StudyStart(
            study_hash=self.study_hash, attempt=self.attempt, min_clients=opening.min_clients, tickets=tuple(tickets)
        )
        self._start, self.roster = start, make_roster(cast, start)
        self._move(_E.START)
        out: list[Instruction] = [Persist("study/start", encode(start)), *self._tell_start()]
        for party in cast.clients:  # who said nothing need not wait
            if party not in self.roster.keys and party not in self._declined:
                cause = "the study started without this party"
                out.append(Send(party, StudyRefused(study_hash=self.study_hash, code=StudyCode.LATE, cause=cause)))
        return [*out, Started(self.roster)]

    def _leave_out(self) -> None:
        """A start with a client that has not approved would be no start: nobody may spoil it for the others."""
        known = self.approvers
        for name in [n for n in self._ready if known is not None and n not in known and n in self.cast.clients]:
            del self._ready[name]
            cause = "it is ready and its approval is not known here"
            self._declined[name] = StudyDeclined(
                study_hash=self.study_hash, attempt=self.attempt, party=name, code=StudyCode.NOT_APPROVED, cause=cause
            )

    def _too_few(self, ready: int, least: int) -> TooFewParties:
        reasons = "; ".join(f"{name}: {said.cause}" for name, said in sorted(self._declined.items())[:5])
        return TooFewParties(
            f"{ready} clients are ready, the study asks for {least}" + (f" (declined: {reasons})" if reasons else ""),
            party=self.name,
            rule=rule_of(StudyCode.TOO_FEW_CLIENTS),
            remedy="Nothing was computed or charged. Ask the clients that declined or did not answer; propose again.",
        )

    def _tell_start(self) -> list[Instruction]:
        if self._start is None or self.roster is None:
            raise LocalProtocolError("the study has not started", party=self.name)
        return [Send(party, self._start) for party in self.roster.keys]

    def _late(self, sender: str, message: StudyReady) -> list[Instruction]:
        """A party that is ready after the start or the end."""
        if self.state is _S.RUNNING and self.roster is not None and self._start is not None:
            mine = self.roster.keys.get(sender)
            if mine is not None and mine.public == message.public:
                return [Send(sender, self._start)]
            return self._refuse(sender, message, StudyCode.LATE, "the study started without this party")
        return self._say_end(sender)

    # -- running and ending ----------------------------------------------------------------------------------------

    def progress(self, round: int, rounds: int) -> list[Instruction]:
        """So many rounds are done: the analysts are told."""
        self._progress = (round, rounds)
        return [Send(analyst, self._progress_message()) for analyst in self._listeners]

    def finish(self, packed: bytes) -> list[Instruction]:
        """The study's one result; it is kept before anyone is told."""
        result = Result(study_hash=self.study_hash, attempt=self.attempt, packed=packed)
        self._move(_E.FINISH)
        self._end = result
        return [Persist("study/end", encode(result)), *self._tell_end()]

    def fail(self, error: TallystickError) -> list[Instruction]:
        """A running study ends without a result, for good: what its rounds cost is spent."""
        return self._fail(StudyCode.FAILED, error)

    def give_up(self, error: TallystickError) -> list[Instruction]:
        """The members have changed under a study that is not over: one that had not started may be proposed again."""
        return self._fail(StudyCode.OTHER_CONSORTIUM, error)

    def _fail(self, code: StudyCode, error: TallystickError) -> list[Instruction]:
        failed = Failed(
            study_hash=self.study_hash,
            attempt=self.attempt,
            request=self._proposal.request if self._proposal is not None else bytes(16),
            final=int(self.state is _S.RUNNING),
            code=code,
            round=error.round or 0,
            exit_code=error.exit_code,
            rule=error.rule or type(error).__name__,
            party=error.party or "",
            cause=error.cause,
            remedy=error.remedy or "",
        )
        self._move(_E.FAIL)
        self._end = failed
        return [Persist("study/end", encode(failed)), *self._tell_end()]

    def _tell_end(self) -> list[Instruction]:
        end = self._end
        out: list[Instruction] = []
        for party in self.roster.keys if self.roster is not None else self.cast.parties:
            out += self._say_end(party)
        for analyst in self._listeners:
            out += self._answer(analyst)
        if isinstance(end, Result):
            return [*out, Ended(result_digest(self.study_hash, end.packed), None)]
        return [*out, Ended(None, error_of(end))] if end is not None else out

    def _say_end(self, party: str) -> list[Instruction]:
        end = self._end
        if end is None:
            return []
        message = StudyEnd(
            study_hash=self.study_hash,
            attempt=end.attempt,
            code=StudyCode.FINISHED if isinstance(end, Result) else end.code,
            result=result_digest(self.study_hash, end.packed) if isinstance(end, Result) else NO_RESULT,
        )
        return [Send(party, message)]

    def _on_inquiry(self, sender: str, message: StudyInquiry, now: float) -> list[Instruction]:
        if sender in self.cast.analysts:
            if self.state is _S.IDLE:
                return self._refuse(sender, message, StudyCode.UNKNOWN_STUDY, "this study was never proposed here")
            self._listeners[sender] = message.request
            return self._answer(sender)
        if self.cast.role(sender) is None:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "this party is not in the study")
        if self.state is _S.IDLE:
            return self._refuse(sender, message, StudyCode.UNKNOWN_STUDY, "this study was never proposed here")
        if self._end is not None:
            return self._say_end(sender)
        return [Send(sender, self._progress_message())]

    def _on_refused(self, sender: str, message: StudyRefused, now: float) -> list[Instruction]:
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Ask the silent again; decide at the deadline."""
        if self.state is not _S.GATHERING or self._opening is None:
            return []
        if now >= self._deadline:
            return self._try_start(now)
        silent = [p for p in self.cast.parties if p not in self._ready and p not in self._declined]
        again: list[Instruction] = [Send(party, self._opening) for party in silent]
        return [*again, Wake(min(now + self._retry, self._deadline))]

    def ask_again(self, party: str) -> list[Instruction]:
        """A line to this party has come up: what it was asked may be lost."""
        answered = party in self._ready or party in self._declined or self.cast.role(party) is None
        if self.state is not _S.GATHERING or self._opening is None or answered:
            return []
        return [Send(party, self._opening)]

    # -- restarting ------------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls,
        cast: Cast,
        study_hash: bytes,
        records: Mapping[str, bytes],
        now: float,
        *,
        retry_seconds: float = 5.0,
    ) -> tuple[AggregatorMachine, list[Instruction]]:
        """The machine as its records have it, and what to do first."""
        machine = cls(cast, study_hash, retry_seconds=retry_seconds)
        said = {
            key: decode(records[f"study/{key}"])
            for key in ("proposal", "open", "start", "end")
            if f"study/{key}" in records
        }
        proposal, opening, start, end = (said.get(key) for key in ("proposal", "open", "start", "end"))
        if not isinstance(proposal, Propose):
            return machine, []
        machine._proposal = proposal
        machine._listeners = {}
        if isinstance(opening, StudyOpen):
            machine._opening, machine.attempt = opening, opening.attempt
        if isinstance(start, StudyStart):
            machine._start, machine.roster = start, make_roster(cast, start)
        if isinstance(end, (Result, Failed)) and end.attempt >= machine.attempt:
            machine._end, machine.attempt = end, end.attempt
            again = isinstance(end, Failed) and not end.final and end.request != proposal.request
            if not again:
                machine.state = _S.FINISHED if isinstance(end, Result) else _S.FAILED
                return machine, machine._tell_end()
            machine._end = None  # a new wish was kept, and its review was under way
        elif machine.roster is not None and machine._start is not None:
            machine.state = _S.RUNNING
            return machine, [*machine._tell_start(), Started(machine.roster)]
        elif isinstance(opening, StudyOpen):
            machine.state = _S.GATHERING
            return machine, machine._ask(opening, now)
        machine.state = _S.REVIEWING
        return machine, [machine._review()]
