"""Poisson regression: a count (visits, falls, claims) explained by the features, in twenty rounds.

The target is the last number of a record. With w the weights and b the intercept, a record expects
exp(w · x + b) events; its gradient is (expected - observed) · (x, 1). Each round sums the gradients of all records,
each shortened to length `bound`, and takes one step against the noisy mean, with momentum.

The step, the momentum and the number of rounds are constants of the program: nothing about them is read from data.
"""

import math
from typing import NamedTuple

import numpy as np

import tallystick as ts


class Model(NamedTuple):
    """Weights (the last one is the intercept), the momentum, and the public number of records."""

    weights: np.ndarray
    velocity: np.ndarray
    records: float


class PoissonRegression(ts.Program):
    """Full-batch gradient descent on the Poisson log-likelihood with log link."""

    rounds = 20
    bound = 4.0
    STEP = 0.15
    MOMENTUM = 0.7
    LARGEST_SCORE = 4.0  # a record expects at most exp(4), about 55 events: one odd record cannot overflow

    def init(self, public):
        d = len(public.features)
        return Model(weights=np.zeros(d + 1), velocity=np.zeros(d + 1), records=float(public.records))

    def map_in_client(self, record, state):
        d = len(record) - 1
        score = state.weights[d]
        for i in range(d):
            score += state.weights[i] * record[i]
        score = min(max(score, -self.LARGEST_SCORE), self.LARGEST_SCORE)
        error = math.exp(score) - record[d]
        gradient = np.zeros(d + 1)
        for i in range(d):
            gradient[i] = error * record[i]
        gradient[d] = error
        return gradient

    def reduce_in_aggregator(self, total, state):
        velocity = self.MOMENTUM * state.velocity - self.STEP * total / state.records
        return state._replace(weights=state.weights + velocity, velocity=velocity)
