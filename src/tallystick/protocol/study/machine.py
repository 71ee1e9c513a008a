"""What the three study machines have in common: one machine per study and party, table-driven, sans-I/O.

The driver finds the machine of a message by ``codec.study_of``, hands it the message with its authenticated sender and
the time, and carries out what comes back. States move only along ``TRANSITIONS``; any other move is our own bug.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from tallystick.core.errors import (
    LocalProtocolError,
    PrivacyRefused,
    RemoteProtocolError,
    RoundAborted,
    StudyError,
    TallystickError,
    TooFewParties,
    VerificationError,
)
from tallystick.protocol.secure_sum.machine import Transitions
from tallystick.protocol.study.codec import decode
from tallystick.protocol.study.instructions import Instruction, Send
from tallystick.protocol.study.messages import Failed, Message, Progress, StudyCode, StudyRefused
from tallystick.protocol.study.roster import Members

__all__ = ["StudyMachine", "error_of", "rule_of"]

_BY_EXIT_CODE: dict[int, type[TallystickError]] = {
    2: StudyError,
    3: PrivacyRefused,
    4: RoundAborted,
    6: VerificationError,
}


def rule_of(code: int) -> str:
    """A code as it is printed: ``too-few-clients``."""
    return StudyCode(code).name.lower().replace("_", "-")


def error_of(message: Failed) -> TallystickError:
    """The error an analyst meets for a failed study."""
    kind = _BY_EXIT_CODE.get(message.exit_code, RoundAborted)
    if message.code == StudyCode.TOO_FEW_CLIENTS:
        kind = TooFewParties
    return kind(
        message.cause,
        remedy=message.remedy or None,
        rule=message.rule or None,
        party=message.party or None,
        round=message.round or None,
    )


class StudyMachine:
    """Base of analyst, aggregator and participant."""

    TRANSITIONS: ClassVar[Transitions]

    def __init__(self, members: Members, name: str, study_hash: bytes, state: Enum) -> None:
        self.members = members
        self.name = name
        self.study_hash = study_hash
        self.state: Any = state
        self._handlers: dict[type[Any], Callable[[str, Any, float], list[Instruction]]] = {}

    def receive(self, sender: str, message: Message, now: float) -> list[Instruction]:
        """Take one message from an authenticated sender."""
        if message.study_hash != self.study_hash:
            return self._refuse(sender, message, StudyCode.WRONG_STUDY, "this is not the study named")
        handler = self._handlers.get(type(message))
        if handler is None:
            cause = f"a {type(message).__name__} is not for this party"
            return self._refuse(sender, message, StudyCode.NOT_EXPECTED, cause)
        return handler(sender, message, now)

    def receive_bytes(self, sender: str, raw: bytes, now: float, *, limit: int | None = None) -> list[Instruction]:
        """Decode and take one message; one that does not decode is refused, with nothing of it kept (X14)."""
        try:
            message = decode(raw, limit=limit)
        except RemoteProtocolError as error:
            code = StudyCode.OTHER_VERSION if error.rule == "X13" else StudyCode.MALFORMED
            return [Send(sender, StudyRefused(study_hash=self.study_hash, code=code, cause=error.cause))]
        return self.receive(sender, message, now)

    def tick(self, now: float) -> list[Instruction]:
        """Take notice of the time; calling it more often than asked does no harm."""
        raise NotImplementedError

    def _move(self, event: Enum) -> None:
        try:
            self.state = self.TRANSITIONS[(self.state, event)]
        except KeyError:
            raise LocalProtocolError(
                f"{type(self).__name__} has no transition from {self.state.value} on {event.value}", party=self.name
            ) from None

    def _refuse(self, sender: str, message: Message, code: StudyCode, cause: str) -> list[Instruction]:
        if isinstance(message, (StudyRefused, Progress)):  # answering an answer would never end
            return []
        return [Send(sender, StudyRefused(study_hash=self.study_hash, code=code, cause=cause))]
