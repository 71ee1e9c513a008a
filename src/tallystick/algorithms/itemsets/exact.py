"""The exact level-wise miner (Agrawal & Srikant 1994), and the paper's loss against what it finds.

Level k+1 joins sets of level k that share all but their last item. Sets are kept in lexicographic order, so those that
share a prefix are neighbours: the prefix is intersected once and every continuation costs one AND and one popcount per
word. Subsets are not looked up (a count is cheaper than a lookup); an infrequent candidate fails by its own support.

Records are packed 64 to a word, a row per item: a set's support is the popcount of the AND of its items' rows. Exact,
local, and only for records in hand: what a federation releases goes through per-record vectors (:mod:`…levels`), so
that every record's part can be bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.itemsets.candidates import siblings_end, with_room

_NO_LIMIT = 2**62


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """Sets of one length, in lexicographic order, with their supports (counts, exact or noisy)."""

    sets: NDArray[np.int64]
    counts: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sets)


def pack(present: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """(records, items) booleans as (items, words), record r at bit r % 64 of word r // 64, padded with zeros."""
    records, items = present.shape
    raw = np.packbits(np.ascontiguousarray(present.T), axis=1, bitorder="little")
    out = np.zeros((items, 8 * max(1, -(-records // 64))), dtype=np.uint8)
    out[:, : raw.shape[1]] = raw
    return out.view("<u8").astype(np.uint64, copy=False)


@njit(cache=True, nogil=True, inline="always")
def _popcount(x):  # type: ignore[no-untyped-def]
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
            total += _popcount(both)
        out[s] = total
    return out


def least_count(min_support: float, records: float) -> float:
    """The count from which on a set is frequent; forgives the last bits of the product, and is never 0."""
    return max(0.5, min_support * records * (1 - 1e-12))


def mine(present: NDArray[np.bool_], block: NDArray[np.int64], *, least: float, longest: int) -> list[Level]:
    """All sets of 1 … ``longest`` items that at least ``least`` records hold; an empty level ends the list."""
    words = pack(present)
    singles = present.sum(axis=0).astype(np.int64)
    kept = np.flatnonzero(singles >= least).astype(np.int64)
    levels = [Level(sets=kept[:, None], counts=singles[kept].astype(np.float64))]
    while len(levels) < longest and len(levels[-1]):
        sets = levels[-1].sets
        fill = partial(_next_level, words, block, sets, math.ceil(least))
        _, longer, counts = with_room(fill, sets, _NO_LIMIT)
        levels.append(Level(sets=longer, counts=counts))
    return levels if len(levels[-1]) else levels[:-1]


@njit(cache=True, nogil=True)
def _next_level(words, block, sets, least, out, counts):  # type: ignore[no-untyped-def]
    """Fill ``out`` with the frequent sets one item longer; returns how many there are, also beyond the room."""
    many, length = sets.shape
    width = words.shape[1]
    prefix = np.empty(width, np.uint64)
    found = 0
    for a in range(many):
        have = False
        for b in range(a + 1, siblings_end(sets, a)):
            last = sets[b, length - 1]
            if block[last] == block[sets[a, length - 1]]:
                continue  # two values of one category: no record has both
            if not have:
                for q in range(width):
                    both = words[sets[a, 0], q]
                    for j in range(1, length):
                        both &= words[sets[a, j], q]
                    prefix[q] = both
                have = True
            total = 0
            for q in range(width):
                total += _popcount(prefix[q] & words[last, q])
            if total >= least:
                if found < out.shape[0]:
                    out[found, :length], out[found, length] = sets[a], last
                    counts[found] = total
                found += 1
    return found


def itemset_loss(found: list[Level], truth: list[Level], *, shortest: int = 2) -> float:
    """PEM §7.2: Σ|I(t) − I₀(t)| / Σ|I(t) + I₀(t)| over sets in either; a set one side lacks counts 0 there.

    Lengths from ``shortest`` on, as the paper has it. Two empty results agree: 0.
    """
    apart, together = 0.0, 0.0
    lengths = {level.sets.shape[1] for level in (*found, *truth)}
    for length in sorted(n for n in lengths if n >= shortest):
        parts = [_at_length(found, length), _at_length(truth, length)]
        kinds, where = _codes(np.vstack([p.sets for p in parts]))
        values = np.zeros((2, kinds))
        cut = len(parts[0])
        values[0, where[:cut]] = parts[0].counts
        values[1, where[cut:]] = parts[1].counts
        apart += float(np.abs(values[0] - values[1]).sum())
        together += float(np.abs(values[0] + values[1]).sum())
    return apart / together if together > 0 else 0.0


def _codes(sets: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """How many different rows there are, and a number for each row that is equal for equal rows."""
    base = int(sets.max(initial=0)) + 1
    if base ** sets.shape[1] < 2**62:
        keys = np.zeros(len(sets), dtype=np.int64)
        for column in sets.T:
            keys = keys * base + column
        rows, where = np.unique(keys, return_inverse=True)
    else:
        rows, where = np.unique(sets, axis=0, return_inverse=True)
    return len(rows), where.reshape(-1).astype(np.int64)


def _at_length(levels: list[Level], length: int) -> Level:
    empty = Level(sets=np.zeros((0, length), dtype=np.int64), counts=np.zeros(0))
    return next((level for level in levels if level.sets.shape[1] == length), empty)
