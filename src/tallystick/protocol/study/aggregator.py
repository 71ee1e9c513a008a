"""The aggregator's machine: review a proposal, gather who is ready, start once, end once.

THEORY. The aggregator decides who is *asked*, never who is *believed*: each party checks every key of the start by
itself. What this machine guards is that a study has one start and one end. An attempt that failed before its start has
cost nobody anything and may be tried again under the next number. Once a start is on disk there is no other: after a
restart the same bytes go out, a failure is final, and the same study proposed again gets the answer that is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tallystick.core.errors import LocalProtocolError, TallystickError
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import encode
from tallystick.protocol.study.gathering import AggregatorEvent, AggregatorState
from tallystick.protocol.study.instructions import Instruction, Review
from tallystick.protocol.study.machine import kept_messages
from tallystick.protocol.study.messages import (
    Failed,
    Propose,
    Result,
    StudyCode,
    StudyDeclined,
    StudyGoesOn,
    StudyInquiry,
    StudyOpen,
    StudyReady,
    StudyRefused,
    StudyStart,
    Wish,
)
from tallystick.protocol.study.pausing import Pausing
from tallystick.protocol.study.roster import make_roster
from tallystick.study import study_digest

_S, _E = AggregatorState, AggregatorEvent


class AggregatorMachine(Pausing):
    """One study at the aggregator."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.PROPOSE): _S.REVIEWING,
        (_S.REVIEWING, _E.OPEN): _S.GATHERING,
        (_S.REVIEWING, _E.FAIL): _S.FAILED,
        (_S.GATHERING, _E.START): _S.RUNNING,
        (_S.GATHERING, _E.FAIL): _S.FAILED,
        (_S.RUNNING, _E.PAUSE): _S.PAUSED,
        (_S.RUNNING, _E.FINISH): _S.FINISHED,
        (_S.RUNNING, _E.FAIL): _S.FAILED,
        (_S.PAUSED, _E.RESUME): _S.RESUMING,
        (_S.PAUSED, _E.FINISH): _S.FINISHED,
        (_S.PAUSED, _E.FAIL): _S.FAILED,
        (_S.RESUMING, _E.START): _S.RUNNING,
        (_S.RESUMING, _E.PAUSE): _S.PAUSED,
        (_S.RESUMING, _E.FINISH): _S.FINISHED,
        (_S.RESUMING, _E.FAIL): _S.FAILED,
        (_S.FAILED, _E.PROPOSE): _S.REVIEWING,
    }

    def __init__(self, cast: Cast, study_hash: bytes, *, retry_seconds: float = 5.0) -> None:
        super().__init__(cast, study_hash, retry_seconds=retry_seconds)
        self._handlers = {
            Propose: self._on_propose,
            StudyReady: self._on_ready,
            StudyDeclined: self._on_declined,
            StudyInquiry: self._on_inquiry,
            StudyRefused: self._on_refused,
            Wish: self._on_wish,
            StudyGoesOn: self._on_goes_on,
        }

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

    def give_up(self, error: TallystickError) -> list[Instruction]:
        """The members have changed under a study that is not over: one that had not started may be proposed again."""
        return self._fail(StudyCode.OTHER_CONSORTIUM, error)

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
        return self._about_the_pause(sender) or [Send(sender, self._progress_message())]

    def _on_refused(self, sender: str, message: StudyRefused, now: float) -> list[Instruction]:
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Ask the silent again; decide at the deadline."""
        if self.state is _S.RESUMING:
            return self._ask_to_go_on(now)
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
        proposal, opening, start, end = kept_messages(records, "proposal", "open", "start", "end")
        if not isinstance(proposal, Propose):
            return machine, []
        machine._proposal = proposal
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
            return machine, machine._take_up(records, now)
        elif isinstance(opening, StudyOpen):
            machine.state = _S.GATHERING
            return machine, machine._ask(opening, now)
        machine.state = _S.REVIEWING
        return machine, [machine._review()]
