"""What the secure sum's machines ask for beside the instructions that every protocol has.

    Sync        make everything handed to the share store durable
    Drop        forget the shares of this round and all before it (only after what precedes is durable)
    Witness     remember, over all studies, that a server was met under this start
    Draw        (server) the set is agreed: draw from its total with the other servers, which is done once, and tell
                the machine how it ended (``drawn`` or ``not_drawn``)
    Blame       (server) this client was caught with two different sharings in a round: tell the operator

``Sync`` and ``Witness`` must be durable before any later instruction is carried out, as ``Persist`` is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
class Draw:
    round: int
    share: NDArray[np.uint64] = field(repr=False)
    """Of the exact total: nobody has it in full, and it is not on disk."""
    noise: NDArray[np.int64] = field(repr=False)
    """What this server drew when the round was opened."""


@dataclass(frozen=True, slots=True)
class Blame:
    party: str
    round: int
    cause: str


@dataclass(frozen=True, slots=True)
class Drop:
    round: int


Instruction = (
    Send | Persist | Forget | Sync | Witness | Draw | Blame | Drop | Wake | Compute | Finished | Held | Aborted
)
