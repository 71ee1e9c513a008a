"""The vectors of a round: how large their entries can get, the noise that goes on top, and the study's one length."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.crypto.fixed_point import check_headroom
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.plan import Plan

__all__ = ["RoundNoise", "Stream", "padded", "result_limit"]

Stream = Callable[..., WordSource]


def result_limit(plan: Plan, records: int) -> int:
    """No honest coordinate of any round's total is larger: records × bound + 40 standard deviations.

    Checked against the field at admission, so that a sum can never wrap around.
    """
    limit = 0
    for round_plan in {id(r): r for r in plan.rounds}.values():  # equal rounds of a plan are one object
        for noise, bound in zip(round_plan.noise, round_plan.grid.largest_coordinates):
            std = math.sqrt(noise.variance * round_plan.makers)
            check_headroom(records=records, bound=bound, noise_std_total=std)
            limit = max(limit, records * bound + math.ceil(40 * std))
    return max(1, limit)


class RoundNoise:
    """One noise maker's noise: a stream of its own per round, drawn once by the machine that asks."""

    def __init__(self, plan: Plan, size: int, maker: str, stream: Stream) -> None:
        self._plan, self._size, self._maker, self._stream = plan, size, maker, stream

    def draw(self, round: int) -> NDArray[np.int64]:
        source = self._stream(b"noise", round.to_bytes(8, "little"), self._maker.encode())
        return padded(draw_noise(self._plan.rounds[round - 1], source), self._size)


def padded(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Zeros up to the study's one length: they carry neither data nor noise."""
    if len(values) == size:
        return values
    out = np.zeros(size, dtype=np.int64)
    out[: len(values)] = values
    return out
