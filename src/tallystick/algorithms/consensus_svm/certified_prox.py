"""A learner's step, solved until it is provably near the exact one: what a sensitivity can be stated for.

    prox(q) = argmin over w of F(w),   F(w) = C·Σ max(0, 1 − yᵢ w·xᵢ) + (ρ/2)‖w − q‖²

F is ρ-strongly convex. For multipliers 0 ≤ λᵢ ≤ C and w(λ) = q + Σ λᵢyᵢxᵢ/ρ the dual value is Σλᵢ + (ρ/2)(‖q‖² −
‖w(λ)‖²), and with mᵢ = 1 − yᵢ w(λ)·xᵢ the duality gap is

    F(w(λ)) − dual = Σᵢ (C·max(0, mᵢ) − λᵢmᵢ),

a sum of terms that are never negative. It bounds F(w(λ)) − F(prox(q)) ≥ (ρ/2)‖w(λ) − prox(q)‖², so that a gap of at
most ρη²/2 certifies ‖w(λ) − prox(q)‖ ≤ η. The descent goes on until half of that is reached; the other half is far
more than what rounding does to w or to the gap. It always gets there: cyclic coordinate descent on a box-constrained
quadratic converges, at a linear rate in the end [LT92].
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def weights_of(rows, signs, multipliers, start, rho, out):  # type: ignore[no-untyped-def]
    """out = q + Σ λᵢyᵢxᵢ/ρ, summed anew in the order of the records."""
    out[:] = 0.0
    for i in range(rows.shape[0]):
        if multipliers[i] != 0.0:
            part = multipliers[i] * signs[i]
            for j in range(rows.shape[1]):
                out[j] += part * rows[i, j]
    for j in range(rows.shape[1]):
        out[j] = start[j] + out[j] / rho


@njit(cache=True, nogil=True)
def duality_gap(rows, signs, multipliers, weights, C):  # type: ignore[no-untyped-def]
    """Σ (C·max(0, m) − λm), scores by compensated summation [Neu74]: within 4·2⁻⁵³·‖x‖‖w‖ however long rows are."""
    total = 0.0
    for i in range(rows.shape[0]):
        score = 0.0
        lost = 0.0
        for j in range(rows.shape[1]):
            part = rows[i, j] * weights[j]
            after = score + part
            if abs(score) >= abs(part):
                lost += (score - after) + part
            else:
                lost += (part - after) + score
            score = after
        short = 1.0 - signs[i] * (score + lost)
        total += C * max(0.0, short) - multipliers[i] * short
    return total


@njit(cache=True, nogil=True)
def certified_prox(rows, signs, squares, multipliers, start, C, rho, stride, within, sweeps, out):  # type: ignore[no-untyped-def]
    """``out`` = w with ‖w − prox(start)‖ ≤ ``within``; ``multipliers`` go on from where they are, and are changed.

    Whether it was certified in so many sweeps: a caller must not send what was not.
    """
    n, d = rows.shape
    enough = 0.25 * rho * within * within
    weights_of(rows, signs, multipliers, start, rho, out)
    for sweep in range(sweeps):
        if duality_gap(rows, signs, multipliers, out, C) <= enough:
            return True
        i = sweep % n if n else 0
        for _ in range(n):
            i += stride
            if i >= n:
                i -= n
            if squares[i] == 0.0:
                multipliers[i] = C  # the row is zero: its hinge is 1 whatever w is, and λ = C closes its gap
                continue
            score = 0.0
            for j in range(d):
                score += rows[i, j] * out[j]
            slope = signs[i] * score - 1.0
            old = multipliers[i]
            new = min(max(old - slope * rho / squares[i], 0.0), C)
            if new != old:
                multipliers[i] = new
                step = (new - old) * signs[i] / rho
                for j in range(d):
                    out[j] += step * rows[i, j]
        weights_of(rows, signs, multipliers, start, rho, out)  # so that w is that of λ, not of a thousand small steps
    return duality_gap(rows, signs, multipliers, out, C) <= enough


@njit(cache=True, nogil=True)
def bounded_rows(rows, longest):  # type: ignore[no-untyped-def]
    """(x, 1) of every record, shortened to ``longest`` if it is longer: the constant is the bias's own column."""
    n, d = rows.shape
    out = np.empty((n, d + 1))
    squares = np.empty(n)
    for i in range(n):
        square = 1.0
        for j in range(d):
            square += rows[i, j] * rows[i, j]
        shrink = longest / np.sqrt(square) if square > longest * longest else 1.0
        squares[i] = 0.0
        for j in range(d + 1):
            out[i, j] = shrink * (rows[i, j] if j < d else 1.0)
            squares[i] += out[i, j] * out[i, j]
    return out, squares
