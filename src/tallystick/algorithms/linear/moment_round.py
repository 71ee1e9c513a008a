"""The round that fits a program to its columns: their moments, and how many records there are if that is not public.

The vector of :mod:`…moments` gets one more coordinate, the constant 1, where there is no public number of complete
records (add-remove, persons, missing = drop): the round counts them too, with its noise. ‖(v, 1)‖² ≤ bound² + 1, and in
L1 bound + 1 (registry row "vector").
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.linear.descent import MOMENT_SHARE, noise_of_mean
from tallystick.algorithms.linear.moments import ColumnShapes, moment_vectors
from tallystick.algorithms.program import Public
from tallystick.privacy.contribution import Dense
from tallystick.privacy.grid import Group

__all__ = ["MomentRound"]


class MomentRound:
    """Made from public facts; records arrive as arguments."""

    def __init__(self, public: Public, budget: PublicBudget, shapes: ColumnShapes) -> None:
        self.budget, self.shapes = budget, shapes
        self.counts = public.counts_records
        self.records = public.records
        bound = shapes.moment_bound
        self.bound = bound if not self.counts else bound + 1 if shapes.l1 else math.hypot(bound, 1)

    def group(self) -> Group:
        """What the plan is told: the vectors travel divided by their bound."""
        return Group(name="moments", size=self.shapes.moment_size + int(self.counts), bound=1.0)

    def weights(self, steps: int) -> tuple[float, ...]:
        """The budget over this round and as many equal ones after it."""
        return (MOMENT_SHARE, *((1 - MOMENT_SHARE) / steps for _ in range(steps)))

    def contribution(self, features: NDArray[np.float64]) -> Dense:
        """One vector per record."""
        vectors = moment_vectors(features, self.shapes)
        if self.counts:
            vectors = np.hstack([vectors, np.ones((len(vectors), 1))])
        return Dense(values=vectors / self.bound)

    def means(self, total: NDArray[np.float64], records: float) -> tuple[NDArray[np.float64], float, float]:
        """(means, the standard deviation of their noise, how many records they are of) from the noisy total."""
        sums = total * self.bound
        if self.counts:
            most = math.inf if self.records is None else float(self.records)
            records, sums = min(max(1.0, float(sums[-1])), most), sums[:-1]
        noise = noise_of_mean(self.budget, self.budget.share_of_one(MOMENT_SHARE), self.bound, records)
        return np.clip(sums / records, -2, 2), noise, records  # a count drowned in noise must not blow up the means
