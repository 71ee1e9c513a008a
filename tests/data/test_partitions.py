"""Partitions: every record in exactly one part, the same parts for the same words, and the skew that was asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.crypto.prg import AesStream
from tallystick.data.partitions import (
    Partition,
    by_value,
    dirichlet,
    even,
    fold_indices,
    holdout_split,
    parse_partition,
    permutation,
    uniforms,
)


def stream(seed: int = 0) -> AesStream:
    return AesStream(seed.to_bytes(32, "little"), b"test/partitions")


def assert_partition(parts: list[NDArray[np.int64]], count: int) -> None:
    together = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    assert sorted(together.tolist()) == list(range(count))
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


@settings(deadline=None, max_examples=60)
@given(count=st.integers(0, 60), clients=st.integers(1, 20), seed=st.integers(0, 9), alpha=st.floats(1e-3, 1e3))
def test_every_record_has_exactly_one_client(count: int, clients: int, seed: int, alpha: float) -> None:
    labels = [("a", "b", None)[i % 3] for i in range(count)]
    for text in ("even", "column:ward", f"dirichlet:{alpha}"):
        partition = parse_partition(text)
        parts = partition.split(count, clients=clients, source=stream(seed), values=labels)
        assert len(parts) == clients
        assert_partition(parts, count)
        again = partition.split(count, clients=clients, source=stream(seed), values=labels)
        assert [p.tolist() for p in parts] == [p.tolist() for p in again]


def test_even_sizes_differ_by_at_most_one_and_may_be_empty() -> None:
    assert [len(p) for p in even(10, 3)] == [4, 3, 3]
    assert [p.tolist() for p in even(5, 2)] == [[0, 1, 2], [3, 4]]
    assert [len(p) for p in even(2, 4)] == [1, 1, 0, 0]
    order = np.array([4, 0, 2, 1, 3])
    assert [p.tolist() for p in even(5, 2, order)] == [[0, 2, 4], [1, 3]]
    with pytest.raises(ValueError, match="permutation"):
        even(5, 2, order[:3])


def test_by_value_groups_whole_values() -> None:
    wards = ["south", "north", "south", None, "north "]
    assert [p.tolist() for p in by_value(wards)] == [[3], [1, 4], [0, 2]]  # missing, north, south
    assert [p.tolist() for p in by_value(pa.array(wards))] == [[3], [1, 4], [0, 2]]
    assert [p.tolist() for p in by_value(wards, clients=2)] == [[0, 2, 3], [1, 4]]
    assert [p.tolist() for p in by_value(np.array([2.0, 1.0, np.nan, 2.0]))] == [[2], [1], [0, 3]]
    assert [p.tolist() for p in by_value(["a"], clients=3)] == [[0], [], []]
    assert by_value([]) == []


def skew(parts: list[NDArray[np.int64]], labels: NDArray[np.int64]) -> float:
    """Mean share of a client's most frequent label, over clients with records."""
    return float(np.mean([np.bincount(labels[p]).max() / len(p) for p in parts if len(p)]))


def test_dirichlet_skew_follows_alpha() -> None:
    labels = np.arange(4000) % 4
    skews = [skew(dirichlet(labels, 20, alpha, stream(3)), labels) for alpha in (0.05, 1.0, 1000.0)]
    assert skews[0] > 0.8 > skews[1] > 0.4 > skews[2] > 0.25
    sizes = [len(p) for p in dirichlet(labels, 20, 1e-4, stream(1))]  # no underflow: one client has each class
    assert sum(sizes) == 4000
    assert sizes.count(0) >= 16


def test_dirichlet_shares_have_the_dirichlet_mean_and_variance() -> None:
    """Shares of one of 4 clients at alpha = 0.5 are Beta(0.5, 1.5): mean 1/4, variance 1/16."""
    labels = np.zeros(1000, dtype=np.int64)
    source = stream(8)

    def shares(alpha: float) -> NDArray[np.float64]:
        return np.array([len(dirichlet(labels, 4, alpha, source)[0]) / 1000 for _ in range(600)])

    right = shares(0.5)
    assert abs(right.mean() - 1 / 4) < 4 * 0.25 / np.sqrt(600)
    assert 0.75 / 16 < right.var() < 1.25 / 16
    assert shares(1.0).var() < 0.75 / 16  # negative control: the variance there is 3/80


def test_permutation_is_uniform_and_follows_the_words() -> None:
    source = stream(5)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(2400):
        key = tuple(permutation(4, source).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 24
    chi2 = sum((c - 100) ** 2 / 100 for c in counts.values())
    assert chi2 < 54.1  # 23 degrees of freedom, alpha = 2.5e-4; a biased shuffle gives hundreds
    assert permutation(9, stream(1)).tolist() != permutation(9, stream(2)).tolist()
    assert permutation(0, stream(1)).tolist() == []


def test_uniforms_stay_strictly_inside() -> None:
    class Constant:
        def __init__(self, word: int) -> None:
            self.word = word

        def words(self, count: int) -> NDArray[np.uint64]:
            return np.full(count, self.word, dtype=np.uint64)

        def bytes(self, count: int) -> bytes:
            return bytes(count)

    low, high = uniforms(1, Constant(0))[0], uniforms(1, Constant(2**64 - 1))[0]
    assert 0.0 < low < 1e-15
    assert 1 - 1e-15 < high < 1.0


def test_holdout_and_folds_do_not_know_the_clients() -> None:
    train, test = holdout_split(100, 0.1, stream(1))
    assert len(test) == 10
    assert_partition([train, test], 100)
    assert np.array_equal(holdout_split(100, 0.1, stream(1))[1], test)
    assert not np.array_equal(holdout_split(100, 0.1, stream(2))[1], test)
    folds = fold_indices(23, 5, stream(1))
    assert_partition([t for _, t in folds], 23)
    for fit, held in folds:
        assert_partition([fit, held], 23)


@pytest.mark.parametrize(
    "text",
    [
        "evn",
        "even:3",
        "column:",
        "column",
        "dirichlet",
        "dirichlet:0",
        "dirichlet:5e-324",
        "dirichlet:1e308",
        "dirichlet:x",
        "",
    ],
)
def test_unknown_partitions_are_refused(text: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_partition(text)
    assert caught.value.remedy


def test_parse_partition() -> None:
    assert parse_partition("even") == Partition(kind="even")
    assert parse_partition("column:native country") == Partition(kind="column", column="native country")
    assert parse_partition("dirichlet:0.5") == Partition(kind="dirichlet", alpha=0.5)
    assert parse_partition("dirichlet:0.5").kind == "dirichlet"


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(StudyError, match="clients"):
        even(10, 0)
    with pytest.raises(StudyError, match="--clients"):
        parse_partition("even").split(3, clients=None, source=stream())
    with pytest.raises(ValueError, match="one value per record"):
        parse_partition("column:x").split(3, clients=None, source=stream(), values=[1])
    for fraction in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(StudyError):
            holdout_split(10, fraction, stream())
    with pytest.raises(StudyError, match="no record"):
        holdout_split(3, 0.01, stream())
    for folds in (1, 11, True):
        with pytest.raises(StudyError):
            fold_indices(10, folds, stream())
