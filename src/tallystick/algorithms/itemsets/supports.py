"""From released numbers to sets and supports: free post-processing.

* :func:`monotone`: a set is never more frequent than its subsets, so every noisy count is lowered to its subsets'.
* :func:`sets_of_model`: all frequent sets of a mixture of products, level by level, as the exact miner does it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.itemsets.candidates import place_of, siblings_end, with_room
from tallystick.algorithms.itemsets.exact import Level

MOST_SETS = 2**20
"""A result holds no more sets than this; with more, the threshold is raised (and the result says so)."""


def monotone(levels: list[Level], records: float) -> list[Level]:
    """Counts within [0, records], none above any subset's. What was above a threshold stays above it."""
    out: list[Level] = []
    for level in levels:
        counts = np.clip(level.counts, 0.0, max(records, 0.0))
        if out and out[-1].sets.shape[1] == level.sets.shape[1] - 1:
            counts = np.minimum(counts, _least_of_subsets(out[-1].sets, out[-1].counts, level.sets))
        out.append(Level(sets=level.sets, counts=counts))
    return out


@njit(cache=True, nogil=True)
def _least_of_subsets(shorter, counts, sets):  # type: ignore[no-untyped-def]
    """The least count of each set's subsets one item shorter; a subset that was not counted does not matter."""
    many, length = sets.shape
    out = np.full(many, np.inf)
    subset = np.empty(length - 1, np.int64)
    for s in range(many):
        for left_out in range(length):
            at = 0
            for j in range(length):
                if j != left_out:
                    subset[at] = sets[s, j]
                    at += 1
            place = place_of(shorter, subset)
            if place >= 0:
                out[s] = min(out[s], counts[place])
    return out


def sets_of_model(
    weights: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    block: NDArray[np.int64],
    *,
    least: float,
    longest: int,
) -> tuple[list[Level], float]:
    """All sets whose expected count Σ_k weights_k Π probabilities_{i,k} reaches ``least``, and the least in effect.

    ``probabilities`` has a row per item and a column per class. The counts are monotone by construction.
    """
    while True:
        levels = _mine_model(weights, np.ascontiguousarray(probabilities), block, least, longest)
        if levels is not None:
            return levels, least
        least *= 1.25


def _mine_model(
    weights: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    block: NDArray[np.int64],
    least: float,
    longest: int,
) -> list[Level] | None:
    singles = (probabilities * weights).sum(axis=1)
    kept = np.flatnonzero(singles >= least).astype(np.int64)
    levels = [Level(sets=kept[:, None], counts=singles[kept])]
    whole = len(kept)
    while len(levels) < longest and len(levels[-1]):
        sets = levels[-1].sets
        fill = partial(_next_of_model, weights, probabilities, block, sets, least, MOST_SETS)
        found, longer, counts = with_room(fill, sets, MOST_SETS)
        whole += found
        if whole > MOST_SETS:
            return None
        levels.append(Level(sets=longer, counts=counts))
    return levels if len(levels[-1]) else levels[:-1]


@njit(cache=True, nogil=True)
def _next_of_model(weights, probabilities, block, sets, least, limit, out, counts):  # type: ignore[no-untyped-def]
    """Fill ``out`` with the frequent sets one item longer; returns how many, at most limit + 1."""
    many, length = sets.shape
    classes = weights.shape[0]
    prefix = np.empty(classes)
    found = 0
    for a in range(many):
        have = False
        for b in range(a + 1, siblings_end(sets, a)):
            last = sets[b, length - 1]
            if block[last] == block[sets[a, length - 1]]:
                continue
            if not have:
                for k in range(classes):
                    product = weights[k]
                    for j in range(length):
                        product *= probabilities[sets[a, j], k]
                    prefix[k] = product
                have = True
            total = 0.0
            for k in range(classes):
                total += prefix[k] * probabilities[last, k]
            if total >= least:
                if found < out.shape[0]:
                    out[found, :length], out[found, length] = sets[a], last
                    counts[found] = total
                found += 1
                if found > limit:
                    return found
    return found
