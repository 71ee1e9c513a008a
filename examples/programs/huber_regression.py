"""Robust regression: a number explained by the features, where a few odd records must not decide (Huber's loss)."""

from typing import NamedTuple

import numpy as np

import tallystick as ts


class Model(NamedTuple):
    weights: np.ndarray  # the last one is the intercept
    records: float


class HuberRegression(ts.Program):
    rounds = 20
    bound = 2.0  # two numbers in [-1, 1], one of two categories and the intercept: a length of at most sqrt(4)
    START = 50.0  # the intercept before anything is known, in the target's unit
    WIDTH = 10.0  # errors beyond this count alike
    STEP = 10.0

    def init(self, public):
        weights = np.zeros(len(public.features) + 1)
        weights[-1] = self.START
        return Model(weights=weights, records=float(public.records))

    def map_in_client(self, record, state):
        d = len(record) - 1  # the target is the last number of a record
        error = state.weights[d] - record[d]
        for i in range(d):
            error += state.weights[i] * record[i]
        gradient = np.ones(d + 1)
        gradient[:d] = record[:d]
        return gradient * min(max(error / self.WIDTH, -1.0), 1.0)

    def reduce_in_aggregator(self, total, state):
        return state._replace(weights=state.weights - self.STEP * total / state.records)
