"""Supports by popcount: one row of 64-bit words per item, a bit per record.

A set's support is the popcount of the AND of its items' rows. Exact, local, and only for records in hand: what a
federation releases goes through per-record vectors (:mod:`…levels`), so that every record's part can be bounded.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["count_sets", "pack", "popcount"]


def pack(present: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """(records, items) booleans as (items, words), record r at bit r % 64 of word r // 64, padded with zeros."""
    records, items = present.shape
    raw = np.packbits(np.ascontiguousarray(present.T), axis=1, bitorder="little")
    out = np.zeros((items, 8 * max(1, -(-records // 64))), dtype=np.uint8)
    out[:, : raw.shape[1]] = raw
    return out.view("<u8").astype(np.uint64, copy=False)


@njit(cache=True, nogil=True, inline="always")
def popcount(x):  # type: ignore[no-untyped-def]
    """Ones of a 64-bit word (Warren, Hacker's Delight §5-1; compilers make it one instruction)."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def count_sets(words, sets):  # type: ignore[no-untyped-def]
    """Supports of ``sets`` (rows of item indices, all of one length of at least 1)."""
    many, length = sets.shape
    width = words.shape[1]
    out = np.zeros(many, np.int64)
    for s in range(many):
        total = 0
        for q in range(width):
            both = words[sets[s, 0], q]
            for j in range(1, length):
                both &= words[sets[s, j], q]
            total += popcount(both)
        out[s] = total
    return out
