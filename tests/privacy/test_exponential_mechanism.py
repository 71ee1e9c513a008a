"""Tables of weights and what a draw by them costs: in rationals, against brute force over all tiny databases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tallystick.core.errors import BoundsError
from tallystick.crypto.prg import AesStream
from tallystick.privacy.mechanisms.exponential import exp_bounds
from tallystick.privacy.mechanisms.exponential_mechanism import (
    BIAS,
    WeightTable,
    charged,
    charged_spread,
    coarseness,
    log_above,
    weight_table,
)
from tallystick.protocol.selection import Question, ideal
from tallystick.protocol.selection.ideal import distances, draw, weights

ULP = Fraction(1, 1 << 63)
STEEP = WeightTable((40, 13, 5, 2))
LONG = WeightTable((900, 500, 280, 150, 90, 50, 30, 17))


# -- logarithms and tables ---------------------------------------------------------------------------------------------


@given(st.integers(1, 10**30), st.integers(1, 10**30))
def test_logarithms_are_rounded_up_and_no_further(a: int, b: int) -> None:
    x = Fraction(max(a, b), min(a, b))
    above = log_above(x)
    assert exp_bounds(above, 200)[0] <= (1 << 200) / x  # e^-above ≤ 1/x
    below = above - ULP
    assert below < 0 or exp_bounds(below, 200)[1] >= (1 << 200) / x
    assert math.isclose(above, math.log(x), abs_tol=1e-12)


def test_log_of_one_is_nearly_nothing() -> None:
    assert 0 <= log_above(Fraction(1)) <= ULP
    with pytest.raises(ValueError):
        log_above(Fraction(1, 2))


@given(st.lists(st.integers(1, 2**60), min_size=8, max_size=8), st.integers(0, 12))
def test_ratio_is_the_exact_maximum(values: list[int], x: int) -> None:
    table = WeightTable(tuple(sorted(values, reverse=True)))
    w = table.weights
    assert table.ratio(x) == max(Fraction(w[d], w[min(d + x, 7)]) for d in range(8))


@pytest.mark.parametrize("moves", [1, 2, 3, 19, 100])
@pytest.mark.parametrize("epsilon", ["1/100", "9/100", "1/4", "1", "4", "10"])
def test_a_table_costs_what_was_asked_and_little_less(epsilon: str, moves: int) -> None:
    asked = Fraction(epsilon)
    table = weight_table(asked, moves, moves, cells=1000)
    cost = charged(table, moves, moves)
    assert Fraction(99, 100) * asked < cost <= asked
    assert charged_spread(table, 2 * moves) <= asked
    if moves <= 2 and asked >= Fraction(9, 100):
        assert 1000 * table.weights[-1] <= table.weights[0] / 2**19  # what lies beyond the clamp hardly matters


def test_coarser_distances_where_the_longest_table_does_not_reach() -> None:
    assert coarseness(Fraction(1, 10), 1, 1, cells=1000) == 0
    shift = coarseness(Fraction(1, 100), 19, 19, cells=1000)
    assert shift > 0
    moves = -(-19 >> shift)
    coarse = weight_table(Fraction(1, 100), moves, moves, cells=1000)
    assert charged(coarse, moves, moves) <= Fraction(1, 100)
    assert coarse.weights[-1] * 1000 < coarse.weights[0]


@pytest.mark.parametrize(
    "weights", [(), (1,), (3, 2, 1), (1, 2), (1, 0), (2**64, 1), (2,) * (1 << 14)], ids=lambda w: f"{len(w)}-{w[:2]}"
)
def test_bad_tables_are_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(BoundsError):
        WeightTable(weights)


@pytest.mark.parametrize(
    "bad", [(0, 1, 1, 5), (1, 0, 0, 5), (1, -1, 3, 5), (1, 1, 1, 0), (Fraction(1, 10**18), 1, 1, 5)]
)
def test_bad_requests_are_refused(bad: tuple[int, int, int, int]) -> None:
    with pytest.raises(BoundsError):
        weight_table(Fraction(bad[0]), bad[1], bad[2], cells=bad[3])


# -- the law of the ideal function -------------------------------------------------------------------------------------


def law(question: Question, weighed: Sequence[int], bits: int | None = None) -> list[Fraction]:
    """The exact probability of every cell for a uniform word: how many R have floor(R·W / 2^L) in its stretch."""
    length, total, done, out = bits or question.draw_bits, sum(weighed), 0, []
    for weight in weighed:
        first, beyond = (-(-(edge << length) // total) for edge in (done, done + weight))
        out.append(Fraction(beyond - first, 1 << length))
        done += weight
    return out


@pytest.mark.parametrize("weighed", [(1,), (3, 1), (5, 2, 40, 1), (7, 7, 7), (1, 63)])
@pytest.mark.parametrize("bits", [7, 10])
def test_law_by_enumeration_of_all_words(weighed: tuple[int, ...], bits: int) -> None:
    counts = [0] * len(weighed)
    for word in range(1 << bits):
        counts[draw(SimpleNamespace(draw_bits=bits), weighed, word)] += 1
    assert [Fraction(c, 1 << bits) for c in counts] == law(None, weighed, bits)


def ranks(table: WeightTable, q: Fraction, cells: int = 3, shift: int = 0) -> Question:
    return Question(
        cells=cells, kind="ranks", numerator=q.numerator, denominator=q.denominator, width=20, table=table, shift=shift
    )


def test_the_bias_of_the_draw_is_what_is_charged_for_it() -> None:
    """Every probability is within 2^-64 of w/W, relatively; two of them cost less than BIAS."""
    table = weight_table(Fraction(1, 10), 1, 1, cells=3)
    question = ranks(table, Fraction(1, 2))
    weighed = [table.weights[0], table.weights[-1], table.weights[5]]
    exact = [Fraction(w, sum(weighed)) for w in weighed]
    worst = max(abs(p / e - 1) for p, e in zip(law(question, weighed), exact))
    assert 0 < worst < Fraction(1, 1 << 64)
    assert log_above((1 + worst) / (1 - worst)) - ULP < BIAS


def test_law_by_chi_square() -> None:
    """20,000 draws of ``ideal`` by words of three parties; and the same draws are no draws by other weights."""
    question = ranks(STEEP, Fraction(1, 2), cells=4)
    totals = (1, 0, 3, 1, 2, 0)
    stream = AesStream(bytes([3]) * 32)
    counts = [0] * 4
    for _ in range(20_000):
        counts[ideal(question, totals, [stream.bytes(question.word_bytes) for _ in range(3)])] += 1
    weighed = weights(question, totals)
    expected = [20_000 * float(p) for p in law(question, weighed)]
    assert chisquare(counts, expected).pvalue > 1e-4
    flat = [20_000 * w**0.9 / sum(v**0.9 for v in weighed) for w in weighed]
    assert chisquare(counts, flat).pvalue < 1e-6


# -- both neighbour relations, all tiny databases ----------------------------------------------------------------------


def databases(buckets: int, most: int) -> Iterator[tuple[int, ...]]:
    for n in range(most + 1):
        yield from (c for c in itertools.product(range(n + 1), repeat=buckets) if sum(c) == n)


def add_remove(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for i in range(len(counts)):
        yield (*counts[:i], counts[i] + 1, *counts[i + 1 :])


def replace_one(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for i, j in itertools.permutations(range(len(counts)), 2):
        if counts[i]:
            yield tuple(c - (k == i) + (k == j) for k, c in enumerate(counts))


Weigh = Callable[[Question, Sequence[int]], list[int]]


def worst_ratio(
    question: Question,
    neighbours: Callable[[tuple[int, ...]], Iterator[tuple[int, ...]]],
    most: int,
    weigh: Weigh = weights,
) -> Fraction:
    """The largest P(c)/P′(c), either way round, over all pairs of neighbours."""
    laws = {}

    def of(counts: tuple[int, ...]) -> list[Fraction]:
        if counts not in laws:
            laws[counts] = law(question, weigh(question, counts))
        return laws[counts]

    worst = Fraction(1)
    for counts in databases(question.values, most):
        for other in neighbours(counts):
            for p, q in zip(of(counts), of(other)):
                worst = max(worst, p / q, q / p)
    return worst


QUANTILES = [Fraction(q) for q in ("0", "1/4", "1/2", "2/3", "1")]


@pytest.mark.parametrize(
    "table", [STEEP, LONG, weight_table(Fraction(1), 1, 1, cells=3)], ids=["steep", "long", "made"]
)
@pytest.mark.parametrize("q", QUANTILES, ids=str)
def test_ranks_cost_at_most_what_is_charged(q: Fraction, table: WeightTable) -> None:
    a, b = q.numerator, q.denominator
    for shift in (0, 1):
        question = ranks(table, q, shift=shift)
        moves = question.moves(max(a, b - a)), question.moves(b)
        for neighbours, move in zip((add_remove, replace_one), moves):
            found = log_above(worst_ratio(question, neighbours, 4))
            assert found - ULP <= charged(table, move, move), (neighbours, shift)
            if shift == 0 and q == Fraction(1, 2):
                assert found > charged(table, move, move) * Fraction(2, 5)  # the bound is no idle one


@pytest.mark.parametrize("table", [STEEP, LONG], ids=["steep", "long"])
def test_scores_cost_at_most_what_is_charged(table: WeightTable) -> None:
    """Counts as scores (the mode): one way under add-remove, two ways under replace-one; and steps of ±2."""
    question = Question(cells=4, kind="scores", width=16, table=table)
    for neighbours, spread in ((add_remove, 1), (replace_one, 2)):
        found = log_above(worst_ratio(question, neighbours, 5))
        assert charged_spread(table, spread) / 2 < found - ULP <= charged_spread(table, spread)

    def jumps(scores: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for steps in itertools.product((-2, -1, 0, 1, 2), repeat=3):
            yield tuple(s + step for s, step in zip(scores, steps))

    three = Question(cells=3, kind="scores", width=16, table=table)
    found = log_above(worst_ratio(three, jumps, 4))
    assert charged_spread(table, 4) * Fraction(3, 4) < found - ULP <= charged_spread(table, 4)


def test_weights_that_were_not_charged_are_found() -> None:
    """Planted: weights rounded to few bits, and ε claimed from the real function that they round."""
    epsilon = Fraction(1)
    rounded = WeightTable(tuple(max(1, round(10 * math.exp(-float(epsilon) * d / 2))) for d in range(8)))
    found = log_above(worst_ratio(ranks(rounded, Fraction(1, 2)), add_remove, 5))
    assert found > epsilon * Fraction(105, 100)
    assert found - ULP <= charged(rounded, 1, 1)


def test_a_table_that_is_clamped_on_one_side_only_is_found() -> None:
    """Planted: below the quantile distances beyond the clamp get the least weight at once."""

    def lopsided(question: Question, totals: Sequence[int]) -> list[int]:
        n, below = sum(totals), 0
        out = []
        for cell, d in enumerate(distances(question, totals)):
            below = sum(totals[: cell + 2])
            high = question.denominator * below < question.numerator * n
            out.append(1 if high and d >= 2 else question.table.weights[min(d, question.table.clamp)])
        return out

    question = ranks(LONG, Fraction(1, 2))
    assert log_above(worst_ratio(question, add_remove, 4)) - ULP <= charged(LONG, 1, 1)
    assert log_above(worst_ratio(question, add_remove, 4, lopsided)) > charged(LONG, 1, 1)


def holds_the_quantile(counts: Sequence[int], q: Fraction) -> list[bool]:
    """Which cells hold a q-quantile: q·n lies between the ranks below and up to the cell."""
    n = sum(counts)
    return [sum(counts[: c + 1]) <= q * n <= sum(counts[: c + 2]) for c in range(len(counts) - 2)]


@pytest.mark.parametrize("q", QUANTILES, ids=str)
def test_cells_that_hold_the_quantile_are_best(q: Fraction) -> None:
    """Ties and all: distance 0 exactly there; planted, ranks without the interval form fail on ties."""

    def by_one_rank(question: Question, totals: Sequence[int]) -> list[int]:
        a, b, n = question.numerator, question.denominator, sum(totals)
        return [abs(b * sum(totals[: c + 1]) - a * n) for c in range(question.cells)]

    question = ranks(STEEP, q)
    wrong = 0
    for counts in databases(5, 4):
        right = holds_the_quantile(counts, q)
        assert [d == 0 for d in distances(question, counts)] == right
        wrong += [d == 0 for d in by_one_rank(question, counts)] != right
    assert wrong or q == 0  # the minimum has no rank below it


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=7, max_size=7), st.sampled_from(QUANTILES), st.integers(0, 2))
def test_distances_are_the_maximum_the_question_names(counts: list[int], q: Fraction, shift: int) -> None:
    question = ranks(STEEP, q, cells=5, shift=shift)
    a, b, n = q.numerator, q.denominator, sum(counts)
    expected = []
    for cell in range(5):
        low, high = (b * sum(counts[: cell + k]) - a * n >> shift for k in (1, 2))
        expected.append(max(0, low, -high))
    assert distances(question, counts) == expected


def test_a_party_that_is_ignored_is_missed() -> None:
    """Planted: the joint word without the last party's. With the others' words fixed it never moves the cell."""
    question = ranks(LONG, Fraction(1, 2), cells=5)
    totals, stream = (3, 1, 4, 1, 5, 9, 2), AesStream(bytes([1]) * 32)
    for party in range(3):
        base = [bytes(question.word_bytes)] * 3
        places, ignoring = set(), set()
        for _ in range(60):
            base[party] = stream.bytes(question.word_bytes)
            places.add(ideal(question, totals, base))
            ignoring.add(ideal(question, totals, [*base[:party], *base[party + 1 :]]))
        assert len(places) > 1
        assert len(ignoring) == 1
