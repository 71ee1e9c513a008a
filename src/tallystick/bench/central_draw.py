"""The exponential mechanism at a trusted curator over every value of a domain: what quantiles are measured against.

Neighbours replace one record: a value's utility is minus the distance of q·n to its ranks [#(d < x), #(d ≤ x)], which
moves by 1, and its weight e^(ε·u/2) [MT07]. All values between two neighbouring records have one utility, so the law is
a sum over the distinct records, however wide the domain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stretches", "expected_rank_error", "stretches"]


class Stretches(NamedTuple):
    """Stretches of values of one utility: each distinct value by itself, and each gap between two of them."""

    start: NDArray[np.int64]
    width: NDArray[np.int64]
    distance: NDArray[np.float64]


def stretches(ordered: NDArray[np.int64], size: int, q: float) -> Stretches:
    """Of the domain 0 … size − 1, for these records in ascending order."""
    values, first = np.unique(ordered, return_index=True)
    below = np.append(first, len(ordered))
    gap_from = np.concatenate([[0], values + 1])
    start = np.concatenate([values, gap_from])
    width = np.concatenate([np.ones(len(values), dtype=np.int64), np.concatenate([values, [size]]) - gap_from])
    low, high = np.concatenate([below[:-1], below]), np.concatenate([below[1:], below])
    wanted = q * len(ordered)
    distance = np.maximum(0.0, np.maximum(wanted - high, low - wanted))
    there = width > 0
    return Stretches(start[there], width[there], distance[there])


def expected_rank_error(ordered: NDArray[np.int64], size: int, q: float, epsilon: float) -> float:
    """Of one draw: the mean over its law, not over runs."""
    _, width, distance = stretches(ordered, size, q)
    logs = np.log(width) - epsilon * distance / 2
    weights = np.exp(logs - logs.max())
    return float(weights @ distance / weights.sum())
