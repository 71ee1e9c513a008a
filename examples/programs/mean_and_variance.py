"""Mean and variance of every feature, in one round.

Each record adds its values and their squares. Features reach a program scaled to [-1, 1] or as zeros and ones, so the
sums say where the middle lies and how wide the spread is; the number of records is public (`data.records`).

Two groups: the sums and the sums of squares have bounds of their own and half of the budget each. Six features here;
for another number change FEATURES. A record of six numbers within [-1, 1] has a norm of at most sqrt(6), and so have
their squares: nothing is clipped, and the noise is as small as the data allow.
"""

import math
from typing import NamedTuple

import numpy as np

import tallystick as ts


class Moments(NamedTuple):
    """What is released: per feature, its mean and variance; and the public number of records."""

    mean: np.ndarray
    variance: np.ndarray
    records: float


class MeanAndVariance(ts.Program):
    """Σ x and Σ x² per feature, divided by the public number of records."""

    FEATURES = 6
    rounds = 1
    groups = (
        ts.Group(name="sums", size=FEATURES, bound=math.sqrt(FEATURES), share=0.5),
        ts.Group(name="squares", size=FEATURES, bound=math.sqrt(FEATURES), share=0.5),
    )

    def init(self, public):
        return Moments(mean=np.zeros(self.FEATURES), variance=np.zeros(self.FEATURES), records=float(public.records))

    def map_in_client(self, record, state):
        vector = np.zeros(2 * self.FEATURES)
        for i in range(self.FEATURES):
            vector[i] = record[i]
            vector[self.FEATURES + i] = record[i] * record[i]
        return vector

    def reduce_in_aggregator(self, total, state):
        mean = total[: self.FEATURES] / state.records
        square = total[self.FEATURES :] / state.records
        # Noise can push a small variance below zero; a variance is not negative.
        return state._replace(mean=mean, variance=np.maximum(square - mean * mean, 0.0))
