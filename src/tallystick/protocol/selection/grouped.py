"""The same draw for several groups at once: their circuits side by side, layer by layer in step, and one opening.

Totals, words and answers are those of the groups one after the other; no gate joins two groups. The answer is one whole
number with 24 bits for each group's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest
from tallystick.privacy.sparse_vector import ANSWER_BITS
from tallystick.protocol.selection.question import MAX_CELLS, Question

T = TypeVar("T", bound="bytes | list[int]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQuestion:
    """``each``, asked of ``groups`` groups."""

    each: Question
    groups: int

    def __post_init__(self) -> None:
        if self.groups < 1 or self.groups * self.each.cells > MAX_CELLS:
            raise StudyError(
                f"{self.each.cells} cells for each of {self.groups} groups; there are at most {MAX_CELLS} in all",
                remedy="Ask for something the computing parties can draw.",
                rule="bad-question",
            )

    @property
    def cells(self) -> int:
        """Of all groups."""
        return self.groups * self.each.cells

    @property
    def values(self) -> int:
        """How many totals go in."""
        return self.groups * self.each.values

    @property
    def word_bytes(self) -> int:
        """How many random bytes each party gives."""
        return self.groups * self.each.word_bytes

    def fingerprint(self) -> bytes:
        """A hash of all of it, for what parties agree on beforehand."""
        return digest(b"tallystick/selection/grouped/1", self.groups.to_bytes(4, "little"), self.each.fingerprint())


def joined(places: list[int]) -> int:
    """All groups' places as one whole number."""
    return sum(place << (ANSWER_BITS * at) for at, place in enumerate(places))


def parts(whole: T, groups: int) -> Iterator[T]:
    """What belongs to each group, of things of equal length one after the other."""
    size = len(whole) // groups
    for at in range(groups):
        yield whole[at * size : (at + 1) * size]  # type: ignore[misc]
