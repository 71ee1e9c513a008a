"""What institutions say to each other to find the people they have in common."""

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
    WRONG_DATA_SET = 7
    REPEATED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindedList:
    """One institution's identifiers after ``hops`` keys, in an order of its own choice that all keep.

    ``data_set`` is what the study binds the owner's list to: its registered data set and how many people it names.
    """

    study_hash: bytes
    owner: int
    hops: int
    data_set: bytes
    points: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Whoever is to blind a list, or to compare it, has not got it: said again until it comes."""

    study_hash: bytes
    owner: int
    hops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message was not taken, and why."""

    study_hash: bytes
    code: int
    cause: str


Message = BlindedList | Wanted | Refused
