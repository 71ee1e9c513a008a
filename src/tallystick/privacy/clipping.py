"""Per-record, per-group clipping on the integer grid: the step that makes the declared sensitivity true.

A record's real vector v is put on the grid, u = round(v · 2^f), and each group of coordinates is bounded there:
if the norm of u exceeds the integer bound B, then u ← trunc(u · B/‖u‖), towards zero so that no rounding can grow it,
and the result is *verified in exact integer arithmetic*, shrinking again until it holds.
What else the group declares comes first: negative coordinates are set to 0; of several blocks one is kept and its count
set (:class:`tallystick.privacy.grid.Group`).

Guarantee. For every input without NaN or infinity, every group of what is added to ``acc`` satisfies
Σ u_j² ≤ B² (or Σ |u_j| ≤ B) as integers, u_j ≥ 0 where the group says so, and of a group of blocks all but one are 0
and the count of that one is exactly the declared one.

| input                      | what happens                                     |
|----------------------------|--------------------------------------------------|
| NaN, ±inf                  | refused: the kernel reports it, nothing is added |
| norm 0, B = 0              | adds zeros                                       |
| huge (|v·2^f| ≥ 2^62)      | scaled in float first, then as above             |
| -0.0, subnormal            | 0 on the grid                                    |

The loops run in a fixed order over one record at a time, and zeros change nothing, so a dense, a sparse and a factored
form of one vector give the same bits, whatever block they arrive in.
"""

from __future__ import annotations

import numpy as np
from numba import njit

MAX_BOUND = 2**31 - 1
"""Largest integer bound: B² and the sums tested against it stay below 2^63."""

_CLEARLY_HUGE = 2.0**62


@njit(cache=True, nogil=True)
def _exceeds(u, start, stop, bound, norm_is_l1):  # type: ignore[no-untyped-def]
    """Exactly ‖u[start:stop]‖ > bound, for every int64 vector.

    Each coordinate is compared before its modulus is taken, because |−2^63| is not an int64 (it wraps to −2^63, below
    every bound). Then |u_j| ≤ B < 2^31, and stopping at the first total above the limit keeps every intermediate at
    most B² + B² < 2^63 (L1: 2B).
    """
    total = np.int64(0)
    limit = bound if norm_is_l1 else bound * bound
    for j in range(start, stop):
        if u[j] > bound or u[j] < -bound:
            return True
        a = abs(u[j])
        total += a if norm_is_l1 else a * a
        if total > limit:
            return True
    return False


@njit(cache=True, nogil=True)
def clip_group(u, start, stop, bound, norm_is_l1):  # type: ignore[no-untyped-def]
    """Bound the integers u[start:stop] in place; a no-op when they are within the bound."""
    if not _exceeds(u, start, stop, bound, norm_is_l1):
        return
    size = 0.0
    for j in range(start, stop):
        x = float(u[j])
        size += abs(x) if norm_is_l1 else x * x
    if not norm_is_l1:
        size = np.sqrt(size)
    # size > 0 here: something exceeded a bound ≥ 0. The float factor is only a proposal; the loop below verifies it.
    factor = float(bound) / size
    original = u[start:stop].copy()
    while True:
        for j in range(start, stop):
            u[j] = np.int64(np.trunc(float(original[j - start]) * factor))
        if not _exceeds(u, start, stop, bound, norm_is_l1):
            return
        factor *= 1.0 - 2.0**-30
        if factor < 2.0**-70:
            factor = 0.0


@njit(cache=True, nogil=True)
def _enforce(u, at, start, stop, origin, rule, norm_is_l1):  # type: ignore[no-untyped-def]
    """One group's rule on the integers u[start:stop], entry e standing at coordinate at[e], ascending."""
    bound, nonnegative, width, count, ceiling = rule[0], rule[1], rule[2], rule[3], rule[4]
    first, last = start, stop
    if width > 0:
        # The record's block: the first whose count is not 0. Everything else is set to 0.
        block = np.int64(-1)
        for j in range(start, stop):
            if u[j] != 0 and (at[j] - origin) % width == 0:
                block = (at[j] - origin) // width
                break
        first, last = stop, start
        for j in range(start, stop):
            if (at[j] - origin) // width != block:
                u[j] = 0
            elif (at[j] - origin) % width == 0:
                u[j] = count
            else:
                first, last = min(first, j), j + 1
    if nonnegative:
        for j in range(first, last):
            u[j] = max(u[j], 0)
    if ceiling > 0:
        for j in range(first, last):
            u[j] = min(u[j], ceiling)
    clip_group(u, first, last, bound, norm_is_l1)


@njit(cache=True, nogil=True)
def grid_record(vector, at, starts, stops, origins, rules, norm_is_l1, scale, u):  # type: ignore[no-untyped-def]
    """Put one record's real vector on the grid and clip it, into ``u``; False if it holds NaN or infinity.

    ``vector`` may hold its non-zero entries alone: ``at`` are their coordinates, group g has starts[g]:stops[g] of them
    and begins at coordinate origins[g].
    """
    d = vector.shape[0]
    largest = 0.0
    for j in range(d):
        if not np.isfinite(vector[j]):
            return False
        largest = max(largest, abs(vector[j]))
    shrink = 1.0
    if largest * scale >= _CLEARLY_HUGE:
        # Direction kept, magnitude still far above any bound (B < 2^31), so the group clip below does the rest.
        shrink = 2.0**60 / largest / scale
    for j in range(d):
        u[j] = np.int64(np.rint(vector[j] * shrink * scale))
    for g in range(starts.shape[0]):
        _enforce(u, at, starts[g], stops[g], origins[g], rules[g], norm_is_l1)
    return True


@njit(cache=True, nogil=True)
def clip_record(vector, starts, stops, rules, norm_is_l1, scale, acc):  # type: ignore[no-untyped-def]
    """Grid, clip and add one record's real vector; False (and nothing added) if it holds NaN or infinity."""
    u = np.empty(vector.shape[0], np.int64)
    at = np.arange(vector.shape[0])
    if not grid_record(vector, at, starts, stops, starts, rules, norm_is_l1, scale, u):
        return False
    for j in range(u.shape[0]):
        acc[j] += u[j]
    return True
