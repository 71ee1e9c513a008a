"""Around the rounds of a study: who proposes, who takes part, when it starts and ends (see README.md here)."""

from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.study.aggregator import AggregatorMachine
from tallystick.protocol.study.analyst import AnalystMachine
from tallystick.protocol.study.codec import decode, encode, is_study_message, study_of
from tallystick.protocol.study.instructions import (
    Close,
    Confirm,
    Delivered,
    Ended,
    Erase,
    Instruction,
    Paused,
    Review,
    RoundsDone,
    Started,
)
from tallystick.protocol.study.messages import StudyCode, result_digest
from tallystick.protocol.study.participant import ParticipantMachine
from tallystick.protocol.study.roster import Roster

__all__ = [
    "AggregatorMachine",
    "AnalystMachine",
    "Close",
    "Confirm",
    "Delivered",
    "Ended",
    "Erase",
    "Instruction",
    "ParticipantMachine",
    "Paused",
    "Persist",
    "Review",
    "Roster",
    "RoundsDone",
    "Send",
    "Started",
    "StudyCode",
    "Wake",
    "decode",
    "encode",
    "is_study_message",
    "result_digest",
    "study_of",
]
