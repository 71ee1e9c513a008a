"""What a machine asks its driver to do, in the order given: the instructions that every protocol has.

    Persist     write this record under this key, replacing the last one there; a ``secret`` one where it can be erased
    Forget      erase the secret record under this key: overwritten where it lies; saying it twice does no harm
    Send        encode and deliver
    Wake        call ``tick`` at this time at the latest
    Compute     (client) map the records under this model, then call ``contribute``
    Finished    (coordinator) the round's one result
    Held        (coordinator) a party is missed; the round is neither over nor given up
    Aborted     the round, or this party's part in it, is over without a result

``Persist`` and ``Forget`` must be durable BEFORE any later instruction of the list is carried out: that is what makes a
resent message identical and noise drawn once. A driver that stops between two instructions and hands the records to
``restore`` loses nothing that anybody was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import TallystickError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisySum:
    """The noised total over exactly ``participants``; ``dropped`` are the study's other clients."""

    round: int
    total: NDArray[np.int64] = field(repr=False)
    participants: tuple[str, ...]
    dropped: tuple[str, ...]
    agreement: bytes = b""
    makers: int | None = None
    """How many have added noise; None if all have that the plan counts."""
    vouchers: bytes = b""
    """What each noise maker has signed of this round, as its protocol packs it: a receipt can do without the makers."""
    faults: str = ""
    """What was wrong and did not end the round, for whoever runs the process that hears this; empty if nothing was."""


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Any


@dataclass(frozen=True, slots=True)
class Persist:
    key: str
    record: bytes = field(repr=False)
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    key: str


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
class Held:
    error: TallystickError


@dataclass(frozen=True, slots=True)
class Aborted:
    error: TallystickError
