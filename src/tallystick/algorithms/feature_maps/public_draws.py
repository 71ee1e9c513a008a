"""Random numbers that are public: from a seed of the study, the same at every party and on every machine.

They choose a feature map. They hide nothing and protect nothing, so they may be seeded where noise never is. Words are
AES keystream (:mod:`tallystick.crypto.prg`); normal deviates by Box and Muller's formula [BM58] with a logarithm, sine
and cosine made of +, ×, ÷ and √ alone, so that no library's last bit decides what two institutions compute.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.waves import sine_cosine
from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream

_LABEL = b"tallystick/feature-map/v1"
_LN2 = 0.6931471805599453
_TWO_PI = 6.283185307179586
MOST_SEED = 2**53
"""Seeds are whole numbers below this: every format of a study holds them exactly."""


class PublicDraws:
    """A stream for one purpose: ``labels`` name it, so that no two purposes share words."""

    def __init__(self, seed: int, *labels: str) -> None:
        key = digest(_LABEL, seed.to_bytes(8, "big"), *(label.encode() for label in labels))
        self._stream = AesStream(key, _LABEL)

    def uniform(self, *shape: int) -> NDArray[np.float64]:
        """Strictly between 0 and 1, on the odd multiples of 2^-54."""
        words = self._stream.words(math.prod(shape))
        return np.asarray(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(shape)

    def below(self, limit: int, count: int) -> NDArray[np.int64]:
        """Whole numbers from 0 to ``limit`` − 1; off uniform by less than limit/2^53, which no feature map notices."""
        return np.minimum((self.uniform(count) * limit).astype(np.int64), limit - 1)

    def signs(self, *shape: int) -> NDArray[np.float64]:
        """±1."""
        words = self._stream.words(math.prod(shape))
        return np.where(words >> np.uint64(63) == 1, 1.0, -1.0).reshape(shape)

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Standard normal deviates."""
        count = math.prod(shape)
        pairs = self.uniform(2, -(-count // 2))
        return np.asarray(_normal(pairs[0], pairs[1])[:count]).reshape(shape)


@njit(cache=True, nogil=True)
def _log(x):  # type: ignore[no-untyped-def]
    """ln x for x > 0: x = m·2^e with m in [√½, √2), ln m = 2·artanh((m − 1)/(m + 1)); the series to s^23."""
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    q = s * s
    total = 0.0
    for k in range(11, -1, -1):
        total = total * q + 1.0 / (2 * k + 1)
    return e * _LN2 + 2 * s * total


@njit(cache=True, nogil=True)
def _normal(u, v):  # type: ignore[no-untyped-def]
    """Two deviates for each pair of uniform numbers [BM58]."""
    n = u.shape[0]
    out = np.empty(2 * n)
    for i in range(n):
        radius = np.sqrt(-2.0 * _log(u[i]))
        sine, cosine = sine_cosine(_TWO_PI * v[i])
        out[2 * i] = radius * cosine
        out[2 * i + 1] = radius * sine
    return out
