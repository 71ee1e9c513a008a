"""What an interior point asks of a learner: sums over its records, each record's part on the grid by itself.

For every record and class there are λ, μ = C − λ (multipliers) and s, ξ (slacks): s = y(w·x + b) − 1 + ξ. Newton's
equations leave one symmetric system for (w, b); with x̃ = (x, 1), I₀ the unit matrix without the bias's one,
r = y(w·x + b) − 1 + ξ − s, q = sμ + ξλ + ηλμ and θ = λμ/q:

    (I₀ + Σ θ x̃x̃ᵀ) Δ = −I₀w + Σ y (λ + θ·e) x̃,   θ·e = (c_s μ − c_ξ λ)/q − θ r
    Δλ = θ(e − y x̃·Δ),   Δs = (c_s − sΔλ)/λ,   Δξ = (c_ξ + ξΔλ)/μ,   Δμ = −Δλ

where c_s = τ − sλ − (ΔsΔλ)ₐ, c_ξ = τ − ξμ + (ΔξΔλ)ₐ; the affine direction has τ = 0 and no products. η is tiny: it
keeps θ below 1/η, so that sums have a known range, and is a proximal term on λ that vanishes in the limit.

Records do not see each other, all loops have one order, and what is summed is integers: so learners can split records
in any way and the totals have the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tallystick.algorithms.consensus_svm.wide_numbers import add_wide

ETA = 2.0**-30


@njit(cache=True, nogil=True)
def _score(row, weights):  # type: ignore[no-untyped-def]
    d = row.shape[0]
    total = weights[d]
    for j in range(d):
        total += row[j] * weights[j]
    return total


@njit(cache=True, nogil=True)
def take_step(own, step):  # type: ignore[no-untyped-def]
    """Go along the last direction. ``own``: rows λ, μ, s, ξ, Δλ, Δs, Δξ, then the affine Δλ, Δs, Δξ."""
    for i in range(own.shape[1]):
        own[0, i] += step * own[4, i]
        own[1, i] -= step * own[4, i]
        own[2, i] += step * own[5, i]
        own[3, i] += step * own[6, i]


@njit(cache=True, nogil=True)
def sum_system(rows, signs, weights, own, high, low):  # type: ignore[no-untyped-def]
    """The matrix's upper triangle, Σ y(λ + θe)x̃ of the affine direction, Σ yλx̃, Σ(sλ + ξμ), Σ hinge, Σλ."""
    n, d = rows.shape
    wide_row = np.ones(d + 1)
    for i in range(n):
        for j in range(d):
            wide_row[j] = rows[i, j]
        multiplier, other, slack, excess = own[0, i], own[1, i], own[2, i], own[3, i]
        margin = signs[i] * _score(rows[i], weights)
        residual = margin - 1.0 + excess - slack
        theta = multiplier * other / (slack * other + excess * multiplier + ETA * multiplier * other)
        affine = signs[i] * (multiplier + theta * (excess - slack - residual))
        at = 0
        for a in range(d + 1):
            part = theta * wide_row[a]
            for b in range(a, d + 1):
                add_wide(high, low, at, part * wide_row[b])
                at += 1
        dual = signs[i] * multiplier
        for a in range(d + 1):
            add_wide(high, low, at + a, affine * wide_row[a])
            add_wide(high, low, at + d + 1 + a, dual * wide_row[a])
        at += 2 * (d + 1)
        add_wide(high, low, at, slack * multiplier + excess * other)
        add_wide(high, low, at + 1, max(0.0, 1.0 - margin))
        add_wide(high, low, at + 2, multiplier)


@njit(cache=True, nogil=True)
def direct(rows, signs, weights, change, own, tau, corrected):  # type: ignore[no-untyped-def]
    """The direction of every record's variables that goes with ``change``: affine, or corrected by the affine one."""
    at = 4 if corrected else 7
    for i in range(rows.shape[0]):
        multiplier, other, slack, excess = own[0, i], own[1, i], own[2, i], own[3, i]
        residual = signs[i] * _score(rows[i], weights) - 1.0 + excess - slack
        ahead = signs[i] * _score(rows[i], change)
        of_slack, of_excess = tau - slack * multiplier, tau - excess * other
        if corrected:
            of_slack -= own[7, i] * own[8, i]
            of_excess += own[7, i] * own[9, i]
        q = slack * other + excess * multiplier + ETA * multiplier * other
        step = (of_slack * other - of_excess * multiplier) / q - multiplier * other / q * (residual + ahead)
        own[at, i] = step
        own[at + 1, i] = (of_slack - slack * step) / multiplier
        own[at + 2, i] = (of_excess + excess * step) / other


@njit(cache=True, nogil=True)
def count_violations(own, at, candidates, counts):  # type: ignore[no-untyped-def]
    """For each candidate step, the records of which some variable would not stay positive."""
    for i in range(own.shape[1]):
        for c in range(candidates.shape[0]):
            step = candidates[c]
            if (
                own[0, i] + step * own[at, i] <= 0.0
                or own[1, i] - step * own[at, i] <= 0.0
                or own[2, i] + step * own[at + 1, i] <= 0.0
                or own[3, i] + step * own[at + 2, i] <= 0.0
            ):
                counts[c] += 1


@njit(cache=True, nogil=True)
def sum_correction(rows, signs, own, high, low):  # type: ignore[no-untyped-def]
    """What the corrector's right-hand side is made of, whatever τ will be: Σ y(μ − λ)/q x̃ and Σ y(…)ₐ/q x̃; before
    them the linear and the quadratic part of Σ(sλ + ξμ) along the affine direction."""
    n, d = rows.shape
    for i in range(n):
        multiplier, other, slack, excess = own[0, i], own[1, i], own[2, i], own[3, i]
        step, of_slack, of_excess = own[7, i], own[8, i], own[9, i]
        add_wide(high, low, 0, slack * step + multiplier * of_slack - excess * step + other * of_excess)
        add_wide(high, low, 1, step * of_slack - step * of_excess)
        q = slack * other + excess * multiplier + ETA * multiplier * other
        centring = signs[i] * (other - multiplier) / q
        curving = -signs[i] * step * (of_slack * other + of_excess * multiplier) / q
        for j in range(d):
            add_wide(high, low, 2 + j, centring * rows[i, j])
            add_wide(high, low, 3 + d + j, curving * rows[i, j])
        add_wide(high, low, 2 + d, centring)
        add_wide(high, low, 3 + 2 * d, curving)
