"""A learner's own problem, solved in its dual by coordinate descent from where the last round left off.

    min over (w, b)  ‖w‖²/(2M) + C·Σ hinge + (ρ/2)‖w − (z − g)‖² + (ρ/2)(b − (s − e))²

Its dual has a box and nothing else [decision 15]; with κ = ρ + 1/M,

    w = (ρ(z − g) + Σ λᵢyᵢxᵢ)/κ,   b = s − e + Σ λᵢyᵢ/ρ,   ∂/∂λᵢ = yᵢ(w·xᵢ + b) − 1,   curvature ‖xᵢ‖²/κ + 1/ρ,

so w and b themselves are kept up to date and one coordinate costs one row. Coordinates are visited in strides of n
times the golden section (coprime to n), which a sorted file cannot spoil, with no randomness. Few sweeps are enough:
the next round goes on from these multipliers, and what is sent is always consistent with them, solved or not.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit


@lru_cache(maxsize=256)
def stride(records: int) -> int:
    """A step through so many records that visits each once."""
    step = max(1, int(records * 0.6180339887498949))
    while math.gcd(step, max(1, records)) != 1:
        step += 1
    return step


@njit(cache=True, nogil=True)
def squared_lengths(rows):  # type: ignore[no-untyped-def]
    """Σ x² of every row."""
    out = np.zeros(rows.shape[0])
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i] += rows[i, j] * rows[i, j]
    return out


@njit(cache=True, nogil=True)
def weighted_rows(rows, signs, multipliers, out):  # type: ignore[no-untyped-def]
    """out = Σ λᵢyᵢxᵢ, and Σ λᵢyᵢ is returned."""
    bias = 0.0
    out[:] = 0.0
    for i in range(rows.shape[0]):
        if multipliers[i] != 0.0:
            part = multipliers[i] * signs[i]
            bias += part
            for j in range(rows.shape[1]):
                out[j] += part * rows[i, j]
    return bias


@njit(cache=True, nogil=True)
def hinge_total(rows, signs, weights, bias):  # type: ignore[no-untyped-def]
    """Σ max(0, 1 − y(w·x + b))."""
    total = 0.0
    for i in range(rows.shape[0]):
        score = bias
        for j in range(rows.shape[1]):
            score += rows[i, j] * weights[j]
        total += max(0.0, 1.0 - signs[i] * score)
    return total


@njit(cache=True, nogil=True)
def descend(rows, signs, squares, multipliers, weights, bias, C, kappa, rho, stride, sweeps, tolerance):  # type: ignore[no-untyped-def]
    """Sweep until no gradient that the box lets through is above ``tolerance``, or ``sweeps`` are done.

    ``multipliers`` and ``weights`` are changed in place; returns the bias and the sweeps it took.
    """
    n, d = rows.shape
    for sweep in range(sweeps):
        worst = 0.0
        i = sweep % n if n else 0
        for _ in range(n):
            i += stride
            if i >= n:
                i -= n
            score = bias
            for j in range(d):
                score += rows[i, j] * weights[j]
            gradient = signs[i] * score - 1.0
            old = multipliers[i]
            if (old <= 0.0 and gradient >= 0.0) or (old >= C and gradient <= 0.0):
                continue
            worst = max(worst, abs(gradient))
            new = min(max(old - gradient / (squares[i] / kappa + 1.0 / rho), 0.0), C)
            change = (new - old) * signs[i]
            if change != 0.0:
                multipliers[i] = new
                step = change / kappa
                for j in range(d):
                    weights[j] += step * rows[i, j]
                bias += change / rho
        if worst <= tolerance:
            return bias, sweep + 1
    return bias, sweeps
