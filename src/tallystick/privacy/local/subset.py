"""Subset selection: publish one of K public candidates, one of the top m with most of the probability.

The candidates follow from the record's public id. Their scores are integer dot products with the record; order by
score, ties by index. A coin says whether one of the first m places or one of the K − m others is published, and which
of them is uniform: ε-DP whatever the scores are (``subset.md``). Only the direction of a record matters; one of length
0 has scores that are all equal, and what is published of it is noise alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.privacy.local.candidates import PER_WORD, codes, coordinate_deviation, quantile_table, words_needed
from tallystick.privacy.local.coins import Draw
from tallystick.privacy.local.subset_moments import Subset, SubsetMoments, subset_moments

PublicWords = Callable[[bytes, int], WordSource]
"""The keystream of a public id from a word on; AES (:mod:`tallystick.crypto.prg`), which this floor does not see."""
LARGEST = 1 << 20
"""No coordinate of a record is larger: scores stay below 2^20·2^15·2^14, and with an index of 16 bits below 2^63."""
MOST_COORDINATES = 1 << 12
_BLOCK = 1 << 21  # codes at a time: 4 MB


@dataclass(frozen=True, kw_only=True)
class SubsetSelection:
    """The mechanism on vectors of ``dimension`` whole numbers, at ε for all draws together."""

    name = "subset"
    epsilon: Fraction
    dimension: int
    subset: Subset
    public_words: PublicWords

    @property
    def draws(self) -> list[Draw]:
        """The laws of the places to be published; each is of the candidates in order of their scores."""
        k, m, t = self.subset.candidates, self.subset.top, self.subset.draws
        return [Draw.of(self.epsilon / t, m, k - m)] * t

    @property
    def moments(self) -> SubsetMoments:
        """E z = x, E zzᵀ = a·xxᵀ + b·I for records x scaled to length 1."""
        return subset_moments(self.subset, self.epsilon)

    def publish(
        self, vectors: NDArray[np.int64], identities: Sequence[bytes], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Of every record and draw the index of the candidate at its drawn place."""
        vectors = np.clip(vectors, -LARGEST, LARGEST)
        out = np.empty((len(vectors), self.subset.draws), np.int64)
        table = quantile_table()
        for start, block in self._blocks(identities):
            stop = start + len(block)
            _select(block, table, vectors[start:stop], places[start:stop], self.subset.candidates, out[start:stop])
        return out

    def decode(self, identities: Sequence[bytes], values: NDArray[np.int64]) -> NDArray[np.float64]:
        """z of every record: the published candidates, scaled to be unbiased for the record's direction."""
        out = np.zeros((len(values), self.dimension))
        table = quantile_table()
        k, each = self.subset.candidates, words_needed(self.dimension)
        for row, identity, published in zip(out, identities, values.tolist()):
            for number, index in enumerate(published):
                words = self.public_words(identity, (number * k + index) * each).words(each)
                row += table[codes(words)[: self.dimension]]
        out /= coordinate_deviation() * self.moments.mean * self.subset.draws
        return out

    def _blocks(self, identities: Sequence[bytes]) -> Iterator[tuple[int, NDArray[np.uint16]]]:
        """(first record, codes of the candidates' coordinates) for as many records as fit into memory that is near.

        Every candidate begins with a word of its own, so that it is found without those before it.
        """
        words = self.subset.draws * self.subset.candidates * words_needed(self.dimension)
        many = max(1, _BLOCK // (PER_WORD * words))
        for start in range(0, len(identities), many):
            chosen = identities[start : start + many]
            block = np.empty((len(chosen), PER_WORD * words), np.uint16)
            for row, identity in zip(block, chosen):
                row[:] = codes(self.public_words(identity, 0).words(words))
            yield start, block


@njit(cache=True, nogil=True)
def _select(block, table, vectors, places, candidates, out):  # type: ignore[no-untyped-def]
    """The index at the drawn place, candidates in order of falling scores, equal scores by index."""
    d = vectors.shape[1]
    each = -(-d // 4) * 4
    keys = np.empty(candidates, np.int64)
    for i in range(vectors.shape[0]):
        x = vectors[i]
        for number in range(places.shape[1]):
            at = number * candidates * each
            for k in range(candidates):
                score = np.int64(0)
                for j in range(d):
                    score += np.int64(table[block[i, at + j]]) * x[j]
                at += each
                keys[k] = score * candidates + (candidates - 1 - k)  # all different: ties fall to the lower index
            rank = candidates - 1 - places[i, number]
            out[i, number] = candidates - 1 - np.partition(keys, rank)[rank] % candidates
