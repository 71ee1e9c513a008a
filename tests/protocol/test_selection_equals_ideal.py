"""The parties' cell is the ideal function's, on the same words; and bugs planted in the circuits are caught by that."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from selection_world import SMALL, World, run_programs, split, stream

from tallystick.core.errors import RoundAborted, StudyError
from tallystick.privacy.mechanisms.exponential_mechanism import WeightTable, weight_table
from tallystick.protocol.selection import (
    GroupedQuestion,
    Question,
    check_parties,
    conversion,
    ideal,
    select_in_memory,
    weighing,
)
from tallystick.protocol.selection import circuit as whole
from tallystick.protocol.selection.ideal import distances
from tallystick.protocol.selection.machine import message_limit


@cache
def made(epsilon: Fraction, moves: int, cells: int) -> WeightTable:
    return weight_table(epsilon, moves, moves, cells=cells)


def example(seed: int) -> tuple[Question, list[int], int, int]:
    """Mixed sizes, kinds, quantiles, widths, tables, ties, parties and thresholds; a few of each."""
    draw = [int(w) for w in stream(31, seed).words(200)]
    cells = (2, 3, 4, 5, 16, 17, 63, 100)[draw[0] % 8]
    parties = 3 + seed % 8
    colluding = 1 + draw[1] % ((parties - 1) // 2)
    table = (SMALL, WeightTable((9, 4)), made(Fraction(1, 2), 2, cells), made(Fraction(1, 20), 1, cells))[draw[2] % 4]
    width = (18, 30, 36, 44)[draw[3] % 4]
    shift = (0, 0, 2)[draw[4] % 3]
    if seed % 3 == 0:
        spread = (3, 1000)[draw[5] % 2]  # ties, or far beyond the clamp
        totals = [draw[10 + i] % (2 * spread) - spread for i in range(cells)]
        return Question(cells=cells, kind="scores", width=width, table=table, shift=shift), totals, parties, colluding
    b = 1 + draw[5] % 20
    most = (1, 3, 300)[draw[6] % 3]
    totals = [draw[10 + i] % (most + 1) for i in range(cells + 2)]
    if seed % 5 == 0:  # everything in one cell, or nothing at all
        totals = [0] * (cells + 2)
        totals[draw[7] % (cells + 2)] = (0, 1000)[draw[8] % 2]
    question = Question(
        cells=cells, kind="ranks", numerator=draw[9] % (b + 1), denominator=b, width=width, table=table, shift=shift
    )
    return question, totals, parties, colluding


def agrees(seed: int) -> bool:
    question, totals, parties, colluding = example(seed)
    words = [stream(32, seed, i).bytes(question.word_bytes) for i in range(parties)]
    shares = split(totals, parties, stream(33, seed))
    try:
        places = run_programs(question, shares, words, colluding)
    except RoundAborted:  # opened bits that name no cell
        return False
    assert len(set(places)) == 1
    return places[0] == ideal(question, totals, words)


@pytest.mark.parametrize("seed", range(60))
def test_the_parties_draw_what_the_ideal_function_draws(seed: int) -> None:
    assert agrees(seed)


def test_the_examples_are_not_all_alike() -> None:
    chosen = [example(seed) for seed in range(60)]
    beyond = [any(d > q.table.clamp for d in distances(q, totals)) for q, totals, _, _ in chosen]
    assert 10 < sum(beyond) < 55
    assert {parties for *_, parties, _ in chosen} == set(range(3, 11))
    assert {colluding for *_, colluding in chosen} == {1, 2, 3, 4}


@pytest.mark.parametrize("parties", [3, 10])
def test_a_thousand_cells_through_machines(parties: int) -> None:
    question = Question(
        cells=1000, kind="ranks", numerator=1, denominator=2, width=32, table=made(Fraction(1, 10), 1, 1000)
    )
    totals = [int(w % np.uint64(50)) for w in stream(34).words(1002)]
    words = [stream(35, i).bytes(question.word_bytes) for i in range(parties)]
    selected = select_in_memory(
        question, split(totals, parties, stream(36)), words, [stream(37, i) for i in range(parties)], (parties - 1) // 2
    )
    assert selected.place == ideal(question, totals, words)
    assert selected.layers <= 96
    assert selected.bytes_sent[0] < (parties - 1) * 520_000


# -- planted bugs ------------------------------------------------------------------------------------------------------


def caught(seeds: range = range(60)) -> bool:
    return not all(agrees(seed) for seed in seeds)


def test_wraps_counted_without_rounding_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """k = T >> 8: right only when nothing was truncated, and never for a negative value."""

    def pieces(shares: list[int], width: int, *, first: bool) -> np.ndarray:
        low = [(s + first) % (1 << width) for s in shares]
        return np.concatenate([conversion.planes(low, width), conversion.planes([s >> 56 for s in shares], 9)])

    monkeypatch.setattr(whole, "pieces", pieces)
    assert caught()


def test_a_party_whose_word_is_ignored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = whole.selection

    def ignoring(question: Question, dealt: np.ndarray):  # noqa: ANN202, RUF100
        dealt = dealt.copy()
        dealt[-1, -question.draw_bits :] = 0
        return original(question, dealt)

    monkeypatch.setattr(whole, "selection", ignoring)
    assert caught()


def planted_table(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    original = weighing.read
    return lambda rows, columns, table, bits: original(rows, columns, change(table.copy()), bits)


def test_a_lopsided_clamp_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the quantile the table begins at distance 1: without repeating the last weight its end is another one."""

    def change(table: np.ndarray) -> np.ndarray:
        table[-1, -1] = 1
        return table

    monkeypatch.setattr(weighing, "read", planted_table(change))
    assert caught()


def test_ranks_without_the_interval_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell's distance by its upper edge alone: a cell with ties at the quantile is far from it."""
    original = weighing._by_rank

    def one_edge(question: Question, edges: np.ndarray):  # noqa: ANN202, RUF100
        shifted = edges[:, [*range(1, question.cells + 1), question.cells]]
        return original(question, shifted)

    monkeypatch.setattr(weighing, "_by_rank", one_edge)
    assert caught()


def test_weights_rounded_on_the_way_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "read", planted_table(lambda table: table & ~np.uint64(7)))
    assert caught()


# -- bad questions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"cells": 1}, {"cells": 1 << 18}, {"kind": "median"}, {"width": 7}, {"width": 53}, {"numerator": 3},
        {"numerator": -1}, {"denominator": 0}, {"denominator": 1 << 32}, {"shift": -1}, {"shift": 19},
    ],
)  # fmt: skip
def test_bad_questions_are_refused(changed: dict[str, object]) -> None:
    good = {"cells": 4, "kind": "ranks", "numerator": 1, "denominator": 2, "width": 20, "table": SMALL}
    Question(**good)  # type: ignore[arg-type]
    with pytest.raises(StudyError) as refused:
        Question(**good | changed)  # type: ignore[arg-type]
    assert refused.value.rule == "bad-question"


@pytest.mark.parametrize(("parties", "colluding", "rule"), [
    (2, 1, "three-to-ten-parties"), (11, 2, "three-to-ten-parties"), (3, 0, "honest-majority"),
    (4, 2, "honest-majority"), (10, 5, "honest-majority"),
])  # fmt: skip
def test_too_few_parties_or_honest_ones(parties: int, colluding: int, rule: str) -> None:
    with pytest.raises(StudyError) as refused:
        check_parties(parties, colluding)
    assert refused.value.rule == rule
    for m in range(3, 11):
        check_parties(m, (m - 1) // 2)


def test_fingerprints_tell_questions_apart() -> None:
    good = {"cells": 4, "kind": "ranks", "numerator": 1, "denominator": 2, "width": 20, "table": SMALL, "shift": 0}
    changes = [
        {}, {"cells": 5}, {"kind": "scores"}, {"numerator": 2}, {"denominator": 3}, {"width": 21}, {"shift": 1},
        {"table": WeightTable((9, 4))},
    ]  # fmt: skip
    prints = {Question(**good | change).fingerprint() for change in changes}  # type: ignore[arg-type]
    assert len(prints) == len(changes)


def test_secrets_are_not_shown() -> None:
    world = World(Question(cells=3, kind="scores", width=12, table=SMALL), [1, 2, 3])
    machine = world.machines["p0"]
    assert "p0" in repr(machine)
    begun = machine.begin(0.0)
    shown = repr(machine) + repr(begun)
    assert "payload" not in shown
    assert len(shown) < 2000


# -- clients that lie --------------------------------------------------------------------------------------------------


def lying(seed: int) -> tuple[Question, list[int]]:
    """Counts below zero, as only a client that does not follow the protocol can make them."""
    draw = [int(w) for w in stream(41, seed).words(40)]
    question = Question(cells=7, kind="ranks", numerator=1, denominator=2 + draw[0] % 3, width=24, table=SMALL)
    return question, [draw[1 + i] % 9 - 5 for i in range(9)]


@pytest.mark.parametrize("seed", range(12))
def test_negative_counts_are_weighed_as_the_ideal_function_weighs_them(seed: int) -> None:
    question, totals = lying(seed)
    words = [stream(42, seed, i).bytes(question.word_bytes) for i in range(3)]
    (place, *_) = run_programs(question, split(totals, 3, stream(43, seed)), words, 1)
    assert place == ideal(question, totals, words)


def test_an_honest_record_moves_no_distance_further_because_another_client_lies() -> None:
    """d = e if e ≥ 0 else max(0, −e′), as it was, jumps where a lie makes e′ < e: the bug that is planted here."""
    worst, planted = 0, 0
    for seed in range(200):
        question, totals = lying(seed)
        for at in range(9):
            more = [t + (i == at) for i, t in enumerate(totals)]
            moves = max(question.numerator, question.denominator - question.numerator)
            pairs = zip(distances(question, totals), distances(question, more))
            worst = max(worst, *(abs(a - b) - moves for a, b in pairs))
            jumps = zip(jumping(question, totals), jumping(question, more))
            planted = max(planted, *(abs(a - b) - moves for a, b in jumps))
    assert worst <= 0
    assert planted > 0


def jumping(question: Question, totals: list[int]) -> list[int]:
    *ranks, n = np.cumsum(totals).tolist()
    edges = [question.denominator * rank - question.numerator * n for rank in ranks]
    return [low if low >= 0 else max(0, -high) for low, high in pairwise(edges)]


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_groups_side_by_side_are_the_draws_of_each(seed: int) -> None:
    each = Question(cells=5 + seed, kind="ranks", numerator=1, denominator=3, width=20, table=SMALL)
    asked = GroupedQuestion(each=each, groups=1 + seed % 4)
    parties = 3 + seed % 4
    totals = [int(w % np.uint64(7)) for w in stream(61, seed).words(asked.values)]
    words = [stream(62, seed, i).bytes(asked.word_bytes) for i in range(parties)]
    found = run_programs(asked, split(totals, parties, stream(63, seed)), words, 1)
    assert set(found) == {ideal(asked, totals, words)}
    size = each.word_bytes
    for g in range(asked.groups):
        alone = ideal(each, totals[g * each.values :][: each.values], [w[g * size :][:size] for w in words])
        assert found[0] >> (24 * g) & 0xFFFFFF == alone


def test_groups_take_no_more_layers_than_one() -> None:
    each = Question(cells=9, kind="ranks", numerator=1, denominator=2, width=20, table=SMALL)
    layers = []
    for groups in (1, 6):
        asked = GroupedQuestion(each=each, groups=groups)
        words = [stream(64, i).bytes(asked.word_bytes) for i in range(3)]
        shares = split([3] * asked.values, 3, stream(65))
        selected = select_in_memory(asked, shares, words, [stream(66, i) for i in range(3)], 1)
        assert selected.longest_message <= message_limit(asked, 3)
        layers.append(selected.layers)
    assert layers[0] == layers[1]
    with pytest.raises(StudyError):
        GroupedQuestion(each=each, groups=0)
    with pytest.raises(StudyError):
        GroupedQuestion(each=each, groups=1 << 17)
    assert GroupedQuestion(each=each, groups=2).fingerprint() != GroupedQuestion(each=each, groups=3).fingerprint()
