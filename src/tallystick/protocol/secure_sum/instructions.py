"""What a machine asks its driver to do, in the order given.

    Persist     write this record under this key, replacing the last one there; a ``secret`` one where it can be erased
    Forget      erase the secret record under this key: overwritten where it lies; saying it twice does no harm
    Sync        make everything handed to the share store durable
    Drop        forget the shares of this round and all before it (only after what precedes is durable)
    Send        encode and deliver
    Witness     remember, over all studies, that a server was met under this start (X28)
    Wake        call ``tick`` at this time at the latest
    Compute     (client) map the records under this model, then call ``contribute``
    Blame       (server) this client was caught with two different sharings in a round: tell the operator
    Finished    (aggregator) the round's one result
    Aborted     the round, or this party's part in it, is over without a result

``Persist``, ``Forget``, ``Sync`` and ``Witness`` must be durable BEFORE any later instruction of the
list is carried out: that is what makes a resent message identical and noise
drawn once (spec 0.6). A driver that stops between two instructions and hands
the records to ``restore`` loses nothing that anybody was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import TallystickError
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.secure_sum.messages import Message

__all__ = [
    "Aborted",
    "Blame",
    "Compute",
    "Drop",
    "Finished",
    "Forget",
    "Instruction",
    "NoisySum",
    "Persist",
    "Send",
    "Sync",
    "Wake",
    "Witness",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisySum:
    """The noised total over exactly ``participants``; ``dropped`` are the study's other clients."""

    round: int
    total: NDArray[np.int64] = field(repr=False)
    participants: tuple[str, ...]
    dropped: tuple[str, ...]
    agreement: bytes


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Persist:
    key: str
    record: bytes = field(repr=False)
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    key: str


@dataclass(frozen=True, slots=True)
class Sync:
    pass


@dataclass(frozen=True, slots=True)
class Witness:
    server: VerifyKey
    boot: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Blame:
    party: str
    round: int
    cause: str


@dataclass(frozen=True, slots=True)
class Drop:
    round: int


@dataclass(frozen=True, slots=True)
class Wake:
    at: float


@dataclass(frozen=True, slots=True)
class Compute:
    round: int
    model: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    result: NoisySum


@dataclass(frozen=True, slots=True)
class Aborted:
    error: TallystickError


Instruction = Send | Persist | Forget | Sync | Witness | Blame | Drop | Wake | Compute | Finished | Aborted
