"""Perturbed gradients: what a peer may say of its records, how often, and with how much noise [HJ17 §4.2].

A peer holds k records. When a public model w visits, only g = Σ s(w, x, y)·y·x over its records depends on them, with
0 ≤ s ≤ 1, and the peer answers with g + noise. On the grid every record's y·x has an L1 norm of at most U = 2^f and
its gradient is cut towards zero, so replacing one record moves the integer vector g by at most 2U
(:func:`~tallystick.privacy.sensitivity.vector_sensitivity`); the mean g/(kU) by 2/k. Discrete Laplace noise of scale
2U/ε' on every coordinate of g makes one answer ε'-DP for each record (``mechanisms/discrete_laplace.md``), whatever the
model is; answers to one record add up (basic composition, adaptive in the models). Division by kU, decay and step are
post-processing of public numbers.

A record's whole ε is spread over answers: ``once``; ``uses``: ε/u each, u times; ``halving``: ε/2^t for t = 1, 2, …,
which adds up to less than ε (begun at t = 0, as the paper does not say, it would be 2ε). One-vs-rest problems are
answered one by one and share the budget: ε/c each. Two classes are one problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.core.randomness import WordSource
from tallystick.privacy.clipping import clip_group
from tallystick.privacy.mechanisms import discrete_laplace
from tallystick.privacy.mechanisms.rational_scale import round_up_scale
from tallystick.privacy.sensitivity import vector_sensitivity

Strategy = Literal["once", "uses", "halving"]
FRACTION_BITS = 16
UNIT = 1 << FRACTION_BITS
"""L1 norm of the longest record, in grid units."""
_MOST_HALVINGS = 24
"""Later answers would be noise alone; the scale stays well within what the sampler takes."""


@dataclass(frozen=True, kw_only=True)
class GradientBudget:
    """How a record's ``epsilon`` is spread over answers and ``problems``. Under replace-one, for each record."""

    epsilon: float | Fraction
    strategy: Strategy = "once"
    uses: int = 1
    problems: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, (int, float, Fraction)) and math.isfinite(self.epsilon) and self.epsilon > 0):
            raise PrivacyRefused(f"epsilon = {self.epsilon!r} is not a budget", remedy="Give a positive number.")
        if self.strategy not in get_args(Strategy):
            raise StudyError(
                f"there is no budget strategy {self.strategy!r}", remedy=f"There are: {', '.join(get_args(Strategy))}."
            )
        if self.uses < 1 or (self.strategy == "once" and self.uses != 1):
            raise StudyError(f"{self.uses} answers are not possible", remedy='Give uses with strategy="uses".')
        if self.problems < 1:
            raise StudyError("there is nothing to learn", remedy="Give one problem or more.")

    @property
    def answers(self) -> int:
        """How often a record may be used for one problem."""
        return _MOST_HALVINGS if self.strategy == "halving" else self.uses

    def epsilon_of(self, use: int) -> Fraction:
        """What the use-th answer (from 1 on) to one problem costs a record, exactly."""
        if not 1 <= use <= self.answers:
            raise PrivacyRefused(
                f"answer {use} is beyond what the budget pays for",
                rule="spent-gradient",
                remedy="Let the model pass on without an update.",
            )
        whole = Fraction(self.epsilon) / self.problems
        return whole / 2**use if self.strategy == "halving" else whole / self.uses

    def spent(self, uses: int) -> Fraction:
        """What ``uses`` answers to every problem have cost a record, which never exceeds ``epsilon``."""
        return self.problems * sum((self.epsilon_of(use) for use in range(1, uses + 1)), Fraction(0))

    def scale(self, use: int) -> Fraction:
        """Scale of the discrete Laplace noise on the integer sum of a peer's gradients: 2U/ε', rounded up."""
        return round_up_scale(Fraction(vector_sensitivity(UNIT, "replace-one")) / self.epsilon_of(use))

    def noise(self, uses: NDArray[np.int64], columns: int, source: WordSource) -> NDArray[np.int64]:
        """Noise of several answers, a row each, for the use that each answer is of its peer's records."""
        out = np.empty((len(uses), columns), np.int64)
        for use in np.unique(uses).tolist():
            chosen = np.flatnonzero(uses == use)
            drawn = discrete_laplace.sample(self.scale(use), len(chosen) * columns, source)
            out[chosen] = drawn.reshape(-1, columns)
        return out


def on_grid(rows: NDArray[np.float64]) -> NDArray[np.int32]:
    """Records in grid units, each within an L1 norm of :data:`UNIT` by itself; one with NaN or infinity is zeros."""
    rows = np.ascontiguousarray(rows, np.float64)
    out = np.zeros(rows.shape, np.int32)
    _put_on_grid(rows, UNIT, out)
    return out


@njit(cache=True, nogil=True)
def _put_on_grid(rows, unit, out):  # type: ignore[no-untyped-def]
    u = np.empty(rows.shape[1], np.int64)
    for i in range(rows.shape[0]):
        largest = 0.0
        bad = False
        for j in range(rows.shape[1]):
            bad = bad or not np.isfinite(rows[i, j])
            largest = max(largest, abs(rows[i, j]))
        if bad:
            continue
        # Beyond the unit the direction alone counts: shortened in floats so that integers fit, clipped exactly below.
        shrink = 1.0 / max(largest, 1.0)
        for j in range(rows.shape[1]):
            u[j] = np.int64(np.trunc(rows[i, j] * shrink * unit))
        clip_group(u, 0, rows.shape[1], unit, True)
        for j in range(rows.shape[1]):
            out[i, j] = u[j]
