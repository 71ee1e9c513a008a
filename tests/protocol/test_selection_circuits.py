"""Every circuit against integers: exhaustively where widths are small, by random numbers where they are large."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_world import bits_of, depth, numbers, plain, split, stream

from tallystick.crypto.field import MODULUS
from tallystick.privacy.mechanisms.exponential_mechanism import WeightTable
from tallystick.protocol.selection.adders import add, carry_out, compress, reaches, running_sums
from tallystick.protocol.selection.conversion import pieces, to_bits
from tallystick.protocol.selection.drawing import scaled
from tallystick.protocol.selection.gates import all_of, any_of, both, parallel
from tallystick.protocol.selection.question import Question
from tallystick.protocol.selection.table_lookup import one_hot, read
from tallystick.protocol.selection.weighing import clamped, largest, weigh


def pairs(width: int) -> tuple[list[int], list[int]]:
    both_sides = list(itertools.product(range(1 << width), repeat=2))
    return [a for a, _ in both_sides], [b for _, b in both_sides]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_adders_exhaustively(width: int) -> None:
    a, b = pairs(width)
    planes = bits_of(a, width), bits_of(b, width)
    assert numbers(plain(add(*planes))) == [(x + y) % (1 << width) for x, y in zip(a, b)]
    assert plain(carry_out(*planes)).tolist() == [x + y >> width for x, y in zip(a, b)]


wide = st.lists(st.tuples(st.integers(0, 2**90 - 1), st.integers(0, 2**90 - 1)), min_size=1, max_size=4)


@settings(max_examples=60)
@given(st.integers(2, 90), wide)
def test_adders_on_wide_numbers(width: int, values: list[tuple[int, int]]) -> None:
    a, b = ([v[i] % (1 << width) for v in values] for i in (0, 1))
    planes = bits_of(a, width), bits_of(b, width)
    assert numbers(plain(add(*planes))) == [(x + y) % (1 << width) for x, y in zip(a, b)]
    assert plain(carry_out(*planes)).tolist() == [x + y >> width for x, y in zip(a, b)]


def test_carries_run_all_the_way() -> None:
    for width in (7, 8, 9, 44, 64):
        ones, one = bits_of([2**width - 1], width), bits_of([1], width)
        assert numbers(plain(add(ones, one))) == [0]
        assert plain(carry_out(ones, one)).tolist() == [1]


def test_depths() -> None:
    """Logarithmic, and what the README says of it."""
    a = bits_of([5], 44)
    assert depth(add(a, a)) == 7
    assert depth(carry_out(a, a)) == 7
    assert depth(compress(np.stack([a] * 10))) == 5
    assert depth(all_of(bits_of([5], 32))) == 5


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2**20 - 1), min_size=1, max_size=12), st.integers(2, 26))
def test_carry_save_keeps_the_sum(values: list[int], width: int) -> None:
    values = [v % (1 << width) for v in values]
    pair = plain(compress(np.stack([bits_of([v], width) for v in values])))
    assert len(pair) == 2
    (low,), (high,) = numbers(pair[0]), numbers(pair[1])
    assert (low + high) % (1 << width) == sum(values) % (1 << width)
    if sum(values) < 1 << width:  # nothing was carried out: the pair is the sum itself
        assert low + high == sum(values)
        if width > 2:
            assert plain(reaches(pair)).tolist() == [sum(values) >> (width - 1)]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2**12 - 1), min_size=1, max_size=33), st.booleans())
def test_running_sums(values: list[int], single: bool) -> None:
    planes = bits_of(values, 20)
    second = np.zeros_like(planes) if single else bits_of([v // 2 for v in values], 20)
    sums = plain(running_sums(np.stack([planes, second]), single=single))
    found = [a + b for a, b in zip(numbers(sums[0]), numbers(sums[1]))]
    added = values if single else [v + v // 2 for v in values]
    assert found == list(itertools.accumulate(added))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_all_and_any_exhaustively(count: int) -> None:
    cases = bits_of(list(range(1 << count)), count)
    assert plain(all_of(cases)).tolist() == [v == (1 << count) - 1 for v in range(1 << count)]
    assert plain(any_of(cases)).tolist() == [v > 0 for v in range(1 << count)]


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7])
def test_one_hot_exhaustively(bits: int) -> None:
    hot = plain(one_hot(bits_of(list(range(1 << bits)), bits)))
    assert (hot == np.eye(1 << bits, dtype=np.uint8)).all()


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_clamp_exhaustively(bits: int) -> None:
    values = list(range(64))
    assert numbers(plain(clamped(bits_of(values, 6), bits))) == [min(v, (1 << bits) - 1) for v in values]
    assert numbers(plain(clamped(bits_of([0, 1], 1), bits))) == [0, 1]


def test_a_table_is_read_at_every_place() -> None:
    table = (stream(1).words(32)).reshape(8, 4)
    places = list(range(32))
    rows, columns = (
        plain(one_hot(bits_of([p >> 2 for p in places], 3))),
        plain(one_hot(bits_of([p & 3 for p in places], 2))),
    )
    assert numbers(read(rows, columns, table, 64)) == table.reshape(-1).tolist()
    many = 3000  # several blocks
    found = numbers(read(np.tile(rows, 94)[:, :many], np.tile(columns, 94)[:, :many], table, 64))
    assert found == (table.reshape(-1).tolist() * 94)[:many]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2**11 - 1), min_size=1, max_size=40))
def test_the_largest(values: list[int]) -> None:
    assert numbers(plain(largest(bits_of(values, 11)))[:, None]) == [max(values)]


def test_the_largest_of_four_exhaustively() -> None:
    for values in itertools.product(range(4), repeat=4):
        assert numbers(plain(largest(bits_of(values, 2)))[:, None]) == [max(values)]


@settings(max_examples=40)
@given(st.integers(0, 2**80 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_scaling(word: int, first: int, second: int) -> None:
    pair = np.stack([bits_of([first], 17), bits_of([second], 17)])[:, :, 0]
    r = plain(scaled(bits_of([word], 80)[:, 0], pair))
    assert numbers(r[:, None]) == [word * (first + second) >> 80]


def test_parallel_is_as_deep_as_the_deepest() -> None:
    def three(a: np.ndarray, b: np.ndarray):
        return parallel(add(a, b), both(a, b), carry_out(b, a))

    a, b = bits_of([200, 3], 8), bits_of([100, 250], 8)
    total, conjunction, carry = plain(three(a, b))
    assert numbers(total) == [44, 253]
    assert numbers(conjunction) == [200 & 100, 3 & 250]
    assert carry.tolist() == [1, 0]
    assert depth(three(a, b)) == max(depth(add(a, b)), depth(carry_out(b, a)))


# -- additive shares to bits -------------------------------------------------------------------------------------------


def converted(shares: Sequence[Sequence[int]], width: int) -> list[int]:
    dealt = np.stack([pieces(list(map(int, s)), width, first=i == 0) for i, s in enumerate(shares)])
    signed = numbers(plain(to_bits(dealt, width)))
    return [v - (1 << width) if v >> (width - 1) else v for v in signed]


def extremes(width: int) -> list[int]:
    most = (1 << (width - 1)) - 1
    return [0, 1, -1, 2, -2, most, -most, most // 3, -(most // 3)]


@pytest.mark.parametrize("parties", range(3, 11))
@pytest.mark.parametrize("width", [8, 20, 32, 33, 36, 37, 44, 52])
def test_conversion_of_random_shares(parties: int, width: int) -> None:
    values = extremes(width) * 3
    assert converted(split(values, parties, stream(parties, width)), width) == values


@pytest.mark.parametrize("parties", range(3, 11))
def test_conversion_of_extreme_shares(parties: int) -> None:
    """Shares that are 0, p − 1, or next to a multiple of 2^56: every number of wraps, from either side."""
    edges = [0, 1, MODULUS - 1, MODULUS - 2, 2**56 - 1, 2**56, 2**63, 2**64 - 2**56, 2**64 - 2**56 - 1]
    for width in (12, 44, 52):
        values = extremes(width)
        for edge in edges:
            fixed = [[edge] * len(values) for _ in range(parties - 1)]
            last = [(v - sum(f[i] for f in fixed)) % MODULUS for i, v in enumerate(values)]
            assert converted([*fixed, last], width) == values
            assert converted([last, *fixed], width) == values


@settings(max_examples=60)
@given(
    st.integers(3, 10),
    st.integers(8, 52),
    st.lists(st.integers(0, MODULUS - 1), min_size=9, max_size=9),
    st.integers(-(2**51) + 1, 2**51 - 1),
)
def test_conversion_of_any_shares(parties: int, width: int, some: list[int], value: int) -> None:
    value = value % (1 << (width - 1)) * (-1 if value < 0 else 1)
    shares = some[: parties - 1]
    assert converted([[s] for s in [*shares, (value - sum(shares)) % MODULUS]], width) == [value]


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [(9, 4), (40, 13, 5, 2), (900, 500, 280, 150, 90, 50, 30, 17)])
def test_weights_of_all_pairs_of_edges(table: tuple[int, ...]) -> None:
    """Two neighbouring edges of any sign and size, ascending or not: distance, clamp, table, as the ideal function."""
    weighing = WeightTable(table)
    for low, high in itertools.product(range(-20, 21), repeat=2):
        question = Question(cells=2, kind="ranks", numerator=1, denominator=2, width=8, table=weighing)
        edges = [low, high, high + 1]
        found = numbers(plain(weigh(question, bits_of([e % 256 for e in edges], 8))))
        expected = [max(0, a, -b) for a, b in itertools.pairwise(edges)]
        assert found == [table[min(d, len(table) - 1)] for d in expected]


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_weights_of_scores(shift: int) -> None:
    table = WeightTable((40, 13, 5, 2))
    question = Question(cells=5, kind="scores", width=8, table=table, shift=shift)
    for seed in range(40):
        scores = [int(w) - 100 for w in stream(5, seed).words(5) % np.uint64(200)]
        found = numbers(plain(weigh(question, bits_of([s % 256 for s in scores], 8))))
        coarse = [s >> shift for s in scores]
        assert found == [table.weights[min(max(coarse) - s, 3)] for s in coarse]
