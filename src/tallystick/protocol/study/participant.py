"""A server's or client's machine: see the study, decide, take part in one start, and erase the keys at the end.

THEORY. Nothing here is taken on the aggregator's word. The study must have the hash it is called by and the consortium
this party's own file has; the decision is this party's (``Review``, then ``approve`` or ``decline``); the start must
name this party with the very key it signed, all servers, enough clients, and verify to the last signature. A party
starts a study once: a second start with other keys or parties, or the same study anew after it has run, is refused,
so no aggregator can have the same data summed under two rosters.

To be ready is no promise. The aggregator chooses when it starts, and may let weeks go by: so the party is asked again
(``Confirm``) when the start is there, may ``decline`` any time before it, and may ``leave`` after it as long as nothing
was sent.

A study may be paused, when somebody it needs is lost: then this party does nothing and keeps what it has, its keys too,
until the study ends, or for as long as its driver waits (``expire``). Before it goes on it is asked again
(``Confirm``), as at the start: whoever has taken its approval back meanwhile leaves for good.

The key pair is made and kept by the driver before ``approve``; what was answered is persisted before it is sent, so
a restarted party says the same again. Whatever the end, ``Erase`` follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, RoundAborted, TallystickError
from tallystick.crypto.key_agreement import StudyKey
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import encode
from tallystick.protocol.study.instructions import Confirm, Ended, Erase, Instruction, Review, Started
from tallystick.protocol.study.machine import NO_RESULT, kept_messages, rule_of
from tallystick.protocol.study.messages import (
    Progress,
    StudyCode,
    StudyDeclined,
    StudyEnd,
    StudyInquiry,
    StudyOpen,
    StudyPaused,
    StudyReady,
    StudyRefused,
    StudyResume,
    StudyStart,
)
from tallystick.protocol.study.roster import Roster, make_roster
from tallystick.protocol.study.waiting import RUNNING_RETRIES, ParticipantEvent, ParticipantState, WaitingParty
from tallystick.study import study_digest

_S, _E = ParticipantState, ParticipantEvent


class ParticipantMachine(WaitingParty):
    """One study at a server or client."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.REVIEWING,
        (_S.REVIEWING, _E.OPEN): _S.REVIEWING,
        (_S.REVIEWING, _E.APPROVE): _S.READY,
        (_S.REVIEWING, _E.DECLINE): _S.DECLINED,
        (_S.REVIEWING, _E.END): _S.ENDED,
        (_S.READY, _E.OPEN): _S.REVIEWING,
        (_S.READY, _E.START): _S.RUNNING,
        (_S.READY, _E.DECLINE): _S.DECLINED,
        (_S.READY, _E.END): _S.ENDED,
        (_S.DECLINED, _E.OPEN): _S.REVIEWING,
        (_S.DECLINED, _E.END): _S.ENDED,
        (_S.RUNNING, _E.PAUSE): _S.PAUSED,
        (_S.RUNNING, _E.END): _S.ENDED,
        (_S.PAUSED, _E.RESUME): _S.RUNNING,
        (_S.PAUSED, _E.END): _S.ENDED,
        (_S.ENDED, _E.OPEN): _S.REVIEWING,
    }

    def __init__(
        self,
        cast: Cast,
        name: str,
        study_hash: bytes,
        *,
        retry_seconds: float = 5.0,
        patience_seconds: float = 3600.0,
    ) -> None:
        super().__init__(cast, name, study_hash, _S.IDLE)
        role = cast.role(name)
        if role is None:
            raise LocalProtocolError("this party is neither server nor client of the study", party=name)
        self.role = role
        self._retry, self._patience = retry_seconds, patience_seconds
        self._opening: StudyOpen | None = None
        self._answer: StudyReady | StudyDeclined | None = None
        self._offered: tuple[StudyStart, Roster] | None = None  # verified, to be confirmed
        self._handlers = {
            StudyOpen: self._on_open,
            StudyStart: self._on_start,
            StudyEnd: self._on_end,
            StudyPaused: self._on_paused,
            StudyResume: self._on_resume,
            StudyRefused: self._on_refused,
            Progress: self._on_progress,
        }

    # -- deciding --------------------------------------------------------------------------------------------------

    def _on_open(self, sender: str, message: StudyOpen, now: float) -> list[Instruction]:
        if sender != self.cast.coordinator:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only the aggregator opens studies")
        self._heard = now
        if study_digest(message.study) != self.study_hash:
            return self._turn_down(message, StudyCode.WRONG_STUDY, "the study does not have the hash named")
        if message.consortium_hash != self.cast.consortium_hash:
            return self._turn_down(message, StudyCode.OTHER_CONSORTIUM, "the consortium file is not this party's")
        if self._start is not None:
            if message.attempt <= self.attempt:
                return []  # an old copy
            return self._turn_down(message, StudyCode.ALREADY_RUN, "this party has run this study: a new run is new")
        if message.attempt < self.attempt or message.attempt == 0:
            return []
        if message.attempt == self.attempt:
            return [Send(sender, self._answer)] if self._answer is not None and self.state is not _S.ENDED else []
        self._move(_E.OPEN)
        old: list[Instruction] = [Erase()] if isinstance(self._answer, StudyReady) else []
        self.attempt, self._opening, self._answer, self._offered = message.attempt, message, None, None
        review = Review(
            study=message.study, program=message.program, attempt=message.attempt, min_clients=message.min_clients
        )
        return [*old, review, Wake(now + self._retry)]

    def _turn_down(
        self, message: StudyOpen | StudyStart | StudyResume, code: StudyCode, cause: str
    ) -> list[Instruction]:
        """Not even looked at: nothing changes here."""
        said = StudyDeclined(
            study_hash=self.study_hash, attempt=message.attempt, party=self.name, code=code, cause=cause
        )
        return [Send(self.cast.coordinator, said)]

    def approve(self, key: StudyKey, *, attempt: int, min_clients: int) -> list[Instruction]:
        """Take part with this key, whose private half is on disk; ``min_clients`` is what this party's study says.

        An approval of an attempt that is over does nothing.
        """
        if self.state is not _S.REVIEWING or attempt != self.attempt or self._opening is None:
            return []
        if min_clients != self._opening.min_clients:
            cause = "the aggregator asks with another min_clients than the study has"
            return self.decline(StudyCode.WRONG_STUDY, cause, attempt=attempt)
        if (key.party, key.role, key.study_hash) != (self.name, self.role, self.study_hash):
            raise LocalProtocolError("this key was signed for something else", party=self.name)
        key.verify(self.cast.identities[self.name])
        ready = StudyReady(
            study_hash=self.study_hash,
            attempt=attempt,
            min_clients=min_clients,
            party=self.name,
            public=key.public,
            signature=key.signature,
        )
        self._move(_E.APPROVE)
        return self._say(ready)

    def decline(self, code: StudyCode, cause: str, *, attempt: int) -> list[Instruction]:
        """Do not take part; a party that was ready takes that back. Does nothing once the study has started here.

        The cause is read by others: no records, no counts ("unavailable" for a data error).
        """
        if self.state not in (_S.REVIEWING, _S.READY) or attempt != self.attempt:
            return []
        was_ready = self.state is _S.READY
        self._offered = None
        self._move(_E.DECLINE)
        said = self._say(self._declined(code, cause))
        return [said[0], Erase(), *said[1:]] if was_ready else said

    def _declined(self, code: StudyCode, cause: str) -> StudyDeclined:
        return StudyDeclined(study_hash=self.study_hash, attempt=self.attempt, party=self.name, code=code, cause=cause)

    def _say(self, answer: StudyReady | StudyDeclined) -> list[Instruction]:
        self._answer = answer
        return [Persist("study/ready", encode(answer)), Send(self.cast.coordinator, answer)]

    # -- taking part -----------------------------------------------------------------------------------------------

    def _on_start(self, sender: str, message: StudyStart, now: float) -> list[Instruction]:
        if sender != self.cast.coordinator:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only the aggregator starts studies")
        self._heard = now
        if self.state is _S.RUNNING:
            if message == self._start:
                return []
            return self._object("the study was started twice, with different parties")
        if self.state is _S.ENDED and self._start is None and message.attempt == self.attempt:
            return self._turn_down(message, StudyCode.UNAVAILABLE, "this party had given up waiting for the start")
        if self.state is not _S.READY or message.attempt != self.attempt:
            return []  # of another attempt, or after the end
        mine = self._answer
        try:
            roster = make_roster(self.cast, message)
            own = roster.keys.get(self.name)
            if not isinstance(mine, StudyReady) or own is None or own.public != mine.public:
                raise RemoteProtocolError("the start has another key for this party than it signed")
            if message.min_clients != mine.min_clients:
                raise RemoteProtocolError("the start has another min_clients than this party approved")
        except RemoteProtocolError as error:
            return self._object(error.cause)
        self._offered = message, roster
        return [Confirm(message.attempt)]

    def begin(self, *, attempt: int, now: float) -> list[Instruction]:
        """Start the study with the roster that was verified: the party has looked, and still takes part."""
        if self.state is not _S.READY or attempt != self.attempt or self._offered is None:
            return []
        (self._start, self.roster), self._offered = self._offered, None
        self._move(_E.START)
        kept = Persist("study/start", encode(self._start))
        return [kept, Started(self.roster), Wake(now + RUNNING_RETRIES * self._retry)]

    def leave(self, code: StudyCode, error: TallystickError) -> list[Instruction]:
        """Leave a study that runs or is paused, for good. The driver's word: nothing more of this party is sent."""
        if self.state not in (_S.RUNNING, _S.PAUSED):
            return []
        return self._quit(code, error)

    def _quit(self, code: StudyCode, error: TallystickError) -> list[Instruction]:
        said = Send(self.cast.coordinator, self._declined(code, error.cause))
        return [*self._finish(code, NO_RESULT, error), said]

    def _object(self, cause: str) -> list[Instruction]:
        error = RoundAborted(
            cause,
            party=self.cast.coordinator,
            rule=rule_of(StudyCode.BAD_ROSTER),
            remedy="Nothing more is sent in this study. Ask the aggregator's operator.",
        )
        return self._quit(StudyCode.BAD_ROSTER, error)

    def give_up(self, cause: str, party: str | None = None) -> list[Instruction]:
        """Take no further part, for a reason of this party's own: the members have changed under the study."""
        if self.state not in (_S.REVIEWING, _S.READY, _S.RUNNING, _S.PAUSED):
            return []
        error = RoundAborted(
            cause,
            party=party,
            rule=rule_of(StudyCode.OTHER_CONSORTIUM),
            remedy="Nothing more is sent in this study. Propose it again, among those who are in the consortium now.",
        )
        return self._quit(StudyCode.OTHER_CONSORTIUM, error)

    def _finish(self, code: int, result: bytes, error: TallystickError | None) -> list[Instruction]:
        end = StudyEnd(study_hash=self.study_hash, attempt=self.attempt, code=code, result=result)
        self._move(_E.END)
        done = result if error is None else None
        return [Persist("study/end", encode(end)), Erase(), Ended(done, error)]

    def _on_end(self, sender: str, message: StudyEnd, now: float) -> list[Instruction]:
        if sender != self.cast.coordinator:
            return self._refuse(sender, message, StudyCode.WRONG_PARTY, "only the aggregator ends studies")
        self._heard = now
        if message.attempt != self.attempt or self.state in (_S.IDLE, _S.ENDED):
            return []
        if message.code == StudyCode.FINISHED:
            return self._finish(message.code, message.result, None)
        return self._finish(message.code, NO_RESULT, self._ended_error(message.code))

    def _ended_error(self, code: int) -> RoundAborted:
        causes = {
            StudyCode.LATE: "the study started without this party",
            StudyCode.SILENT: f"no word from the aggregator for {self._patience:g} s",
            StudyCode.UNKNOWN_STUDY: "the aggregator does not know this study",
            StudyCode.PAUSED: "the study was paused, and nobody went on with it in time",
        }
        return RoundAborted(
            causes.get(StudyCode(code), "the study ended without a result"),
            party=self.cast.coordinator,
            rule=rule_of(code),
            remedy="The keys of this study are erased here. It may be run again, as a new version if it had started.",
        )

    def _on_refused(self, sender: str, message: StudyRefused, now: float) -> list[Instruction]:
        if sender != self.cast.coordinator:
            return []
        self._heard = now
        late = message.code == StudyCode.LATE and self.state in (_S.REVIEWING, _S.READY)
        lost = message.code == StudyCode.UNKNOWN_STUDY and self.state in (_S.READY, _S.RUNNING, _S.PAUSED)
        if late or lost:
            return self._finish(message.code, NO_RESULT, self._ended_error(message.code))
        return []

    def _on_progress(self, sender: str, message: Progress, now: float) -> list[Instruction]:
        if sender == self.cast.coordinator:
            self._heard = now
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Say again that this party is ready, or ask how the study stands; give up after long silence."""
        if self.state is _S.PAUSED:
            question = StudyInquiry(study_hash=self.study_hash)
            return [Send(self.cast.coordinator, question), Wake(now + RUNNING_RETRIES * self._retry)]
        if self.state not in (_S.REVIEWING, _S.READY, _S.RUNNING):
            return []
        if now >= self._heard + self._patience:
            return self._finish(StudyCode.SILENT, NO_RESULT, self._ended_error(StudyCode.SILENT))
        wait = self._retry * (RUNNING_RETRIES if self.state is _S.RUNNING else 1)
        out: list[Instruction] = [Wake(min(now + wait, self._heard + self._patience))]
        aggregator = self.cast.coordinator
        if self.state is _S.READY and self._answer is not None:
            return [Send(aggregator, self._answer), *out]
        return [Send(aggregator, StudyInquiry(study_hash=self.study_hash)), *out]

    # -- restarting ------------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls,
        cast: Cast,
        name: str,
        study_hash: bytes,
        records: Mapping[str, bytes],
        now: float,
        *,
        retry_seconds: float = 5.0,
        patience_seconds: float = 3600.0,
    ) -> tuple[ParticipantMachine, list[Instruction]]:
        """The machine as its records have it, and what to do first."""
        machine = cls(cast, name, study_hash, retry_seconds=retry_seconds, patience_seconds=patience_seconds)
        machine._heard = now
        answer, start, pause, end = kept_messages(records, "ready", "start", "paused", "end")
        if isinstance(answer, (StudyReady, StudyDeclined)):
            machine._answer, machine.attempt = answer, answer.attempt
            machine.state = _S.READY if isinstance(answer, StudyReady) else _S.DECLINED
        if isinstance(start, StudyStart):
            machine._start, machine.roster, machine.attempt = start, make_roster(cast, start), start.attempt
            machine.state = _S.PAUSED if isinstance(pause, StudyPaused) else _S.RUNNING
            machine._pause = pause.pause if isinstance(pause, (StudyPaused, StudyResume)) else 0
        if isinstance(end, StudyEnd) and end.attempt >= machine.attempt:
            machine.attempt, machine.state = end.attempt, _S.ENDED
            return machine, [Erase()]
        if machine.state is _S.RUNNING and machine.roster is not None:
            return machine, [Started(machine.roster), *machine.tick(now)]
        if machine.state in (_S.READY, _S.PAUSED):
            return machine, machine.tick(now)
        return machine, []
