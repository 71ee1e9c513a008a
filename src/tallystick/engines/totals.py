"""The seam between algorithms and trust models.

An engine asks for the noisy total of a round and does not know who answers: m servers with secret shares, a reducer
with masks, a proxy with ciphertexts. Every trust model that sums stands behind :class:`NoisyTotals`; those that do not
stand beside it, with computations of their own (:mod:`tallystick.engines.engine`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallystick.privacy.round_plan import RoundPlan


@dataclass(frozen=True, kw_only=True)
class RoundRequest:
    """One round: the packed state every client answers at."""

    round: int
    model: bytes


@dataclass(frozen=True, kw_only=True)
class SumRequest(RoundRequest):
    """A round of sums: with the plan of what is added and what it costs."""

    plan: RoundPlan


@dataclass(frozen=True, kw_only=True)
class NoisyTotal:
    """The noisy sum in grid units, who was in it, and how much noise it holds."""

    values: NDArray[np.int64]
    participants: tuple[str, ...]
    dropped: tuple[str, ...]
    makers: int | None = None
    """How many have added their noise to it; None if all that the plan counts have."""


class NoisyTotals(Protocol):
    """Whoever adds up."""

    answered: bool
    """Whether a total has come out: from then on the charge stays, whatever happens to it."""

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        """The round's noisy total, or RoundAborted with nothing released."""
        ...
