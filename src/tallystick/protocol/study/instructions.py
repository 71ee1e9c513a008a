"""What a study's machines ask for beside the instructions that every protocol has.

Review     look at this study and decide: then ``accept``/``reject`` (aggregator), ``approve``/``decline`` (party)
Confirm    (party) the start is in order: look once more whether to take part, then ``begin`` or ``decline``
Started    the study runs, with this roster; after a restart or a pause it is said again
Paused     (party) the study waits for somebody: keep all there is of it, and do nothing
Close      (aggregator) the analyst ends a study that is paused: then ``finish`` or ``fail``
Erase      this party's keys of this study are to go; saying it twice does no harm
RoundsDone (analyst) so many of so many rounds are done
Delivered  (analyst) the result
Ended      the study, or this party's part in it, is over: with a result's digest, or with an error
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.core.errors import TallystickError
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.study.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """``min_clients`` is the aggregator's word for it (0 where the aggregator itself reviews): compare."""

    study: bytes = field(repr=False)
    program: str = field(repr=False)
    attempt: int
    min_clients: int = 0


@dataclass(frozen=True, slots=True)
class Confirm:
    attempt: int


@dataclass(frozen=True, slots=True)
class Started:
    roster: Roster


@dataclass(frozen=True, slots=True)
class Paused:
    pass


@dataclass(frozen=True, slots=True)
class Close:
    pass


@dataclass(frozen=True, slots=True)
class Erase:
    pass


@dataclass(frozen=True, slots=True)
class RoundsDone:
    round: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Delivered:
    packed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ended:
    result: bytes | None
    error: TallystickError | None


Instruction = (
    Send | Persist | Wake | Review | Confirm | Started | Paused | Close | Erase | RoundsDone | Delivered | Ended
)
