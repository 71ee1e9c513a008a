"""Medians by a trusted curator, as the slides compare them: the exponential mechanism, smooth sensitivity,
sample-and-aggregate, and the slides' own recursive subranges without its secure computation.

Baselines only. They take sorted integers 0 … size − 1, draw floats from a statistical generator, and promise nothing.
Neighbours replace one record, as everywhere in the figures.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tallystick.bench.central_draw import stretches

__all__ = ["exponential", "recursive_subranges", "sample_and_aggregate", "smooth_sensitivity"]

Sorted = NDArray[np.int64]
Generator = np.random.Generator
DELTA = 1e-6
"""Of smooth sensitivity with Laplace noise, which is not pure."""


def exponential(values: Sorted, size: int, epsilon: float, die: Generator, *, q: float = 0.5) -> int:
    """One draw over the whole domain [MT07]: weight e^(εu/2), u = −distance of qn to [#(d < x), #(d ≤ x)]; Δu = 1."""
    start, width, distance = stretches(values, size, q)
    # Gumbel-max: argmax of log weight + Gumbel noise is a draw in proportion to the weights.
    score = np.log(width) - epsilon * distance / 2 + die.gumbel(size=len(width))
    chosen = int(np.argmax(score))
    return int(start[chosen] + die.integers(width[chosen]))


def smooth_sensitivity(values: Sorted, size: int, epsilon: float, die: Generator) -> float:
    """The median with Laplace noise of its smooth sensitivity [NRS07, Prop. 3.4 and Cor. 2.4]: (ε, δ)."""
    beta = epsilon / (2 * math.log(2 / DELTA))
    return float(_middle(values)) + 2 * _smooth(values, size, beta) / epsilon * die.laplace()


def sample_and_aggregate(values: Sorted, size: int, epsilon: float, die: Generator) -> float:
    """Medians of √n random blocks, and of those the smooth median [NRS07, §4; PL15]: one record is in one block."""
    blocks = np.array_split(die.permutation(values), max(1, math.isqrt(len(values))))
    medians = np.sort(np.array([_middle(np.sort(block)) for block in blocks], dtype=np.int64))
    return smooth_sensitivity(medians, size, epsilon, die)


def recursive_subranges(values: Sorted, size: int, epsilon: float, die: Generator, *, fan: int = 10) -> int:
    """The slides' EM*: ⌈log_k |U|⌉ steps of ε/steps, each one a draw among k subranges of the one before."""
    steps = max(1, math.ceil(math.log(size) / math.log(fan) - 1e-9))
    low, high, target = 0, size, len(values) / 2
    for _ in range(steps):
        edges = np.unique(np.linspace(low, high, min(fan, high - low) + 1).round().astype(np.int64))
        ranks = np.searchsorted(values, edges)
        distance = np.maximum(0.0, np.maximum(target - ranks[1:], ranks[:-1] - target))
        score = -(epsilon / steps) * distance / 2 + die.gumbel(size=len(distance))
        chosen = int(np.argmax(score))
        low, high = int(edges[chosen]), int(edges[chosen + 1])
        if high - low == 1:
            break
    return int(low + die.integers(high - low))


def _middle(values: Sorted) -> int:
    return int(values[(len(values) - 1) // 2]) if len(values) else 0


def _smooth(values: Sorted, size: int, beta: float) -> float:
    """max over k of e^(−βk) · max over t ≤ k + 1 of (x_(m+t) − x_(m+t−k−1)), the domain's ends outside the data."""
    n, middle, best = len(values), (len(values) - 1) // 2, 0.0
    padded = np.concatenate([np.zeros(n + 1), values, np.full(n + 1, size - 1.0)])
    at = middle + n + 1
    for k in range(n + 1):
        decay = math.exp(-beta * k)
        if decay * (size - 1) <= best:
            break
        ends = padded[at : at + k + 2]
        best = max(best, decay * float((ends - padded[at - k - 1 : at + 1]).max()))
    return best
