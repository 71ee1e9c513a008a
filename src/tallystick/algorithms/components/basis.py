"""A public basis for ordered columns: the discrete cosine transform, where smooth signals have few large coordinates.

Orthonormal DCT-II, C_kj = √(2/n)·cos(πk(2j + 1)/(2n)), C_0j = √(1/n) [ANR74]; for a grid of several sides the
product of one for each. It is a rotation chosen without looking at any record, so lengths, sensitivities and noise stay
as they are. Coordinates are grouped into bands of similar frequency, inside which signals have similar power: noisy
estimates are shrunk towards, or by, what their band has in common.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def cosines(sides: tuple[int, ...]) -> NDArray[np.float64]:
    """The matrix whose rows are the basis, for columns that are a grid of these sides, last side fastest."""
    out: NDArray[np.float64] = np.ones((1, 1))
    for n in sides:
        j = np.arange(n)
        one = math.sqrt(2 / n) * np.cos(np.pi * (2 * j[None, :] + 1) * j[:, None] / (2 * n))
        one[0] /= math.sqrt(2)
        out = np.asarray(np.kron(out, one), dtype=np.float64)
    return out


def bands(sides: tuple[int, ...], per_octave: int) -> NDArray[np.int64]:
    """The band of every coordinate: so many to an octave of the sum of its frequencies."""
    frequency = np.zeros(1)
    for n in sides:
        frequency = (frequency[:, None] + np.arange(n)[None, :]).reshape(-1)
    return np.floor(per_octave * np.log2(1 + frequency) + 1e-9).astype(np.int64)
