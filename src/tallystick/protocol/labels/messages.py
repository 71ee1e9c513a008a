"""What whoever reduces and the holder of the labels say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique


@unique
class Code(IntEnum):
    """Why a message was refused; the number is what travels."""

    MALFORMED = 1
    OTHER_VERSION = 2
    WRONG_STUDY = 3
    NOT_EXPECTED = 4
    WRONG_PARTY = 5
    WRONG_SIZE = 6
    OTHER_LABELS = 7
    BAD_STUDY_KEY = 8
    LABELS_SIGNATURE = 9
    NO_LABELS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsWanted:
    """Reducer to the labels' holder: it has none yet. They are sealed to this key of its own for the study, which its
    identity has signed."""

    study_hash: bytes
    public: bytes
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The holder to the reducer, sealed: a byte for each person, in the order of the rounds: 0 for no label, 1 for the
    second class, 2 for the first. Signed by the holder's identity, for this reducer and these rounds."""

    study_hash: bytes
    signature: bytes = field(repr=False)
    signs: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message was not taken, and why."""

    study_hash: bytes
    code: int
    cause: str


Message = LabelsWanted | Labels | Refused
