"""Where random words come from: an argument everywhere, wired only at the edge.

Every sampler, sharing and key takes a :class:`WordSource`. Deployed roles wire
the operating system's generator; ``Federation.simulate`` may wire a seeded
stream. No flag, variable or configuration key can choose.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class WordSource(Protocol):
    """An endless stream of independent uniform 64-bit words, read in order."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words of the stream, as a fresh array the caller owns."""
        ...

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes, taken from whole words (the rest of the last word is dropped)."""
        ...


class SystemSource:
    """The operating system's generator, unbuffered: for keys and seeds, not for bulk noise."""

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), dtype="<u8").astype(np.uint64)

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)
