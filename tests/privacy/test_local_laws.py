"""Local randomisers by brute force: every record of a tiny domain, every outcome, exact probabilities, replace-one."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_laws import (
    Written,
    exact_law,
    public_words,
    stream,
    subset_randomiser,
    within,
    words_of,
    worst_ratio,
)

from tallystick.core.errors import LocalProtocolError
from tallystick.privacy.local import coins
from tallystick.privacy.local.added_noise import AddedNoise
from tallystick.privacy.local.candidates import LEVELS, UNIT, codes, coordinate_deviation, quantile_table
from tallystick.privacy.local.coins import COIN_BITS, Draw, kept_probability, places
from tallystick.privacy.local.labels import PerClass, RandomisedLabel, SignCode, choose_label, hadamard, label_code
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.records import record_identities
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import Subset, choose_subset, subset_moments
from tallystick.privacy.mechanisms.exponential import exp_bounds

IDENTITY = bytes(range(32))
EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(5), Fraction(10))


# -- coins ---------------------------------------------------------------------------------------------------------


@given(
    st.fractions(Fraction(1, 1000), Fraction(60), max_denominator=1000), st.integers(1, 4096), st.integers(1, 65_000)
)
@settings(max_examples=100)
def test_the_coin_is_rounded_down_and_no_further(epsilon: Fraction, top: int, rest: int) -> None:
    """The true ε is at most the claimed one; one step more and it would not be."""
    coin = kept_probability(epsilon, top, rest)

    def ratio(of: int) -> Fraction:
        return Fraction(of, top) / Fraction((1 << COIN_BITS) - of, rest)

    assert 0 < coin < 1 << COIN_BITS
    assert within(ratio(coin), epsilon)
    if coin + 2 < 1 << COIN_BITS:
        low, _ = exp_bounds(epsilon, 400)
        assert ratio(coin + 2) * low > 1 << 400


def test_a_coin_rounded_up_is_caught() -> None:
    """The control: a coin rounded to the nearest float promises more than it keeps."""
    epsilon, top, rest = Fraction(1), 9, 247
    kept = Fraction(top * math.exp(1) / (top * math.exp(1) + rest) * (1 + 2**-50))
    assert not within(kept / top / ((1 - kept) / rest), epsilon)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32))
def test_batches_and_single_draws_read_the_same_words(top: int, rest: int, seed: int) -> None:
    draws = [Draw.of(Fraction(1), top, rest), Draw.of(Fraction(3), 1, 6)]
    many = places(draws, 17, stream(seed))
    one = stream(seed)
    assert np.array_equal(many, np.concatenate([places(draws, 1, one) for _ in range(17)]))
    assert (many >= 0).all()
    assert (many < [top + rest, 7]).all()


def test_a_rejected_word_is_read_over_and_the_next_one_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw.of(Fraction(1), 3, 5)
    good = [words_of(draw, place) for place in range(8)]
    for at in range(8):
        # 2^64 mod 5 is 1: the word 0 has a lower half below it, and says nothing.
        kept = at < 3
        rejected = [*good[at][:1], 0, good[at][1]]
        words = [w for i in range(8) for w in (rejected if i == at else good[i])]
        source = Written(words)
        assert places([draw], 8, source)[:, 0].tolist() == list(range(8)), kept
        assert not source.left


def test_every_place_of_a_draw_has_its_exact_number_of_words() -> None:
    """Exhaustively, with words of 8 bits in place of 64: the very rule, on all words there are."""
    for places_ in range(1, 40):
        counts = [0] * places_
        for word in range(256):
            if (word * places_) % 256 >= 256 % places_:
                counts[word * places_ >> 8] += 1
        assert len(set(counts)) == 1
    assert coins.WORDS == 2


# -- candidates ----------------------------------------------------------------------------------------------------


def test_the_table_is_the_normal_law_in_integers_and_the_same_everywhere() -> None:
    table = quantile_table()
    assert len(table) == LEVELS
    assert np.array_equal(table, -table[::-1])
    assert (np.diff(table) >= 0).all()
    assert abs(coordinate_deviation() / UNIT - 1) < 2e-5
    from statistics import NormalDist

    exact = [UNIT * NormalDist().inv_cdf((i + 0.5) / LEVELS) for i in range(LEVELS // 2, LEVELS)]
    assert min(abs(v - math.floor(v) - 0.5) for v in exact) > 1e-6  # no last bit decides
    import hashlib

    assert hashlib.sha256(table.astype("<i4").tobytes()).hexdigest() == TABLE


TABLE = "65adb44855f8b71385141d120e46bcbbe7ab553ca422fa6c389f204db6da226b"


def test_codes_are_little_endian() -> None:
    assert codes(np.array([0x0004000300020001], np.uint64)).tolist() == [1, 2, 3, 4]


# -- the law of subset selection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_any_two_records_give_every_index_with_odds_of_at_most_e_to_the_epsilon(epsilon: Fraction) -> None:
    randomiser = subset_randomiser(SignCode(classes=2), epsilon, 2, 8, 3)
    records = list(product((-1, 0, 1), repeat=2))
    laws = [exact_law(randomiser, x, y, IDENTITY) for x in records for y in (0, 1)]
    worst = worst_ratio(laws)
    assert within(worst, epsilon)
    assert not within(worst, epsilon * Fraction(999, 1000))  # and the whole of it is used
    assert randomiser.pure_epsilon == epsilon


def test_indices_are_ordered_by_score_and_ties_by_index() -> None:
    """Against the definition in plain Python, also for records that tie."""
    mechanism = SubsetSelection(
        epsilon=Fraction(1),
        dimension=3,
        subset=Subset(draws=2, candidates=16, top=4),
        public_words=public_words,
    )
    table, each = quantile_table(), 4
    words = codes(public_words(IDENTITY, 0).words(2 * 16))
    for x in [(0, 0, 0), (1, 0, 0), (3, -2, 1), (-4096, 4096, 17)]:
        for draw in range(2):
            rows = [table[words[(draw * 16 + k) * each :][:3]] for k in range(16)]
            scores = [int(sum(int(c) * v for c, v in zip(row, x))) for row in rows]
            wanted = sorted(range(16), key=lambda k: (-scores[k], k))
            found = [
                int(mechanism.publish(np.array([x]), [IDENTITY], np.array([[place, place]]))[0, draw])
                for place in range(16)
            ]
            assert found == wanted
    assert found != list(range(16))


def test_a_record_of_length_zero_is_published_by_index_alone() -> None:
    law = exact_law(subset_randomiser(SignCode(classes=2), Fraction(5), 3, 8, 2), (0, 0, 0), 1, IDENTITY)
    top = sorted(law, key=lambda record: -law[record])[:2]
    assert {record.values for record in top} == {(0,), (1,)}


def test_ties_that_all_count_as_the_top_are_caught() -> None:
    """The planted bug: whoever ties with the last of the top is in it too, so that its size depends on the record."""
    epsilon, k, m = Fraction(1), 16, 2
    kept = Draw.of(epsilon, m, k - m).probability

    def law(scores: list[int]) -> dict[object, Fraction]:
        least = sorted(scores, reverse=True)[m - 1]
        top = [i for i, s in enumerate(scores) if s >= least]
        rest = k - len(top)
        return {i: kept / len(top) if i in top else (1 - kept) / rest for i in range(k)}

    assert within(worst_ratio([law(list(range(k))), law(list(range(k))[::-1])]), epsilon)
    assert not within(worst_ratio([law(list(range(k))), law([0] + [1] * (k - 1))]), epsilon)


# -- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.parametrize("kind", ["sign", "randomised"])
def test_the_joint_law_of_class_and_vector_costs_epsilon(kind: str, classes: int) -> None:
    epsilon = Fraction(4)
    label = label_code(kind, epsilon, classes)  # type: ignore[arg-type]
    randomiser = subset_randomiser(label, epsilon, 2, 6, 2)
    records = [(0, 0), (1, 0), (0, 1), (-1, 1), (2, -3)]
    laws = [exact_law(randomiser, x, y, IDENTITY) for x in records for y in range(classes)]
    worst = worst_ratio(laws)
    assert within(worst, epsilon)
    assert not within(worst, epsilon * Fraction(99, 100))
    assert randomiser.pure_epsilon == epsilon
    if kind == "randomised":  # the control: each half alone is not what the pair costs
        assert label.epsilon < epsilon
        assert not within(worst, label.epsilon)
        assert not within(worst, epsilon - label.epsilon)


def test_a_label_that_is_not_charged_is_caught() -> None:
    """The planted bug: a randomised label beside a vector that has all of ε."""
    label = RandomisedLabel(classes=3, epsilon=Fraction(1))
    randomiser = subset_randomiser(label, Fraction(3) + label.epsilon, 1, 6, 2)
    laws = [exact_law(randomiser, (x,), y, IDENTITY) for x in (-1, 1) for y in range(3)]
    assert not within(worst_ratio(laws), Fraction(3))


@pytest.mark.parametrize("classes", [2, 3, 7, 10, 16, 17])
def test_the_sign_code_tells_classes_apart_but_for_what_they_share(classes: int) -> None:
    code = SignCode(classes=classes)
    rows = hadamard(code.length)[1:, :classes]
    assert rows.sum(axis=1).max() != code.length  # the constant row is not there
    mean = rows.T @ rows / len(rows) * ((code.length - 1) / code.length)
    assert np.allclose(mean, np.eye(classes) - 1 / code.length)
    identities = record_identities(bytes(32), "peer", 4000)
    seen = code.rows(identities)
    assert {tuple(r) for r in seen.tolist()} == {tuple(r) for r in rows.tolist()}
    targets = code.targets(np.zeros(4000, np.int64), identities)
    signs = code.signs(np.full(4000, classes - 1), identities)
    assert np.allclose((targets * signs).mean(axis=0), np.eye(classes)[-1] - 1 / code.length, atol=0.07)


def test_randomised_labels_are_unbiased_exactly() -> None:
    label = RandomisedLabel(classes=4, epsilon=Fraction(2))
    law = label.draws[0].law
    for truth in range(4):
        published = [int(label.publish(np.array([truth]), np.array([[place]]))[0]) for place in range(4)]
        assert sorted(published) == [0, 1, 2, 3]
        targets = label.targets(np.array(published), [])
        assert np.allclose(np.array([float(p) for p in law]) @ targets, np.eye(4)[truth])


def test_which_label_is_chosen() -> None:
    assert [choose_label(Fraction(e), 2) for e in (1, 10)] == ["sign", "sign"]
    assert [choose_label(Fraction(e), 7) for e in (1, 5, 10)] == ["sign", "sign", "randomised"]
    assert choose_label(Fraction(10), 1000) == "sign"  # a label of its own would take most of it
    assert 3.25 <= label_code("randomised", Fraction(10), 7).epsilon <= 4
    assert 3.25 <= label_code("randomised", Fraction(10), 10).epsilon <= 4


# -- noise ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(5)])
def test_laplace_records_differ_by_no_more_than_the_noise_covers(epsilon: Fraction) -> None:
    """Every pair of records of a tiny domain: L1 distance times 1/scale is at most ε, and reaches it."""
    noise = AddedNoise(dimension=2, fraction_bits=3, epsilon=epsilon)
    rows = noise.clipped(np.array(list(product(range(-12, 13), repeat=2)), np.int64))
    signed = np.concatenate([rows, -rows])
    assert np.abs(signed).sum(axis=1).max() <= noise.bound
    farthest = max(int(np.abs(signed - row).sum(axis=1).max()) for row in signed)
    assert farthest == 2 * noise.bound
    assert Fraction(farthest) / noise.parameter <= epsilon


def test_gaussian_records_differ_by_no_more_than_the_noise_covers() -> None:
    noise = AddedNoise(dimension=3, fraction_bits=3, epsilon=None, budget=Fraction(1, 10))
    rows = noise.clipped(np.array(list(product(range(-9, 10), repeat=3)), np.int64))
    assert (rows**2).sum(axis=1).max() <= noise.bound**2
    farthest = max(int(((rows - row) ** 2).sum(axis=1).max()) for row in rows[::7])
    assert Fraction(farthest) / (2 * noise.parameter) <= Fraction(1, 10)
    assert noise.rho <= Fraction(1, 10)


def test_noise_has_the_moments_that_learners_are_told() -> None:
    noise = AddedNoise(dimension=4, fraction_bits=8, epsilon=Fraction(2))
    randomiser = Randomiser(label=PerClass(classes=2), vector=noise)
    identities = record_identities(bytes(32), "peer", 3000)
    vectors = np.tile(np.array([100, -50, 30, 0]), (3000, 1))
    batch = randomiser.perturb_all(vectors, np.ones(3000, np.int64), identities, stream(1))
    decoded = randomiser.decode(identities, batch)
    assert decoded.z.shape == (3000, 2, 4)
    z, x = decoded.z[:, 1], vectors[0] / 256
    std = math.sqrt(noise.moments.b)
    assert np.allclose(z.mean(axis=0), x, atol=5 * std / math.sqrt(3000))
    assert np.allclose(decoded.z[:, 0].mean(axis=0), -x, atol=5 * std / math.sqrt(3000))
    assert np.allclose(z.var(axis=0), noise.moments.b, rtol=0.2)
    assert np.array_equal(decoded.against_the_rest(1), z)


# -- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["subset", "subset with labels", "laplace", "gaussian"])
def test_a_batch_gives_the_bits_of_single_records(which: str) -> None:
    label = RandomisedLabel(classes=3, epsilon=Fraction(2)) if "labels" in which else SignCode(classes=3)
    if which.startswith("subset"):
        vector: SubsetSelection | AddedNoise = SubsetSelection(
            epsilon=Fraction(7), dimension=5, subset=Subset(draws=3, candidates=32, top=2), public_words=public_words
        )
    else:
        epsilon = Fraction(1) if which == "laplace" else None
        vector = AddedNoise(dimension=5, fraction_bits=10, epsilon=epsilon, budget=Fraction(1))
    randomiser = Randomiser(label=label, vector=vector)
    rng = np.random.default_rng(3)
    vectors, labels = rng.integers(-500, 500, (23, 5)), rng.integers(0, 3, 23)
    identities = record_identities(bytes(32), "peer", 23)
    whole = randomiser.perturb_all(vectors, labels, identities, stream(5))
    source = stream(5)
    single = [randomiser.perturb(v, int(y), i, source) for v, y, i in zip(vectors, labels, identities)]
    assert whole.records() == single
    again = [type(r).from_bytes(r.to_bytes(randomiser.shape), randomiser.shape) for r in single]
    assert again == single
    # A record's publication does not depend on the others', given its words.
    other = randomiser.perturb_all(np.vstack([vectors[:1] + 7, vectors[1:]]), labels, identities, stream(5))
    assert np.array_equal(other.values[1:], whole.values[1:]) or which in ("laplace", "gaussian")


def test_wrong_shapes_and_classes_are_refused() -> None:
    randomiser = subset_randomiser(SignCode(classes=2), Fraction(1), 2, 8, 3)
    with pytest.raises(LocalProtocolError):
        randomiser.perturb(np.array([1, 2, 3]), 0, IDENTITY, stream(1))
    with pytest.raises(LocalProtocolError):
        randomiser.perturb(np.array([1, 2]), 2, IDENTITY, stream(1))


# -- moments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "epsilon, best", [(1, 6.33), (5, 0.292), (10, 0.094)], ids=["epsilon 1", "epsilon 5", "epsilon 10"]
)
def test_the_chosen_subset_is_nearly_as_good_as_the_best_there_is(epsilon: int, best: float) -> None:
    """The variance of PrivUnitG, by its own theory; one or two bytes instead of a vector."""
    chosen = choose_subset(Fraction(epsilon), 58)
    assert chosen.draws == 1
    assert best <= subset_moments(chosen, Fraction(epsilon)).b <= 1.04 * best


def test_top_scores_have_the_moments_of_the_table() -> None:
    """The integral against order statistics by simulation."""
    rng = np.random.default_rng(1)
    scores = np.sort(rng.standard_normal((20_000, 64)), axis=1)[:, ::-1]
    for top, epsilon in ((1, 8), (5, 3), (30, 1)):
        found = subset_moments(Subset(draws=1, candidates=64, top=top), Fraction(epsilon))
        kept = float(Draw.of(Fraction(epsilon), top, 64 - top).probability)
        mean = kept * scores[:, :top].mean() + (1 - kept) * scores[:, top:].mean()
        square = kept * (scores[:, :top] ** 2).mean() + (1 - kept) * (scores[:, top:] ** 2).mean()
        assert math.isclose(found.mean, mean, rel_tol=0.01, abs_tol=0.003)
        assert math.isclose(found.a * found.mean**2, square - 1, rel_tol=0.02, abs_tol=0.02)


@pytest.mark.parametrize("direction", ["one coordinate", "two", "all"])
@pytest.mark.parametrize("epsilon, draws", [(5, 1), (20, 4)])
def test_what_is_published_is_unbiased(direction: str, epsilon: int, draws: int) -> None:
    """E z = x and E zzᵀ = a·xxᵀ + b·I, whatever the direction, with a control that the test can fail."""
    d, n = 6, 12_000
    mechanism = SubsetSelection(
        epsilon=Fraction(epsilon),
        dimension=d,
        subset=Subset(draws=draws, candidates=64, top=2),
        public_words=public_words,
    )
    x = np.zeros(d)
    x[: {"one coordinate": 1, "two": 2, "all": d}[direction]] = 1.0
    x /= np.linalg.norm(x)
    identities = record_identities(bytes(32), f"peer {direction}", n)
    vectors = np.tile(np.rint(1000 * x).astype(np.int64), (n, 1))
    drawn = places(mechanism.draws, n, stream(9))
    z = mechanism.decode(identities, mechanism.publish(vectors, identities, drawn))
    a, b = mechanism.moments.a, mechanism.moments.b
    error = 5 * math.sqrt(b / n)
    assert np.abs(z.mean(axis=0) - x).max() < error
    assert np.abs(z.mean(axis=0) - 1.2 * x).max() > error
    second = z.T @ z / n
    assert np.abs(second - a * np.outer(x, x) - b * np.eye(d)).max() < 8 * b / math.sqrt(n) + 0.02
    assert np.abs(second - a * np.outer(x, x) - 1.5 * b * np.eye(d)).max() > 8 * b / math.sqrt(n) + 0.02
