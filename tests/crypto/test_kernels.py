"""The compiled loops against Python integers: sums, refusals that leave no trace, rejection in the keystream."""

from __future__ import annotations

import numpy as np
import pytest
from crypto_reference import P, keep_below_p
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallystick.crypto import kernels

EDGES = [0, 1, 2, 2**32 - 2, 2**32 - 1, 2**32, 2**63, (P - 1) // 2, P // 2 + 1, P - 2, P - 1]
TOO_LARGE = [P, P + 1, P + 2**31, 2**64 - 2, 2**64 - 1]

elements = st.one_of(st.sampled_from(EDGES), st.integers(0, P - 1))
words = st.one_of(st.sampled_from(EDGES + TOO_LARGE), st.integers(0, 2**64 - 1))


def vector(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


def stretch(values: list[int], size: int) -> list[int]:
    """The pattern repeated to ``size``, long enough to reach vector loops, blocks and remainders."""
    return (values * (size // len(values) + 1))[:size]


def test_every_pair_of_edges() -> None:
    a = [x for x in EDGES for _ in EDGES]
    b = [y for _ in EDGES for y in EDGES]
    total, difference, both = vector(a), vector(a), vector(a)
    assert kernels.add_checked(total, vector(b))
    assert total.tolist() == [(x + y) % P for x, y in zip(a, b)]
    assert kernels.subtract_checked(difference, vector(b))
    assert difference.tolist() == [(x - y) % P for x, y in zip(a, b)]
    assert kernels.add_pair_checked(both, vector(b), vector(b[::-1]))
    assert both.tolist() == [(x + y + z) % P for x, y, z in zip(a, b, b[::-1])]


@settings(deadline=None, max_examples=60)
@given(
    a=st.lists(elements, min_size=1, max_size=40), b=st.lists(elements, min_size=1, max_size=40), n=st.integers(0, 3000)
)
def test_add_and_subtract_equal_integers(a: list[int], b: list[int], n: int) -> None:
    a, b = stretch(a, n), stretch(b, n)
    acc = vector(a)
    assert kernels.add_checked(acc, vector(b))
    assert acc.tolist() == [(x + y) % P for x, y in zip(a, b)]
    assert kernels.subtract_checked(acc, vector(b))
    assert acc.tolist() == a
    assert kernels.is_canonical(acc)


@settings(deadline=None, max_examples=60)
@given(data=st.data(), n=st.integers(1, 2500), where=st.integers(0, 2499), word=st.sampled_from(TOO_LARGE))
def test_a_refused_vector_leaves_no_trace(data: st.DataObject, n: int, where: int, word: int) -> None:
    acc_values = stretch(data.draw(st.lists(elements, min_size=1, max_size=20)), n)
    good = vector(stretch(data.draw(st.lists(elements, min_size=1, max_size=20)), n))
    bad = good.copy()
    bad[where % n] = word
    assert not kernels.is_canonical(bad)
    for refuse in (
        lambda acc: kernels.add_checked(acc, bad),
        lambda acc: kernels.subtract_checked(acc, bad),
        lambda acc: kernels.add_pair_checked(acc, bad, good),
        lambda acc: kernels.add_pair_checked(acc, good, bad),
        lambda acc: kernels.add_pair_checked(acc, bad, bad),
    ):
        acc = vector(acc_values)
        assert not refuse(acc)
        assert acc.tolist() == acc_values


def test_undo_is_exact_for_every_edge_and_every_too_large_word() -> None:
    a = [x for x in EDGES for _ in TOO_LARGE]
    b = [y for _ in EDGES for y in TOO_LARGE]
    for operation in (kernels.add_checked, kernels.subtract_checked):
        acc = vector(a)
        assert not operation(acc, vector(b))
        assert acc.tolist() == a


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(
    "rejected",
    [
        [],
        [0],
        [4999],
        [1023],
        [1024],
        [1023, 1024],
        [0, 1, 2, 700, 1022, 1023, 1024, 2047, 2048, 4998, 4999],
        list(range(1024)),
        list(range(5000)),
    ],
)
def test_absorb_skips_rejected_words_in_order(rejected: list[int], negate: bool) -> None:
    stream = [(i * 0x9E3779B97F4A7C15) % P for i in range(5000)]
    for turn, where in enumerate(rejected):
        stream[where] = TOO_LARGE[turn % len(TOO_LARGE)]
    start = [(i * i * 0xD1B54A32D192ED03) % P for i in range(5100)]
    acc = vector(start)
    kept = keep_below_p(stream, 5000)
    filled = kernels.absorb(acc, 30, vector(stream), negate)
    assert filled == 30 + len(kept)
    sign = -1 if negate else 1
    want = start[:30] + [(a + sign * w) % P for a, w in zip(start[30:], kept)] + start[filled:]
    assert acc.tolist() == want


def test_absorb_never_writes_past_the_end() -> None:
    room = np.zeros(64, dtype=np.uint64)
    acc = room[:40]
    assert kernels.absorb(acc, 10, vector([1] * 64), False) == 40
    assert room.tolist() == [0] * 10 + [1] * 30 + [0] * 24
    assert kernels.absorb(acc, 40, vector([1] * 5), False) == 40


@settings(deadline=None, max_examples=60)
@given(stream=st.lists(words, min_size=1, max_size=60), repeat=st.integers(1, 60), negate=st.booleans())
def test_absorb_equals_integers(stream: list[int], repeat: int, negate: bool) -> None:
    stream = stream * repeat
    acc = vector([P - 1] * len(stream))
    kept = keep_below_p(stream, len(stream))
    assert kernels.absorb(acc, 0, vector(stream), negate) == len(kept)
    sign = -1 if negate else 1
    assert acc.tolist() == [(P - 1 + sign * w) % P for w in kept] + [P - 1] * (len(stream) - len(kept))
