"""Thresholding of noisy totals: PEM's "select elements above τ, set the rest to 0, compress", done where it is free.

Where it is done decides what it costs. At the clients, or on a total that is not yet noised, the
pattern of zeros is a function of the records: which coordinates stand above τ is told with certainty, for nothing that
was charged. At the aggregator, on the noisy total, it is post-processing.

THEOREM (post-processing). If M is (ε, δ)-DP, ρ-zCDP or (α, ε)-RDP, so is f ∘ M for every function f whose own coins, if
any, are independent of the data [DR14, Prop. 2.1; BS16, Lemma 2.2: data processing].
Here M is the round's noisy total, and f compares it with numbers of the public plan. So the plan, its noise and its
charge are those of the study without a threshold; a test compares them.

A real sparse-vector selection, which pays only for what passes, needs comparisons that nobody sees before the noise is
in: it belongs to trust model ``parties``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tallystick.algorithms.program import Program, Public, State, pack_state
from tallystick.core.errors import StudyError
from tallystick.engines.totals import NoisyTotal
from tallystick.privacy.round_plan import RoundPlan
from tallystick.protocol.sparse_model import travelling_bytes
from tallystick.study import Study


def thresholded(noisy: NoisyTotal, plan: RoundPlan, threshold: float) -> NoisyTotal:
    """Coordinates closer to 0 than ``threshold`` standard deviations of their own noise become 0.

    The noise is that of all who made any, each group's its own. Without noise nothing is below the threshold.
    """
    values = noisy.values.copy()
    start = 0
    for noise in plan.noise:
        stop = start + noise.group.size
        part = values[start:stop]
        # Values are integers: |v| < x if and only if |v| < ⌈x⌉. No value of the field is as large as 2^63.
        cut = min(threshold * math.sqrt(noise.variance * (noisy.makers or plan.makers)), 2.0**63)
        part[np.abs(part).astype(np.uint64) < np.uint64(math.ceil(cut))] = 0
        start = stop
    return replace(noisy, values=values)


def threshold_notes(study: Study) -> tuple[str, ...]:
    """What the plan says to the analyst and to the stewards, if the study sets a threshold.

    An evaluation is refused one: its intervals speak of noise alone, and would be wrong for what was set to 0.
    """
    threshold = study.privacy.threshold
    if threshold is None:
        return ()
    if study.study.program in ("evaluation", "quantiles"):
        raise StudyError(
            f"the intervals of {study.study.program} do not hold for thresholded totals",
            rule="threshold-spoils-intervals",
            remedy="Leave `threshold` out under [privacy].",
        )
    return (
        f"coordinates of a noisy total below {threshold:g} standard deviations of their noise are set to 0: "
        "post-processing of what is noised already, which costs no budget; the state then travels sparse where that "
        "is shorter",
    )


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """What the states of a study took on the way to one client that was there in every round."""

    sent: int
    dense: int

    @property
    def saved(self) -> float:
        """The part of the dense states' bytes that did not have to travel."""
        return 1 - self.sent / self.dense if self.dense else 0.0


def state_bytes(program: Program, public: Public, history: Sequence[State]) -> StateBytes:
    """From the released states, so that whoever has a result can count anew: each round began with the one before."""
    models = [pack_state(program.query(state)) for state in (program.init(public), *history[:-1])]
    return StateBytes(sent=sum(map(travelling_bytes, models)), dense=sum(map(len, models)))
