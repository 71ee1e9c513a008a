"""One noise maker's noise for one round: exact, discrete, drawn once and kept before anything is told of it."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.privacy.draws import DrawRound
from tallystick.privacy.mechanisms import Mechanism, discrete_gaussian, discrete_laplace
from tallystick.privacy.round_plan import RoundPlan
from tallystick.privacy.sparse_vector import SparseVector


def draw_noise(plan: RoundPlan, source: WordSource) -> NDArray[np.int64]:
    """Independent noise for every coordinate of the round's vector, group after group, in grid units.

    Of a round that is drawn from, this maker's random word: what it gives to the joint draw stands where noise would.
    """
    if isinstance(plan, DrawRound) and isinstance(plan.choice, SparseVector):
        # of every count, then of the threshold: once each, and all of it from this one draw [LSL17, Alg. 7]
        counts = discrete_laplace.sample(plan.choice.query_scale, plan.choice.cells, source)
        return np.concatenate([counts, discrete_laplace.sample(plan.choice.threshold_scale, 1, source)])
    if isinstance(plan, DrawRound):
        return source.words(plan.choice.kept_entries).view(np.int64)
    parts = []
    for noise in plan.noise:
        size = noise.group.size
        match plan.mechanism:
            case Mechanism.GAUSSIAN:
                parts.append(discrete_gaussian.sample(noise.parameter, size, source))
            case Mechanism.LAPLACE:
                parts.append(discrete_laplace.sample(noise.parameter, size, source))
            case Mechanism.NONE:
                parts.append(np.zeros(size, dtype=np.int64))
            case _:
                assert_never(plan.mechanism)
    return np.concatenate(parts)
