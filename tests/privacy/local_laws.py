"""Exact laws of local randomisers: the real path driven word by word, every outcome weighed by its exact probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from tallystick.crypto.prg import AesStream
from tallystick.privacy.local.coins import Draw
from tallystick.privacy.local.labels import LabelCode
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.records import PerturbedRecord
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import Subset
from tallystick.privacy.mechanisms.exponential import exp_bounds

__all__ = ["Written", "exact_law", "public_words", "stream", "subset_randomiser", "within", "words_of", "worst_ratio"]

Law = dict[PerturbedRecord, Fraction]


def public_words(identity: bytes, skip: int) -> AesStream:
    return AesStream(identity, b"tests/local", skip=skip)


def stream(seed: int) -> AesStream:
    return AesStream(seed.to_bytes(32, "little"), b"tests/local")


class Written:
    """A source of words that were written down; asking for more is an error."""

    def __init__(self, words: Sequence[int]) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        if count > len(self.left):
            raise AssertionError("more words are read than were meant")
        out, self.left = self.left[:count], self.left[count:]
        return np.array(out, np.uint64)

    def bytes(self, count: int) -> bytes:
        return self.words(-(-count // 8)).tobytes()[:count]


def words_of(draw: Draw, place: int) -> list[int]:
    """Two words for which a draw gives this place."""
    kept = place < draw.preferred
    among, at = (draw.preferred, place) if kept else (draw.others, place - draw.preferred)
    return [0 if kept else (1 << 64) - 1, (at << 64) // among + (1 << 40)]


def subset_randomiser(label: LabelCode, epsilon: Fraction, dimension: int, candidates: int, top: int) -> Randomiser:
    """One of few candidates, the class by ``label``."""
    rest = epsilon - label.epsilon
    subset = Subset(draws=1, candidates=candidates, top=top)
    vector = SubsetSelection(epsilon=rest, dimension=dimension, subset=subset, public_words=public_words)
    return Randomiser(label=label, vector=vector)


def exact_law(randomiser: Randomiser, vector: Sequence[int], label: int, identity: bytes) -> Law:
    """The probability of every published record, by driving ``perturb`` through every combination of places."""
    assert isinstance(randomiser.vector, SubsetSelection)
    draws = [*randomiser.label.draws, *randomiser.vector.draws]
    law: Law = {}
    for places, weight in _combinations(draws):
        source = Written([word for draw, place in zip(draws, places) for word in words_of(draw, place)])
        found = randomiser.perturb(np.array(vector, np.int64), label, identity, source)
        assert not source.left
        law[found] = law.get(found, Fraction(0)) + weight
    assert sum(law.values()) == 1
    return law


def _combinations(draws: Sequence[Draw]) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    laws = [draw.law for draw in draws]
    for places in product(*(range(len(law)) for law in laws)):
        weight = Fraction(1)
        for law, place in zip(laws, places):
            weight *= law[place]
        yield places, weight


def worst_ratio(laws: Sequence[dict[object, Fraction]]) -> Fraction:
    """The largest ratio of an outcome's probabilities under any two of the laws."""
    outcomes = {outcome for law in laws for outcome in law}
    worst = Fraction(1)
    for outcome in outcomes:
        found = [law.get(outcome, Fraction(0)) for law in laws]
        if min(found) == 0:
            return Fraction(10**30)
        worst = max(worst, max(found) / min(found))
    return worst


def within(ratio: Fraction, epsilon: Fraction) -> bool:
    """Whether a ratio is at most e^ε, in integers: by the lower bound of e^-ε it surely is not above."""
    return ratio * exp_bounds(epsilon, 200)[0] <= 1 << 200
