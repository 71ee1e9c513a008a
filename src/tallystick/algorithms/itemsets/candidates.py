"""Apriori's candidates, made alike by every party from what was released, and encoded in a fixed size.

The paper lets each client run *apriori-gen* on the released frequent sets. What travels is therefore one bit per
candidate of each earlier level: frequent or not. The first level's candidates follow from the public items, every
later level's from the bits before it, so the model has the same size in every round whatever was found. The number of
candidates of a level is capped by a public limit; who breaks it is refused.

Items are in *priority order* (the most frequent first, as far as released): candidates are in lexicographic order of
priorities, and that is the order in which an over-full record's sets are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

WORD_BITS = 48
"""Bits in one float64 of the model: integers below 2^53 are exact."""


def mask_words(size: int) -> int:
    """Numbers that hold ``size`` bits."""
    return -(-size // WORD_BITS)


def pack_mask(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Bits as whole float64s, bit i at position i % 48 of number i // 48."""
    padded = np.zeros(mask_words(len(mask)) * WORD_BITS, dtype=np.bool_)
    padded[: len(mask)] = mask
    weights = np.ldexp(1.0, np.arange(WORD_BITS))
    # Σ of distinct powers of two below 2^48: exact in any order.
    return np.asarray(padded.reshape(-1, WORD_BITS) @ weights)


def unpack_mask(words: NDArray[np.float64], size: int) -> NDArray[np.bool_] | None:
    """The bits again; None if the numbers are not what :func:`pack_mask` makes."""
    if not np.all((words >= 0) & (words < 2.0**WORD_BITS) & (words == np.floor(words))):
        return None
    bits = (words.astype(np.uint64)[:, None] >> np.arange(WORD_BITS, dtype=np.uint64)) & np.uint64(1)
    flat = bits.reshape(-1).astype(np.bool_)
    return None if flat[size:].any() else flat[:size]


def all_pairs(block: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every pair of items that some record could hold, in lexicographic order; ``block`` is in priority order."""
    first, second = np.triu_indices(len(block), 1)
    keep = block[first] != block[second]
    return np.column_stack([first[keep], second[keep]]).astype(np.int64)


def join(frequent: NDArray[np.int64], block: NDArray[np.int64], limit: int) -> NDArray[np.int64] | None:
    """The candidates one item longer: every subset one item shorter is frequent. None if they exceed ``limit``."""
    fill = partial(_join, frequent, block, limit)
    found, longer, _ = with_room(fill, frequent, limit)
    return longer if found <= limit else None


def with_room(
    fill: Callable[[NDArray[np.int64], NDArray[np.float64]], int], sets: NDArray[np.int64], limit: int
) -> tuple[int, NDArray[np.int64], NDArray[np.float64]]:
    """How many sets one item longer there are, these sets, and their counts; beyond ``limit`` only how many.

    ``fill`` writes both into the room it is given and says how many there are, also where that is not enough.
    """
    room = min(limit, max(1024, 8 * len(sets)))
    while True:
        out, counts = np.empty((room, sets.shape[1] + 1), dtype=np.int64), np.empty(room)
        found = fill(out, counts)
        if found <= room or found > limit:
            return found, out[:found].copy(), counts[:found].copy()
        room = found


@njit(cache=True, nogil=True)
def siblings_end(sets, a):  # type: ignore[no-untyped-def]
    """The first row behind ``a``, of rows in lexicographic order, that differs from it in more than the last item."""
    for b in range(a + 1, sets.shape[0]):
        for j in range(sets.shape[1] - 1):
            if sets[a, j] != sets[b, j]:
                return b
    return sets.shape[0]


@njit(cache=True, nogil=True)
def _join(sets, block, limit, out, _counts):  # type: ignore[no-untyped-def]
    """Fill ``out``; returns how many candidates there are, at most limit + 1."""
    many, length = sets.shape
    subset = np.empty(length, np.int64)
    found = 0
    for a in range(many):
        for b in range(a + 1, siblings_end(sets, a)):
            last = sets[b, length - 1]
            if block[last] == block[sets[a, length - 1]]:
                continue
            whole = True
            for left_out in range(length - 1):  # leaving out either of the last two gives a and b themselves
                at = 0
                for j in range(length):
                    if j != left_out:
                        subset[at] = sets[a, j]
                        at += 1
                subset[length - 1] = last
                if place_of(sets, subset) < 0:
                    whole = False
                    break
            if whole:
                if found < out.shape[0]:
                    out[found, :length], out[found, length] = sets[a], last
                found += 1
                if found > limit:
                    return found
    return found


@njit(cache=True, nogil=True)
def place_of(sets, wanted):  # type: ignore[no-untyped-def]
    """Where a row is among rows in lexicographic order; −1 if it is not there."""
    low, high = 0, sets.shape[0]
    while low < high:
        middle = (low + high) // 2
        order = 0
        for j in range(wanted.shape[0]):
            if sets[middle, j] != wanted[j]:
                order = -1 if sets[middle, j] < wanted[j] else 1
                break
        if order == 0:
            return middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return -1
