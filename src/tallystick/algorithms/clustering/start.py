"""Where k-means begins: the best k centres for made-up records that agree with what is publicly known.

Made-up records are drawn column by column from a law with the *released* means and variances, and k-means without
privacy finds centres for them. Real records are not touched, so this costs nothing beyond the round of moments. Where
the columns are independent and spread out as declared the start is already the answer; where there are real clusters it
is a spread-out start within the data.

Moments are noisy with a known standard deviation ν per coordinate of the mean, and are used with that in mind: the mean
is shrunk towards the public centre by James and Stein's factor (1 − m ν²/‖x‖²)₊, variances towards their average by the
share of their spread that is not noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.linear.moments import ColumnShapes
from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream

_SMALLEST_VARIANCE = 1e-6
_UNIFORM_VARIANCE = 1 / 3
_RESTARTS, _RESTARTS_FEW = 5, 20
_STEPS = 25
_MOST_MADE_UP = 3000


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and variance of every encoded column, released or public."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def total(self) -> float:
        """E‖x − mean‖²."""
        return float(self.variance.sum())

    @property
    def length(self) -> float:
        """About E‖x − mean‖₁: 2p(1 − p) for an indicator, 0.8 standard deviations for a number."""
        indicator = self.indicators
        numbers = 0.8 * np.sqrt(self.variance[~indicator]).sum()
        return float(2 * self.variance[indicator].sum() + numbers)

    indicators: NDArray[np.bool_]


def _indicators(shapes: ColumnShapes) -> NDArray[np.bool_]:
    out = np.ones(shapes.size, dtype=np.bool_)
    out[list(shapes.numbers)] = False
    return out


def one_hot_blocks(shapes: ColumnShapes) -> list[tuple[int, int]]:
    """The blocks of two columns or more that hold exactly one 1 (of a declared value)."""
    return [(start, stop) for start, stop, ones in shapes.blocks if ones == 1 and stop - start > 1]


def free_coordinates(shapes: ColumnShapes) -> int:
    """Dimensions that a difference of two records can have: each one-hot block sums to zero."""
    return shapes.size - len(one_hot_blocks(shapes))


def public_spread(shapes: ColumnShapes) -> Spread:
    """What the declared domain alone says: indicators at their public centre, numbers uniform within their bounds."""
    mean = replace(shapes, l1=False).centre
    for start, stop, ones in shapes.blocks:
        if ones > 1:
            mean[start:stop] = min(0.5, ones / (2 * (stop - start)))
    return _spread(shapes, mean, np.full(len(shapes.numbers), _UNIFORM_VARIANCE))


def spread_from_moments(moments: NDArray[np.float64], noise: float, shapes: ColumnShapes) -> Spread:
    """From the noisy mean of the moment vectors (:func:`…moments.moment_vectors`), each of noise ν (std)."""
    d = shapes.size
    public = public_spread(shapes).mean
    offset = shapes.centre  # what the moment vectors were centred on
    deviation = without_block_sums(moments[:d] + offset - public, shapes)
    square = float(deviation @ deviation)
    kept = max(0.0, 1 - free_coordinates(shapes) * noise**2 / square) if square > 0 else 0.0
    mean = into_domain((public + kept * deviation)[None, :], shapes)[0]
    numbers = list(shapes.numbers)
    variance = np.zeros(len(numbers))
    if numbers:
        m = mean[numbers]
        raw = moments[d:] + 0.5 - m**2
        average = float(np.clip(raw.mean(), _SMALLEST_VARIANCE, _UNIFORM_VARIANCE))
        error = noise**2 * (1 + 4 * m**2)
        spread = max(0.0, float(raw.var() - error.mean()))
        kept_each = spread / np.maximum(spread + error, 1e-300)
        variance = np.clip(average + kept_each * (raw - average), _SMALLEST_VARIANCE, _UNIFORM_VARIANCE)
    return _spread(shapes, mean, variance)


def _spread(shapes: ColumnShapes, mean: NDArray[np.float64], numbers: NDArray[np.float64]) -> Spread:
    indicator = _indicators(shapes)
    variance = np.where(indicator, mean * (1 - mean), 0.0)
    variance[list(shapes.numbers)] = numbers
    return Spread(mean=mean, variance=variance, indicators=indicator)


def without_block_sums(vectors: NDArray[np.float64], shapes: ColumnShapes) -> NDArray[np.float64]:
    """The nearest vectors whose one-hot blocks sum to zero: what a difference of records has, and noise has not."""
    out = np.array(vectors, dtype=np.float64)
    for start, stop in one_hot_blocks(shapes):
        out[..., start:stop] -= out[..., start:stop].mean(axis=-1, keepdims=True)
    return out


def into_domain(centres: NDArray[np.float64], shapes: ColumnShapes) -> NDArray[np.float64]:
    """The nearest points where a mean of records can lie: proportions in a one-hot block, else within the bounds."""
    indicator = _indicators(shapes)
    out = np.clip(centres, np.where(indicator, 0.0, -1.0), 1.0)
    for start, stop in one_hot_blocks(shapes):
        out[:, start:stop] = _onto_simplex(centres[:, start:stop])
    return np.asarray(out)


def _onto_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean projection of every row on {p ≥ 0, Σp = 1}: max(x − θ, 0), θ by sorting [Held, Wolfe, Crowder 1974]."""
    ordered = np.sort(rows, axis=1)[:, ::-1]
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(ordered > excess, axis=1) - 1
    theta = excess[np.arange(len(rows)), last]
    return np.asarray(np.maximum(rows - theta[:, None], 0.0))


class _Draws:
    """A public stream of uniform numbers: the same at every party that has the study's seed."""

    def __init__(self, label: str, seed: int) -> None:
        self._stream = AesStream(
            digest(b"tallystick/kmeans/1", label.encode(), seed.to_bytes(8, "little", signed=True))
        )

    def uniform(self, *shape: int) -> NDArray[np.float64]:
        words = self._stream.words(math.prod(shape)) >> np.uint64(11)
        return (words.astype(np.float64) * 2.0**-53).reshape(shape)

    def normal(self, *shape: int) -> NDArray[np.float64]:
        u, v = self.uniform(*shape), self.uniform(*shape)
        return np.asarray(np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v))


def random_centres(shapes: ColumnShapes, clusters: int, seed: int) -> NDArray[np.float64]:
    """Uniform in the public box, column by column: what PEM starts from when nobody gives it centres."""
    low = np.where(_indicators(shapes), 0.0, -1.0)
    return low + (1 - low) * _Draws("random start", seed).uniform(clusters, shapes.size)


def start_centres(spread: Spread, shapes: ColumnShapes, clusters: int, seed: int) -> NDArray[np.float64]:
    """The best centres for made-up records."""
    draws = _Draws("made-up records", seed)
    records = _made_up(spread, shapes, max(clusters, min(_MOST_MADE_UP, max(1000, 60 * clusters))), draws)
    return into_domain(_best_centres(records, np.ones(len(records)), clusters, _RESTARTS, draws), shapes)


def condensed(
    centres: NDArray[np.float64], weights: NDArray[np.float64], shapes: ColumnShapes, clusters: int, seed: int
) -> NDArray[np.float64]:
    """The best few centres for released ones that stand for ``weights`` records each."""
    if np.count_nonzero(weights > 0) < clusters:
        weights = np.maximum(weights, 1e-6 * max(1.0, float(weights.max(initial=0.0))))
    draws = _Draws("fine centres", seed)
    return into_domain(_best_centres(centres, weights, clusters, _RESTARTS_FEW, draws), shapes)


def _best_centres(
    points: NDArray[np.float64], weights: NDArray[np.float64], clusters: int, restarts: int, draws: _Draws
) -> NDArray[np.float64]:
    """The best of a few runs of k-means on weighted points, none of which is a record."""
    best, least = np.empty(0), math.inf
    for _ in range(restarts):
        centres = _plus_plus(points, weights, clusters, draws)
        for _ in range(_STEPS):
            labels = _squared_distances(points, centres).argmin(axis=1)
            mass = np.bincount(labels, weights=weights, minlength=clusters)
            sums = np.zeros_like(centres)
            np.add.at(sums, labels, points * weights[:, None])
            moved = np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], centres)
            if np.array_equal(moved, centres):
                break
            centres = moved
        loss = float(weights @ _squared_distances(points, centres).min(axis=1))
        if loss < least:
            best, least = centres, loss
    return best


def _made_up(spread: Spread, shapes: ColumnShapes, count: int, draws: _Draws) -> NDArray[np.float64]:
    """Records with independent columns: normal numbers cut to their bounds, one-hot blocks, items, missing marks."""
    out = np.zeros((count, shapes.size))
    numbers = list(shapes.numbers)
    normal = draws.normal(count, len(numbers)) if numbers else np.zeros((count, 0))
    out[:, numbers] = np.clip(spread.mean[numbers] + normal * np.sqrt(spread.variance[numbers]), -1, 1)
    for _, mark in shapes.marks:
        out[:, mark] = draws.uniform(count) < spread.mean[mark]
    for start, stop, ones in shapes.blocks:
        p = spread.mean[start:stop]
        if ones == 1 and stop - start > 1:
            chosen = np.searchsorted(np.cumsum(p)[:-1], draws.uniform(count), side="right")
            out[np.arange(count), start + chosen] = 1.0
        else:
            out[:, start:stop] = draws.uniform(count, stop - start) < p
    return out


def _plus_plus(
    points: NDArray[np.float64], weights: NDArray[np.float64], clusters: int, draws: _Draws
) -> NDArray[np.float64]:
    """k-means++ [Arthur, Vassilvitskii 2007]: the next centre is drawn with probability ∝ weight × squared distance."""
    chosen: list[int] = []
    distance = np.ones(len(points))
    for u in draws.uniform(clusters):
        mass = np.cumsum(weights * distance)
        chosen.append(min(int(np.searchsorted(mass, u * mass[-1], side="right")), len(points) - 1))
        nearer = _squared_distances(points, points[chosen[-1:]])[:, 0]
        distance = nearer if len(chosen) == 1 else np.minimum(distance, nearer)
    return points[chosen].copy()


def _squared_distances(records: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of made-up records and released centres only: a BLAS product is not row-independent to the bit."""
    squares = np.einsum("ij,ij->i", records, records)[:, None] + np.einsum("ij,ij->i", centres, centres)
    return np.asarray(np.maximum(squares - 2 * records @ centres.T, 0.0))
