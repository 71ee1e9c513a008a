"""The vectors of a round: how large their entries can get, the noise that goes on top, and the study's one length."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.crypto.field import check_headroom
from tallystick.engines.client_map import padded
from tallystick.privacy.client_vectors import LARGEST_TOTAL, ClientRound
from tallystick.privacy.draws import DrawRound
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.open_budget import Prices
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.noise_source import NoiseSource

Stream = Callable[..., WordSource]


def result_limit(plan: SumPlan, records: int) -> int:
    """No honest coordinate of any round's total is larger: records × bound + 40 standard deviations.

    Checked against the field at admission, so that a sum can never wrap around.
    """
    limit = 0
    if any(isinstance(r, ClientRound) for r in plan.rounds):
        return LARGEST_TOTAL  # clients check their own vectors: what they add, not how many records they have
    for round_plan in {id(r): r for r in plan.rounds}.values():  # equal rounds of a plan are one object
        for noise, bound in zip(round_plan.noise, round_plan.grid.largest_coordinates):
            std = math.sqrt(noise.variance * round_plan.makers)
            check_headroom(records=records, bound=bound, noise_std_total=std)
            limit = max(limit, records * bound + math.ceil(40 * std))
        if isinstance(round_plan, DrawRound):
            limit = max(limit, round_plan.choice.largest_digit)
    return max(1, limit)


class RoundNoise(NoiseSource):
    """One noise maker's noise: a stream of its own per round, drawn once by the machine that asks.

    Where the study leaves prices open, the round is admitted first: its price, read from the public state that opens
    it, goes through this noise maker's own filter, whose record the machine keeps before anything is drawn.
    """

    def __init__(self, plan: SumPlan, size: int, maker: str, stream: Stream, *, admitted: bytes | None = None) -> None:
        self._plan, self._size, self._maker, self._stream = plan, size, maker, stream
        self._prices = Prices() if admitted is None else Prices.from_bytes(admitted)

    def admit(self, round: int, model: bytes) -> bytes | None:
        """Refuse a price beyond the reservation; the record to keep, or None where prices are fixed."""
        if self._plan.open is None:
            return None
        self._prices = self._prices.admit(round, self._plan.open.price_in(model, round))
        return self._prices.to_bytes()

    def ends_in_a_draw(self, round: int) -> bool:
        return isinstance(self._plan.rounds[round - 1], DrawRound)

    def answer_digits(self, round: int) -> int:
        plan = self._plan.rounds[round - 1]
        return plan.choice.digits if isinstance(plan, DrawRound) else 0

    def draw(self, round: int) -> NDArray[np.int64]:
        """The noise of a round that was admitted; its random word where the round ends in a draw."""
        plan = self._plan.rounds[round - 1]
        if self._plan.open is not None:
            plan = self._plan.open.priced(plan, self._prices.by_round[round])
        source = self._stream(b"noise", round.to_bytes(8, "little"), self._maker.encode())
        return padded(draw_noise(plan, source), self._size)
