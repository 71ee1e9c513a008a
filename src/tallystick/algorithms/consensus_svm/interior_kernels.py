"""What an interior point asks of a learner: sums over its records, each record's part on the grid by itself.

For every record and class there are λ, μ = C − λ (multipliers) and s, ξ (slacks): s = y(w·x + b) − 1 + ξ. Newton's
equations leave one symmetric system for (w, b); with x̃ = (x, 1), I₀ the unit matrix without the bias's one,
r = y(w·x + b) − 1 + ξ − s, q = sμ + ξλ + ηλμ and θ = λμ/q:

    (I₀ + Σ θ x̃x̃ᵀ) Δ = −I₀w + Σ y (λ + θ·e) x̃,   θ·e = (c_s μ − c_ξ λ)/q − θ r
    Δλ = θ(e − y x̃·Δ),   Δs = (c_s − sΔλ)/λ,   Δξ = (c_ξ + ξΔλ)/μ,   Δμ = −Δλ

Three directions are built on each other, and differ in c_s and c_ξ alone:

    affine      −sλ                            −ξμ
    corrected   τ − sλ − (ΔsΔλ)ₐ               τ − ξμ + (ΔξΔλ)ₐ                     Mehrotra's
    centred     that + o((s+Δs)(λ+Δλ))         that + o((ξ+Δξ)(μ−Δλ))               Gondzio's, from the corrected one

o(p) brings a product that would end outside [τ/10, 10τ] back to its edge, by 10τ at most [Gon96]. So a learner keeps
λ, μ, s and ξ alone: a direction follows from them and from what is public. η is tiny: it keeps θ below 1/η, so that
sums have a known range, and is a proximal term on λ that vanishes in the limit.

Records do not see each other, all loops have one order, and what is summed is integers: so learners can split records
in any way, and read them in blocks (``first`` is the number of a block's first record), and totals have the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tallystick.algorithms.consensus_svm.wide_numbers import add_wide

ETA = 2.0**-30
_NEAR, _FAR = 0.1, 10.0


@njit(cache=True, nogil=True)
def _score(row, weights):  # type: ignore[no-untyped-def]
    d = row.shape[0]
    total = weights[d]
    for j in range(d):
        total += row[j] * weights[j]
    return total


@njit(cache=True, nogil=True)
def _divisor(multiplier, other, slack, excess):  # type: ignore[no-untyped-def]
    return slack * other + excess * multiplier + ETA * multiplier * other


@njit(cache=True, nogil=True)
def _along(multiplier, other, slack, excess, of_slack, of_excess, ahead):  # type: ignore[no-untyped-def]
    """(Δλ, Δs, Δξ) for c_s and c_ξ; ``ahead`` is r + y x̃·Δ."""
    q = _divisor(multiplier, other, slack, excess)
    step = (of_slack * other - of_excess * multiplier) / q - multiplier * other / q * ahead
    return step, (of_slack - slack * step) / multiplier, (of_excess + excess * step) / other


@njit(cache=True, nogil=True)
def _back(product, tau):  # type: ignore[no-untyped-def]
    """o(p)."""
    if product < _NEAR * tau:
        return _NEAR * tau - product
    if product > _FAR * tau:
        return max(_FAR * tau - product, -_FAR * tau)
    return 0.0


@njit(cache=True, nogil=True)
def _note_violations(multiplier, other, slack, excess, step, of_slack, of_excess, candidates, counts):  # type: ignore[no-untyped-def]
    """One more for each candidate step at which some variable would not stay positive: an interval, from above."""
    for c in range(candidates.shape[0] - 1, -1, -1):
        far = candidates[c]
        if (
            multiplier + far * step > 0.0
            and other - far * step > 0.0
            and slack + far * of_slack > 0.0
            and excess + far * of_excess > 0.0
        ):
            return
        counts[c] += 1


@njit(cache=True, nogil=True)
def take_step(rows, first, signs, own, weights, affine, change, centred, tau, is_centred, length):  # type: ignore[no-untyped-def]
    """Go ``length`` along the direction that was chosen. ``own``: rows λ, μ, s, ξ."""
    for i in range(rows.shape[0]):
        at = first + i
        multiplier, other, slack, excess = own[0, at], own[1, at], own[2, at], own[3, at]
        sign = signs[at]
        residual = sign * _score(rows[i], weights) - 1.0 + excess - slack
        ahead = residual + sign * _score(rows[i], affine)
        a, b, c = _along(multiplier, other, slack, excess, -slack * multiplier, -excess * other, ahead)
        of_slack, of_excess = tau - slack * multiplier - a * b, tau - excess * other + a * c
        ahead = residual + sign * _score(rows[i], change)
        a, b, c = _along(multiplier, other, slack, excess, of_slack, of_excess, ahead)
        if is_centred:
            of_slack += _back((slack + b) * (multiplier + a), tau)
            of_excess += _back((excess + c) * (other - a), tau)
            ahead = residual + sign * _score(rows[i], centred)
            a, b, c = _along(multiplier, other, slack, excess, of_slack, of_excess, ahead)
        own[0, at] = multiplier + length * a
        own[1, at] = other - length * a
        own[2, at] = slack + length * b
        own[3, at] = excess + length * c


@njit(cache=True, nogil=True)
def sum_system(rows, first, signs, own, weights, high, low):  # type: ignore[no-untyped-def]
    """The matrix's upper triangle, Σ y(λ + θe)x̃ of the affine direction, Σ yλx̃, Σ(sλ + ξμ), Σ hinge, Σλ."""
    n, d = rows.shape
    wide_row = np.ones(d + 1)
    for i in range(n):
        for j in range(d):
            wide_row[j] = rows[i, j]
        k = first + i
        multiplier, other, slack, excess = own[0, k], own[1, k], own[2, k], own[3, k]
        margin = signs[k] * _score(rows[i], weights)
        residual = margin - 1.0 + excess - slack
        theta = multiplier * other / _divisor(multiplier, other, slack, excess)
        affine = signs[k] * (multiplier + theta * (excess - slack - residual))
        at = 0
        for a in range(d + 1):
            part = theta * wide_row[a]
            for b in range(a, d + 1):
                add_wide(high, low, at, part * wide_row[b])
                at += 1
        dual = signs[k] * multiplier
        for a in range(d + 1):
            add_wide(high, low, at + a, affine * wide_row[a])
            add_wide(high, low, at + d + 1 + a, dual * wide_row[a])
        at += 2 * (d + 1)
        add_wide(high, low, at, slack * multiplier + excess * other)
        add_wide(high, low, at + 1, max(0.0, 1.0 - margin))
        add_wide(high, low, at + 2, multiplier)


@njit(cache=True, nogil=True)
def sum_correction(rows, first, signs, own, weights, affine, high, low):  # type: ignore[no-untyped-def]
    """What the corrected direction's right-hand side is made of, whatever τ will be: Σ y(μ − λ)/q x̃ and Σ y(…)ₐ/q x̃."""
    n, d = rows.shape
    for i in range(n):
        at = first + i
        multiplier, other, slack, excess = own[0, at], own[1, at], own[2, at], own[3, at]
        sign = signs[at]
        ahead = sign * _score(rows[i], weights) - 1.0 + excess - slack + sign * _score(rows[i], affine)
        a, b, c = _along(multiplier, other, slack, excess, -slack * multiplier, -excess * other, ahead)
        q = _divisor(multiplier, other, slack, excess)
        centring = sign * (other - multiplier) / q
        curving = -sign * a * (b * other + c * multiplier) / q
        for j in range(d):
            add_wide(high, low, j, centring * rows[i, j])
            add_wide(high, low, d + 1 + j, curving * rows[i, j])
        add_wide(high, low, d, centring)
        add_wide(high, low, 2 * d + 1, curving)


@njit(cache=True, nogil=True)
def try_directions(  # type: ignore[no-untyped-def]
    rows, first, signs, own, weights, affine, changes, centred, taus, are_centred, candidates, high, low, counts
):
    """Violations of the directions of several τ side by side: of the corrected ones, with what Gondzio's right-hand
    sides have besides, or (``are_centred``) of Gondzio's."""
    n, d = rows.shape
    for i in range(n):
        at = first + i
        multiplier, other, slack, excess = own[0, at], own[1, at], own[2, at], own[3, at]
        sign = signs[at]
        residual = sign * _score(rows[i], weights) - 1.0 + excess - slack
        ahead = residual + sign * _score(rows[i], affine)
        a, b, c = _along(multiplier, other, slack, excess, -slack * multiplier, -excess * other, ahead)
        products = a * b, a * c
        q = _divisor(multiplier, other, slack, excess)
        for t in range(taus.shape[0]):
            tau = taus[t]
            of_slack, of_excess = tau - slack * multiplier - products[0], tau - excess * other + products[1]
            ahead = residual + sign * _score(rows[i], changes[t])
            a, b, c = _along(multiplier, other, slack, excess, of_slack, of_excess, ahead)
            more, less = _back((slack + b) * (multiplier + a), tau), _back((excess + c) * (other - a), tau)
            if are_centred:
                ahead = residual + sign * _score(rows[i], centred[t])
                a, b, c = _along(multiplier, other, slack, excess, of_slack + more, of_excess + less, ahead)
            elif more != 0.0 or less != 0.0:
                part = sign * (more * other - less * multiplier) / q
                for j in range(d):
                    add_wide(high, low, t * (d + 1) + j, part * rows[i, j])
                add_wide(high, low, t * (d + 1) + d, part)
            _note_violations(multiplier, other, slack, excess, a, b, c, candidates, counts[t])
