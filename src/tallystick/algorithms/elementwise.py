"""Scores and nonlinear functions with the same bits for every block size, order and machine.

Row independence must hold to the bit: the sum over records must not depend on which records share a block. A float
BLAS product rounds differently with the shape of its block, so a score w·x is taken on the grid, where every partial
sum is an integer below 2^53 and BLAS is exact. Nonlinear functions are evaluated element by element with +, ×, ÷
alone (IEEE-exact operations, no fastmath, no libm), so even two machines agree.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.privacy.contribution import GridRows
from tallystick.privacy.row_kernels import row_products

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 split so that n · high is exact for |n| < 2^11 (fdlibm's e_exp)
_LN2_LOW = 1.90821492927058770002e-10


def inner(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Σ aᵢbᵢ of short public vectors, added up without rounding: BLAS rounds as its kernel for a processor does."""
    products = a * b
    try:
        return math.fsum(products.tolist())
    except (OverflowError, ValueError):  # beyond float64, or infinities of both signs: as NumPy has it
        return float(products.sum())


def inner_rows(rows: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`inner` of each row with ``b``."""
    return np.array([inner(row, b) for row in rows])


def grid_scores(rows: GridRows, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``rows @ weights.T`` (weights: one row per class), exactly, for weights rounded to a grid of their own.

    The weights' grid is the finest on which ‖w‖·max‖x‖ < 2^53 in integers: by Cauchy-Schwarz no partial sum of any
    score, in any order, leaves the range where float64 is exact. The grid depends on public facts only (the weights and
    the rows' limit), never on the rows present, or blocks would differ.
    """
    largest = float(np.max(np.abs(weights), initial=0.0))
    bits = 40
    if largest > 0:  # log2 of the norm by parts: squares of very large or small weights would overflow or vanish
        squares = float(np.max(np.sum((weights / largest) ** 2, axis=1)))
        bits = min(bits, math.floor(52 - math.log2(rows.limit) - math.log2(largest) - 0.5 * math.log2(squares)))
    on_grid = np.rint(np.ldexp(weights, bits))
    if len(on_grid) == 1:
        scores: NDArray[np.float64] = row_products(rows.values, on_grid[0])[:, None]
    else:
        scores = rows.values @ on_grid.T
    return np.ldexp(scores, -(bits + rows.bits))


@njit(cache=True, nogil=True)
def exp_of_negative(x):  # type: ignore[no-untyped-def]
    """e^x for x ≤ 0: x = n ln 2 + r, |r| ≤ ln2/2, Taylor to degree 13 (error < 2^-53), scaled by 2^n."""
    if x < -708.0:
        return 0.0
    n = np.rint(x * _LOG2E)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    s = 1.0 / 6227020800.0
    s = s * r + 1.0 / 479001600.0
    s = s * r + 1.0 / 39916800.0
    s = s * r + 1.0 / 3628800.0
    s = s * r + 1.0 / 362880.0
    s = s * r + 1.0 / 40320.0
    s = s * r + 1.0 / 5040.0
    s = s * r + 1.0 / 720.0
    s = s * r + 1.0 / 120.0
    s = s * r + 1.0 / 24.0
    s = s * r + 1.0 / 6.0
    s = s * r + 0.5
    s = s * r + 1.0
    s = s * r + 1.0
    if not n <= 0.0:  # rounding has put x a little above 0, or it is not a number
        return math.ldexp(s, int(n))
    return s * np.int64((int(n) + 1023) << 52).view(np.float64)  # 2^n by its bits: exact, as n ≥ −1021; no call


@njit(cache=True, nogil=True)
def _sigmoid(z):  # type: ignore[no-untyped-def]
    e = exp_of_negative(-abs(z))
    return 1.0 / (1.0 + e) if z >= 0 else e / (1.0 + e)


@njit(cache=True, nogil=True)
def sigmoid(z):  # type: ignore[no-untyped-def]
    """1/(1 + e^-z) for every element of a vector."""
    out = np.empty(z.shape[0])
    for i in range(z.shape[0]):
        out[i] = _sigmoid(z[i])
    return out


@njit(cache=True, nogil=True)
def logistic_residuals(scores, target, clip):  # type: ignore[no-untyped-def]
    """σ(score) − y, cut to [−clip, clip]: the coefficient of a record's row in the logistic gradient."""
    out = np.empty(scores.shape[0])
    for i in range(scores.shape[0]):
        out[i] = min(max(_sigmoid(scores[i]) - target[i], -clip), clip)
    return out


@njit(cache=True, nogil=True)
def softmax(scores):  # type: ignore[no-untyped-def]
    """e^score over the sum of them, for every record."""
    n, k = scores.shape
    out = np.empty((n, k))
    for i in range(n):
        top = scores[i, 0]
        for c in range(1, k):
            top = max(top, scores[i, c])
        whole = 0.0
        for c in range(k):
            out[i, c] = exp_of_negative(scores[i, c] - top)
            whole += out[i, c]
        for c in range(k):
            out[i, c] /= whole
    return out


@njit(cache=True, nogil=True)
def softmax_residuals(scores, target, clip, l1):  # type: ignore[no-untyped-def]
    """softmax(scores) − e_y for every record, shortened to an L2 (or L1) norm of at most ``clip``."""
    n, k = scores.shape
    out = np.empty((n, k))
    for i in range(n):
        top = scores[i, 0]
        for c in range(1, k):
            top = max(top, scores[i, c])
        whole = 0.0
        for c in range(k):
            out[i, c] = exp_of_negative(scores[i, c] - top)
            whole += out[i, c]
        size = 0.0
        for c in range(k):
            out[i, c] = out[i, c] / whole - (1.0 if c == int(target[i]) else 0.0)
            size += abs(out[i, c]) if l1 else out[i, c] * out[i, c]
        if not l1:
            size = np.sqrt(size)
        if size > clip:
            shrink = clip / size
            for c in range(k):
                out[i, c] *= shrink
    return out


@njit(cache=True, nogil=True)
def hinge_residuals(scores, target, width, clip, l1):  # type: ignore[no-untyped-def]
    """−s·min(max((1 − s·score)/width, 0), 1) for every record and output, shortened to a norm of at most ``clip``.

    s = ±1: with one output, whether the record is of the second class; with several, whether it is of this one.
    """
    n, k = scores.shape
    out = np.empty((n, k))
    for i in range(n):
        size = 0.0
        for c in range(k):
            mine = target[i] >= 0.5 if k == 1 else c == int(target[i])
            side = 1.0 if mine else -1.0
            slope = min(max((1.0 - side * scores[i, c]) / width, 0.0), 1.0)
            out[i, c] = -side * slope
            size += slope if l1 else slope * slope
        if not l1:
            size = np.sqrt(size)
        if size > clip:
            shrink = clip / size
            for c in range(k):
                out[i, c] *= shrink
    return out
