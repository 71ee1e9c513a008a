"""The public candidates of subset selection: normal deviates on a grid of whole numbers, from a record's public id.

A coordinate is 16 bits of keystream looked up in a table of quantiles, round(4096·Φ⁻¹((i + ½)/65,536)): the same
integers on every machine, so that whoever knows the id knows the candidates. The table is symmetric, of mean 0; its
standard deviation is 4096 within 2·10⁻⁵ parts, its largest value 4.32 of them. What that does to a learner: subset.md.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

UNIT = 4096
"""One standard deviation of a candidate's coordinate, before the table's own."""
LEVELS = 1 << 16
PER_WORD = 4
"""Coordinates in a 64-bit word, from its lowest 16 bits up."""


@lru_cache(maxsize=1)
def quantile_table() -> NDArray[np.int32]:
    """The values of all 16-bit codes, in rising order.

    ``NormalDist.inv_cdf`` is Wichura's rational approximation, good to 10⁻¹⁵. No value is within 10⁻⁶ of a half, where
    a last bit could decide how it is rounded (tested), so the table is the same everywhere.
    """
    normal = NormalDist()
    upper = [round(UNIT * normal.inv_cdf((LEVELS // 2 + i + 0.5) / LEVELS)) for i in range(LEVELS // 2)]
    table = np.array([-v for v in reversed(upper)] + upper, np.int32)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def coordinate_deviation() -> float:
    """The table's own standard deviation: what a candidate's coordinate is divided by."""
    values = [int(v) for v in quantile_table()]
    return float((sum(v * v for v in values) / LEVELS) ** 0.5)


def words_needed(coordinates: int) -> int:
    """Words of keystream for so many coordinates."""
    return -(-coordinates // PER_WORD)


def codes(words: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The 16-bit codes of words, lowest first, on any machine."""
    return np.ascontiguousarray(words.astype("<u8", copy=False)).view("<u2").astype(np.uint16, copy=False)
