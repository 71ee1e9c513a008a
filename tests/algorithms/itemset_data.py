"""Records with structure, and their public facts: three kinds of records, a category each, baskets, a flag."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Public

__all__ = ["PUBLIC", "kinds"]

BLOCKS = (
    ("colour", 0, 4, "onehot", 1),
    ("shape", 4, 7, "onehot", 1),
    ("basket", 7, 13, "items", 3),
    ("flag", 13, 14, "number", 1),
    ("size", 14, 17, "onehot", 1),
)
PUBLIC = Public(features=tuple(f"i{i}" for i in range(17)), records=3000, blocks=BLOCKS, max_l1=7.0, max_l2_squared=7.0)


def kinds(count: int, seed: int = 0) -> NDArray[np.float64]:
    """Encoded records of :data:`PUBLIC`; within a kind the columns are independent."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, count)
    out = np.zeros((count, 17))
    out[:, 13] = np.where(rng.random(count) < np.array([0.9, 0.2, 0.5])[kind], 1.0, -1.0)
    for i, k in enumerate(kind):
        for start, stop, ones in ((0, 4, 1), (4, 7, 1), (14, 17, 1)):
            likely = np.roll(np.array([0.8, 0.15, 0.05, 0.0])[: stop - start], k)
            value = rng.choice(stop - start, p=likely / likely.sum())
            out[i, start + value] = ones
        basket = np.flatnonzero(rng.random(6) < np.roll([0.7, 0.5, 0.05, 0.05, 0.02, 0.3], 2 * k))[:3]
        out[i, 7 + basket] = 1.0
    return out
