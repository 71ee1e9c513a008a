"""The three exact parts of the samplers: known answers on crafted words, kernels' integer parts against Python's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystick.privacy.mechanisms import kernels, reference
from tallystick.privacy.mechanisms.batch import THRESHOLDS
from tallystick.privacy.mechanisms.exponential import floor_exp
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

TOP = (1 << 64) - 1
word = st.integers(0, TOP)


class ListSource:
    """Exactly these words; reading further is an error."""

    def __init__(self, words: list[int]) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        assert count <= len(self.left), "read a word too many"
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, np.uint64)

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError


def reading(*words: int) -> tuple[WordBuffer, ListSource]:
    source = ListSource(list(words))
    return WordBuffer(source, block=1), source


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, 7, 10, 1000, 1 << 40, (1 << 56) - 5, 1 << 56])
def test_every_uniform_value_has_the_same_number_of_words(bound: int) -> None:
    """The words of value k are an interval; its first word alone may be rejected. Count what is left, exactly."""
    values = range(bound) if bound <= 1000 else [0, 1, 2, bound // 3, bound // 2, bound - 2, bound - 1]
    for value in values:
        first = -(-(value << 64) // bound)
        last = -(-((value + 1) << 64) // bound) - 1
        words, source = reading(first, TOP)  # TOP is never rejected: its low half is 2^64 - bound
        accepted = reference.uniform_below(bound, words) == value and len(source.left) == 1
        assert last - first + accepted == (1 << 64) // bound
        words, source = reading(last)
        assert reference.uniform_below(bound, words) == value


@pytest.mark.parametrize("gamma", [Fraction(1, 2), Fraction(7, 10), Fraction(3), Fraction(1, 10**6), Fraction(40)])
def test_bernoulli_takes_a_further_word_only_on_the_straddling_one(gamma: Fraction) -> None:
    straddling = floor_exp(gamma, 64)
    second = floor_exp(gamma, 128) & TOP
    third = floor_exp(gamma, 192) & TOP
    cases = [
        ([straddling - 1], True),
        ([straddling + 1], False),
        ([straddling, second - 1], True),
        ([straddling, second + 1], False),
        ([straddling, second, third - 1], True),
        ([straddling, second, third + 1], False),
    ]
    for crafted, expected in cases:
        words, source = reading(*crafted)
        assert reference.bernoulli_exp(gamma, words) is expected
        assert source.left == []


def test_bernoulli_of_zero_is_certain_and_reads_one_word() -> None:
    words, source = reading(TOP, 1)
    assert reference.bernoulli_exp(Fraction(0), words) is True
    assert source.left == [1]


def test_a_probability_far_below_one_word() -> None:
    words, _ = reading(0, 0, 1 << 40)  # R < 2^-151 = e^-104.7: above e^-1000, below e^-100
    assert reference.bernoulli_exp(Fraction(100), words) is True
    words, source = reading(0, 1)
    assert reference.bernoulli_exp(Fraction(1000), words) is False
    assert source.left == []


@pytest.mark.parametrize(
    ("crafted", "expected"),
    [
        ([TOP], (0, True)),
        ([1 << 63], (0, False)),
        ([(int(THRESHOLDS[0]) << 1) - 2], (1, False)),
        ([(int(THRESHOLDS[0]) << 1) + 3], (0, True)),
        ([int(THRESHOLDS[2]) << 1, 0], (3, False)),  # equal leading bits: the next word decides
        ([int(THRESHOLDS[2]) << 1, TOP], (2, False)),
        ([1, TOP], (43, True)),  # all 63 bits zero: beyond the table
        ([0, 0, 1 << 63], (88, False)),  # R = 2^-128 = e^-88.7
    ],
)
def test_geometric_known_answers(crafted: list[int], expected: tuple[int, bool]) -> None:
    words, source = reading(*crafted)
    assert reference.geometric_and_sign(words) == expected
    assert source.left == []


@settings(deadline=None, max_examples=500)
@given(word, word)
@example(TOP, TOP)
@example(TOP, 1)
@example(1 << 32, 1 << 32)
@example((1 << 32) - 1, TOP)
def test_multiply_high(a: int, b: int) -> None:
    assert int(kernels._multiply_high(np.uint64(a), np.uint64(b))) == (a * b) >> 64


@settings(deadline=None, max_examples=500)
@given(st.integers(2, (1 << 63) - 1) | st.integers(1, 43).map(lambda k: int(THRESHOLDS[k - 1]) + 1))
def test_compiled_geometric(leading: int) -> None:
    v = int(kernels._geometric(np.uint64(leading), THRESHOLDS))
    if leading in THRESHOLDS.tolist():
        assert v == -1
    else:
        words, _ = reading(leading << 1)
        assert (v, False) == reference.geometric_and_sign(words)


def test_compiled_geometric_does_not_decide_equality() -> None:
    for threshold in THRESHOLDS:
        assert int(kernels._geometric(threshold, THRESHOLDS)) == -1


@settings(deadline=None, max_examples=200)
@given(st.fractions(min_value=Fraction(1, 1000), max_value=10**30), st.integers(0, 60))
def test_gaussian_acceptance_is_a_probability(variance: Fraction, v: int) -> None:
    """γ >= 0 on every strip, and 0 is reached: the proposal is an envelope and no wider than need be."""
    t = reference.strip_width(variance)
    c = reference.strip_offset(variance, t)
    assert (t * v) ** 2 / (2 * variance) - v + c >= 0
    assert min((t * k) ** 2 / (2 * variance) - k + c for k in (0, 1)) == 0
    assert t & (t - 1) == 0
    assert t == 1 or (t / 2) ** 2 < 2 * variance / 3 <= t * t
