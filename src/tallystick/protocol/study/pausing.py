"""A study that waits for a lost party, at its coordinator: paused, asked to go on, going on.

THEORY. A pause changes nothing that was agreed: the roster, the keys, the charge and every byte that was said stay as
they are; no party gets another answer to anything. To go on is to take the study up as after a restart. Each party
decides by itself whether it does (it looks at its own approval again), and the servers ask the clients themselves
before they go on with a round that was open. So all that a coordinator can win by pausing is time.

It goes on when all helpers say that they do, with at least ``min_clients`` clients; who has not answered by then may
still come later. If a helper is not back, the study is paused as before, and the analyst is told who is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import encode
from tallystick.protocol.study.gathering import STARTED, AggregatorEvent, AggregatorState, Gathering
from tallystick.protocol.study.instructions import Close, Instruction, Started
from tallystick.protocol.study.machine import kept_messages, rule_of
from tallystick.protocol.study.messages import (
    Failed,
    StudyCode,
    StudyDeclined,
    StudyGoesOn,
    StudyPaused,
    StudyResume,
    Wish,
)

_S, _E = AggregatorState, AggregatorEvent
RESUME_SECONDS = 30.0


class Pausing(Gathering):
    """From a pause to its end."""

    def __init__(self, cast: Cast, study_hash: bytes, *, retry_seconds: float) -> None:
        super().__init__(cast, study_hash, retry_seconds=retry_seconds)
        self.pauses = 0
        """How often the study has been paused."""
        self._going_on: set[str] = set()
        self._leaving: dict[str, StudyDeclined] = {}

    @property
    def waits(self) -> bool:
        """Whether the study is paused, or asks who goes on."""
        return self.state in (_S.PAUSED, _S.RESUMING)

    def pause(self, error: TallystickError) -> list[Instruction]:
        """A party that the study needs is lost: all stop where they are and keep what they have."""
        if self.state not in (_S.RUNNING, _S.RESUMING):
            return []
        self.pauses += 1
        self._why = self._failed(StudyCode.PAUSED, error)
        self._move(_E.PAUSE)
        told = [Send(party, self._paused()) for party in self.roster.keys] if self.roster is not None else []
        out: list[Instruction] = [
            Persist("study/why", encode(self._why)),
            Persist("study/paused", encode(self._paused())),
        ]
        out += told
        for analyst in self._listeners:
            out += self._answer(analyst)
        return out

    def _paused(self) -> StudyPaused:
        return StudyPaused(study_hash=self.study_hash, attempt=self.attempt, pause=self.pauses)

    def _resume(self) -> StudyResume:
        return StudyResume(study_hash=self.study_hash, attempt=self.attempt, pause=self.pauses)

    def _about_the_pause(self, party: str) -> list[Instruction]:
        """What a party that asks has to know of a pause; nothing if there is none, or it goes on."""
        if self.state is _S.PAUSED:
            return [Send(party, self._paused())]
        resumed = self.state is _S.RESUMING or (self.state is _S.RUNNING and self.pauses)
        return [Send(party, self._resume())] if resumed and party not in self._going_on else []

    def _on_wish(self, sender: str, message: Wish, now: float) -> list[Instruction]:
        if sender not in self.cast.analysts:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only an analyst of the consortium asks for it")
        if self.state is _S.IDLE:
            return self._refuse(sender, message, StudyCode.UNKNOWN_STUDY, "this study was never proposed here")
        self._listeners[sender] = message.request
        if message.close and self.state in (_S.PAUSED, _S.RESUMING):
            return [Close()]
        if message.close and self._end is None:
            return self._refuse(sender, message, StudyCode.NOT_EXPECTED, "a study is closed while it is paused")
        if self.state is not _S.PAUSED:
            return self._answer(sender)
        self._move(_E.RESUME)
        self._going_on, self._leaving = set(), {}
        self._deadline = now + RESUME_SECONDS
        kept = Persist("study/paused", encode(self._resume()))
        return [kept, *self._answer(sender), *self._ask_to_go_on(now)]

    def _ask_to_go_on(self, now: float) -> list[Instruction]:
        if now >= self._deadline:
            return self._try_to_go_on(now)
        heard = {*self._going_on, *self._leaving}
        silent = [party for party in (self.roster.keys if self.roster is not None else ()) if party not in heard]
        asked: list[Instruction] = [Send(party, self._resume()) for party in silent]
        return [*asked, Wake(min(now + self._retry, self._deadline))]

    def _on_goes_on(self, sender: str, message: StudyGoesOn, now: float) -> list[Instruction]:
        inside = self.roster is not None and sender in self.roster.keys
        if not inside or message.pause != self.pauses or self.state not in STARTED:
            return []
        self._going_on.add(sender)
        return self._try_to_go_on(now)

    def _does_not_go_on(self, sender: str, message: StudyDeclined, now: float) -> list[Instruction]:
        self._leaving[sender] = message
        return self._try_to_go_on(now)

    def _try_to_go_on(self, now: float) -> list[Instruction]:
        if self.state is not _S.RESUMING or self.roster is None or self._start is None:
            return []
        over, heard = now >= self._deadline, {*self._going_on, *self._leaving}
        if not over and not heard.issuperset(self.roster.keys):
            return []
        for helper in self.roster.helpers:
            if helper in self._leaving:
                return self.pause(self._left(helper, self._leaving[helper]))
        missing = [name for name in self.roster.helpers if name not in self._going_on]
        clients = [name for name in self.roster.clients if name in self._going_on]
        if missing:
            return self.pause(self._still_missing(missing, f"no answer from {', '.join(missing)} in time"))
        if len(clients) < self._start.min_clients:
            gone = [name for name in self.roster.clients if name not in self._going_on]
            cause = f"{len(clients)} clients go on, the study asks for {self._start.min_clients}"
            return self.pause(self._still_missing(gone, cause, StudyCode.TOO_FEW_CLIENTS))
        self._move(_E.START)
        said = StudyGoesOn(study_hash=self.study_hash, attempt=self.attempt, pause=self.pauses)
        return [Persist("study/paused", encode(said)), Started(self.roster)]

    def _still_missing(
        self, missing: list[str], cause: str, code: StudyCode = StudyCode.MISSING_HELPER
    ) -> RoundAborted:
        remedy = f"Start {', '.join(missing[:5])} on the state it had last, then resume the study."
        return RoundAborted(cause, party=missing[0], rule=rule_of(code), remedy=remedy)

    def _take_up(self, records: Mapping[str, bytes], now: float) -> list[Instruction]:
        """After a restart: as it was, running, paused or asked to go on."""
        pause, why = kept_messages(records, "paused", "why")
        self.pauses = pause.pause if isinstance(pause, (StudyPaused, StudyResume, StudyGoesOn)) else 0
        self._why = why if isinstance(why, Failed) else None
        if isinstance(pause, StudyPaused):
            self.state = _S.PAUSED
            return [Send(party, self._paused()) for party in self.roster.keys] if self.roster is not None else []
        if isinstance(pause, StudyResume):
            self.state, self._deadline = _S.RESUMING, now + RESUME_SECONDS
            return self._ask_to_go_on(now)
        self.state = _S.RUNNING
        return [*self._tell_start(), Started(self.roster)] if self.roster is not None else []
