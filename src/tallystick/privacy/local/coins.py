"""Coins and whole numbers of a local randomiser: exact, from 64-bit words, always as many a record.

A coin of probability P/2^62 compares the upper 62 bits of a word with P. P is rounded DOWN from what ε allows, in
integers (:func:`kept_probability`), so that the true ε is at most the claimed one. A whole number below n is the upper
half of word·n; words whose lower half is below 2^64 mod n are rejected [Lemire19], one in 2^47 or fewer, and then
the next word is read. So a record takes a fixed number of words but for rejections, and a batch can be read at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.privacy.mechanisms.exponential import exp_bounds
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

COIN_BITS = 62
_EXP_BITS = 256
_LOW32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_DROPPED = np.uint64(64 - COIN_BITS)
WORDS = 2
"""Of one draw: the coin's, and the whole number's."""


def kept_probability(epsilon: Fraction, preferred: int, others: int) -> int:
    """P, the largest with P/2^62 ≤ p = k·e^ε/(k·e^ε + r), for k preferred outcomes and r others, less 1 at most.

    A preferred outcome then has probability (P/2^62)/k, another one (1 − P/2^62)/r: their ratio is at most e^ε exactly
    if P/2^62 ≤ p. p = k/(k + r·e^-ε) falls in e^-ε, of which an upper bound is known in integers; so P is never above.
    """
    above = exp_bounds(epsilon, _EXP_BITS)[1]
    whole = preferred << _EXP_BITS
    return (whole << COIN_BITS) // (whole + others * above)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A coin, and a uniform number among the ``preferred`` first places if it falls, among the ``others`` if not."""

    epsilon: Fraction
    preferred: int
    others: int
    coin: int

    @classmethod
    def of(cls, epsilon: Fraction, preferred: int, others: int) -> Draw:
        """With the coin that ε allows."""
        coin = kept_probability(epsilon, preferred, others)
        return cls(epsilon=epsilon, preferred=preferred, others=others, coin=coin)

    @property
    def probability(self) -> Fraction:
        """Of the preferred places together: exact."""
        return Fraction(self.coin, 1 << COIN_BITS)

    @property
    def law(self) -> list[Fraction]:
        """The probability of every place: exact."""
        kept = self.probability
        return [kept / self.preferred] * self.preferred + [(1 - kept) / self.others] * self.others

    def one(self, words: WordBuffer) -> int:
        """One place, word by word."""
        kept = (words.next() >> (64 - COIN_BITS)) < self.coin
        places = self.preferred if kept else self.others
        while True:
            product = words.next() * places
            if product & ((1 << 64) - 1) >= (1 << 64) % places:
                return (product >> 64) + (0 if kept else self.preferred)

    def many(self, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Places from rows of two words, and which rows have a word that must be rejected."""
        kept = (words[:, 0] >> _DROPPED) < np.uint64(self.coin)
        places = np.where(kept, np.uint64(self.preferred), np.uint64(self.others))
        word = words[:, 1]
        high = ((word >> _S32) * places + (((word & _LOW32) * places) >> _S32)) >> _S32
        least = np.where(kept, np.uint64((1 << 64) % self.preferred), np.uint64((1 << 64) % self.others))
        found = high.astype(np.int64) + np.where(kept, 0, self.preferred)
        return found, (word * places) < least


def places(draws: list[Draw], count: int, source: WordSource) -> NDArray[np.int64]:
    """For each of ``count`` records the places of all its draws: as if drawn one after the other, and no word more."""
    out = np.empty((count, len(draws)), np.int64)
    stride, done = WORDS * len(draws), 0
    buffer = WordBuffer(source, block=1)  # the reference reads no word ahead
    while done < count and draws:
        missing = (count - done) * stride - len(buffer.unread())
        if missing > 0:
            buffer.fetch(missing)
        rows = buffer.unread()[: (count - done) * stride].reshape(count - done, len(draws), WORDS)
        found = [coin.many(rows[:, i]) for i, coin in enumerate(draws)]
        rejected = np.logical_or.reduce([again for _, again in found])
        good = int(np.argmax(rejected)) if rejected.any() else count - done
        for i, (place, _) in enumerate(found):
            out[done : done + good, i] = place[:good]
        buffer.advance(good * stride)
        done += good
        if done < count:
            out[done] = [coin.one(buffer) for coin in draws]
            done += 1
    return out
