"""What the benches share: the best of a few runs, and the noise of a round."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto.prg import system_stream
from tallystick.privacy.mechanisms import discrete_gaussian
from tallystick.protocol.noise_source import NoiseSource

_VARIANCE = Fraction(10**12)
"""In grid units: the size that fine grids have; the sampler's cost hardly depends on it."""


def row(case: str, value: float, unit: str, reference: float | None, ratio: float | None) -> dict[str, Any]:
    """One line of a bench; without a reference there is no ratio."""
    return {"case": case, "value": value, "unit": unit, "reference": reference, "ratio": ratio}


def best_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this thread, the best of three runs after one that warms up: machines are shared."""
    work()
    times = []
    for _ in range(3):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times)


class RoundNoise(NoiseSource):
    """Noise where no study is planned: exact and the system's own, because nothing that ships is silent."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.seconds = 0.0
        """CPU seconds that drawing has taken."""

    def draw(self, round: int) -> NDArray[np.int64]:
        """Fresh noise for every round."""
        started = time.process_time()
        drawn = discrete_gaussian.sample(_VARIANCE, self._size, system_stream())
        self.seconds += time.process_time() - started
        return drawn
