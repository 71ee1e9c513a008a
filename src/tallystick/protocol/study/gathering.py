"""Gathering who takes part in a study, at its coordinator: ask everybody, hear them, start once or say who is missing.

It starts when every party has answered, or at the deadline, if all helpers and at least ``min_clients`` clients are
ready; parties that declined or said nothing are left out. Otherwise it fails, naming who was missing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from enum import Enum, unique

from tallystick.core.errors import LocalProtocolError, RoundAborted, TallystickError, TooFewParties
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import encode
from tallystick.protocol.study.instructions import Ended, Instruction, Started
from tallystick.protocol.study.machine import NO_RESULT, StudyMachine, error_of, rule_of
from tallystick.protocol.study.messages import (
    Failed,
    Progress,
    Propose,
    Result,
    StudyCode,
    StudyDeclined,
    StudyEnd,
    StudyOpen,
    StudyReady,
    StudyRefused,
    StudyStart,
    Ticket,
    result_digest,
)
from tallystick.protocol.study.roster import Roster, check_ticket, make_roster


@unique
class AggregatorState(Enum):
    IDLE = "idle"
    REVIEWING = "reviewing"
    GATHERING = "gathering"
    RUNNING = "running"
    PAUSED = "paused"
    RESUMING = "resuming"
    FINISHED = "finished"
    FAILED = "failed"


@unique
class AggregatorEvent(Enum):
    PROPOSE = "study proposed and kept"
    OPEN = "study accepted, parties asked"
    START = "enough are ready: start kept"
    PAUSE = "a party is lost: pause kept"
    RESUME = "parties asked whether they go on"
    FINISH = "result kept"
    FAIL = "failure kept"


_S, _E = AggregatorState, AggregatorEvent
STARTED = frozenset((_S.RUNNING, _S.PAUSED, _S.RESUMING))
"""States of a study that has started and is not over."""


class Gathering(StudyMachine):
    """From the question whether they take part to the start."""

    def __init__(self, cast: Cast, study_hash: bytes, *, retry_seconds: float) -> None:
        super().__init__(cast, cast.coordinator, study_hash, _S.IDLE)
        self._retry = retry_seconds
        self.attempt = 0
        self.roster: Roster | None = None
        self._opening: StudyOpen | None = None
        self._start: StudyStart | None = None
        self._deadline = 0.0
        self._ready: dict[str, StudyReady] = {}
        self._declined: dict[str, StudyDeclined] = {}
        self._proposal: Propose | None = None
        self._end: Result | Failed | None = None
        self._listeners: dict[str, bytes] = {}  # analyst -> its request
        self._progress = (0, 0)
        self._why: Failed | None = None  # why the study is paused
        self.approvers: Container[str] | None = None
        """Clients whose approval is known, if that is known: without it, one that is ready is left out of the start."""

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
        if self.state is _S.RESUMING and inside:
            return self._does_not_go_on(sender, message, now)
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
            remedy="Ask that party's operator; then run the study again, or propose a new version if it had started.",
        )

    def _try_start(self, now: float) -> list[Instruction]:
        """Start when all have answered or time is up; fail as soon as it can no longer succeed."""
        opening = self._opening
        if self.state is not _S.GATHERING or opening is None:
            return []
        cast = self.cast
        for helper in cast.helpers:
            if helper in self._declined:
                return self._fail(StudyCode.MISSING_HELPER, self._left(helper, self._declined[helper]))
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
                rule=rule_of(StudyCode.MISSING_HELPER),
                remedy="Nothing was computed or charged. Start that party, then run the study again.",
            )
            return self._fail(StudyCode.MISSING_HELPER, error)
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

    def _does_not_go_on(self, sender: str, message: StudyDeclined, now: float) -> list[Instruction]:
        """A party will not go on after a pause."""
        raise NotImplementedError

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
            remedy="Nothing was computed or charged. Ask the clients that declined or did not answer; run it again.",
        )

    def _tell_start(self) -> list[Instruction]:
        if self._start is None or self.roster is None:
            raise LocalProtocolError("the study has not started", party=self.name)
        return [Send(party, self._start) for party in self.roster.keys]

    def _late(self, sender: str, message: StudyReady) -> list[Instruction]:
        """A party that is ready after the start or the end."""
        if self.state in STARTED and self.roster is not None and self._start is not None:
            mine = self.roster.keys.get(sender)
            if mine is not None and mine.public == message.public:
                return [Send(sender, self._start)]
            return self._refuse(sender, message, StudyCode.LATE, "the study started without this party")
        return self._say_end(sender)

    # -- ending ----------------------------------------------------------------------------------------------------

    @property
    def ending(self) -> Result | Failed | None:
        """How the study ended, once it has."""
        return self._end

    def _answer(self, analyst: str) -> list[Instruction]:
        """How the study stands, for an analyst."""
        if isinstance(self._end, Result):
            return [Send(analyst, self._end)]
        if isinstance(self._end, Failed):
            return [Send(analyst, replace(self._end, request=self._listeners[analyst]))]
        if self.state is _S.PAUSED and self._why is not None:
            return [Send(analyst, replace(self._why, request=self._listeners[analyst]))]
        return [Send(analyst, self._progress_message())]

    def _progress_message(self) -> Progress:
        return Progress(study_hash=self.study_hash, round=self._progress[0], rounds=self._progress[1])

    def fail(self, error: TallystickError) -> list[Instruction]:
        """A running study ends without a result, for good: what its rounds cost is spent."""
        return self._fail(StudyCode.FAILED, error)

    def _fail(self, code: StudyCode, error: TallystickError) -> list[Instruction]:
        failed = self._failed(code, error)
        self._move(_E.FAIL)
        self._end = failed
        return [Persist("study/end", encode(failed)), *self._tell_end()]

    def _failed(self, code: StudyCode, error: TallystickError) -> Failed:
        return Failed(
            study_hash=self.study_hash,
            attempt=self.attempt,
            request=self._proposal.request if self._proposal is not None else bytes(16),
            final=int(self.state in STARTED),
            code=code,
            round=error.round or 0,
            exit_code=error.exit_code,
            rule=error.rule or type(error).__name__,
            party=error.party or "",
            cause=error.cause,
            remedy=error.remedy or "",
        )

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
