"""Exact mining: against brute force, set by set, and its parts against plain oracles."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallystick.algorithms.itemsets.candidates import all_pairs, join, pack_mask, unpack_mask
from tallystick.algorithms.itemsets.contained import contained, rows_of
from tallystick.algorithms.itemsets.exact import Level, count_sets, itemset_loss, least_count, mine, pack
from tallystick.algorithms.itemsets.items import ItemLayout
from tallystick.algorithms.itemsets.supports import monotone, sets_of_model
from tallystick.algorithms.program import Public

MIXED = Public(
    features=("a", "b", "c", "i", "j", "k", "l", "x", "y", "y=?"),
    blocks=(
        ("category", 0, 3, "onehot", 1),
        ("basket", 3, 7, "items", 3),
        ("flag", 7, 8, "number", 1),
        ("dose", 8, 10, "number", 1),
    ),
)


def brute_force(present: NDArray[np.bool_], least: float, longest: int) -> dict[tuple[int, ...], int]:
    """Every set of every length, counted one by one."""
    found = {}
    for length in range(1, min(longest, present.shape[1]) + 1):
        for items in itertools.combinations(range(present.shape[1]), length):
            count = int(present[:, items].all(axis=1).sum())
            if count >= least:
                found[items] = count
    return found


def as_dict(levels: list[Level]) -> dict[tuple[int, ...], float]:
    return {tuple(row): count for level in levels for row, count in zip(level.sets.tolist(), level.counts.tolist())}


def records(rng: np.random.Generator, count: int, layout: ItemLayout) -> NDArray[np.bool_]:
    out = np.zeros((count, len(layout)), dtype=np.bool_)
    for row in out:
        for start, stop, ones in layout.columns:
            row[start + rng.permutation(stop - start)[: rng.integers(0, ones + 1)]] = True
    return out


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 130), st.integers(1, 8), st.floats(0.01, 1.0), st.integers(1, 9), st.integers(0, 2**31))
def test_equals_brute_force(count: int, items: int, support: float, longest: int, seed: int) -> None:
    present = np.random.default_rng(seed).random((count, items)) < 0.6
    least = least_count(support, count)
    assert as_dict(mine(present, np.arange(items), least=least, longest=longest)) == brute_force(
        present, least, longest
    )


@pytest.mark.parametrize("seed", range(5))
def test_values_of_one_category_are_left_out_without_loss(seed: int) -> None:
    layout = ItemLayout.of(MIXED)
    present = records(np.random.default_rng(seed), 200, layout)
    for least in (1.0, 5.0, 40.0):
        found = as_dict(mine(present, layout.block, least=least, longest=6))
        assert found == brute_force(present, least, 6)
        assert not any({0, 1} <= set(items) or {8, 9} <= set(items) for items in found)


def test_corners() -> None:
    block = np.arange(3)
    everyone = np.ones((70, 3), dtype=np.bool_)
    assert as_dict(mine(everyone, block, least=least_count(1.0, 70), longest=99)) == brute_force(everyone, 70, 3)
    everyone[0, 0] = False
    found = as_dict(mine(everyone, block, least=least_count(1.0, 70), longest=3))
    assert found == {(1,): 70, (2,): 70, (1, 2): 70}
    assert mine(np.zeros((0, 3), dtype=np.bool_), block, least=least_count(0.5, 0), longest=3) == []
    assert mine(np.zeros((9, 3), dtype=np.bool_), block, least=1.0, longest=3) == []
    twice = np.array([[True, True, False]] * 2)  # duplicate records are two records
    assert as_dict(mine(twice, block, least=2.0, longest=3)) == {(0,): 2, (1,): 2, (0, 1): 2}
    assert least_count(0.07, 100) <= 7 < least_count(0.0701, 100)  # 0.07 · 100 is above 7 in binary
    assert 0 < least_count(1e-9, 10) <= 1  # never 0: a set that nobody has is not frequent


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 200), st.integers(1, 6), st.integers(0, 2**31))
def test_packed_counts_are_the_plain_ones(count: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random((count, 7)) < 0.7
    words = pack(present)
    assert words.shape == (7, max(1, -(-count // 64)))
    sets = rng.integers(0, 7, (20, length))
    assert np.array_equal(count_sets(words, sets), [present[:, s].all(axis=1).sum() for s in sets])


def test_a_flipped_padding_bit_would_be_counted() -> None:
    """The control: bits beyond the records are zeros, and must be."""
    present = np.ones((65, 1), dtype=np.bool_)
    words = pack(present)
    assert count_sets(words, np.array([[0]]))[0] == 65
    words[0, 1] |= np.uint64(2)
    assert count_sets(words, np.array([[0]]))[0] == 66


# -- candidates -----------------------------------------------------------------------------------------------------


def oracle_join(frequent: set[tuple[int, ...]], block: NDArray[np.int64]) -> list[tuple[int, ...]]:
    length = len(next(iter(frequent))) + 1
    items = sorted({i for s in frequent for i in s})
    return [
        s
        for s in itertools.combinations(items, length)
        if len({block[i] for i in s}) == length
        and all(sub in frequent for sub in itertools.combinations(s, length - 1))
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.floats(0.2, 1.0), st.integers(0, 2**31))
def test_apriori_gen_is_the_definition(length: int, kept: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = np.sort(rng.integers(0, 7, 9))
    possible = [s for s in itertools.combinations(range(9), length) if len({block[i] for i in s}) == length]
    frequent = [s for s in possible if rng.random() < kept]
    if not frequent:
        return
    expected = oracle_join(set(frequent), block)
    rows = np.array(frequent, dtype=np.int64)
    found = join(rows, block, 10**6)
    assert found is not None
    assert [tuple(r) for r in found.tolist()] == expected
    exact = join(rows, block, len(expected))
    assert exact is not None
    assert len(exact) == len(expected)
    assert not expected or join(rows, block, len(expected) - 1) is None


def test_pairs_leave_out_what_no_record_holds() -> None:
    assert all_pairs(np.array([0, 0, 1, 2])).tolist() == [[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert all_pairs(np.array([0, 0])).shape == (0, 2)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.booleans(), max_size=200))
def test_bits_travel_as_numbers(bits: list[bool]) -> None:
    mask = np.array(bits, dtype=np.bool_)
    words = pack_mask(mask)
    back = unpack_mask(words, len(mask))
    assert back is not None
    assert np.array_equal(back, mask)
    for wrong in (-1.0, 0.5, 2.0**48, 2.0**60):
        if len(words):
            assert unpack_mask(np.append(words[:-1], wrong), len(mask)) is None
    if len(mask) % 48:
        assert unpack_mask(words + np.eye(len(words))[-1] * 2.0**47, len(mask)) is None  # a bit beyond the last


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 2**31))
def test_what_a_record_holds(length: int, cap: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random((12, 8)) < rng.random()
    sets = [s for s in itertools.combinations(range(8), length) if rng.random() < 0.6]
    candidates = np.array(sets, dtype=np.int64).reshape(-1, length)
    starts, items = rows_of(present)
    for first, last in ((0, 12), (3, 7), (5, 5)):
        indptr, indices = contained(starts, items, first, last, candidates, cap, 0)
        for r in range(first, last):
            mine_ = [i for i, s in enumerate(sets) if present[r, list(s)].all()][:cap]
            assert indices[indptr[r - first] : indptr[r - first + 1]].tolist() == mine_


# -- items ----------------------------------------------------------------------------------------------------------


def test_items_of_a_layout() -> None:
    layout = ItemLayout.of(MIXED)
    assert layout.most == 1 + 3 + 1 + 1
    assert layout.block.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 6]
    sets = dict.fromkeys(range(1, 8), 0)
    for bits in itertools.product((0, 1), repeat=10):
        chosen = np.array(bits)
        if sum(bits) and all(chosen[a:b].sum() <= ones for a, b, ones in layout.columns):
            sets[sum(bits)] = sets.get(sum(bits), 0) + 1
    assert {k: layout.possible(k) for k in sets} == sets
    assert [layout.in_one_record(k) for k in (1, 2, 6, 7)] == [6, 15, 1, 0]


def test_a_number_is_an_item_above_its_middle() -> None:
    layout = ItemLayout.of(MIXED)
    row = np.array([[0, 1, 0, 1, 0, 0, 0, 0.01, -0.01, 0.0], [0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 1.0]])
    assert layout.present(row).astype(int).tolist() == [[0, 1, 0, 1, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
    plain = ItemLayout.of(Public(features=("x", "y")))
    assert plain.block.tolist() == [0, 1]
    assert plain.numbers == (0, 1)
    assert plain.most == 2


# -- loss, consistency, sets of a model -----------------------------------------------------------------------------


def level(**counts: float) -> Level:
    rows = np.array([[int(c) for c in name[1:]] for name in counts], dtype=np.int64)
    return Level(sets=rows, counts=np.array(list(counts.values())))


def test_the_papers_loss_by_hand() -> None:
    truth = [level(s0=50.0), level(s01=10.0, s02=20.0), level(s012=5.0)]
    found = [level(s0=1.0), level(s01=14.0, s12=6.0)]
    # |14−10| + |0−20| + |6−0| + |0−5| over 24 + 20 + 6 + 5; single items do not count
    assert itemset_loss(found, truth) == pytest.approx(35 / 55)
    assert itemset_loss(truth, truth) == 0.0
    assert itemset_loss([], truth) == 1.0
    assert itemset_loss(truth, []) == 1.0
    assert itemset_loss([], []) == 0.0
    assert itemset_loss(found, truth, shortest=1) == pytest.approx((35 + 49) / (55 + 51))


def test_the_loss_of_items_too_many_for_a_key() -> None:
    big = 2**20
    truth = [Level(sets=np.array([[1, 2, 3, big]]), counts=np.array([3.0]))]
    found = [Level(sets=np.array([[1, 2, 3, big - 1]]), counts=np.array([1.0]))]
    assert itemset_loss(found, truth) == 1.0
    assert itemset_loss(truth, truth) == 0.0


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31))
def test_supports_are_monotone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = []
    for length in (1, 2, 3):
        rows = [s for s in itertools.combinations(range(5), length) if length == 1 or rng.random() < 0.8]
        levels.append(Level(sets=np.array(rows).reshape(-1, length), counts=rng.normal(50, 40, len(rows))))
    made = as_dict(monotone(levels, 60.0))
    for items, count in made.items():
        assert 0 <= count <= 60
        for sub in itertools.combinations(items, len(items) - 1):
            assert sub not in made or count <= made[sub]
    assert as_dict(monotone(levels, 60.0)) == as_dict(monotone(monotone(levels, 60.0), 60.0))


def test_monotone_keeps_what_was_consistent() -> None:
    levels = mine(np.random.default_rng(1).random((90, 6)) < 0.6, np.arange(6), least=5.0, longest=4)
    assert as_dict(monotone(levels, 90.0)) == as_dict(levels)


@pytest.mark.parametrize("seed", range(4))
def test_sets_of_a_model_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, p = rng.random(3) * 100, rng.random((6, 3))
    block = np.array([0, 0, 1, 2, 3, 4])
    levels, least = sets_of_model(weights, p, block, least=9.0, longest=4)
    expected = {}
    for length in range(1, 5):
        for items in itertools.combinations(range(6), length):
            count = float((weights * p[list(items)].prod(axis=0)).sum())
            if len({block[i] for i in items}) == length and count >= 9.0:
                expected[items] = count
    found = as_dict(levels)
    assert least == 9.0
    assert found.keys() == expected.keys()
    assert all(found[k] == pytest.approx(v) for k, v in expected.items())


def test_a_result_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    import tallystick.algorithms.itemsets.supports as supports

    monkeypatch.setattr(supports, "MOST_SETS", 30)
    weights, p = np.array([100.0]), np.linspace(0.2, 0.9, 10)[:, None]
    levels, least = sets_of_model(weights, p, np.arange(10), least=1.0, longest=4)
    sets = as_dict(levels)
    assert 0 < len(sets) <= 30
    assert least > 1.0
    assert min(sets.values()) >= least


def test_the_checks_above_can_fail() -> None:
    """A miner that forgets the last record, or calls a set frequent too late, is told from brute force."""
    present: Any = np.random.default_rng(0).random((64, 5)) < 0.5
    truth = brute_force(present, 10, 3)
    assert as_dict(mine(present[:-1], np.arange(5), least=10, longest=3)) != truth
    assert as_dict(mine(present, np.arange(5), least=11, longest=3)) != truth
