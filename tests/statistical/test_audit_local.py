"""Local randomisers audited: the law by chi-square, ε from what is seen, with planted bugs that must be found.

Two neighbours are two records that one peer might hold. What is seen is what everybody sees: the record's public id and
what was published under it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np
import pytest
from audit_bounds import epsilon_lower_bound
from scipy.stats import chisquare

from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream
from tallystick.privacy.local.labels import RandomisedLabel, SignCode
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.records import record_identity
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import Subset

EPSILON = Fraction(2)
IDENTITY = record_identity(bytes(32), "peer")
HERE, THERE = (np.array([900, -30, 410]), 0), (np.array([-500, 800, 20]), 1)
TIES = (np.array([0, 0, 0]), 1)
RUNS = 6000
Seen = Callable[[tuple[np.ndarray, int], int, AesStream], list[Hashable]]


def words(identity: bytes, skip: int) -> AesStream:
    return AesStream(identity, b"audit", skip=skip)


def randomiser(label: object = None, epsilon: Fraction = EPSILON) -> Randomiser:
    code = SignCode(classes=2) if label is None else label
    vector = SubsetSelection(
        epsilon=epsilon - code.epsilon,  # type: ignore[attr-defined]
        dimension=3,
        subset=Subset(draws=1, candidates=8, top=2),
        public_words=words,
    )
    return Randomiser(label=code, vector=vector)  # type: ignore[arg-type]


def published(record: tuple[np.ndarray, int], runs: int, source: AesStream, made: Randomiser | None = None) -> list:
    """What is seen of this record in so many worlds, all with the same public id."""
    chosen = randomiser() if made is None else made
    vectors, labels = np.tile(record[0], (runs, 1)), np.full(runs, record[1])
    return chosen.perturb_all(vectors, labels, [IDENTITY] * runs, source).records()


def lower_bound(seen: Seen, first: tuple[np.ndarray, int], second: tuple[np.ndarray, int], runs: int = RUNS) -> float:
    """ε by what is seen: the outcome is chosen on one half of the runs, and the bound is the other half's."""
    outcomes = [seen(r, runs, AesStream(bytes([n]) * 32)) for n, r in enumerate((first, second), start=1)]
    chosen, tested = ([Counter(o[half::2]) for o in outcomes] for half in (0, 1))
    best = -math.inf
    for one, other in ((0, 1), (1, 0)):
        event = max(chosen[one], key=lambda o: chosen[one][o] / (chosen[other][o] + 1))
        found = epsilon_lower_bound(tested[one][event], tested[other][event], runs // 2, delta=0.0, alpha=1e-6)
        best = max(best, found)
    return best


# -- the law -------------------------------------------------------------------------------------------------------


def p_value(claimed: Fraction) -> float:
    """Of drawn indices against the exact law at an ε."""
    made = randomiser(epsilon=EPSILON)
    drawn = Counter(r.values[0] for r in published(HERE, RUNS, AesStream(bytes(32)), made))
    every = made.vector.publish(np.tile(HERE[0], (8, 1)), [IDENTITY] * 8, np.arange(8)[:, None])[:, 0]  # type: ignore[union-attr, call-arg, arg-type]
    law = randomiser(epsilon=claimed).vector.draws[0].law  # type: ignore[union-attr]
    expected = [float(law[place]) * RUNS for place in range(8)]
    return float(chisquare([drawn[int(index)] for index in every], expected).pvalue)


def test_indices_follow_their_exact_law() -> None:
    assert p_value(EPSILON) > 1e-4


@pytest.mark.parametrize("other", [EPSILON * Fraction(4, 5), EPSILON * Fraction(6, 5)])
def test_control_another_epsilon_fails(other: Fraction) -> None:
    assert p_value(other) < 1e-6


# -- ε -------------------------------------------------------------------------------------------------------------


def test_what_is_seen_stays_within_epsilon_and_comes_near_it() -> None:
    for first, second in ((HERE, THERE), (HERE, TIES), (TIES, THERE)):
        assert lower_bound(published, first, second) <= float(EPSILON)
    assert lower_bound(published, HERE, (-HERE[0], HERE[1])) > 0.75 * float(EPSILON)


def test_class_and_vector_together_stay_within_epsilon() -> None:
    made = randomiser(RandomisedLabel(classes=3, epsilon=Fraction(1)))

    def seen(record: tuple[np.ndarray, int], runs: int, source: AesStream) -> list[Hashable]:
        return published(record, runs, source, made)

    found = lower_bound(seen, HERE, (-HERE[0], 1), 2 * RUNS)
    assert 1.05 < found <= float(EPSILON)  # more than the label alone could tell


def test_planted_candidates_that_follow_from_the_record_are_found() -> None:
    """Whoever is to decode must be told the seed; a seed made from the record tells the record."""

    def seen(record: tuple[np.ndarray, int], runs: int, source: AesStream) -> list[Hashable]:
        identity = digest(record[0].astype("<i8").tobytes())
        vectors, labels = np.tile(record[0], (runs, 1)), np.full(runs, record[1])
        batch = randomiser().perturb_all(vectors, labels, [identity] * runs, source)
        assert len(batch) == runs  # what is drawn is as it should be; the id beside it is not
        return [identity] * runs

    assert lower_bound(seen, HERE, THERE) > 2 * float(EPSILON)


def test_a_planted_second_draw_after_a_crash_is_found() -> None:
    def seen(record: tuple[np.ndarray, int], runs: int, source: AesStream) -> list[Hashable]:
        before = published(record, runs, source)
        return list(zip(before, published(record, runs, source)))

    assert lower_bound(seen, HERE, (-HERE[0], HERE[1]), 4 * RUNS) > 1.15 * float(EPSILON)


def test_planted_ties_that_follow_the_data_are_found() -> None:
    """All that tie with the last of the top are in it: then its size follows from the record."""

    def seen(record: tuple[np.ndarray, int], runs: int, source: AesStream) -> list[Hashable]:
        made = randomiser(epsilon=Fraction(1, 2))
        coin = made.vector.draws[0].probability  # type: ignore[union-attr]
        scores = np.array([0, 1, 1, 1, 1, 1, 1, 1]) if not record[0].any() else np.arange(8)
        top = np.flatnonzero(scores >= np.sort(scores)[-2])
        rest = np.setdiff1d(np.arange(8), top)
        rng = np.random.default_rng(int(source.words(1)[0]))
        kept = rng.random(runs) < float(coin)
        return np.where(kept, rng.choice(top, runs), rng.choice(rest, runs)).tolist()

    assert lower_bound(seen, TIES, HERE) > 0.5


@pytest.mark.audit
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(5)])
def test_audit_many_runs_stay_within_epsilon(epsilon: Fraction) -> None:
    made = randomiser(epsilon=epsilon)

    def seen(record: tuple[np.ndarray, int], runs: int, source: AesStream) -> list[Hashable]:
        return published(record, runs, source, made)

    assert 0.8 * float(epsilon) < lower_bound(seen, HERE, (-HERE[0], HERE[1]), 400_000) <= float(epsilon)
