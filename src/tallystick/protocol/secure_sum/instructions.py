"""What the secure sum's machines ask for beside the instructions that every protocol has.

    Sync        make everything handed to the share store durable
    Drop        forget the shares of this round and all before it (only after what precedes is durable)
    Witness     remember, over all studies, that a server was met under this start
    Blame       (server) this client was caught with two different sharings in a round: tell the operator

``Sync`` and ``Witness`` must be durable before any later instruction is carried out, as ``Persist`` is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.protocol.boots import Witness as Witness
from tallystick.protocol.instructions import (
    Aborted,
    Compute,
    Finished,
    Forget,
    Held,
    Persist,
    Send,
    Wake,
)


@dataclass(frozen=True, slots=True)
class Sync:
    pass


@dataclass(frozen=True, slots=True)
class Blame:
    party: str
    round: int
    cause: str


@dataclass(frozen=True, slots=True)
class Drop:
    round: int


Instruction = Send | Persist | Forget | Sync | Witness | Blame | Drop | Wake | Compute | Finished | Held | Aborted
