"""Gaussian naive Bayes in one round: per class a count and the sum of moments, calibrated together.

A record adds to the block of its class (1, v/b), v its moments and b the longest they can be. The platform enforces
that it adds to one block and counts once (:class:`tallystick.privacy.grid.Group`), so in L2 under replace-one the
counts cost nothing (:func:`tallystick.privacy.sensitivity.blocks_sensitivity`). What the sums say is :mod:`…diagonal`;
classes are shrunk towards all records together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.gaussians.diagonal import Gaussians, from_moments
from tallystick.algorithms.keywords import wrong_target
from tallystick.algorithms.linear.descent import noise_of_mean
from tallystick.algorithms.linear.moments import ColumnShapes, moment_vectors
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group

_COUNT, _COUNT_L1 = 1.0, 0.25
_DROWNED = 1.0
_BLOCK_NUMBERS = 1 << 22


def design_naive_bayes(_: Mapping[str, Any], public: Public, budget: PublicBudget) -> SumDesign:
    """One round, from public facts alone; there are no keywords."""
    if not public.classes:
        instead = 'ts.Ridge (program = "ridge")'
        raise wrong_target("naive Bayes", public.target, "a category", rule="target-is-a-category", instead=instead)
    program = NaiveBayesProgram(public, budget)
    group = Group(
        name="classes", size=program.size, bound=1.0, one_of=len(public.classes), count=program.count
    )  # fmt: skip
    hopeless = None
    if public.records is not None:
        part = public.records / len(public.classes)
        noise = noise_of_mean(budget, 1.0, program.longest, part)
        if noise > _DROWNED:
            hopeless = f"the noise on a class's mean is {noise:.1f} times half the width of a column's bounds"
    details = {"classes": len(public.classes), "columns": program.shapes.size}
    return SumDesign(program=program, groups=((group,),), hopeless=hopeless, details=details)


class NaiveBayesProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    rounds = 1

    def __init__(self, public: Public, budget: PublicBudget) -> None:
        l1 = budget.mechanism == "laplace"
        self.shapes = ColumnShapes.of(public, l1=l1)
        self.classes = len(public.classes)
        self.longest = self.shapes.moment_bound * (1 + 2.0**-20)
        self.count = _COUNT_L1 if l1 else _COUNT
        known = not public.counts_records and budget.neighbours != "add-remove" and budget.person_factor == 1
        self.records = public.records if known else None
        self.width = self.shapes.moment_size + 1
        self.size = self.classes * self.width
        self.block_records = max(64, _BLOCK_NUMBERS // self.width)

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.zeros(self.size)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        if target is None:
            raise wrong_target("naive Bayes", None, "a category", rule="target-is-named")
        return features, target

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        features, target = prepared
        n = len(features)
        values = np.empty((n, self.width))
        values[:, 0] = self.count
        values[:, 1:] = moment_vectors(features, self.shapes) / self.longest
        codes = np.clip(target, 0, self.classes - 1).astype(np.int64)
        indices = codes[:, None] * self.width + np.arange(self.width)
        return Sparse(
            indptr=np.arange(n + 1, dtype=np.int64) * self.width,
            indices=indices.reshape(-1),
            values=values.reshape(-1),
            size=self.size,
        )

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total

    def counts(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Noisy numbers of records by class; they add up to the public number where there is one."""
        counts = total.reshape(self.classes, self.width)[:, 0] / self.count
        if self.records is not None:
            counts = counts + (self.records - counts.sum()) / self.classes
        return counts

    def model(self, total: NDArray[np.float64], std: float) -> Gaussians:
        """One Gaussian per class; ``std`` of the noise on a coordinate."""
        sums = total.reshape(self.classes, self.width)[:, 1:] * self.longest
        counts = self.counts(total)
        whole = max(float(counts.sum()), 1.0)
        anchor = np.tile(np.clip(sums.sum(axis=0) / whole, -2, 2), (self.classes, 1))
        return from_moments(counts, sums, std * self.longest, std / self.count, anchor, self.shapes)
