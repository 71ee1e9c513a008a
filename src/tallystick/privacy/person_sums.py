"""Sums of persons: where a person is the unit, its records are added up first and clipped once."""

from __future__ import annotations

import numpy as np
from numba import njit

from tallystick.privacy.clipping import clip_group

_PERSON_BITS, _PERSON_MASK, _PERSON_MOST = 20, 2**20 - 1, 2**42
"""A person's sum is added up in two parts, the lower of 20 bits, and cut at 2^42 · 2^20 = 2^62."""


@njit(cache=True, nogil=True)
def sum_persons(values, persons, order, starts, stops, rules, l1, scale, acc):  # type: ignore[no-untyped-def]
    """Each person's records, on the grid, added as integers and clipped once (values beyond ±2^40 saturate there).

    The sum is exact however many records there are, so it does not depend on their order: a record's x, |x| ≤ 2^40, is
    kept as high·2^20 + low with 0 ≤ low < 2^20 and |high| ≤ 2^20, and the two parts are added apart. n records keep
    both below n·2^20, which is within int64 for n < 2^43. Only the finished sum saturates, at ±2^62: far above any
    bound (< 2^31), and an int64 whose modulus is one too.
    """
    n = order.shape[0]
    d = acc.shape[0]
    u = np.zeros(d, np.int64)
    high = np.zeros(d, np.int64)
    low = np.zeros(d, np.int64)
    for at in range(n):
        i = order[at]
        for j in range(d):
            if not np.isfinite(values[i, j]):
                return False
            x = np.int64(np.rint(min(max(values[i, j] * scale, -(2.0**40)), 2.0**40)))
            high[j] += x >> _PERSON_BITS
            low[j] += x & _PERSON_MASK
        if at == n - 1 or persons[order[at + 1]] != persons[i]:
            for j in range(d):
                u[j] = _joined(high[j], low[j])
                high[j] = 0
                low[j] = 0
            for g in range(starts.shape[0]):
                if rules[g, 1]:
                    for j in range(starts[g], stops[g]):
                        u[j] = max(u[j], 0)
                if rules[g, 4] > 0:
                    for j in range(starts[g], stops[g]):
                        u[j] = min(u[j], rules[g, 4])
                clip_group(u, starts[g], stops[g], rules[g, 0], l1)
            for j in range(d):
                acc[j] += u[j]
    return True


@njit(cache=True, nogil=True)
def _joined(high, low):  # type: ignore[no-untyped-def]
    """high·2^20 + low, cut to ±2^62 before it could leave int64."""
    high += low >> _PERSON_BITS
    if high >= _PERSON_MOST:
        return np.int64(_PERSON_MOST << _PERSON_BITS)
    if high < -_PERSON_MOST:
        return np.int64(-(_PERSON_MOST << _PERSON_BITS))
    return np.int64((high << _PERSON_BITS) + (low & _PERSON_MASK))
