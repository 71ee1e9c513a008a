"""Inner loops over records' rows on the grid, for one coefficient a row: one pass, no copies, no threads.

Every number is an integer below 2^53 held in float64, so sums are exact in any order: the bits are those of the matrix
products that stand in for these loops where there are several coefficients. A BLAS would start threads for a product
of a block with one vector, and they wait for each other longer than they work: twice the processor time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tallystick.privacy.clipping import clip_group


@njit(cache=True, nogil=True)
def row_products(values, vector):  # type: ignore[no-untyped-def]
    """``values @ vector``, exactly: four sums at a time, so that one addition need not wait for the other."""
    n, d = values.shape
    out = np.empty(n)
    for i in range(n):
        a, b, c, e = 0.0, 0.0, 0.0, 0.0
        whole = d - d % 4
        for j in range(0, whole, 4):
            a += values[i, j] * vector[j]
            b += values[i, j + 1] * vector[j + 1]
            c += values[i, j + 2] * vector[j + 2]
            e += values[i, j + 3] * vector[j + 3]
        for j in range(whole, d):
            a += values[i, j] * vector[j]
        out[i] = (a + b) + (c + e)
    return out


@njit(cache=True, nogil=True)
def add_weighted_rows(coefficients, values, block, acc):  # type: ignore[no-untyped-def]
    """``acc += coefficients @ values``; within ``block`` rows no partial sum reaches 2^53."""
    n, d = values.shape
    part = np.zeros(d)
    for first in range(0, n, block):
        part[:] = 0.0
        for i in range(first, min(n, first + block)):
            c = coefficients[i]
            for j in range(d):
                part[j] += c * values[i, j]
        for j in range(d):
            acc[j] += np.int64(part[j])


@njit(cache=True, nogil=True)
def put_on_grid(rows, scale, bound, values, squares, sums):  # type: ignore[no-untyped-def]
    """Each row in units of 1/``scale``, shortened to ``bound``, with its Σ x² and Σ |x|; False if one is no number."""
    n, d = rows.shape
    u = np.empty(d, np.int64)
    for i in range(n):
        for j in range(d):
            x = rows[i, j]
            if not np.isfinite(x):
                return False
            u[j] = np.int64(np.rint(min(max(x * scale, -(2.0**62)), 2.0**62)))
        clip_group(u, 0, d, bound, False)
        squares[i] = 0
        sums[i] = 0
        for j in range(d):
            values[i, j] = float(u[j])
            squares[i] += u[j] * u[j]
            sums[i] += abs(u[j])
    return True


_TILE = 2048  # numbers that are standardised at once: they stay in the first-level cache
_SURELY_EXACT = 2.0**52


@njit(cache=True, nogil=True, error_model="numpy")
def put_standardised(columns, intercept, shift, spread, limit, scale, bound, values, squares, sums):  # type: ignore[no-untyped-def]
    """:func:`put_on_grid` of the rows (intercept, (columns − shift)/spread), divided by ``limit``: the same operations.

    Some rows at a time, in one long loop that a compiler makes vector instructions of. Where a row's Σ x² is below 2^52
    in float64, all its partial sums are exact and so is the test against the bound; any other row goes the slow way.
    """
    n, d = columns.shape
    some = max(1, _TILE // max(1, d))
    shifts, spreads, tile = np.empty(some * d), np.empty(some * d), np.empty(some * d)
    for k in range(some * d):
        shifts[k], spreads[k] = shift[k % d], spread[k % d]
    flat = columns.reshape(n * d)
    row = np.empty((1, d + 1))
    row[0, 0] = intercept / limit
    lead = np.rint(row[0, 0] * scale)
    for first in range(0, n, some):
        last = min(n, first + some)
        block = flat[first * d : last * d]
        for k in range(len(block)):
            tile[k] = np.rint((block[k] - shifts[k]) / spreads[k] / limit * scale) + 0.0  # no -0.0
        for i in range(first, last):
            square, size = lead * lead, abs(lead)
            values[i, 0] = lead
            for j in range(d):
                x = tile[(i - first) * d + j]
                values[i, j + 1] = x
                square += x * x
                size += abs(x)
            if square < _SURELY_EXACT and np.int64(square) <= bound * bound:
                squares[i], sums[i] = np.int64(square), np.int64(size)
                continue
            for j in range(d):
                row[0, j + 1] = (columns[i, j] - shift[j]) / spread[j] / limit
            one = slice(i, i + 1)
            if not put_on_grid(row, scale, bound, values[one], squares[one], sums[one]):
                return False
    return True
