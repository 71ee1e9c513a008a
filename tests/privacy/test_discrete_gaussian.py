"""The compiled discrete Gaussian sampler draws what the Fraction reference draws, word for word."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import StudyError
from tallystick.privacy.mechanisms import batch, discrete_gaussian, kernels, reference
from tallystick.privacy.mechanisms.batch import THRESHOLDS
from tallystick.privacy.mechanisms.exponential import floor_exp
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

TOP = (1 << 64) - 1
VARIANCES = [
    Fraction(1, 100),
    Fraction(9, 4),
    Fraction(10**6),
    Fraction(10**12 + 1, 7),
    Fraction(2**80),
    Fraction(2**112 - 1),
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


def by_reference(variance: Fraction, size: int, source: Words) -> list[int]:
    words = WordBuffer(source)
    return [reference.gaussian(variance, words) for _ in range(size)]


@pytest.mark.parametrize("variance", VARIANCES)
def test_equal_draw_by_draw_to_the_reference(variance: Fraction) -> None:
    """6 variances of 17,000 draws: 102,000 in all."""
    draws = discrete_gaussian.sample(variance, 17_000, Words(7))
    assert draws.dtype == np.int64
    assert draws.tolist() == by_reference(variance, 17_000, Words(7))


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("guard", [2.0, 0.05])
def test_equal_with_the_exact_path_forced(variance: Fraction, guard: float) -> None:
    """Guard 2: every draw is the reference's. Guard 0.05: both paths alternate within the same stream."""
    forced = discrete_gaussian.sample(variance, 1000, Words(11), guard=guard)
    assert np.array_equal(forced, discrete_gaussian.sample(variance, 1000, Words(11)))


def test_the_forced_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    exact = reference.gaussian
    monkeypatch.setattr(reference, "gaussian", lambda variance, words: calls.append(1) or exact(variance, words))
    discrete_gaussian.sample(Fraction(10**6), 200, Words(3), guard=2.0)
    assert len(calls) == 200
    discrete_gaussian.sample(Fraction(10**6), 200, Words(3), guard=0.05)
    assert 200 < len(calls) < 400
    before = len(calls)
    discrete_gaussian.sample(Fraction(10**6), 200, Words(3))
    assert len(calls) == before


@pytest.mark.parametrize("block", [1, 2, 3, 4, 7, 64])
def test_equal_wherever_the_blocks_end(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    expected = discrete_gaussian.sample(Fraction(50, 7), 300, Words(5))
    monkeypatch.setattr(batch, "BLOCK", block)
    assert np.array_equal(discrete_gaussian.sample(Fraction(50, 7), 300, Words(5)), expected)
    assert np.array_equal(discrete_gaussian.sample(Fraction(50, 7), 300, Words(5), guard=0.1), expected)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 2**112), st.integers(1, 2**112), st.integers(0, 2**32))
def test_equal_at_any_variance(numerator: int, denominator: int, seed: int) -> None:
    variance = Fraction(numerator, denominator)
    expected = by_reference(variance, 20, Words(seed))
    assert discrete_gaussian.sample(variance, 20, Words(seed)).tolist() == expected


# σ² = 2^20: strips of t = 1024 (t² = σ²), c = 1/2, γ = x²/2^21 - V + 1/2. A uniform word u gives u >> 54.
VARIANCE = Fraction(1 << 20)
HALF = 1 << 63  # as a geometric word: R = 1/2 > e^-1, so V = 0, positive
V3 = (int(THRESHOLDS[2]) << 1) - 2  # R just below e^-3: V = 3, positive
U700 = 700 << 54
GAMMA_0 = Fraction(700**2, 1 << 21) + Fraction(1, 2)
GAMMA_3 = Fraction((3 * 1024 + 700) ** 2, 1 << 21) - 3 + Fraction(1, 2)
FIRST_0, SECOND_0 = floor_exp(GAMMA_0, 64), floor_exp(GAMMA_0, 128) & TOP
FIRST_3, SECOND_3 = floor_exp(GAMMA_3, 64), floor_exp(GAMMA_3, 128) & TOP
RETRY = [HALF, 5 << 54, 0]  # accepted at once: draw 5


@pytest.mark.parametrize(
    ("crafted", "expected"),
    [
        ([HALF, U700, 0], 700),
        ([HALF + 1, U700, 0], -700),
        ([HALF, U700, TOP, *RETRY], 5),
        ([HALF, U700, FIRST_0 - 1], 700),  # inside the guard band, decided by the exact path
        ([HALF, U700, FIRST_0 + 1, *RETRY], 5),
        ([HALF, U700, FIRST_0, SECOND_0 - 1], 700),  # the word straddles exp(-γ): a further word decides
        ([HALF, U700, FIRST_0, SECOND_0 + 1, *RETRY], 5),
        ([HALF, U700, FIRST_0, SECOND_0, 0], 700),
        ([V3, U700, FIRST_3, SECOND_3 - 1], 3772),
        ([V3 + 1, U700, FIRST_3, SECOND_3 - 1], -3772),
        ([V3, U700, FIRST_3, SECOND_3 + 1, *RETRY], 5),
        ([V3 + 2, 0, U700, FIRST_3 - 1], 3772),  # leading bits equal the threshold: a further word decides V
        ([V3 + 2, TOP, U700, 0], 2748),
        ([HALF, 0, 0], 0),
        ([HALF + 1, 0, 0, *RETRY], 5),  # minus zero is rejected
        ([V3 - (V3 >> 1), TOP, TOP, *RETRY], 5),
        ([(int(THRESHOLDS[0]) << 1) - 2, 0, TOP], 1024),  # V = 1, U = 0: γ = 0, accepted whatever the word
        ([0, TOP, U700, TOP, *RETRY], 5),  # V = 43, beyond the table: far out, hence rejected
        ([0, TOP, U700, 0, TOP, *RETRY], 5),  # γ = 913: the word 0 straddles, the next rejects
    ],
)
def test_crafted_words(crafted: list[int], expected: int) -> None:
    after = discrete_gaussian.sample(VARIANCE, 50, Words(1))
    draws = discrete_gaussian.sample(VARIANCE, 51, Words(1, crafted))
    assert draws[0] == expected
    assert np.array_equal(draws[1:], after)  # exactly the crafted words were read, and the kernel goes on behind them
    assert by_reference(VARIANCE, 51, Words(1, crafted)) == draws.tolist()
    forced = discrete_gaussian.sample(VARIANCE, 51, Words(1, crafted), guard=2.0)
    assert np.array_equal(draws, forced)


def test_a_kernel_without_the_exact_path_would_be_wrong() -> None:
    """Planted bug: guard 0 in the kernel itself decides the straddling word, whatever the next word says."""
    outcomes = set()
    for following in (SECOND_0 - 1, SECOND_0 + 1):
        words = np.array([HALF, U700, FIRST_0, following, HALF, 0, HALF, 0, 0], np.uint64)
        out = np.zeros(1, np.int64)
        arguments = (np.uint64(10), 1 / (1 << 21), 0.5)
        kernels.gaussian_kernel(words, out, 0, *arguments, 0.0, THRESHOLDS)
        outcomes.add(int(out[0]) == 700)
        decided = kernels.gaussian_kernel(words, out, 0, *arguments, kernels.GUARD, THRESHOLDS)
        assert decided == (0, 0, kernels.UNDECIDED)
    assert len(outcomes) == 1


def test_sizes_and_guards() -> None:
    assert discrete_gaussian.sample(Fraction(3), 0, Words(1)).shape == (0,)
    with pytest.raises(StudyError):
        discrete_gaussian.sample(Fraction(3), -1, Words(1))
    for narrow in (0.0, kernels.GUARD / 2, float("nan")):
        with pytest.raises(StudyError, match="guard"):
            discrete_gaussian.sample(Fraction(3), 1, Words(1), guard=narrow)
