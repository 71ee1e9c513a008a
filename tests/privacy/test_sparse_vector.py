"""The sparse vector technique: what it costs, by its exact law on all small counts; bugs that are known from papers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.sparse_vector import SparseVector, sparse_vector

T = 2


def laplace(scale: Fraction, reach: int) -> np.ndarray:
    """Probabilities of the discrete Laplace at −reach … reach."""
    a = math.exp(-1 / float(scale))
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))


def tail(scale: Fraction, x: np.ndarray) -> np.ndarray:
    """P(ν ≥ x), closed form."""
    a = math.exp(-1 / float(scale))
    return np.where(x > 0, a ** np.maximum(x, 0) / (1 + a), 1 - a ** (1 - np.minimum(x, 1)) / (1 + a))


def law(
    made: SparseVector, counts: tuple[int, ...], *, redrawn: bool = False, halts: bool = True
) -> dict[tuple[int, ...], float]:
    """The exact probability of every answer; ``redrawn``: the planted bug of threshold noise for every count."""
    reach = math.ceil(40 * float(made.threshold_scale))
    z, weight = np.arange(-reach, reach + 1), laplace(made.threshold_scale, reach)
    above = np.stack([tail(made.query_scale, made.threshold + z - q) for q in counts])
    if redrawn:
        above = np.repeat((above * weight).sum(axis=1, keepdims=True), len(z), axis=1)
    out: dict[tuple[int, ...], float] = {}
    for bits in itertools.product((0, 1), repeat=len(counts)):
        ones, seen, p = 0, [], np.ones(len(z))
        for i, bit in enumerate(bits):
            if halts and ones == made.most:
                bit = 0  # not looked at
            else:
                p = p * (above[i] if bit else 1 - above[i])
                ones += bit
            seen.append(bit)
        if tuple(seen) == bits:
            out[bits] = float((p * weight).sum())
    return out


def moves(one_way: bool, size: int) -> Iterator[tuple[int, ...]]:
    """By how much one record moves the counts: added, or replaced by another one."""
    records = list(itertools.product((0, 1), repeat=size))
    for gone in [(0,) * size] if one_way else records:
        for come in records:
            yield tuple(c - g for c, g in zip(come, gone))


def worst(made: SparseVector, *, size: int = 3, **bug: bool) -> float:
    """The largest log-ratio over all answers and neighbours."""
    found = 0.0
    half = size // 2
    halves = [(a,) * half + (b,) * (size - half) for a, b in itertools.product((0, 2, 4), repeat=2)]
    start = list(itertools.product((1, 2, 3), repeat=size)) if size < 4 else halves
    known: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    ways = {(1,) * size, (1,) * half + (-1,) * (size - half)}
    steps = set(moves(made.one_way, size)) if size < 4 else ways
    for counts in start:
        for move in steps:
            other = tuple(q + m for q, m in zip(counts, move))
            a, b = (known.setdefault(x, law(made, x, **bug)) for x in (counts, other))
            found = max(found, *(abs(math.log(a[bits] / b[bits])) for bits in a))
    return found


def comparison(most: int = 1, *, one_way: bool = False, epsilon: float = 1.0, cells: int = 3) -> SparseVector:
    return sparse_vector(cells=cells, threshold=T, most=most, sensitivity=1, one_way=one_way, epsilon=Fraction(epsilon))


@pytest.mark.parametrize("one_way", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_answer_is_more_likely_than_what_is_charged_allows(one_way: bool, most: int, epsilon: float) -> None:
    made = comparison(most, one_way=one_way, epsilon=epsilon)
    assert sum(law(made, (1, 2, 3)).values()) == pytest.approx(1.0, abs=1e-12)
    assert 0.99 * epsilon < float(made.epsilon) <= epsilon
    found = worst(made)
    assert found <= float(made.epsilon) + 1e-9
    assert found > 0.25 * float(made.epsilon)  # the search is not blind


def test_many_counts_cost_no_more() -> None:
    made = comparison(2, cells=9)
    assert worst(made, size=9) <= float(made.epsilon) + 1e-9


@pytest.mark.parametrize(
    ("made", "bug"),
    [
        (comparison(1, cells=10), {"redrawn": True}),  # threshold noise for every count: zeros are no longer free
        (comparison(1, cells=10), {"halts": False}),  # every one costs, and there is no end of them
    ],
    ids=["redrawn", "not halting"],
)
def test_variants_that_papers_got_wrong_are_seen(made: SparseVector, bug: dict[str, bool]) -> None:
    assert worst(made, size=10) <= float(made.epsilon)
    assert worst(made, size=10, **bug) > 1.2 * float(made.epsilon)


def test_noise_of_a_count_without_the_factor_c_is_seen() -> None:
    """[LSL17, §3.2]: scale Δ/ε₂ in place of 2cΔ/ε₂."""
    made = comparison(6, cells=9)
    few = SparseVector(
        cells=9, threshold=T, most=6, sensitivity=1, one_way=False, threshold_scale=made.threshold_scale,
        query_scale=made.query_scale / 12,
    )  # fmt: skip
    assert worst(few, size=9) > 1.2 * float(made.epsilon)
    assert float(few.epsilon) > 5  # and what is charged follows from the noise, not from what was asked


def test_one_way_noise_where_counts_move_both_ways_is_seen() -> None:
    """The planted bug: half of the noise, which add-remove allows, claimed for replace-one."""
    made = comparison(3, one_way=True, epsilon=2.0)
    both = SparseVector(
        cells=3, threshold=T, most=3, sensitivity=1, one_way=False, threshold_scale=made.threshold_scale,
        query_scale=made.query_scale,
    )  # fmt: skip
    assert both.epsilon > made.epsilon
    assert worst(both) > worst(made) * 1.05


def test_the_split_is_near_the_best() -> None:
    """Any split is sound; this one has about the least variance [LSL17, §4.2]."""
    made = comparison(4)
    others = []
    for part in range(1, 20):
        first = Fraction(part, 20)
        s1, s2 = 1 / first, 8 / (1 - first)
        others.append(2 * float(s1) ** 2 + 2 * float(s2) ** 2)
    assert made.variance < 1.03 * min(others)


@pytest.mark.parametrize("bad", [{"threshold": 0}, {"most": 0}])
def test_what_is_no_threshold_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(PrivacyRefused) as refused:
        sparse_vector(
            **{"cells": 3, "threshold": 2, "most": 1, "sensitivity": 1, "one_way": False, "epsilon": Fraction(1)} | bad
        )
    assert refused.value.rule == "threshold-is-a-count"


def test_answers_that_no_parties_can_have_said() -> None:
    made = comparison(2, cells=30)
    assert made.digits == 2
    said = np.array([1 + 0b101, 1], dtype=np.int64)
    assert made.decoded(said).tolist() == [1, 0, 1] + [0] * 27  # type: ignore[union-attr]
    for wrong in ([0, 1], [1 + 0b111, 1], [1, 1 + (1 << 6)], [1 << 25, 1], [-3, 1]):
        assert made.decoded(np.array(wrong, dtype=np.int64)) is None


def test_noise_beyond_all_reason_still_has_a_variance() -> None:
    """A plan is refused in words: 1 − e^(−1/s) is 0 in float64 from s = 10^16 on."""
    made = sparse_vector(
        cells=4096, threshold=5, most=4096, sensitivity=8 * 10**6, one_way=False, epsilon=Fraction(1, 10**6)
    )
    assert made.variance == pytest.approx(2 * float(made.threshold_scale) ** 2 + 2 * float(made.query_scale) ** 2)
