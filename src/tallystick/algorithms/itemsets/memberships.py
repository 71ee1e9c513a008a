"""The 0/1 vectors of the basis method, one record at a time: its pairs, and its class with its items.

Integers only and a fixed order, so that a record's vector is the same bits alone or in any block.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["class_counts", "pair_counts"]


@njit(cache=True, nogil=True)
def pair_counts(starts, items, many):  # type: ignore[no-untyped-def]
    """(indptr, indices) of every record's pairs; the pair a < b of ``many`` items has number a·many − a(a+1)/2 + b−a−1.

    That is the row-major order of the upper triangle, so indices ascend with (a, b).
    """
    records = starts.shape[0] - 1
    indptr = np.zeros(records + 1, np.int64)
    for r in range(records):
        held = starts[r + 1] - starts[r]
        indptr[r + 1] = indptr[r] + held * (held - 1) // 2
    indices = np.empty(indptr[records], np.int64)
    at = 0
    for r in range(records):
        for x in range(starts[r], starts[r + 1]):
            a = items[x]
            for y in range(x + 1, starts[r + 1]):
                indices[at] = a * many - a * (a + 1) // 2 + items[y] - a - 1
                at += 1
    return indptr, indices


@njit(cache=True, nogil=True)
def class_counts(starts, items, scores, offsets):  # type: ignore[no-untyped-def]
    """(indptr, indices) of every record's class and items: class k has coordinates k·(d+1) … for the items and, last,
    for itself. The class is the one of the largest integer score, the first among equals.
    """
    records = starts.shape[0] - 1
    d, classes = scores.shape
    indptr = np.zeros(records + 1, np.int64)
    indices = np.empty(starts[records] + records, np.int64)
    at = 0
    for r in range(records):
        best, most = 0, np.int64(0)
        for k in range(classes):
            score = offsets[k]
            for x in range(starts[r], starts[r + 1]):
                score += scores[items[x], k]
            if k == 0 or score > most:
                best, most = k, score
        for x in range(starts[r], starts[r + 1]):
            indices[at] = best * (d + 1) + items[x]
            at += 1
        indices[at] = best * (d + 1) + d
        at += 1
        indptr[r + 1] = at
    return indptr, indices
