"""What is drawn: the public question that all computing parties answer together, and the sizes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Literal

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest
from tallystick.privacy.mechanisms.exponential_mechanism import WeightTable

MIN_PARTIES, MAX_PARTIES = 3, 10
MAX_CELLS = 1 << 17
MIN_WIDTH, MAX_WIDTH = 8, 52
Kind = Literal["ranks", "scores"]
_HEAD = Struct("<IBIIBB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One draw by the exponential mechanism among ``cells`` cells.

    ``ranks``: totals are ``cells + 2`` counts (below the first cell, in each cell, above the last); with n their sum
    and q = numerator / denominator the distance of a cell is that of q·n to the interval of ranks the cell covers, in
    units of 1/denominator: max(0, b·lo − a·n, a·n − b·hi). ``scores``: totals are one integer per cell, the distance
    is max(s) − s; ``numerator`` and ``denominator`` are not used.

    Every value (b·rank − a·n, resp. s) must lie within ±2^(width − 1), which is the asker's to see to from public
    bounds, and is divided by 2^shift and rounded down before anything else: the moves of a distance between neighbours
    are those of :meth:`moves`.
    """

    cells: int
    kind: Kind
    width: int
    table: WeightTable
    numerator: int = 0
    denominator: int = 1
    shift: int = 0

    def __post_init__(self) -> None:
        problem = None
        if self.kind not in ("ranks", "scores"):
            problem = f"a draw is by ranks or scores, not by {self.kind!r}"
        elif not 2 <= self.cells <= MAX_CELLS:
            problem = f"a draw among {self.cells} cells; there are 2 to {MAX_CELLS}"
        elif not MIN_WIDTH <= self.width <= MAX_WIDTH:
            problem = f"values of {self.width} bits; they have {MIN_WIDTH} to {MAX_WIDTH}"
        elif not 0 <= self.shift <= self.width - 2:
            problem = f"values of {self.width} bits cannot be shortened by {self.shift}"
        elif self.denominator < 1 or not 0 <= self.numerator <= self.denominator or self.denominator >> 32:
            problem = f"{self.numerator}/{self.denominator} is no quantile"
        if problem:
            raise StudyError(problem, remedy="Ask for something the computing parties can draw.", rule="bad-question")

    @property
    def values(self) -> int:
        """How many totals go in."""
        return self.cells + 2 if self.kind == "ranks" else self.cells

    @property
    def draw_bits(self) -> int:
        """L: the bits of each party's random word."""
        return self.table.draw_bits(self.cells)

    @property
    def word_bytes(self) -> int:
        """How many random bytes each party gives."""
        return self.draw_bits // 8

    @property
    def total_bits(self) -> int:
        """Bits of the largest sum of weights."""
        return self.table.total_bits(self.cells)

    @property
    def group_size(self) -> int:
        """Cells are found by their group first, then within it: the power of two next to the root of their number."""
        return 1 << (self.cells.bit_length() // 2)

    @property
    def groups(self) -> int:
        """How many groups there are; the last one may be short."""
        return -(-self.cells // self.group_size)

    def moves(self, most: int) -> int:
        """By how much a distance moves at most if no value moves by more than ``most``."""
        return -(-most >> self.shift)

    def fingerprint(self) -> bytes:
        """A hash of all of it, for what parties agree on beforehand."""
        head = _HEAD.pack(self.cells, self.kind == "ranks", self.numerator, self.denominator, self.width, self.shift)
        weights = b"".join([w.to_bytes(8, "little") for w in self.table.weights])
        return digest(b"tallystick/selection/question/1", head, weights)


def check_parties(parties: int, colluding: int) -> None:
    """Raise unless so many parties, of which so many may collude, can multiply shares."""
    if not MIN_PARTIES <= parties <= MAX_PARTIES:
        raise StudyError(
            f"{parties} computing parties; there are {MIN_PARTIES} to {MAX_PARTIES}",
            rule="three-to-ten-parties",
            remedy="Name three to ten computing parties, run by different organisations.",
        )
    if not colluding >= 1 or 2 * colluding >= parties:
        raise StudyError(
            f"colluding = {colluding} of {parties} computing parties is not 1 or more and less than half",
            rule="honest-majority",
            remedy=f"Use colluding = {(parties - 1) // 2} or less, or name more parties.",
        )
