"""From a plan's draw to the question that the parties answer on their shares: public, the same at each of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.privacy.draws import WORD_ENTRIES, Choice, DrawRound, GroupedChoice
from tallystick.privacy.rules import Claim
from tallystick.privacy.sparse_vector import SparseVector
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.selection.circuit import Asked
from tallystick.protocol.selection.grouped import GroupedQuestion
from tallystick.protocol.selection.machine import message_limit
from tallystick.protocol.selection.question import MAX_WIDTH, MIN_WIDTH, Question
from tallystick.protocol.selection.threshold import ThresholdQuestion
from tallystick.study import Study

_RECORDS = 1 << 30
"""As many as there may be in all, where no more are stated."""
MOST_CLIENTS = 1 << 10
"""More clients are refused (:meth:`Parties.check_cast`): each may hold as many records as are stated of all."""
_NOISE = 1 << 20
"""Scales of each party's noise that a comparison has room for (:mod:`tallystick.privacy.sparse_vector`)."""


def most_records(stated: int | None, claim: Claim) -> int:
    """No more records than this can be counted.

    A total that left the width of the circuit would turn around, and one record could then move a distance from one end
    to the other, whatever is charged. So what an analyst states counts only where clients hold to it: under replace-one
    of records none takes part with more than that (``client_session.check_stated``), and there are at most
    :data:`MOST_CLIENTS` of them. Elsewhere no client may refuse for how many it has, and nothing is taken for granted.
    """
    enforced = claim.neighbours == "replace-one" and claim.unit == "record"
    if stated is None or not enforced:
        return max(_RECORDS, stated or 0)
    return max(stated, min(_RECORDS, MOST_CLIENTS * stated))


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
    grid, choice = drawn.grid, drawn.choice
    one = min(grid.largest_coordinates[0], grid.integer_ceilings[0] or grid.largest_coordinates[0])
    most = most_records(records, plan.claim) * one
    if isinstance(choice, SparseVector):
        return _threshold_question(choice, most, drawn.makers)
    if isinstance(choice, GroupedChoice):
        return GroupedQuestion(each=_draw_question(choice.each, most), groups=choice.groups)
    return _draw_question(choice, most)


def _draw_question(choice: Choice, most: int) -> Question:
    most *= choice.denominator
    width = max(MIN_WIDTH, choice.shift + 2, most.bit_length() + 1)
    if width > MAX_WIDTH:
        raise StudyError(
            f"totals of {width} bits are more than the computing parties can compare",
            rule="bad-question",
            remedy="Ask for rounder quantiles, bound scores or a person's records more tightly, or use neighbours = "
            '"replace-one" and state the number of records under [data].',
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
