"""What analyst, aggregator, servers and clients say to each other around the rounds of a study.

One frozen type per message; ``codec`` gives each exactly one encoding. A study is named by the hash of its canonical
form. ``attempt`` counts how often the aggregator has asked the parties to take part: an attempt that failed before
anything started may be followed by another, one that started never is. ``request`` tells a new wish of an analyst
from a copy of an old one that the network kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique

from tallystick.core.identifiers import digest


@unique
class StudyCode(IntEnum):
    """How a study or a party's part in it ended, or why a message was refused; the number is what travels."""

    FINISHED = 1
    MALFORMED = 2
    OTHER_VERSION = 3
    WRONG_STUDY = 4
    OTHER_CONSORTIUM = 5
    WRONG_PARTY = 6
    NOT_EXPECTED = 7
    UNKNOWN_STUDY = 8
    NOT_APPROVED = 9
    UNAVAILABLE = 10
    ALREADY_RUN = 11
    BAD_ROSTER = 12
    TOO_FEW_CLIENTS = 13
    MISSING_HELPER = 14
    LATE = 15
    SILENT = 16
    FAILED = 17
    PAUSED = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Analyst to aggregator: run this study among this consortium. ``program`` is empty for a built-in one."""

    study_hash: bytes
    request: bytes
    consortium_hash: bytes
    study: bytes = field(repr=False)
    program: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOpen:
    """Aggregator to servers and clients: look at this study, and say within ``ready_ms`` whether you take part."""

    study_hash: bytes
    attempt: int
    ready_ms: int
    min_clients: int
    consortium_hash: bytes
    study: bytes = field(repr=False)
    program: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReady:
    """Server or client to aggregator: I take part, with at least so many clients, under this signed key."""

    study_hash: bytes
    attempt: int
    min_clients: int
    party: str
    public: bytes
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDeclined:
    """Server or client to aggregator: I do not take part, or no longer."""

    study_hash: bytes
    attempt: int
    party: str
    code: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One party's signed key, as everybody gets it."""

    party: str
    public: bytes
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStart:
    """Aggregator to all who are ready: these take part, servers first, each in the consortium's order."""

    study_hash: bytes
    attempt: int
    min_clients: int
    tickets: tuple[Ticket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """Aggregator to all who took part: it is over; erase your keys. The digest is of the result, or zero."""

    study_hash: bytes
    attempt: int
    code: int
    result: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPaused:
    """Aggregator to all who take part: a party is lost. Do nothing more, and keep all you have. ``pause`` counts."""

    study_hash: bytes
    attempt: int
    pause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResume:
    """Aggregator to all who take part: the study is to go on after this pause; look again whether you take part."""

    study_hash: bytes
    attempt: int
    pause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyGoesOn:
    """Server or client to aggregator: I have looked again, and go on after this pause."""

    study_hash: bytes
    attempt: int
    pause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Analyst to aggregator, of a study that is paused: go on with it, or close it."""

    study_hash: bytes
    request: bytes
    close: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Aggregator to analyst, or to a party that asks: alive, so far."""

    study_hash: bytes
    round: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Aggregator to analyst: the study's one result."""

    study_hash: bytes
    attempt: int
    packed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Aggregator to analyst: no result, and why. If not ``final``, the same study may be proposed again."""

    study_hash: bytes
    attempt: int
    request: bytes
    final: int
    code: int
    round: int  # 0: in none
    exit_code: int
    rule: str
    party: str
    cause: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyInquiry:
    """Anyone in the study to the aggregator: how does it stand? (``request`` is zero but for analysts.)"""

    study_hash: bytes
    request: bytes = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRefused:
    """To whoever sent it: this was not taken and nothing of it is kept."""

    study_hash: bytes
    code: int
    cause: str


Message = (
    Propose
    | StudyOpen
    | StudyReady
    | StudyDeclined
    | StudyStart
    | StudyEnd
    | Progress
    | Result
    | Failed
    | StudyInquiry
    | StudyRefused
    | StudyPaused
    | StudyResume
    | StudyGoesOn
    | Wish
)


def result_digest(study_hash: bytes, packed: bytes) -> bytes:
    """What every party learns of the result: enough to recognise it later."""
    return digest(b"tallystick/study/result", study_hash, packed)
