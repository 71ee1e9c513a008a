"""Ridge regression from sufficient statistics: one round of X'X and X'y, then a solve that knows its noise.

Targets are scaled to [−1, 1] by their declared bounds. Records whose vectors would be longer than a typical record's
are weighted down (:mod:`…second_moments`) unless the budget is so ample that the noise is small beside the sampling
error anyway: then no record is. What is released is solved by :mod:`…ridge_solution`.

Sensitivities: each group's vector is bounded to 1 in its own unit; "products" has no negative coordinate, so √2 under
replace-one; "signed_products" and "targets" have 2 (``privacy/sensitivity``). The split over the groups is the one
of least error (:mod:`…budget_split`) in the normal equations X'X w = X'y: an entry of X'X meets one coefficient w_j, so
its squared error counts ‖w‖²/D on average over D columns, that of an entry of X'y counts 1. ‖w‖² = ½ is assumed, where
targets lie in [−1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.budget_split import LEAST_ERROR, least_error
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.keywords import flag, wrong_target
from tallystick.algorithms.linear.descent import noise_of_mean
from tallystick.algorithms.linear.ridge_errors import coefficient_errors
from tallystick.algorithms.linear.ridge_solution import solve
from tallystick.algorithms.linear.second_moments import SecondMoments, product_rows
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group

_WITHIN = 1 + 2.0**-20
"""Bounds are this much longer than any vector: rounding on the grid must not push one over."""
_SLACK = 0.02
_SQUARED_LENGTH = 0.5
"""‖w‖² of the coefficients that the split of the budget is made for."""
_BLOCK_NUMBERS = 1 << 22
_DROWNED = 1.5


def design_ridge(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> SumDesign:
    """One round, from public facts alone."""
    if public.target_bounds is None:
        instead = 'ts.LogisticRegression (program = "logistic_regression")'
        raise wrong_target("ridge regression", public.target, "a number", rule="target-is-a-number", instead=instead)
    program = RidgeProgram(
        public,
        budget,
        alpha=penalty(keywords.get("alpha", 1.0)),
        fit_intercept=flag("fit_intercept", keywords.get("fit_intercept", True)),
    )
    sizes = program.moments.sizes
    groups = [Group(name="products", size=sizes[0], bound=1.0, nonnegative=True)]
    if sizes[1]:
        groups.append(Group(name="signed_products", size=sizes[1], bound=1.0))
    groups.append(Group(name="targets", size=program.moments.size, bound=1.0))
    # Errors count in the units of the matrix, so a group's weight is its squared unit.
    heavier = program.moments.size / _SQUARED_LENGTH
    units = {
        "products": program.bounds[0],
        "signed_products": program.bounds[1],
        "targets": math.sqrt(heavier) * program.bounds[2],
    }
    chosen = least_error(groups, budget, {name: unit**2 for name, unit in units.items()})
    return SumDesign(
        program=program,
        groups=(chosen,),
        hopeless=_hopeless(program, chosen[-1], budget),
        split=LEAST_ERROR,
        details={"columns": program.moments.size - 1, "records_weighted_down": not program.ample},
    )


def penalty(value: Any) -> float:
    """The penalty alpha, checked."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value < math.inf:
        raise StudyError(f"alpha = {value!r} is not a penalty", remedy="Use a number, 0 or more.")
    return float(value)


def _hopeless(program: RidgeProgram, targets: Group, budget: PublicBudget) -> str | None:
    """Compare the noise on the mean of t·z, over all coordinates, with half of the longest it can be."""
    if program.records is None:
        return None
    bound = program.bounds[2]
    noise = noise_of_mean(budget, targets.share, bound, program.records) * math.sqrt(program.moments.size)
    if noise <= _DROWNED * 0.5 * bound:
        return None
    return (
        f"the noise on the mean of target × columns is {noise / (0.5 * bound):.1f} times its likely length, with "
        f"{program.records} records and {program.moments.size - 1} columns"
    )


class RidgeProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    rounds = 1

    def __init__(self, public: Public, budget: PublicBudget, *, alpha: float, fit_intercept: bool) -> None:
        lower, upper = public.target_bounds or (-1.0, 1.0)
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.centre, self.half = (lower + upper) / 2, (upper - lower) / 2
        self.records = public.records
        self.moments = SecondMoments.of(public, l1=budget.mechanism == "laplace")
        self.ample = self._ample(budget)
        norms = self.moments.longest() if self.ample else self.moments.typical()
        self.bounds = tuple(_WITHIN * b for b in norms)
        self.size = sum(self.moments.sizes) + self.moments.size
        self.block_records = max(64, _BLOCK_NUMBERS // self.size)

    def _ample(self, budget: PublicBudget) -> bool:
        """Noise below 4 % of the sampling error 0.5/√n even at the longest possible record: weight none down."""
        if budget.mechanism == "none":
            return True
        if self.records is None:
            return False
        longest = self.moments.longest()[0]
        return noise_of_mean(budget, 1 / 3, longest, self.records) <= _SLACK / math.sqrt(self.records)

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.zeros(self.size)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def prepare(
        self, features: NDArray[np.float64], target: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if target is None:
            raise wrong_target("ridge regression", None, "a number", rule="target-is-named")
        return features, np.clip((target - self.centre) / self.half, -1.0, 1.0)

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        features, target = prepared
        indptr, indices, values = product_rows(self.moments, features, target, self.bounds)
        return Sparse(indptr=indptr, indices=indices, values=values, size=self.size)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total

    def model(self, total: NDArray[np.float64], std: Mapping[str, float]) -> tuple[float, NDArray[np.float64]]:
        """(intercept, coefficients of the encoded columns) in the target's units; ``std`` of the noise per group."""
        w = solve(self.moments, **self._sums(total, std), alpha=self.alpha, fit_intercept=self.fit_intercept)
        offset = 0.0 if not self.fit_intercept else self.centre
        return offset + self.half * float(w[0]), self.half * w[1:]

    def errors(
        self, total: NDArray[np.float64], std: Mapping[str, float], complete: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """An estimate of (intercept, coefficients) that noise alone moves, and its covariance; None where the noise is
        too large for one. ``complete``: encoded columns ``start:stop`` of which every record has exactly one."""
        found = coefficient_errors(
            self.moments,
            **self._sums(total, std),
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            complete=[(start + 1, stop + 1) for start, stop in complete],
        )
        if found is None:
            return None
        w, covariance = found
        offset = np.zeros(len(w))
        offset[0] = self.centre if self.fit_intercept else 0.0
        return offset + self.half * w, self.half**2 * covariance

    def _sums(self, total: NDArray[np.float64], std: Mapping[str, float]) -> dict[str, Any]:
        """The released sums as a matrix and a vector, with the variances of the noise in them."""
        first, second = self.moments.sizes
        parts = np.split(total, [first, first + second])
        products, signed, cross = (part * bound for part, bound in zip(parts, self.bounds))
        noise = {name: value * bound for (name, value), bound in zip(self._stds(std), self.bounds)}
        return {
            "gram": self.moments.matrix(products, signed),
            "cross": cross,
            "gram_variance": self.moments.variances(noise["products"] ** 2, noise["signed_products"] ** 2),
            "cross_variance": noise["targets"] ** 2,
        }

    @staticmethod
    def _stds(std: Mapping[str, float]) -> list[tuple[str, float]]:
        return [(name, std.get(name, 0.0)) for name in ("products", "signed_products", "targets")]
