"""From a noisy matrix Σ u·uᵀ to X'X, X'y and class counts, by what is known of the rows: all of it post-processing.

Rows are centred at public constants c, z = x − c; as n is known, Σ x xᵀ = Σ z zᵀ + c·(Σ z)ᵀ + (Σ z)·cᵀ + n·c·cᵀ.

Two indicators of one column are never both there, so their product is 0 and its noise is dropped. An indicator's square
is the indicator, Σ z² = (1 − 2c)·Σ x + n·c²: the same sum stands in the row of the constant, with half the noise, and
both are averaged by their variances. (Not where a norm shortens every record with that many indicators.)
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
    c = np.concatenate([[0.0], rows.centre])
    sums, spread = whole[0, :d] + n * c, np.full(d, beside**2)
    sums[0], spread[0] = n, 0.0
    indicators = _whole_indicators(program, moments)
    slope = 1 - 2 * c[indicators]
    of_squares = (np.diag(whole)[indicators] - n * c[indicators] ** 2) * slope / np.maximum(slope**2, 1e-12)
    weight = 0.5 * slope**2 / np.maximum(slope**2, 1e-12)
    if beside:
        weight = beside**2 * slope**2 / (diagonal**2 + beside**2 * slope**2)
        spread[indicators] = beside**2 * (1 - weight)
    sums[indicators] = (1 - weight) * sums[indicators] + weight * of_squares
    shifted = sums - n * c
    gram = whole[:d, :d] + np.outer(c, shifted) + np.outer(shifted, c) + n * np.outer(c, c)
    variance = np.where(np.eye(d, dtype=np.bool_), diagonal**2, beside**2)
    variance += np.outer(c**2, spread) + np.outer(spread, c**2)
    known = np.triu(moments.where < 0, 1)
    known |= known.T
    gram[known], variance[known] = 0.0, 0.0
    for at in ((0, slice(None)), (slice(None), 0), (indicators, indicators)):
        own = indicators if at[0] is indicators else slice(None)
        gram[at], variance[at] = sums[own], spread[own]
    k = np.ldexp(rows.target_unit, -rows.bits) if rows.targets else 1.0
    cross = whole[:d, d:] / k
    return JointSums(
        gram=gram,
        gram_variance=variance,
        cross=cross + np.outer(c, cross[0]),
        cross_variance=(beside / k) ** 2 * (1 + float(np.mean(c**2))),
        counts=_counts(whole, d, k, diagonal, beside),
    )


def _whole_indicators(program: JointMoments, moments: SecondMoments) -> NDArray[np.int64]:
    """The indicators, of institutions whose norm leaves a record all of them."""
    found: list[int] = []
    for _, places, norm in program.rows.holders:
        own = {1 + place for place in places}
        indicators = [place for place in sorted(own) if not moments.numbers[place]]
        if norm**2 + 2.0**-9 >= _longest_square(program, moments, set(indicators)):
            found += indicators
    return np.array(sorted(found), dtype=np.int64)


def _longest_square(program: JointMoments, moments: SecondMoments, columns: set[int]) -> float:
    """The largest squared length that these centred indicators of one record have together."""
    square = 0.0
    for block in moments.blocks[1:]:
        if not any(place in columns for place in range(block.start, block.stop)):
            continue
        k, centred = block.stop - block.start, program.rows.centre[block.start - 1] > 0
        square += float(block.mark) if block.number else (1 - 1 / k if k > 1 else 0.25) if centred else block.ones
    return square


def _counts(whole: NDArray[np.float64], d: int, k: float, diagonal: float, beside: float) -> NDArray[np.float64]:
    """Σ t² of every target column. Of a one-hot one that is Σ t too, in the constant's row: both, by variance."""
    squares, sums = np.diag(whole)[d:] / k**2, whole[0, d:] / k
    if len(squares) == 1:
        return squares
    of_squares, of_sums = (diagonal / k**2) ** 2, (beside / k) ** 2
    weight = of_sums / (of_squares + of_sums) if of_squares + of_sums else 0.5
    return np.asarray(weight * squares + (1 - weight) * sums)
