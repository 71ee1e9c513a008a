"""One draw of noise per round, kept before anything of the round leaves: the same for every noise maker.

A round is admitted first (its price, where a plan leaves prices open), then the noise is drawn, or taken as it was kept
if this party was killed between its draw and the record of the round. Records come in this order: the price, which
stays taken from the reservation whatever happens; the noise, which is secret; the round, which the caller writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.protocol.instructions import Persist
from tallystick.protocol.noise_source import NoiseSource


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A round's one draw, and what has to be durable before anything else is done."""

    noise: NDArray[np.int64] = field(repr=False)
    keep: tuple[Persist, ...]

    @property
    def raw(self) -> bytes:
        """The noise as it is committed to."""
        return self.noise.astype("<i8").tobytes()


def draw_once(
    source: NoiseSource, record: Any, *, round: int, admitted: bytes | None, kept: Any, size: int, party: str
) -> Drawn:
    """The noise of a round that was admitted; ``record`` is the type that keeps it, ``kept`` an earlier start's."""
    reused = kept is not None and kept.round == round
    noise = kept.noise if reused else source.draw(round)
    if noise.dtype != np.int64 or noise.shape != (size,):
        raise LocalProtocolError("the noise does not have the sum's shape", party=party, round=round)
    keep = [] if admitted is None else [Persist("prices", admitted)]
    if not reused:
        keep.append(Persist("noise", record(round=round, noise=noise).to_bytes(), secret=True))
    return Drawn(noise, tuple(keep))
