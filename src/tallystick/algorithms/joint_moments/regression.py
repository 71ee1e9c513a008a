"""Ridge regression where the columns are at different institutions: joint moments, then a solve that knows its noise
(:mod:`tallystick.algorithms.linear.ridge_solution`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.joint_moments.program import GROUP, JointDesign, JointMoments, joint_design, noise_of
from tallystick.algorithms.joint_moments.sums import JointSums, joint_sums
from tallystick.algorithms.keywords import flag, wrong_target
from tallystick.algorithms.linear.ridge import penalty
from tallystick.algorithms.linear.ridge_errors import coefficient_errors
from tallystick.algorithms.linear.ridge_solution import solve
from tallystick.algorithms.linear.second_moments import SecondMoments
from tallystick.algorithms.program import Public

_DROWNED = 1.5


def design_vertical_ridge(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> JointDesign:
    """One round, from public facts alone."""
    if public.target_bounds is None:
        instead = 'ts.VerticalClassifier (program = "vertical_classifier")'
        raise wrong_target("vertical ridge", public.target, "a number", rule="target-is-a-number", instead=instead)
    program = JointRidge(
        public,
        alpha=penalty(keywords.get("alpha", 1.0)),
        fit_intercept=flag("fit_intercept", keywords.get("fit_intercept", True)),
    )
    return joint_design(program, budget, hopeless=drowned(program, budget))


def drowned(program: JointMoments, budget: PublicBudget) -> str | None:
    """Compare the noise on the mean of target × columns with half of the longest it can be."""
    rows, n = program.rows, program.records
    if not n or budget.mechanism == "none":
        return None
    noise = noise_of(program, budget) / math.sqrt(2) / rows.weight * math.sqrt(1 + rows.features) / n
    likely = 0.5 * math.sqrt(1 + sum(norm**2 for *_, norm in rows.holders))
    if noise <= _DROWNED * likely:
        return None
    return (
        f"the noise on the mean of target × columns is {noise / likely:.1f} times its likely length, with {n} records "
        f"and {rows.features} columns"
    )


class JointRidge(JointMoments):
    """See the module. Fields are public facts; records arrive as arguments."""

    def __init__(self, public: Public, *, alpha: float, fit_intercept: bool) -> None:
        super().__init__(public, targets=1)
        lower, upper = public.target_bounds or (-1.0, 1.0)
        self.alpha, self.fit_intercept = alpha, fit_intercept
        self.centre, self.half = (lower + upper) / 2, (upper - lower) / 2
        self.moments = SecondMoments.of(public, l1=False)

    def encoded_target(self, target: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        return None if target is None else np.clip((target - self.centre) / self.half, -1.0, 1.0)

    def model(self, total: NDArray[np.float64], std: Mapping[str, float]) -> tuple[float, NDArray[np.float64]]:
        """(intercept, coefficients of the encoded columns) in the target's units; ``std`` of the noise per group."""
        w = solve(self.moments, **self._solved(total, std), alpha=self.alpha, fit_intercept=self.fit_intercept)
        offset = self.centre if self.fit_intercept else 0.0
        return offset + self.half * float(w[0]), self.half * w[1:]

    def errors(
        self, total: NDArray[np.float64], std: Mapping[str, float], complete: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """As :meth:`tallystick.algorithms.linear.ridge.RidgeProgram.errors`."""
        found = coefficient_errors(
            self.moments,
            **self._solved(total, std),
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            complete=[(start + 1, stop + 1) for start, stop in complete],
        )
        if found is None:
            return None
        offset = np.zeros(len(found[0]))
        offset[0] = self.centre if self.fit_intercept else 0.0
        return offset + self.half * found[0], self.half**2 * found[1]

    def _solved(self, total: NDArray[np.float64], std: Mapping[str, float]) -> dict[str, Any]:
        sums = sums_of(self, self.moments, total, std)
        return {
            "gram": sums.gram,
            "cross": sums.cross[:, 0],
            "gram_variance": sums.gram_variance,
            "cross_variance": sums.cross_variance,
        }


def sums_of(
    program: JointMoments, moments: SecondMoments, total: NDArray[np.float64], std: Mapping[str, float]
) -> JointSums:
    """The released sums, by the noise of the plan's groups."""
    return joint_sums(program, moments, total, std.get(f"{GROUP}_diagonal", 0.0), std.get(GROUP, 0.0))
