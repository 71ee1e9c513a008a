"""From a noisy matrix Σ u·uᵀ to X'X, X'y and class counts, by what is known of the rows: all of it post-processing.

Two indicators of one column are never both there, so their product is 0 and its noise is dropped. An indicator's square
is the indicator: the same sum stands in the row of the constant, with half the noise, and both are averaged by their
variances. (Not where a norm shortens every record with that many indicators.) The number of records is public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.joint_moments.program import JointMoments
from tallystick.algorithms.linear.second_moments import SecondMoments
from tallystick.privacy.outer_products import matrix_of


@dataclass(frozen=True, kw_only=True, eq=False)
class JointSums:
    """Released sums of z zᵀ and z tᵀ, z = (1, x), with the variances of the noise in them."""

    gram: NDArray[np.float64]
    gram_variance: NDArray[np.float64]
    cross: NDArray[np.float64]
    """One column for each of the target's."""
    cross_variance: float
    counts: NDArray[np.float64]
    """Records of each class; of a target of one column, Σ t²."""


def joint_sums(
    program: JointMoments, moments: SecondMoments, total: NDArray[np.float64], diagonal: float, beside: float
) -> JointSums:
    """``diagonal``, ``beside``: standard deviations of the noise, of squares and of products."""
    rows, n = program.rows, float(program.records)
    d = 1 + rows.features
    whole = matrix_of(total, rows.width)
    gram = whole[:d, :d].copy()
    variance = np.where(np.eye(d, dtype=np.bool_), diagonal**2, beside**2)
    known = np.triu(moments.where < 0, 1)
    known |= known.T
    gram[known], variance[known] = 0.0, 0.0
    for _, places, norm in rows.holders:
        own = 1 + np.array(places, dtype=np.int64)
        indicators = own[~moments.numbers[own]]
        if norm**2 + 1e-9 < _most_ones(moments, set(indicators.tolist())):
            continue
        weight = diagonal**2 / (diagonal**2 + beside**2) if diagonal else 0.5
        mean = weight * gram[0, indicators] + (1 - weight) * gram[indicators, indicators]
        spread = diagonal**2 * beside**2 / (diagonal**2 + beside**2) if diagonal else 0.0
        for at in ((0, indicators), (indicators, 0), (indicators, indicators)):
            gram[at], variance[at] = mean, spread
    gram[0, 0], variance[0, 0] = n, 0.0
    k = np.ldexp(rows.target_unit, -rows.bits) if rows.targets else 1.0
    return JointSums(
        gram=gram,
        gram_variance=variance,
        cross=whole[:d, d:] / k,
        cross_variance=(beside / k) ** 2,
        counts=_counts(whole, d, k, diagonal, beside),
    )


def _counts(whole: NDArray[np.float64], d: int, k: float, diagonal: float, beside: float) -> NDArray[np.float64]:
    """Σ t² of every target column. Of a one-hot one that is Σ t too, which the constant's row has: both, by variance."""
    squares, sums = np.diag(whole)[d:] / k**2, whole[0, d:] / k
    if len(squares) == 1:
        return squares
    of_squares, of_sums = (diagonal / k**2) ** 2, (beside / k) ** 2
    weight = of_sums / (of_squares + of_sums) if of_squares + of_sums else 0.5
    return np.asarray(weight * squares + (1 - weight) * sums)


def _most_ones(moments: SecondMoments, columns: set[int]) -> int:
    """How many of these indicators one record has at most."""
    blocks = [b for b in moments.blocks[1:] if any(place in columns for place in range(b.start, b.stop))]
    return sum(int(b.mark) if b.number else b.ones for b in blocks)
