"""From a plan's draw to the question that the parties answer on their shares: public, the same at each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.privacy.draws import DrawRound
from tallystick.privacy.selection_plan import WORD_ENTRIES
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.selection import Question

_WIDTH = 40
"""Bits of a total where nobody states how many records there are: a trillion of them."""


def question_of(plan: SumPlan, round: int, records: int | None) -> Question:
    """What this round's draw asks."""
    drawn = plan.rounds[round - 1]
    if not isinstance(drawn, DrawRound):
        raise LocalProtocolError("this round is not drawn from", round=round)
    draw = drawn.draw
    most = drawn.grid.largest_coordinates[0]
    width = _WIDTH if records is None else max(2, (records * most).bit_length())
    return Question(
        cells=draw.cells,
        kind=draw.kind,
        numerator=draw.numerator,
        denominator=draw.denominator,
        width=width,
        table=draw.table,
    )


def word_of(noise: NDArray[np.int64]) -> bytes:
    """A party's random word, as it was kept where the round's noise would be."""
    return noise[:WORD_ENTRIES].astype("<i8").tobytes()


def share_of(question: Question, share: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Its share of the total without padding."""
    size = question.cells + 2 if question.kind == "ranks" else question.cells
    return share[:size].copy()
