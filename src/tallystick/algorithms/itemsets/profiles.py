"""A latent class model fitted to noisy totals: pure post-processing, at the aggregator.

A record belongs to one of K classes (weight w_k); within a class its columns are independent, an exclusive column
being one value (or none) with probabilities p_k. So single items have frequency Σ_k w_k p_ki and pairs Σ_k w_k p_ki
p_kj: what was released, up to noise of known variance. The fit minimises

    ½ Σ ((model − released) / noise)²   +   ½ Σ_k w_k ‖θ_k − θ₀‖²

over w and the logits θ of p: least squares in units of the noise, and a unit Gaussian prior on how far a class's logits
lie from the single items', by Adam [KB15] from a fixed, public, scattered start. K = 1 is independence.

Longer sets follow from the same model: Σ_k w_k Π p_ki. With K large enough a mixture of products is any distribution;
how large is useful under noise is the designer's rule (:mod:`…basis`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.core.identifiers import digest

_STEPS, _FURTHER_STEPS = 600, 300
_RATE, _FURTHER_RATE = 0.05, 0.03
_SCATTER = 0.5
"""Standard deviation of the starting logits of a class around those of the single items."""
_LEAST = 1e-3
"""Least probability a starting logit stands for."""
_EDGE = 1.02
"""Of the noise's own range, that a direction must leave to stand out."""
_NEVER = -40.0
"""The logit of a value that is not there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileShape:
    """Rows of the model: every exclusive column's items, then its "none of them"."""

    starts: NDArray[np.int64]
    """First row of each column."""
    item: NDArray[np.int64]
    """Row of each item."""
    none: NDArray[np.int64]
    """Row of each column's "none"."""

    @classmethod
    def of(cls, block: NDArray[np.int64]) -> ProfileShape:
        """From the items' blocks, which are runs 0, 0, 1, 2, 2, 2 …"""
        sizes = np.bincount(block)
        starts = np.concatenate([[0], np.cumsum(sizes + 1)[:-1]]).astype(np.int64)
        return cls(starts=starts, item=np.arange(len(block)) + block, none=starts + sizes)

    @property
    def rows(self) -> int:
        """Items and nones."""
        return len(self.item) + len(self.none)

    def softmax(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of every column of each class."""
        e = np.exp(logits - self._spread(np.maximum.reduceat(logits, self.starts, axis=0)))
        return np.asarray(e / self._spread(np.add.reduceat(e, self.starts, axis=0)))

    def through_softmax(self, p: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gradient in the logits, from that in the probabilities."""
        mean = self._spread(np.add.reduceat(p * gradient, self.starts, axis=0))
        return np.asarray(p * (gradient - mean))

    def _spread(self, per_column: NDArray[np.float64]) -> NDArray[np.float64]:
        lengths = np.diff(np.append(self.starts, self.rows))
        return np.repeat(per_column, lengths, axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiles:
    """A fitted model: class weights that sum to 1, and a probability per row and class."""

    weights: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairCounts:
    """Released pairs among some items, as frequencies: symmetric, 0 where ``known`` is False."""

    items: NDArray[np.int64]
    frequencies: NDArray[np.float64]
    known: NDArray[np.bool_]
    noise: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassCounts:
    """Released frequencies of (item, class) and of classes, where the classes were the model's own."""

    frequencies: NDArray[np.float64]
    sizes: NDArray[np.float64]
    noise: float


def independent(shape: ProfileShape, singles: NDArray[np.float64], noise: float) -> Profiles:
    """One class: the released single items, made probabilities by the nearest point of each column's simplex.

    A column whose items leave clearly less than a whole (4 standard errors), or that has one item, has a "none".
    """
    out = np.zeros((shape.rows, 1))
    at = 0
    for start, none in zip(shape.starts, shape.none):
        values = singles[at : at + none - start]
        at += len(values)
        left = 1 - float(values.sum())
        if len(values) == 1 or left > 4 * noise * np.sqrt(len(values)):
            clipped = np.clip(values, 0.0, 1.0)
            clipped = clipped / max(1.0, float(clipped.sum()))
            out[start:none, 0], out[none, 0] = clipped, 1 - clipped.sum()
        else:
            out[start:none, 0] = _simplex(values)
    return Profiles(weights=np.ones(1), probabilities=out)


def classes_that_show(
    shape: ProfileShape, singles: NDArray[np.float64], noise: float, pairs: PairCounts, most: int
) -> int:
    """How many classes the released pairs speak for: 1 + 3 for every direction that stands out of the noise.

    What independence leaves of the pairs, in units of the noise, is a symmetric matrix with about v unit entries a row;
    noise alone has its eigenvalues within ±2√v (Wigner's law, [BBP05]).
    """
    alone = fit(shape, classes=1, singles=singles, noise=noise, pairs=pairs).probabilities[:, 0]
    p = alone[shape.item[pairs.items]]
    left = np.where(pairs.known, pairs.frequencies - np.outer(p, p), 0.0) / pairs.noise
    edge = _EDGE * 2 * np.sqrt(pairs.known.sum(axis=1).mean())
    return min(most, 1 + 3 * int(np.count_nonzero(np.abs(np.linalg.eigvalsh(left)) > edge)))


def _simplex(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nearest point with nonnegative coordinates that sum to 1 [DSSC08]."""
    ordered = np.sort(values)[::-1]
    shifts = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(ordered > shifts)[-1])
    return np.asarray(np.maximum(values - shifts[last], 0.0))


def fit(
    shape: ProfileShape,
    *,
    classes: int,
    singles: NDArray[np.float64],
    noise: float,
    pairs: PairCounts,
    counted: ClassCounts | None = None,
    start: Profiles | None = None,
) -> Profiles:
    """The model of ``classes`` classes that fits what was released; ``start`` is the model the classes were."""
    base = independent(shape, singles, noise).probabilities
    absent = np.zeros((shape.rows, 1), dtype=np.bool_)
    absent[shape.none] = base[shape.none] == 0
    prior = np.where(absent, _NEVER, np.log(np.maximum(base, _LEAST)))
    if start is None:
        logits = prior + np.where(absent, 0.0, _SCATTER * _scattered(shape.rows, classes))
        weight_logits = np.zeros(classes)
        steps, rate = _STEPS, _RATE
    else:
        logits = np.where(absent, _NEVER, np.log(np.maximum(start.probabilities, _LEAST / 10)))
        weight_logits = np.log(np.maximum(start.weights, _LEAST / 10))
        steps, rate = _FURTHER_STEPS, _FURTHER_RATE
    problem = _Problem(shape, singles, noise, pairs, counted)
    for_logits, for_weights = _Adam(logits.shape), _Adam(weight_logits.shape)
    for step in range(1, steps + 1):
        p, w = shape.softmax(logits), _normal(weight_logits)
        by_p, by_w = problem.gradient(p, w)
        by_logits = shape.through_softmax(p, by_p) + (logits - prior) * w
        by_weight_logits = w * (by_w - float(by_w @ w))
        size = rate * min(1.0, 2 * (1 - step / steps) + 0.02)
        logits = logits - size * for_logits.direction(by_logits)
        weight_logits = weight_logits - size * for_weights.direction(by_weight_logits)
    return Profiles(weights=_rounded(_normal(weight_logits)), probabilities=_rounded(shape.softmax(logits)))


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """On a grid of 2^-32: processors differ in the last bits of exp and of matrix products, results should not."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, 32)), -32))


class _Problem:
    """The squared misfit in units of the noise, and its gradient."""

    def __init__(
        self,
        shape: ProfileShape,
        singles: NDArray[np.float64],
        noise: float,
        pairs: PairCounts,
        counted: ClassCounts | None,
    ) -> None:
        self.item = shape.item
        self.singles, self.single_weight = singles, 1 / noise**2
        self.pair_rows = shape.item[pairs.items]
        self.pairs = pairs.frequencies
        self.pair_weight = pairs.known / pairs.noise**2
        self.counted = counted

    def gradient(
        self, p: NDArray[np.float64], w: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By the probabilities and by the weights."""
        by_p = np.zeros_like(p)
        chosen = p[self.pair_rows]
        weighted = chosen * w
        # Σ over i<j: the symmetric residual counts every pair once in each of its two rows.
        apart = self.pair_weight * (weighted @ chosen.T - self.pairs)
        through = apart @ chosen
        by_p[self.pair_rows] += through * w
        by_w = 0.5 * (through * chosen).sum(axis=0)
        own = p[self.item]
        single = self.single_weight * ((own * w).sum(axis=1) - self.singles)
        by_own = single[:, None] * w
        by_w = by_w + single @ own
        if self.counted is not None:
            c = self.counted
            cells = (own * w - c.frequencies) / c.noise**2
            by_own = by_own + cells * w
            by_w = by_w + (cells * own).sum(axis=0) + (w - c.sizes) / c.noise**2
        by_p[self.item] += by_own
        return by_p, by_w


class _Adam:
    """Directions of [KB15], β = (0.9, 0.99)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._mean, self._square, self._step = np.zeros(shape), np.zeros(shape), 0

    def direction(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        self._step += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.99 * self._square + 0.01 * gradient**2
        mean = self._mean / (1 - 0.9**self._step)
        return np.asarray(mean / (np.sqrt(self._square / (1 - 0.99**self._step)) + 1e-12))


def _normal(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    e = np.exp(logits - logits.max())
    return np.asarray(e / e.sum())


def _scattered(rows: int, classes: int) -> NDArray[np.float64]:
    """Fixed public numbers of mean 0 and variance 1 (uniform), by hashing: the same start everywhere, for ever."""
    need = rows * classes
    raw = b"".join(digest(b"tallystick/profiles/1", i.to_bytes(8, "little")) for i in range(-(-need // 8)))
    uniform = np.frombuffer(raw, dtype="<u4")[:need] / 2.0**32
    return np.asarray((uniform - 0.5) * np.sqrt(12)).reshape(rows, classes)
