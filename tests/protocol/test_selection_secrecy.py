"""What t colluding parties see of a whole selection: uniform shares, then the bits that name the cell, and no more."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from selection_world import SMALL, run_programs, split, stream

from tallystick.crypto.shamir_bits import combine, weights_at_zero
from tallystick.protocol.selection import Question, ideal
from tallystick.protocol.selection.circuit import Exchange, Purpose
from tallystick.protocol.selection.drawing import is_answer, place_of

QUESTION = Question(cells=20, kind="ranks", numerator=1, denominator=2, width=20, table=SMALL)
SCORES = Question(cells=20, kind="scores", width=20, table=SMALL)
EMPTY = [0] * 22
FULL = [37] * 22


class Zero:
    """A source of nothing: polynomials that are constant."""

    def words(self, count: int) -> np.ndarray:
        return np.zeros(count, dtype=np.uint64)

    def bytes(self, count: int) -> bytes:
        return bytes(count)


class OnlyInputs:
    """Random while the inputs are dealt, zero afterwards: products are reshared with the zero polynomial."""

    def __init__(self, party: int) -> None:
        self._source, self._dealt = stream(41, party), False

    def words(self, count: int) -> np.ndarray:
        if self._dealt:
            return np.zeros(count, dtype=np.uint64)
        self._dealt = True
        return self._source.words(count)


def layers(
    question: Question,
    totals: list[int],
    parties: int,
    colluding: int,
    *,
    seed: int = 0,
    sources: list[Any] | None = None,
) -> list[list[Exchange]]:
    seen: list[list[Exchange]] = []
    words = [stream(42, seed, i).bytes(question.word_bytes) for i in range(parties)]
    shares = split(totals, parties, stream(43, seed))
    sources = sources or [stream(44, seed, i) for i in range(parties)]
    run_programs(question, shares, words, colluding, sources=sources, watch=seen.append)
    return seen


def chi_square(seen: list[list[Exchange]], coalition: tuple[int, ...], dealer: int) -> float:
    """p-value that what an honest party dealt to the coalition is uniform on GF(16)^t, over all gates but the opening.

    The coalition's values of one gate are counted together: shares that are uniform one by one but not jointly fail.
    """
    joint = np.zeros(0, dtype=np.int64)
    for exchanges in seen[:-1]:
        rows = exchanges[dealer].rows
        value = sum(rows[member].astype(np.int64) << (4 * i) for i, member in enumerate(coalition))
        joint = np.concatenate([joint, value])
    bins = 16 ** len(coalition)
    counts = np.bincount(joint, minlength=bins)
    expected = joint.size / bins
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), bins - 1))


@pytest.mark.parametrize(("parties", "colluding"), [(3, 1), (5, 2), (6, 2)])
@pytest.mark.parametrize("totals", [EMPTY, FULL], ids=["empty", "full"])
def test_what_a_coalition_gets_is_uniform_whatever_the_inputs(parties: int, colluding: int, totals: list[int]) -> None:
    seen = layers(QUESTION, totals, parties, colluding)
    for coalition in itertools.islice(itertools.combinations(range(parties), colluding), 6):
        for dealer in set(range(parties)) - set(coalition):
            assert chi_square(seen, coalition, dealer) > 1e-5


def test_resharing_with_the_zero_polynomial_is_found() -> None:
    seen = layers(QUESTION, FULL, 3, 1, sources=[OnlyInputs(i) for i in range(3)])
    assert chi_square(seen, (0,), 1) < 1e-9
    all_zero = layers(QUESTION, FULL, 3, 1, sources=[Zero()] * 3)
    assert chi_square(all_zero, (0,), 1) < 1e-9


def test_a_polynomial_of_too_low_a_degree_is_found() -> None:
    """Degree 1 where two collude: each share is uniform, two together are not."""
    seen = layers(QUESTION, FULL, 5, 1)
    assert chi_square(seen, (0,), 4) > 1e-5
    assert chi_square(seen, (0, 1), 4) < 1e-9


@pytest.mark.parametrize("question", [QUESTION, SCORES], ids=["ranks", "scores"])
def test_one_opening_and_only_of_the_cell(question: Question) -> None:
    """A recorder of all layers: inputs once, products, one opening at the end; its bits are a function of the cell."""
    told: dict[int, bytes] = {}
    for seed in range(12):
        totals = [int(w % np.uint64(9)) for w in stream(45, seed).words(question.values)]
        seen = layers(question, totals, 3, 1, seed=seed)
        purposes = [{e.purpose for e in exchanges} for exchanges in seen]
        assert purposes[0] == {Purpose.INPUT}
        assert purposes[-1] == {Purpose.OPENING}
        assert all(p == {Purpose.PRODUCT} for p in purposes[1:-1])
        opening = np.stack([e.rows[0] for e in seen[-1]])
        assert opening.shape[1] == question.groups - 1 + question.group_size - 1
        bits = combine(opening, weights_at_zero(3))
        words = [stream(42, seed, i).bytes(question.word_bytes) for i in range(3)]
        place = ideal(question, totals, words)
        assert is_answer(question, bits)
        assert place_of(question, bits) == place
        assert told.setdefault(place, bits.tobytes()) == bits.tobytes()
    assert len(told) > 3


@pytest.mark.parametrize("cells", [2, 3, 5, 20, 63, 64, 65])
def test_what_is_opened_and_the_cell_say_the_same(cells: int) -> None:
    """Bits that rise once in each part ↔ cells: one to one, so the opening is a function of the result."""
    question = Question(cells=cells, kind="scores", width=20, table=SMALL)
    groups, size = question.groups, question.group_size
    places = []
    for group, cell in itertools.product(range(groups), range(size)):
        bits = np.array([g >= group for g in range(groups - 1)] + [c >= cell for c in range(size - 1)], dtype=np.uint8)
        if is_answer(question, bits):
            places.append(place_of(question, bits))
    assert places == list(range(cells))
    if groups > 2:
        assert not is_answer(question, np.array([1, 0] + [0] * (groups + size - 4), dtype=np.uint8))


def test_layers_do_not_depend_on_the_inputs() -> None:
    """Lengths and number of the layers are functions of the public question: nothing is told by them."""
    shapes = [
        [[e.rows.shape for e in exchanges] for exchanges in layers(QUESTION, totals, 4, 1, seed=seed)]
        for seed, totals in enumerate([EMPTY, FULL])
    ]
    assert shapes[0] == shapes[1]
