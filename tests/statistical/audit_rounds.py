"""The ε audit of rounds of sums: two neighbours' totals of every round, under the honest server's exact noise.

The view is the noisy totals of all rounds; the statistic the log-likelihood ratio of the two databases, under the
claimed noise and under the noise that is really there. Later rounds are mapped at public states, the same for both:
what an attacker who knows all other records may assume. Half of the runs choose the event (audit_bounds).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from audit_bounds import Bound, Outputs, find_bound
from numpy.typing import NDArray

from tallystick.crypto.prg import AesStream, derive
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.round_plan import RoundPlan
from tallystick.privacy.sum_plan import SumPlan

__all__ = ["ALPHA", "Totals", "audit", "scales", "times", "told"]

ALPHA = 1e-4
Totals = Sequence[NDArray[np.int64]]
"""What one database sums to in each round."""
Tamper = Callable[[SumPlan], SumPlan]


def scales(r: RoundPlan) -> NDArray[np.float64]:
    """The noise parameter of every coordinate."""
    return np.concatenate([np.full(n.group.size, float(n.parameter)) for n in r.noise])


def told(plan: SumPlan, pair: tuple[Totals, Totals]) -> float:
    """How well the claimed noise hides which of two databases it is: the larger, the worse."""
    power = 1 if plan.claim.mechanism == "laplace" else 2
    moves = [b - a for a, b in zip(*pair)]
    return sum(float((np.abs(m) ** power / scales(r)).sum()) for m, r in zip(moves, plan.rounds))


def audit(claimed: SumPlan, plain: tuple[Totals, Totals], *, runs: int, delta: float, drawn: Any = None) -> Bound:
    """A lower bound on ε of the rounds whose noise is ``drawn`` (a plan; the claimed one by default)."""
    plan, mechanism = claimed if drawn is None else drawn, claimed.claim.mechanism
    outputs = []
    for which in (0, 1):
        ratios: list[NDArray[np.float64]] = []
        real: list[NDArray[np.float64]] = []
        first = np.zeros(runs, dtype=np.int64)
        for number, (r, drawn_by) in enumerate(zip(claimed.rounds, plan.rounds)):
            step = (plain[1][number] - plain[0][number]).astype(np.float64)
            noise = _drawn(drawn_by, runs, which, number)
            y = noise + (step if which else 0.0)
            ratios.append(_ratio(y, step, scales(r), mechanism))
            real.append(_ratio(y, step, scales(drawn_by), mechanism))
            first = first if number else noise[:, 0].astype(np.int64) + plain[which][0][0]
        statistics = np.column_stack([np.sum(ratios, axis=0), np.sum(real, axis=0), *ratios])
        outputs.append(Outputs(statistics=statistics, low=first % 16, off_grid=np.zeros(runs, dtype=np.bool_)))
    return find_bound(outputs[0], outputs[1], delta=delta if mechanism == "gaussian" else 0.0, alpha=ALPHA)


def _ratio(y: NDArray[np.float64], step: Any, scale: Any, mechanism: str) -> NDArray[np.float64]:
    """The log-likelihood ratio, up to a constant."""
    if mechanism == "laplace":
        return np.asarray(((np.abs(y) - np.abs(y - step)) / scale).sum(axis=1))
    return np.asarray((y * step / scale).sum(axis=1))


def _drawn(r: RoundPlan, runs: int, which: int, number: int) -> NDArray[np.float64]:
    """The honest server's exact noise, ``runs`` times: groups made longer, as audit_programs does."""
    source = AesStream(derive(bytes(32), b"%d %d" % (which, number)))
    longer = replace(r, noise=tuple(replace(n, group=_times(n.group, runs)) for n in r.noise))
    parts = np.split(draw_noise(longer, source), np.cumsum([n.group.size * runs for n in r.noise])[:-1])
    return np.hstack([p.reshape(runs, -1) for p in parts]).astype(np.float64)


def _times(group: Any, runs: int) -> Any:
    return replace(group, size=group.size * runs)


def times(factor: Fraction, which: Callable[[str], bool] = lambda _: True) -> Tamper:
    """Planted: the variance of some groups' noise times ``factor``."""

    def tamper(plan: SumPlan) -> SumPlan:
        rounds = []
        for r in plan.rounds:
            noise = tuple(replace(n, parameter=n.parameter * factor) if which(n.group.name) else n for n in r.noise)
            rounds.append(replace(r, noise=noise))
        return replace(plan, rounds=tuple(rounds))

    return tamper
