"""Golf as a plain NumPy loop, a peer at a time: the compiled steps equal it bit for bit and are measured by it.

``straightforward`` is the loop one would write, with NumPy's own products; ``exact`` rounds in the kernels' order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.elementwise import exp_of_negative
from tallystick.algorithms.gossip.golf.examples import Floats
from tallystick.algorithms.gossip.golf.lanes import plain_dot
from tallystick.algorithms.gossip.golf.settings import GolfSettings


def straightforward(
    models: Floats,
    ages: NDArray[np.int64],
    rows: Floats,
    signs: NDArray[np.float64],
    senders: NDArray[np.int32],
    receivers: NDArray[np.int32],
    settings: GolfSettings,
) -> None:
    """Algorithm 1 of the paper, update then merge; what is not finite is refused, as there. No caps: all are honest."""
    rate, logistic = 1.0 / settings.lambda_, settings.learner == "logistic"
    for i, r in zip(senders, receivers):
        if r < 0:
            continue
        w, x, y = models[i], rows[r], signs[r]
        t = ages[i] + 1
        margin = y * np.dot(w, x)
        if not np.isfinite(margin):
            continue
        share = 1 / (1 + np.exp(min(margin, 700.0))) if logistic else float(margin < 1)
        updated = (1 - 1 / t) * w + (rate / t * share * y) * x
        models[r] = (updated + models[r]) / 2
        ages[r] = max(t, ages[r])


def exact(
    models: Floats,
    ages: NDArray[np.int64],
    rows: Floats,
    signs: NDArray[np.float64],
    senders: NDArray[np.int32],
    receivers: NDArray[np.int32],
    settings: GolfSettings,
    *,
    cap: float,
    fixed: NDArray[np.bool_] | None = None,
) -> int:
    """Every rule of :class:`GolfSettings`, in the kernels' order of rounding; how many models were refused."""
    number, weight, refused = models.dtype.type, settings.merge_weight, 0
    rate = 1.0 / settings.lambda_
    for i, r in zip(senders.tolist(), receivers.tolist()):
        if r < 0:
            continue
        w, own, x, y = models[i], models[r], rows[r], float(signs[r])
        score, square = plain_dot(w, x), plain_dot(w, w)
        if not (math.isfinite(score) and math.isfinite(square)):
            refused += 1
            continue
        if fixed is not None and fixed[r]:
            continue
        age, own_age = int(ages[i]), int(ages[r])
        if settings.age_lead is not None:
            age = min(age, own_age + settings.age_lead)
        shrink = 1.0
        if square > cap * cap:
            shrink = cap / math.sqrt(square)
            score *= shrink
        if settings.merging == "merge-update":
            t = max(age, own_age) + 1
            score = (1.0 - weight) * plain_dot(own, x) + weight * score
            keep = 1.0 - 1.0 / t
            mine, theirs, step = (1.0 - weight) * keep, weight * keep * shrink, rate / t
        else:
            t = age + 1
            mine, theirs, step = 1.0 - weight, weight * (1.0 - 1.0 / t) * shrink, weight * rate / t
        ages[r] = max(t, own_age)
        taken = step * y * _share(settings, y * score)
        models[r] = number(mine) * own + number(theirs) * w + number(taken) * x
        length = plain_dot(models[r], models[r])
        if length > cap * cap and cap < math.inf:
            models[r] *= number(cap / math.sqrt(length))
    return refused


def _share(settings: GolfSettings, margin: float) -> float:
    if math.isnan(margin):
        return 0.0
    if settings.learner == "pegasos":
        return float(margin < 1.0)
    e = float(exp_of_negative.py_func(-abs(margin)))
    return e / (1.0 + e) if margin >= 0 else 1.0 / (1.0 + e)
