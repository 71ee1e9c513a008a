"""From a plan's draw to the question that the parties answer on their shares: public, the same at each of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.privacy.draws import WORD_ENTRIES, Choice, DrawRound, GroupedChoice
from tallystick.privacy.sparse_vector import SparseVector
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.selection.circuit import Asked
from tallystick.protocol.selection.grouped import GroupedQuestion
from tallystick.protocol.selection.machine import message_limit
from tallystick.protocol.selection.question import MAX_WIDTH, MIN_WIDTH, Question
from tallystick.protocol.selection.threshold import ThresholdQuestion
from tallystick.study import Study

_RECORDS = 1 << 30
"""As many as there may be where nobody states it."""
_NOISE = 1 << 20
"""Scales of each party's noise that a comparison has room for (:mod:`tallystick.privacy.sparse_vector`)."""


def most_records(study: Study) -> int:
    """No more records than this can be counted: from what the study states, with room for statements that are wrong.

    A total that left the width of the circuit would wrap around, and one record could then move a distance from one end
    to the other.
    """
    return _most(study.data.records)


def _most(stated: int | None) -> int:
    return _RECORDS if stated is None else min(_RECORDS, 16 * stated + (1 << 20))


def question_of(study: Study, plan: SumPlan, round: int) -> Asked:
    """What this round's draw asks."""
    return _question(study.data.records, plan, round)


def check_draws(plan: SumPlan, records: int | None) -> None:
    """Refuse a plan with a draw that the circuits do not hold: before anybody approves it."""
    for drawn in {id(r): n for n, r in enumerate(plan.rounds, start=1) if isinstance(r, DrawRound)}.values():
        _question(records, plan, drawn)


def _question(records: int | None, plan: SumPlan, round: int) -> Asked:
    drawn = plan.rounds[round - 1]
    if not isinstance(drawn, DrawRound):
        raise LocalProtocolError("this round is not drawn from", round=round)
    choice = drawn.choice
    if isinstance(choice, SparseVector):
        return _threshold_question(choice, _most(records) * drawn.grid.largest_coordinates[0], drawn.makers)
    if isinstance(choice, GroupedChoice):
        each = _draw_question(choice.each, _most(records) * drawn.grid.largest_coordinates[0])
        return GroupedQuestion(each=each, groups=choice.groups)
    return _draw_question(choice, _most(records) * drawn.grid.largest_coordinates[0])


def _draw_question(choice: Choice, most: int) -> Question:
    most *= choice.denominator
    width = max(MIN_WIDTH, choice.shift + 2, most.bit_length() + 1)
    if width > MAX_WIDTH:
        raise StudyError(
            f"totals of {width} bits are more than the computing parties can compare",
            rule="bad-question",
            remedy="State the number of records under [data], ask for rounder quantiles, or bound scores more tightly.",
        )
    return Question(
        cells=choice.cells,
        kind=choice.kind,
        numerator=choice.numerator,
        denominator=choice.denominator,
        shift=choice.shift,
        width=width,
        table=choice.table,
    )


def _threshold_question(compared: SparseVector, most: int, makers: int) -> ThresholdQuestion:
    """Always the whole width: beyond it a number would turn around, the noise's with it."""
    noise = makers * _NOISE * sum(map(math.ceil, compared.scales))
    if most + compared.threshold + noise >> (MAX_WIDTH - 1):
        raise StudyError(
            "the counts, the threshold or their noise are more than the computing parties can compare",
            rule="bad-question",
            remedy="Use a larger epsilon, fewer counts above the threshold (most), or a smaller threshold.",
        )
    return ThresholdQuestion(cells=compared.cells, threshold=compared.threshold, most=compared.most)


def word_of(question: Asked, noise: NDArray[np.int64]) -> bytes:
    """A party's random word, or its noise of a comparison, as it was kept when the round was opened."""
    if isinstance(question, GroupedQuestion):  # every group has a word of its own
        own = [noise[at * WORD_ENTRIES :] for at in range(question.groups)]
        return b"".join(word_of(question.each, entries) for entries in own)
    drawn = noise if isinstance(question, ThresholdQuestion) else noise[:WORD_ENTRIES]  # what follows is padding
    kept = drawn.astype("<i8").tobytes()
    if question.word_bytes > len(kept):
        raise LocalProtocolError("the draw needs a longer random word than is kept")
    return kept[: question.word_bytes]


def share_of(question: Asked, share: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Its share of the total without padding."""
    return share[: question.values].copy()


def longest_message(study: Study, plan: SumPlan, parties: int) -> int:
    """No message of any of the study's draws is longer."""
    rounds = [number for number, r in enumerate(plan.rounds, start=1) if isinstance(r, DrawRound)]
    return max((message_limit(question_of(study, plan, number), parties) for number in rounds), default=0)
