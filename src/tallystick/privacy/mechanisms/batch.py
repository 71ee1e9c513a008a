"""Fill an array with draws: the kernel does the bulk, the reference every draw the kernel cannot decide."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.privacy.mechanisms.exponential import floor_exp
from tallystick.privacy.mechanisms.kernels import DONE, GUARD, UNDECIDED
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

BLOCK = 1 << 15  # words per fetch: 256 KB, made and used while in the second-level cache
_WORDS_PER_DRAW = 7  # only how much to fetch: both samplers use 4 to 9 on average

THRESHOLDS = np.array([floor_exp(Fraction(k), 63) for k in range(1, 45)], np.uint64)
"""floor(e^-k 2^63) for k = 1..44; the last is 0. Exact integers, checked against decimal arithmetic in the tests."""
THRESHOLDS.setflags(write=False)

Kernel = Callable[[NDArray[np.uint64], NDArray[np.int64], int], tuple[int, int, int]]


def fill(
    size: int, source: WordSource, *, kernel: Kernel, reference: Callable[[WordBuffer], int], guard: float
) -> NDArray[np.int64]:
    """``size`` draws, equal to ``size`` calls of ``reference`` on the same words.

    Words are fetched in blocks and those left at the end are dropped unread, so the source ends further along than the
    reference alone would leave it. ``guard`` may only be wider than the proven one; the tests widen it so that the
    reference makes some or all of the draws.
    """
    if not guard >= GUARD:
        raise StudyError("the guard band of the samplers may not be narrower than the proven one", remedy="Use GUARD.")
    if size < 0:
        raise StudyError(f"cannot draw {size} noise values", remedy="Ask for zero or more.")
    out = np.empty(size, np.int64)
    buffer = WordBuffer(source)
    filled = 0
    status = DONE
    while filled < size:
        if status != UNDECIDED:
            buffer.fetch(min(BLOCK, _WORDS_PER_DRAW * (size - filled) + 32))
        read, filled, status = kernel(buffer.unread(), out, filled)
        buffer.advance(read)
        if status == UNDECIDED:
            out[filled] = _int64(reference(buffer))
            filled += 1
    return out


def _int64(value: int) -> int:
    """A draw that fits; at the largest scale one in e^127 (2^183) does not, and is refused rather than wrapped."""
    if not -(1 << 63) <= value < 1 << 63:
        raise StudyError(
            "a noise value does not fit into 64 bits, which is less likely than guessing the key",
            remedy="Run the round again; if it happens again the random source is broken.",
        )
    return value
