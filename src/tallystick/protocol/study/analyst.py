"""The analyst's machine: propose, hear how it goes, get the result or the reason.

It keeps nothing: whoever proposes the same study again gets the same answer from the aggregator, and nothing is
charged twice. Silence for longer than ``patience_seconds`` is a typed failure here; the study may still be running.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import ClassVar

from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.protocol.instructions import Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.members import Cast
from tallystick.protocol.study.instructions import Delivered, Ended, Instruction, RoundsDone
from tallystick.protocol.study.machine import StudyMachine, error_of, rule_of
from tallystick.protocol.study.messages import (
    Failed,
    Progress,
    Propose,
    Result,
    StudyCode,
    StudyInquiry,
    StudyRefused,
    Wish,
    result_digest,
)
from tallystick.study import study_digest


@unique
class AnalystState(Enum):
    IDLE = "idle"
    WAITING = "waiting"
    FINISHED = "finished"
    FAILED = "failed"


@unique
class AnalystEvent(Enum):
    PROPOSE = "study proposed"
    FINISH = "result received"
    FAIL = "failure received, or silence for too long"


_S, _E = AnalystState, AnalystEvent


class AnalystMachine(StudyMachine):
    """Whoever wants the study. ``request`` is 16 fresh bytes: a new wish, not a copy of an old one.

    ``wish`` is to ``run`` it, to ``resume`` it after a pause, or to ``close`` it then.
    """

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.PROPOSE): _S.WAITING,
        (_S.WAITING, _E.FINISH): _S.FINISHED,
        (_S.WAITING, _E.FAIL): _S.FAILED,
    }

    def __init__(
        self,
        cast: Cast,
        name: str,
        *,
        study: bytes,
        program: str = "",
        request: bytes,
        wish: str = "run",
        retry_seconds: float = 5.0,
        patience_seconds: float = 300.0,
    ) -> None:
        super().__init__(cast, name, study_digest(study), _S.IDLE)
        self._proposal = Propose(
            study_hash=self.study_hash,
            request=request,
            consortium_hash=cast.consortium_hash,
            study=study,
            program=program,
        )
        close = int(wish == "close")
        wanted = Wish(study_hash=self.study_hash, request=request, close=close)
        self._first = self._proposal if wish == "run" else wanted
        self._retry, self._patience = retry_seconds, patience_seconds
        self._heard = 0.0
        self._known = False  # the aggregator has answered
        self._told = (0, 0)  # how far the study was, when last heard
        self._handlers = {
            Progress: self._on_progress,
            Result: self._on_result,
            Failed: self._on_failed,
            StudyRefused: self._on_refused,
        }

    def propose(self, now: float) -> list[Instruction]:
        """Say what is wanted."""
        self._move(_E.PROPOSE)
        self._heard = now
        return [Send(self.cast.coordinator, self._first), Wake(now + self._retry)]

    def _from_aggregator(self, sender: str, now: float) -> bool:
        if sender != self.cast.coordinator or self.state is not _S.WAITING:
            return False
        self._heard = now
        return True

    def _on_progress(self, sender: str, message: Progress, now: float) -> list[Instruction]:
        if not self._from_aggregator(sender, now):
            return []
        self._known = True
        if (message.round, message.rounds) <= self._told:
            return []  # said again, or overtaken on its way
        self._told = message.round, message.rounds
        return [RoundsDone(message.round, message.rounds)]

    def _on_result(self, sender: str, message: Result, now: float) -> list[Instruction]:
        if not self._from_aggregator(sender, now):
            return []
        self._move(_E.FINISH)
        return [Delivered(message.packed), Ended(result_digest(self.study_hash, message.packed), None)]

    def _on_failed(self, sender: str, message: Failed, now: float) -> list[Instruction]:
        if message.request != self._proposal.request or not self._from_aggregator(sender, now):
            return []  # of an earlier wish
        return self._fail(error_of(message))

    def _on_refused(self, sender: str, message: StudyRefused, now: float) -> list[Instruction]:
        if not self._from_aggregator(sender, now):
            return []
        if message.code == StudyCode.UNKNOWN_STUDY and self._first is self._proposal:
            self._known = False
            return [Send(sender, self._proposal)]
        error = RoundAborted(
            f"the aggregator refused the study: {message.cause}",
            party=sender,
            rule=rule_of(message.code),
            remedy="Compare consortium files and releases with the aggregator's operator.",
        )
        return self._fail(error)

    def _fail(self, error: TallystickError) -> list[Instruction]:
        self._move(_E.FAIL)
        return [Ended(None, error)]

    def tick(self, now: float) -> list[Instruction]:
        """Ask again; give up after silence."""
        if self.state is not _S.WAITING:
            return []
        aggregator = self.cast.coordinator
        if now >= self._heard + self._patience:
            error = RoundAborted(
                f"no word from the aggregator for {self._patience:g} s",
                party=aggregator,
                rule=rule_of(StudyCode.SILENT),
                remedy="Look whether it runs, then propose the same study again: what is done is not done twice.",
            )
            return self._fail(error)
        question = StudyInquiry(study_hash=self.study_hash, request=self._proposal.request)
        ask = question if self._known else self._first
        return [Send(aggregator, ask), Wake(min(now + self._retry, self._heard + self._patience))]
