"""The items of a study: public facts about which there are, which exclude each other, and how many a record can hold.

A category is one item per value (``odor=none``), at most one of them in a record; an items column is one item per
entry of its vocabulary; a number with bins is one item per bin. A number without bins is one item, present when the
value lies above the middle of its declared range, so that a 0/1 column means what it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Public

_LARGEST = 2**62


@dataclass(frozen=True, kw_only=True)
class ItemLayout:
    """Items 0 … d−1 in encoded order; ``block[i]`` is equal for two items of which a record has at most one."""

    names: tuple[str, ...]
    block: NDArray[np.int64]
    columns: tuple[tuple[int, int, int], ...]
    """(start, stop, most items of a record) of every declared column."""
    numbers: tuple[int, ...]
    """Items that are numbers without bins."""

    @classmethod
    def of(cls, public: Public) -> ItemLayout:
        """From the layout."""
        block = np.zeros(len(public.features), dtype=np.int64)
        columns: list[tuple[int, int, int]] = []
        numbers: list[int] = []
        following = 0
        for _, start, stop, kind, most in public.columns:
            ones = min(most, stop - start)
            if kind == "items" and ones > 1:
                block[start:stop] = following + np.arange(stop - start)
                following += stop - start
            else:
                ones = 1
                block[start:stop] = following
                following += 1
                if kind == "number":
                    numbers.append(start)
            columns.append((start, stop, ones))
        return cls(names=public.features, block=block, columns=tuple(columns), numbers=tuple(numbers))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def most(self) -> int:
        """The most items one record can hold."""
        return sum(ones for *_, ones in self.columns)

    def in_one_record(self, length: int) -> int:
        """The most sets of ``length`` items one record can hold: C(l, k)."""
        return math.comb(self.most, length)

    def possible(self, length: int) -> int:
        """How many sets of ``length`` items some record could hold: a coefficient of Π_columns Σ_j C(size, j) x^j."""
        counts = [1] + [0] * length
        for start, stop, ones in self.columns:
            size = stop - start
            counts = [
                sum(math.comb(size, j) * counts[k - j] for j in range(min(ones, k) + 1)) for k in range(length + 1)
            ]
        return min(counts[length], _LARGEST)

    def present(self, features: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which items each record holds; elementwise, so row-independent."""
        out = features > 0.5
        numbers = list(self.numbers)
        out[:, numbers] = features[:, numbers] > 0.0  # encoded: 0 is the middle of the declared range
        return out
