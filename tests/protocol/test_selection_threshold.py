"""Comparisons with a threshold on shares: equal to the ideal function on the same noise; bugs that are planted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from selection_world import World, plain, run_programs, split, stream

from tallystick.core.errors import RoundAborted, StudyError
from tallystick.privacy.mechanisms import discrete_laplace
from tallystick.protocol.selection import ThresholdQuestion, ideal, select_in_memory, threshold
from tallystick.protocol.selection import circuit as whole
from tallystick.protocol.selection.machine import message_limit
from tallystick.protocol.selection.messages import Layer


def noise(question: ThresholdQuestion, scale: int, seed: int, party: int) -> bytes:
    return discrete_laplace.sample(Fraction(scale), question.cells + 1, stream(51, seed, party)).astype("<i8").tobytes()


def example(seed: int) -> tuple[ThresholdQuestion, list[int], list[bytes], int]:
    """Mixed numbers of counts, ones, parties and thresholds; counts near the threshold and far from it."""
    draw = [int(w) for w in stream(52, seed).words(120)]
    cells = (2, 3, 4, 7, 8, 31, 100)[draw[0] % 7]
    parties = 3 + seed % 8
    most = (1, 2, max(1, cells // 2), cells)[draw[1] % 4]
    question = ThresholdQuestion(
        cells=cells, threshold=(1, 50, 10**6)[draw[2] % 3], most=min(most, cells), width=(24, 40, 52)[draw[3] % 3]
    )
    totals = [max(0, question.threshold + draw[5 + i] % 9 - 4) for i in range(cells)]
    if seed % 4 == 0:  # all above, or none
        totals = [0 if draw[4] % 2 else question.threshold + 5000] * cells
    scale = (1, 20, 1000)[draw[4] % 3]
    words = [noise(question, scale, seed, i) for i in range(parties)]
    return question, totals, words, 1 + draw[4] % ((parties - 1) // 2)


def agrees(seed: int) -> bool:
    question, totals, words, colluding = example(seed)
    shares = split(totals, len(words), stream(53, seed))
    try:
        found = run_programs(question, shares, words, colluding)
    except RoundAborted:  # more ones than were asked for
        return False
    assert len(set(found)) == 1
    return found[0] == ideal(question, totals, words)


@pytest.mark.parametrize("seed", range(50))
def test_the_parties_tell_what_the_ideal_function_tells(seed: int) -> None:
    assert agrees(seed)


def test_the_examples_are_not_all_alike() -> None:
    told = [(ideal(q, totals, words).bit_count(), q.most) for q, totals, words, _ in map(example, range(50))]
    assert any(n == most for n, most in told)
    assert any(0 < n < most for n, most in told)
    assert any(n == 0 for n, _ in told)


def test_a_thousand_counts_through_machines() -> None:
    question = ThresholdQuestion(cells=1000, threshold=500, most=20)
    totals = [int(w % np.uint64(520)) for w in stream(54).words(1000)]
    words = [noise(question, 30, 1, i) for i in range(3)]
    sources = [stream(55, i) for i in range(3)]
    selected = select_in_memory(question, split(totals, 3, stream(56)), words, sources, 1)
    assert selected.place == ideal(question, totals, words)
    assert selected.place.bit_count() == 20
    assert selected.layers <= 45
    assert selected.longest_message <= message_limit(question, 3)


def test_a_bad_network_changes_nothing() -> None:
    question = ThresholdQuestion(cells=5, threshold=3, most=2)
    words = [noise(question, 2, 7, i) for i in range(3)]
    world = World(question, [1, 9, 9, 9, 0], words=words, loss=0.2, repeat=0.2, reorder=True).run()
    assert set(world.places.values()) == {world.expected}
    assert not world.errors


@pytest.mark.parametrize("step", [0, 3, 20])
def test_a_silent_party_ends_it_with_nothing_opened(step: int) -> None:
    question = ThresholdQuestion(cells=5, threshold=3, most=2)
    words = [noise(question, 2, 8, i) for i in range(3)]
    run = World(
        question, [1, 9, 9, 9, 0], words=words,
        dead=lambda name, message: name == "p2" and isinstance(message, Layer) and message.step >= step,
    ).run()  # fmt: skip
    assert not run.places
    assert {error.rule for error in run.errors.values()} == {"silent-party"}
    assert all("Nothing was opened" in error.remedy for error in run.errors.values())
    assert run.now <= 31


# -- planted bugs ------------------------------------------------------------------------------------------------------


def caught() -> bool:
    return not all(agrees(seed) for seed in range(50))


def test_a_party_whose_noise_is_left_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = threshold.noise_in

    def without(question: ThresholdQuestion, share: np.ndarray, word: bytes, *, first: bool) -> list[int]:
        found = threshold.noisy_shares(question, share, word, first=first)
        return [(v - n) % threshold.MODULUS for v, n in zip(found, original(question, word))] if first else found

    monkeypatch.setattr(whole, "noisy_shares", without)
    assert caught()


def test_threshold_noise_that_differs_between_counts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """ρ is one number for all counts: used for the first one only, the proof is gone."""

    def once(question: ThresholdQuestion, share: np.ndarray, word: bytes, *, first: bool) -> list[int]:
        *counts, rho = (int(n) for n in np.frombuffer(word, dtype="<i8"))
        noisy = [n - rho * (i == 0) for i, n in enumerate(counts)]
        return [(int(s) + n - question.threshold * first) % threshold.MODULUS for s, n in zip(share, noisy)]

    monkeypatch.setattr(whole, "noisy_shares", once)
    assert caught()


def test_a_comparison_that_does_not_halt_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(question: ThresholdQuestion, values: np.ndarray):  # noqa: ANN202, RUF100
        yield from ()
        return values[-1] ^ 1

    monkeypatch.setattr(whole, "first_above", endless)
    assert caught()


def test_the_circuit_counts_only_what_comes_before() -> None:
    question = ThresholdQuestion(cells=6, threshold=1, most=2, width=8)
    for signs in range(64):
        negative = np.zeros((8, 6), dtype=np.uint8)
        negative[-1] = [signs >> i & 1 for i in range(6)]
        opened = plain(threshold.first_above(question, negative))
        above = [i for i in range(6) if not signs >> i & 1]
        assert np.flatnonzero(opened).tolist() == above[:2]


# -- bad questions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed", [{"cells": 1}, {"cells": 1 << 18}, {"most": 0}, {"most": 6}, {"threshold": 0}, {"threshold": 1 << 51},
                {"width": 53}, {"width": 7}]
)  # fmt: skip
def test_bad_questions_are_refused(changed: dict[str, int]) -> None:
    good = {"cells": 5, "threshold": 3, "most": 2}
    with pytest.raises(StudyError) as refused:
        ThresholdQuestion(**good | changed)
    assert refused.value.rule == "bad-question"
    assert ThresholdQuestion(**good).fingerprint() != ThresholdQuestion(**good | {"most": 3}).fingerprint()


def test_opened_bits_with_too_many_ones_are_no_answer() -> None:
    question = ThresholdQuestion(cells=4, threshold=3, most=2)
    assert threshold.answer_in(question, np.array([1, 0, 1, 0], dtype=np.uint8)) == 5
    assert threshold.answer_in(question, np.array([1, 1, 1, 0], dtype=np.uint8)) is None
