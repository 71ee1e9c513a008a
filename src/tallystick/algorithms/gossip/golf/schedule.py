"""Who sends to whom, and when: drawn from a seed, for all classes alike."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream

_LABEL = b"tallystick/golf/v1"
LOST = -1
"""Stands where a receiver would: the message does not arrive."""


class Schedule:
    """Peers with clocks of one period and random phases: in each cycle everyone sends once, in an order drawn once.

    A message arrives at once, so what a peer learned earlier in a cycle travels on within it. Receivers are uniform
    among the other peers, which is what a peer sampling service approaches. Simulated only: nothing is hidden by it.
    """

    def __init__(self, peers: int, seed: int, *, loss: float = 0.0, isolated: Collection[int] = ()) -> None:
        if not 0 <= loss <= 1:
            raise StudyError(f"a share of {loss} lost messages is not possible", remedy="Give one from 0 to 1.")
        if any(not 0 <= i < peers for i in isolated):
            raise StudyError("an isolated peer is not one of the peers", remedy=f"Peers are 0 to {peers - 1}.")
        self._words = stream(seed, "receivers")
        self._losses = stream(seed, "losses")
        self._loss = loss
        self._cut_off = np.zeros(peers, bool)
        self._cut_off[list(isolated)] = True
        self.order: NDArray[np.int32] = np.argsort(stream(seed, "phases").words(peers), kind="stable").astype(np.int32)

    def cycles(self, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Senders and receivers of the next ``count`` cycles, one message after the other."""
        peers = len(self.order)
        senders = np.tile(self.order, count)
        receivers = np.empty(senders.size, np.int32)
        _others(self._words.words(senders.size), senders, peers, receivers)
        gone = np.zeros(senders.size, bool)
        if self._loss > 0:
            gone |= _uniform(self._losses, senders.size) < self._loss
        if self._cut_off.any():
            gone |= self._cut_off[senders] | self._cut_off[receivers]
        receivers[gone] = LOST
        return senders, receivers


@njit(cache=True, nogil=True)
def _others(words, senders, peers, out):  # type: ignore[no-untyped-def]
    """For each word a peer other than the sender, uniform but for less than peers/2^53."""
    for i in range(words.shape[0]):
        r = min(np.int64((words[i] >> np.uint64(11)) * 2.0**-53 * (peers - 1)), peers - 2)
        out[i] = r + (r >= senders[i])


def stream(seed: int, purpose: str) -> AesStream:
    """Words for one purpose, which depend on nothing but the seed."""
    return AesStream(digest(_LABEL, str(int(seed)).encode(), purpose.encode()), _LABEL)


def below(words: AesStream, limit: int, count: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to ``limit`` − 1, off uniform by less than limit/2^53."""
    return np.minimum((_uniform(words, count) * limit).astype(np.int64), limit - 1)


def permutation(words: AesStream, count: int) -> NDArray[np.int64]:
    """An order of 0 to ``count`` − 1: that of random words."""
    return np.argsort(words.words(count), kind="stable")


def _uniform(words: AesStream, count: int) -> NDArray[np.float64]:
    return (words.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
