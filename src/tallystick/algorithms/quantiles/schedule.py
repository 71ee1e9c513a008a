"""How much the next look may cost, and what kind of look it is: from released figures and public facts alone.

Budgets grow as windows narrow: a level is priced so that the rank at a cell's edge has a standard deviation of an
eighth or so of the ranks that the answer is still uncertain by. Tiny at first, and geometric from there, so that the
levels together cost little more than the last of them; what is left goes to probes of single ranks at the answers
themselves.
Prices are whole parts of the reservation (:mod:`tallystick.privacy.open_budget`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.privacy.open_budget import PARTS

MOST_ROUNDS = 15
LEAST_PRICE = PARTS // 2**13
FIRST_FAN = 16
_LATE = 8


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
class Known:
    """What a search knows by now, in what matters for its next price."""

    spread: float
    """Ranks that the answers are still uncertain by."""
    doubt: float
    """Standard deviation of the rank at the answer."""
    rough: bool
    """Records may lie in spikes."""
    spiky: bool
    """They have shown to."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """See the module."""

    noise: Noise
    fan: int
    wide: int
    """Cells around each answer where records are in spikes: a count tells a spike's cell however many there are."""
    precision: float = 8.5
    rough_precision: float = 6.5
    """Where records are in spikes and more cannot be paid: enough to find the cell of one."""
    reserve: float = 0.35
    """Levels of cells never take more than this share of what is left."""
    split: float = 0.3
    """Of what is left, at most so much for a probe that is not the last."""
    lone: float = 1.0
    """Noise of a probe of one rank, in that of a cell."""
    enough: float = 5.0
    """The last probe is made where the rank in doubt is at most so many times what it would be told to."""
    sharp: float = 3.0
    """A probe before the last tells the rank to this part of its doubt."""

    def first(self, records: float) -> Look:
        """The first round: all of the domain in equal cells."""
        wanted = self._wanted(0.9 * records, FIRST_FAN, self.precision)
        return Look(price=max(LEAST_PRICE, min(int(wanted), int(PARTS * self.reserve))), fan=FIRST_FAN)

    def next(self, known: Known, *, cells: int, left: int, round: int, probed: bool) -> Look:
        """After ``round`` rounds, with ``left`` parts left; once probed, there are only probes."""
        wanted, fan = self._wanted(known.spread, cells, self.precision), self.fan
        if known.spiky or (known.rough and wanted > left * self.reserve):
            wanted, fan = self._wanted(known.spread, 4, self.rough_precision), self.wide
        if round >= _LATE:  # whatever keeps a search looking, rounds must not run out while there is budget
            wanted = max(wanted, left / (4 * (MOST_ROUNDS - round)))
        if probed or wanted > left * self.reserve or MOST_ROUNDS - round <= 2:
            return Look(price=max(LEAST_PRICE, self._probe(known.doubt, left, round, probed)), fan=0)
        return Look(price=max(LEAST_PRICE, int(wanted)), fan=fan)

    def _probe(self, doubt: float, left: int, round: int, probed: bool) -> int:
        """A rank is told where it is most likely reached; the further off it proves, the more probes come after."""
        last = self.noise.std(left) * self.lone
        if MOST_ROUNDS - round == 1 or (probed and doubt <= self.enough * last):
            return left
        wanted = self.noise.price_for(doubt / self.sharp / self.lone)
        return int(min(left * self.split, wanted))

    def _wanted(self, spread: float, cells: int, precision: float) -> float:
        """Parts that tell a rank in the middle of so many cells (K/4 of their noise) to a part of the spread."""
        return min(float(PARTS), self.noise.price_for(spread / precision / (cells / 4) ** 0.5))
