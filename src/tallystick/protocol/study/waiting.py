"""A party of a study that is paused: it waits with all it has, is asked again, and goes on or leaves."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum, unique

from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import encode
from tallystick.protocol.study.instructions import Confirm, Instruction, Paused, Started
from tallystick.protocol.study.machine import NO_RESULT, StudyMachine
from tallystick.protocol.study.messages import (
    StudyCode,
    StudyGoesOn,
    StudyOpen,
    StudyPaused,
    StudyResume,
    StudyStart,
)
from tallystick.protocol.study.roster import Roster

RUNNING_RETRIES = 6  # a running party asks less often: its rounds have messages of their own


@unique
class ParticipantState(Enum):
    IDLE = "idle"
    REVIEWING = "reviewing"
    READY = "ready"
    DECLINED = "declined"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


@unique
class ParticipantEvent(Enum):
    OPEN = "study shown, in a new attempt"
    APPROVE = "approved: key and answer kept"
    DECLINE = "declined: answer kept"
    START = "start verified and kept"
    PAUSE = "pause kept, nothing erased"
    RESUME = "still taking part: going on kept"
    END = "end kept, keys erased"


_S, _E = ParticipantState, ParticipantEvent


class WaitingParty(StudyMachine):
    """The pauses of a study at a server or client."""

    def __init__(self, cast: Cast, name: str, study_hash: bytes, state: ParticipantState) -> None:
        super().__init__(cast, name, study_hash, state)
        self.attempt = 0
        self.roster: Roster | None = None
        self._retry, self._heard = 0.0, 0.0
        self._start: StudyStart | None = None
        self._pause = 0  # the last one this party has heard of

    @abstractmethod
    def _turn_down(
        self, message: StudyOpen | StudyStart | StudyResume, code: StudyCode, cause: str
    ) -> list[Instruction]: ...

    @abstractmethod
    def _finish(self, code: int, result: bytes, error: TallystickError | None) -> list[Instruction]: ...

    @abstractmethod
    def _ended_error(self, code: int) -> RoundAborted: ...

    def _on_paused(self, sender: str, message: StudyPaused, now: float) -> list[Instruction]:
        if sender != self.cast.coordinator:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only the aggregator pauses studies")
        self._heard = now
        if self.state is not _S.RUNNING or message.attempt != self.attempt or message.pause <= self._pause:
            return []
        self._pause = message.pause
        self._move(_E.PAUSE)
        return [Paused(), Persist("study/paused", encode(message)), Wake(now + RUNNING_RETRIES * self._retry)]

    def _on_resume(self, sender: str, message: StudyResume, now: float) -> list[Instruction]:
        if sender != self.cast.coordinator:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only the aggregator goes on with studies")
        self._heard = now
        if self._start is None or self.state is _S.ENDED:
            return self._turn_down(message, StudyCode.UNAVAILABLE, "nothing of this study is kept here any more")
        if message.attempt != self.attempt or message.pause < self._pause:
            return []
        if self.state is _S.RUNNING and message.pause > self._pause:  # it was not there when the others were paused
            return [*self._on_paused(sender, self._paused_by(message), now), Confirm(self.attempt)]
        if self.state is _S.PAUSED:
            self._pause = message.pause
            return [Confirm(self.attempt)]
        return [self._goes_on()] if self.state is _S.RUNNING else []

    def _paused_by(self, message: StudyResume) -> StudyPaused:
        return StudyPaused(study_hash=self.study_hash, attempt=message.attempt, pause=message.pause)

    def _goes_on(self) -> Send:
        said = StudyGoesOn(study_hash=self.study_hash, attempt=self.attempt, pause=self._pause)
        return Send(self.cast.coordinator, said)

    def go_on(self, now: float) -> list[Instruction]:
        """After a pause: this party has looked again, and still takes part, with the roster it started with."""
        if self.state is not _S.PAUSED or self.roster is None:
            return []
        resumed = StudyResume(study_hash=self.study_hash, attempt=self.attempt, pause=self._pause)
        self._move(_E.RESUME)
        kept = Persist("study/paused", encode(resumed))
        return [kept, Started(self.roster), self._goes_on(), Wake(now + RUNNING_RETRIES * self._retry)]

    def expire(self) -> list[Instruction]:
        """A pause has lasted too long: this party ends its part, and erases its keys."""
        if self.state is not _S.PAUSED:
            return []
        return self._finish(StudyCode.PAUSED, NO_RESULT, self._ended_error(StudyCode.PAUSED))
