"""Which candidates a record holds: a walk down the tree of their prefixes, one record at a time.

Candidates are in lexicographic order, so those with a common prefix are one run of rows, and a record's items that
continue it are found by walking run and record side by side. The first ``cap`` candidates found are kept: the order is
public and the record's own, so that what is left out depends on that record alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


def rows_of(present: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows: record r holds ``items[starts[r]:starts[r+1]]``, ascending."""
    rows, items = np.nonzero(present)
    starts = np.zeros(len(present) + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=len(present)), out=starts[1:])
    return starts, items.astype(np.int64)


@njit(cache=True, nogil=True)
def contained(starts, items, first, last, candidates, cap, room):  # type: ignore[no-untyped-def]
    """(indptr, indices) over the records first … last−1: which candidates each holds, at most ``cap``, ascending.

    ``room`` is a guess of how many there are in all; the result is the same whatever it is.
    """
    many, length = candidates.shape
    indices = np.empty(max(16, room), np.int64)
    indptr = np.zeros(last - first + 1, np.int64)
    low = np.empty(length + 1, np.int64)  # the run of rows that continue the prefix, per depth
    high = np.empty(length + 1, np.int64)
    at = np.empty(length + 1, np.int64)  # next item of the record to try, per depth
    filled = 0
    for r in range(first, last):
        begin, end = starts[r], starts[r + 1]
        taken = 0
        depth = 0
        low[0], high[0], at[0] = 0, many, begin
        while depth >= 0 and taken < cap:
            if low[depth] >= high[depth] or at[depth] >= end:
                depth -= 1
                continue
            item, row_item = items[at[depth]], candidates[low[depth], depth]
            if item < row_item:
                at[depth] += 1
                continue
            stop = _past(candidates, depth, row_item, low[depth], high[depth])
            begin_run = low[depth]
            low[depth] = stop
            if item > row_item:
                continue
            at[depth] += 1
            if depth == length - 1:
                if filled == indices.shape[0]:
                    larger = np.empty(2 * filled, np.int64)
                    larger[:filled] = indices
                    indices = larger
                indices[filled] = begin_run
                filled += 1
                taken += 1
            else:
                low[depth + 1], high[depth + 1], at[depth + 1] = begin_run, stop, at[depth]
                depth += 1
        indptr[r - first + 1] = filled
    return indptr, indices[:filled]


@njit(cache=True, nogil=True)
def _past(candidates, depth, item, low, high):  # type: ignore[no-untyped-def]
    """First row after ``low`` whose item at ``depth`` is another: galloping, then bisection."""
    step = 1
    while low + step < high and candidates[low + step, depth] == item:
        step *= 2
    left, right = low + step // 2, min(low + step, high)
    while left < right:
        middle = (left + right) // 2
        if candidates[middle, depth] == item:
            left = middle + 1
        else:
            right = middle
    return left
