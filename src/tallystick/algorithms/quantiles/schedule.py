"""How much the next look may cost, and what kind of look it is: from released figures and public facts alone.

Budgets grow as windows narrow: a level is priced so that the rank at a cell's edge has a standard deviation of a tenth
of the ranks that the answer is still uncertain by. Tiny at first, and geometric from there, so that the levels together
cost little more than the last of them; what is left goes to probes of single ranks at the answers themselves.
Prices are whole parts of the reservation (:mod:`tallystick.privacy.open_budget`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.privacy.open_budget import PARTS

MOST_ROUNDS = 15
LEAST_PRICE = PARTS // 2**13
FIRST_FAN = 16


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviation of a count at the whole budget, and how it grows as the price falls."""

    whole: float
    """Of one cell's count at a price of all PARTS."""
    laplace: bool

    def std(self, price: int) -> float:
        share = price / PARTS
        return self.whole / share if self.laplace else self.whole / share**0.5

    def price_for(self, std: float) -> float:
        """Parts that buy this standard deviation."""
        ratio = self.whole / max(std, 1e-12)
        return PARTS * (ratio if self.laplace else ratio * ratio)


@dataclass(frozen=True, kw_only=True)
class Look:
    """The next round: cells around each answer (``fan`` of them), or a probe; and its price."""

    price: int
    fan: int
    """0: a probe."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """See the module."""

    noise: Noise
    fan: int
    precision: float = 10.0
    reserve: float = 0.35
    """Levels of cells never take more than this share of what is left."""
    split: tuple[float, ...] = (0.3, 1.0)
    """Of what is left, for each of the probes."""

    def first(self, records: float) -> Look:
        return Look(price=self._level_price(0.9 * records, FIRST_FAN, PARTS), fan=FIRST_FAN)

    def _level_price(self, spread: float, cells: int, left: int) -> int:
        wanted = self.noise.price_for(spread / self.precision / (cells / 4) ** 0.5)
        return max(LEAST_PRICE, min(int(wanted), int(left * self.reserve)))

    def next(self, *, spread: float, cells: int, left: int, round: int, probed: int) -> Look:
        """After ``round`` rounds, with ``left`` parts left, and ``probed`` probes done."""
        wanted = self.noise.price_for(spread / self.precision / (cells / 4) ** 0.5)
        rounds_left = MOST_ROUNDS - round
        if probed or wanted > left * self.reserve or rounds_left <= len(self.split):
            at = min(probed, len(self.split) - 1)
            return Look(price=max(LEAST_PRICE, int(left * self.split[at])), fan=0)
        return Look(price=max(LEAST_PRICE, int(wanted)), fan=self.fan)
