"""The steps of Golf compiled: the same bits as the plain loop (``plain``), on every machine and number of threads.

Products and sums are rounded one by one in a fixed order (``lanes``; no fastmath, no fused operations), and e^x is made
of +, ×, ÷ alone (``algorithms.elementwise``).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tallystick.algorithms.elementwise import exp_of_negative
from tallystick.algorithms.gossip.golf.lanes import dot

PEGASOS, LOGISTIC = 0, 1


@njit(cache=True, nogil=True)
def share(learner, margin):  # type: ignore[no-untyped-def]
    """How much of its example a peer adds at y w·x = ``margin``: the slope of the hinge or of the logistic loss.

    From 0 to 1 whatever the margin is; nothing where it is not a number.
    """
    if np.isnan(margin):
        return 0.0
    if learner == 0:
        return 1.0 if margin < 1.0 else 0.0
    e = exp_of_negative(-abs(margin))
    above = e if margin >= 0 else 1.0  # chosen and not jumped to: the sign cannot be foreseen
    return above / (1.0 + e)


@njit(cache=True, nogil=True)
def gossip(  # type: ignore[no-untyped-def]
    models,
    ages,
    rows,
    signs,
    fixed,
    senders,
    receivers,
    learner,
    merge_first,
    rate,
    weight,
    cap,
    measured,
    within,
    lead,
):
    """Carry out messages one after the other; how many models were refused because they were not finite.

    ``rate`` is 1/λ. ``within``: no update among models within the cap can leave it, so only what arrives is measured;
    and not even that unless ``measured``, where all peers are honest and began within it.
    ``fixed`` peers do not learn, and send what they have again and again.
    """
    number = models.dtype.type
    refused = 0
    for at in range(senders.shape[0]):
        r = receivers[at]
        if r < 0:
            continue
        w = models[senders[at]]
        x = rows[r]
        score = np.float64(dot(w, x))  # not finite if an element of w is not: 0 · ∞ and 0 · NaN are NaN
        square = np.float64(dot(w, w)) if measured else 0.0
        if not (np.isfinite(score) and np.isfinite(square)):
            refused += 1
            continue
        if fixed[r]:
            continue
        own = models[r]
        age = ages[senders[at]]
        if lead > 0:
            age = min(age, ages[r] + lead)
        shrink = 1.0
        if square > cap * cap:
            shrink = cap / np.sqrt(square)
            score *= shrink
        if merge_first:
            t = max(age, ages[r]) + 1
            score = (1.0 - weight) * np.float64(dot(own, x)) + weight * score
            keep = 1.0 - 1.0 / t
            mine, theirs, step = (1.0 - weight) * keep, weight * keep * shrink, rate / t
            ages[r] = t
        else:
            t = age + 1
            mine, theirs, step = 1.0 - weight, weight * (1.0 - 1.0 / t) * shrink, weight * rate / t
            ages[r] = max(t, ages[r])
        y = signs[r]
        m, o, s = number(mine), number(theirs), number(step * y * share(learner, y * score))
        for j in range(own.shape[0]):
            own[j] = m * own[j] + o * w[j] + s * x[j]
        if not within:
            length = np.float64(dot(own, own))
            if length > cap * cap:
                f = number(cap / np.sqrt(length))
                for j in range(own.shape[0]):
                    own[j] *= f
    return refused


@njit(cache=True, nogil=True)
def walk(weights, age, rows, signs, batches, size, learner, rate):  # type: ignore[no-untyped-def]
    """One model visits peers of ``size`` examples each and learns from their mean; its age afterwards.

    (1 − 1/t)w + (1/(λt))·(the mean over the peer's examples of y·x·share), its ``batches`` in the given order.
    """
    number = weights.dtype.type
    columns = weights.shape[0]
    total = np.empty(columns, weights.dtype)
    for at in range(batches.shape[0]):
        first = batches[at] * size
        age += 1
        keep, step = number(1.0 - 1.0 / age), rate / age / size
        total[:] = 0
        for i in range(first, first + size):
            y = signs[i]
            x = rows[i]
            s = number(step * y * share(learner, y * np.float64(dot(weights, x))))
            if s != 0:
                for j in range(columns):
                    total[j] += s * x[j]
        for j in range(columns):
            weights[j] = keep * weights[j] + total[j]
    return age


@njit(cache=True, nogil=True)
def noisy_walk(weights, age, grid, signs, batches, noise, size, unit, learner, rate):  # type: ignore[no-untyped-def]
    """:func:`walk` over integer rows, each visit's sum of gradients with its noise, in integers; the age afterwards.

    ``grid`` holds x·unit. A record's share is at most 1 and its product is cut towards zero, so |y·x·share| is nowhere
    above |x| and no norm grows by it: what bounds the rows bounds the gradients. All that sees a record is the integer
    ``total``, and it meets ``noise`` before anything else is computed of it.
    """
    columns = weights.shape[0]
    total = np.empty(columns, np.int64)
    for at in range(batches.shape[0]):
        first = batches[at] * size
        age += 1
        keep, step = 1.0 - 1.0 / age, rate / age / (size * unit)
        for j in range(columns):
            total[j] = noise[at, j]
        for i in range(first, first + size):
            y = signs[i]
            s = share(learner, y * (dot(weights, grid[i]) / unit))
            if s == 1.0:
                for j in range(columns):
                    total[j] += np.int64(y) * np.int64(grid[i, j])
            elif s != 0.0:
                for j in range(columns):
                    total[j] += np.int64(y) * np.int64(np.trunc(s * grid[i, j]))
        for j in range(columns):
            weights[j] = keep * weights[j] + step * total[j]
    return age
