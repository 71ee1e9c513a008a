"""A learner's records for a method that reads them in passes: mapped once where they fit, else block by block.

A kernel's features are many: 1,600 of them make 12.8 kB of a record. An interior point reads each row once an exchange,
in order, so that rows can be made again in every pass, a block at a time; that costs little beside the (d + 1)²/2
products which it takes of each. Up to :data:`KEPT` numbers are kept. Coordinate descent (ADMM, and a private step)
jumps between all rows, many times in a round: there they stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEPT = 1 << 24
"""Numbers of mapped rows that stay in memory: 128 MiB."""
BLOCK = 1 << 21
"""Numbers of a block that is made anew: 16 MiB."""


@dataclass(repr=False)
class MappedBlocks:
    """Encoded records, what their rows are, and a sign for each class and record."""

    features: NDArray[np.float64]
    signs: NDArray[np.float64]
    size: int
    rows: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    _kept: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if len(self) * self.size <= KEPT:
            self._kept = self._made(0, len(self))

    def __len__(self) -> int:
        return len(self.features)

    def _made(self, first: int, last: int) -> NDArray[np.float64]:
        return np.ascontiguousarray(self.rows(self.features[first:last]), dtype=np.float64)

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """(number of the first record, its row and the following ones); all records once, in order."""
        if self._kept is not None:
            yield 0, self._kept
            return
        each = max(64, BLOCK // self.size)
        for first in range(0, len(self), each):
            yield first, self._made(first, first + each)
