"""How many records the parties' circuits have room for: never what an analyst says, unless clients hold to it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.selection_world import split, stream
from tests.trust.parties_deployment import study

from tallystick.core.errors import StudyError
from tallystick.engines.designs import design_of
from tallystick.engines.planning import layout_of, plan_study
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.selection import ideal
from tallystick.protocol.selection.in_memory import select_in_memory
from tallystick.study import Study
from tallystick.trust.parties.questions import question_of


def asked(neighbours: str, records: int | None) -> tuple[Study, SumPlan]:
    told = study("blood", "mode", 'column = "blood"').model_dump(exclude_none=True)
    told["privacy"]["neighbours"] = neighbours
    told["data"]["records"] = records
    made = Study.from_dict(told)
    plan = plan_study(made, design_of(made, layout_of(made), None), allow_not_private=False)
    assert isinstance(plan, SumPlan)
    return made, plan


def drawn(question: Any, totals: list[int]) -> tuple[int, int]:
    """(what the parties draw on their shares, what they should)."""
    words = [bytes([7 * p + 1]) * question.word_bytes for p in range(3)]
    sources = [stream(9, p) for p in range(3)]
    found = select_in_memory(question, split(totals, 3, stream(3)), words, sources, 1)
    return found.place, ideal(question, totals, words)


def test_a_total_beyond_the_width_turns_around() -> None:
    """The hole itself, where a question is made too narrow: the largest of all scores is taken for the smallest."""
    made, plan = asked("replace-one", 90)
    question = question_of(made, plan, 1)
    edge = 1 << (question.width - 1)
    place, right = drawn(question, [edge - 1, 5, 5, 5])
    assert place == right == 0
    place, right = drawn(question, [edge, 5, 5, 5])  # one record more
    assert right == 0 != place


def test_a_hint_of_few_records_leaves_the_circuit_its_room() -> None:
    """Under add-remove no client may refuse for its number of records, so the analyst's number bounds nothing."""
    made, plan = asked("add-remove", 90)
    many = 1 << 29
    place, right = drawn(question_of(made, plan, 1), [many, 5, 5, 5])
    assert place == right == 0


def test_clients_that_each_hold_what_is_stated_of_all_fit_into_the_circuit() -> None:
    """Under replace-one a client refuses to have more than is stated of all; a hundred may each have as many."""
    made, plan = asked("replace-one", 300_000)
    place, right = drawn(question_of(made, plan, 1), [120 * 300_000, 5, 5, 5])
    assert place == right == 0


def test_more_records_than_a_circuit_usually_holds_are_held_if_stated() -> None:
    made, plan = asked("replace-one", 9 << 30)
    question = question_of(made, plan, 1)
    assert 1 << (question.width - 1) > 9 << 30


def test_more_clients_than_were_reckoned_with_are_refused() -> None:
    made, _ = asked("replace-one", 90)
    model = made.trust_model
    model.check_cast(made.trust, {"party": 3, "client": 1024})
    with pytest.raises(StudyError) as refused:
        model.check_cast(made.trust, {"party": 3, "client": 1025})
    assert refused.value.rule == "room-for-clients"
