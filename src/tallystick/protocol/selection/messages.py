"""What computing parties say to each other while they draw.

Every message names the selection by its session and round. Layers are numbered from 0 (the dealing of inputs) to the
last (the shares of the answer); a party sends layer s + 1 only once it has everybody's layer s, so whoever gets it
knows that its own layer s arrived, and need not keep that one any longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique


@unique
class Code(IntEnum):
    """Why something was refused or given up; the number is what travels."""

    MALFORMED = 1
    OTHER_VERSION = 2
    WRONG_STUDY = 3
    WRONG_ROUND = 4
    WRONG_STEP = 5
    WRONG_SHAPE = 6
    WRONG_PARTY = 7
    NOT_EXPECTED = 8
    EQUIVOCATION = 9
    SILENT_PARTY = 10
    GIVEN_UP = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One party's shares for one other party, of all gates of a layer: two elements of the field to a byte."""

    study_hash: bytes
    round: int
    step: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Your layer ``step`` has not come: say it again, the same bytes."""

    study_hash: bytes
    round: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message was not taken."""

    study_hash: bytes
    round: int
    code: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The sender has given the selection up; ``party`` is whom it missed, or empty."""

    study_hash: bytes
    round: int
    code: int
    party: str
    cause: str


Message = Layer | Again | Refused | Stopped
