"""What the three study machines have in common: one machine per study and party, table-driven, sans-I/O.

The driver finds the machine of a message by ``codec.study_of``, hands it the message with its authenticated sender and
the time, and carries out what comes back. States move only along ``TRANSITIONS``; any other move is our own bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tallystick.core.errors import (
    PrivacyRefused,
    RoundAborted,
    StudyError,
    TallystickError,
    TooFewParties,
    VerificationError,
)
from tallystick.protocol.instructions import Send
from tallystick.protocol.machine import Machine
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import decode
from tallystick.protocol.study.instructions import Instruction
from tallystick.protocol.study.messages import Failed, Message, Progress, StudyCode, StudyRefused

_BY_EXIT_CODE: dict[int, type[TallystickError]] = {
    2: StudyError,
    3: PrivacyRefused,
    4: RoundAborted,
    6: VerificationError,
}


NO_RESULT = bytes(32)  # where a study's end has no digest of a result


def kept_messages(records: Mapping[str, bytes], *keys: str) -> list[Message | None]:
    """What a machine has persisted of a study under these keys."""
    return [decode(records[f"study/{key}"]) if f"study/{key}" in records else None for key in keys]


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


class StudyMachine(Machine):
    """Base of analyst, coordinator and participant."""

    CODES = StudyCode
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this is not the study named"

    def __init__(self, cast: Cast, name: str, study_hash: bytes, state: Enum) -> None:
        super().__init__(name, study_hash, state)
        self.cast = cast

    def _refuse(self, sender: str, message: Message | None, code: StudyCode, cause: str) -> list[Instruction]:
        if isinstance(message, (StudyRefused, Progress)):  # answering an answer would never end
            return []
        return [Send(sender, StudyRefused(study_hash=self.study_hash, code=code, cause=cause))]
