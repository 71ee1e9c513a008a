"""The compiled discrete Laplace sampler draws what the Fraction reference draws, word for word."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import StudyError
from tallystick.privacy.mechanisms import batch, discrete_laplace, kernels, reference
from tallystick.privacy.mechanisms.batch import THRESHOLDS
from tallystick.privacy.mechanisms.exponential import floor_exp
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

TOP = (1 << 64) - 1
SCALES = [
    Fraction(1, 10),
    Fraction(1),
    Fraction(3, 2),
    Fraction(10**3),
    Fraction(6_000_000_001, 6000),
    Fraction(2**40),
    Fraction(2**56 - 1),
    Fraction(2**64 // 257 + 1),  # 2^64 mod t is close to t: one uniform word in 257 is rejected, the most there can be
]


class Words:
    """The given words first, then a seeded stream."""

    def __init__(self, seed: int, first: list[int] | None = None) -> None:
        self.first = list(first or [])
        self.stream = np.random.PCG64(seed)

    def words(self, count: int) -> np.ndarray:
        taken, self.first = self.first[:count], self.first[count:]
        return np.concatenate((np.array(taken, np.uint64), self.stream.random_raw(count - len(taken))))

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError


def by_reference(scale: Fraction, size: int, source: Words) -> list[int]:
    words = WordBuffer(source)
    return [reference.laplace(scale, words) for _ in range(size)]


@pytest.mark.parametrize("scale", SCALES)
def test_equal_draw_by_draw_to_the_reference(scale: Fraction) -> None:
    """8 scales of 15,000 draws: 120,000 in all."""
    draws = discrete_laplace.sample(scale, 15_000, Words(7))
    assert draws.dtype == np.int64
    assert draws.tolist() == by_reference(scale, 15_000, Words(7))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("guard", [2.0, 0.05])
def test_equal_with_the_exact_path_forced(scale: Fraction, guard: float) -> None:
    """Guard 2: every draw is the reference's. Guard 0.05: both paths alternate within the same stream."""
    forced = discrete_laplace.sample(scale, 1000, Words(11), guard=guard)
    assert np.array_equal(forced, discrete_laplace.sample(scale, 1000, Words(11)))


def test_the_forced_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    exact = reference.laplace
    monkeypatch.setattr(reference, "laplace", lambda scale, words: calls.append(1) or exact(scale, words))
    discrete_laplace.sample(Fraction(1000), 200, Words(3), guard=2.0)
    assert len(calls) == 200
    discrete_laplace.sample(Fraction(1000), 200, Words(3), guard=0.05)
    assert 200 < len(calls) < 400
    before = len(calls)
    discrete_laplace.sample(Fraction(1000), 200, Words(3))
    assert len(calls) == before


@pytest.mark.parametrize("block", [1, 2, 3, 4, 7, 64])
def test_equal_wherever_the_blocks_end(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    expected = discrete_laplace.sample(Fraction(7, 3), 300, Words(5))
    monkeypatch.setattr(batch, "BLOCK", block)
    assert np.array_equal(discrete_laplace.sample(Fraction(7, 3), 300, Words(5)), expected)
    assert np.array_equal(discrete_laplace.sample(Fraction(7, 3), 300, Words(5), guard=0.1), expected)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 2**56), st.integers(1, 2**56), st.integers(0, 2**32))
def test_equal_at_any_scale(t: int, s: int, seed: int) -> None:
    scale = Fraction(t, s)
    assert discrete_laplace.sample(scale, 20, Words(seed)).tolist() == by_reference(scale, 20, Words(seed))


def uniform_word(value: int, t: int) -> int:
    """A word that ``uniform_below(t)`` turns into ``value`` without rejection."""
    return -(-(value << 64) // t) + 1


HALF = 1 << 63  # as a geometric word: R = 1/2 > e^-1, so V = 0, positive
GAMMA = Fraction(700, 1000)
FIRST = floor_exp(GAMMA, 64)
SECOND = floor_exp(GAMMA, 128) & TOP
RETRY = [uniform_word(5, 1000), 0, HALF]  # accepted at once: draw 5
A700 = uniform_word(700, 1000)


@pytest.mark.parametrize(
    ("crafted", "expected"),
    [
        ([A700, 0, HALF], 700),
        ([A700, 0, HALF + 1], -700),
        ([A700, TOP, *RETRY], 5),
        ([A700, FIRST - 1, HALF], 700),  # inside the guard band, decided by the exact path
        ([A700, FIRST + 1, *RETRY], 5),
        ([A700, FIRST, SECOND - 1, HALF], 700),  # the word straddles exp(-0.7): a further word decides
        ([A700, FIRST, SECOND + 1, *RETRY], 5),
        ([A700, FIRST, SECOND, 0, HALF], 700),
        ([A700, FIRST, SECOND, TOP, *RETRY], 5),
        # Low half 0 < 2^64 mod 1000: the uniform word is rejected (not rejecting would draw U = 0, V = 16).
        ([0, uniform_word(5, 1000), 1 << 40, HALF], 5),
        ([TOP, 0, HALF], 999),
        ([uniform_word(0, 1000), 0, HALF], 0),
        ([uniform_word(0, 1000), 0, HALF + 1, *RETRY], 5),  # minus zero is rejected
        ([uniform_word(0, 1000), TOP, HALF], 0),  # exp(0) = 1: R < 1 always, though inside the guard band
        ([A700, 0, (int(THRESHOLDS[2]) << 1) - 2], 3700),
        ([A700, 0, int(THRESHOLDS[2]) << 1, 0], 3700),  # leading bits equal the threshold: a further word decides
        ([A700, 0, int(THRESHOLDS[2]) << 1, TOP], 2700),
        ([A700, 0, 1, TOP], -43700),  # beyond the table
        ([A700, 0, 0, 0, HALF], 88700),
    ],
)
def test_crafted_words(crafted: list[int], expected: int) -> None:
    after = discrete_laplace.sample(Fraction(1000), 50, Words(1))
    draws = discrete_laplace.sample(Fraction(1000), 51, Words(1, crafted))
    assert draws[0] == expected
    assert np.array_equal(draws[1:], after)  # exactly the crafted words were read, and the kernel goes on behind them
    assert by_reference(Fraction(1000), 51, Words(1, crafted)) == draws.tolist()
    forced = discrete_laplace.sample(Fraction(1000), 51, Words(1, crafted), guard=2.0)
    assert np.array_equal(draws, forced)


def test_a_kernel_without_the_exact_path_would_be_wrong() -> None:
    """Planted bug: guard 0 in the kernel itself decides the straddling word, whatever the next word says."""
    t = 1000
    outcomes = set()
    for following in (SECOND - 1, SECOND + 1):
        words = np.array([A700, FIRST, following, HALF, HALF, 0, HALF], np.uint64)
        out = np.zeros(1, np.int64)
        arguments = (np.uint64(t), np.uint64(1), np.uint64((1 << 64) % t), 1 / t)
        kernels.laplace_kernel(words, out, 0, *arguments, 0.0, THRESHOLDS)
        outcomes.add(int(out[0]) % 1000 == 700)
        assert kernels.laplace_kernel(words, out, 0, *arguments, kernels.GUARD, THRESHOLDS) == (0, 0, kernels.UNDECIDED)
    assert len(outcomes) == 1


def test_a_draw_beyond_64_bits_is_refused_not_wrapped() -> None:
    crafted = [0, 0, 0, 0, 0, HALF]  # V = floor(192 ln 2) = 133
    with pytest.raises(StudyError, match="64 bits"):
        discrete_laplace.sample(Fraction(2**56), 1, Words(1, crafted))
    assert discrete_laplace.sample(Fraction(2**55), 1, Words(1, crafted))[0] == 133 << 55


def test_sizes_and_guards() -> None:
    assert discrete_laplace.sample(Fraction(3), 0, Words(1)).shape == (0,)
    with pytest.raises(StudyError):
        discrete_laplace.sample(Fraction(3), -1, Words(1))
    for narrow in (0.0, kernels.GUARD / 2, float("nan")):
        with pytest.raises(StudyError, match="guard"):
            discrete_laplace.sample(Fraction(3), 1, Words(1), guard=narrow)
