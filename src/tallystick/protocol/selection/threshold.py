"""Which of many noisy counts reach a noisy threshold: one comparison each, and no more ones than were paid for.

The sparse vector technique (:mod:`tallystick.privacy.sparse_vector`) on shares. Party j drew noise ν_1 … ν_k, ρ when
the round was opened; it adds ν_i − ρ to its share of count i, party 0 subtracts the threshold, all modulo p and before
anything is dealt. So what the parties convert to bits is already

    v_i = q_i − T + Σ_j (ν_ij − ρ_j)

and no comparison without the noise of every party exists anywhere. b_i = [v_i ≥ 0] is the sign bit. The c-th one ends
it: opened is b_i AND [b_1 + … + b_(i−1) < c], by running sums of the bits; later ones are zeros like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.core.identifiers import digest
from tallystick.crypto.field import MODULUS
from tallystick.crypto.gf16 import Elements
from tallystick.protocol.selection.adders import compress, extend, reaches, running_sums
from tallystick.protocol.selection.gates import ONE, Circuit, both, zeros
from tallystick.protocol.selection.question import MAX_CELLS, MAX_WIDTH, MIN_WIDTH

_HEAD = Struct("<IQIB")
_ENTRY = 8
"""Bytes of one number of noise, little-endian and signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdQuestion:
    """Which of ``cells`` counts reach ``threshold``, the first ``most`` of them. A party's word is its noise: of every
    count, then of the threshold. Every v_i must lie within ±2^(width − 1), which is the asker's to see to."""

    cells: int
    threshold: int
    most: int
    width: int = MAX_WIDTH

    def __post_init__(self) -> None:
        problem = None
        if not 2 <= self.cells <= MAX_CELLS:
            problem = f"{self.cells} counts; there are 2 to {MAX_CELLS}"
        elif not 1 <= self.most <= self.cells:
            problem = f"at most {self.most} of {self.cells} counts"
        elif not MIN_WIDTH <= self.width <= MAX_WIDTH:
            problem = f"values of {self.width} bits; they have {MIN_WIDTH} to {MAX_WIDTH}"
        elif not 1 <= self.threshold < 1 << (self.width - 1):
            problem = f"a threshold of {self.threshold} among numbers of {self.width} bits"
        if problem:
            raise StudyError(problem, remedy="Ask for something the computing parties can do.", rule="bad-question")

    @property
    def values(self) -> int:
        """How many totals go in."""
        return self.cells

    @property
    def word_bytes(self) -> int:
        """How many bytes of noise each party gives."""
        return _ENTRY * (self.cells + 1)

    def fingerprint(self) -> bytes:
        """A hash of all of it, for what parties agree on beforehand."""
        head = _HEAD.pack(self.cells, self.threshold, self.most, self.width)
        return digest(b"tallystick/selection/threshold/1", head)


def noise_in(question: ThresholdQuestion, word: bytes) -> list[int]:
    """What one party adds to each count: its noise less that of the threshold."""
    if len(word) != question.word_bytes:
        raise LocalProtocolError(f"the noise of a comparison has {question.word_bytes} bytes")
    *counts, threshold = (int(n) for n in np.frombuffer(word, dtype="<i8"))
    return [n - threshold for n in counts]


def noisy_shares(question: ThresholdQuestion, share: NDArray[np.uint64], word: bytes, *, first: bool) -> list[int]:
    """This party's shares of all v_i; ``first``: it is party 0 and subtracts the threshold."""
    public = question.threshold if first else 0
    return [(int(s) + n - public) % MODULUS for s, n in zip(share, noise_in(question, word), strict=True)]


def ideal_above(question: ThresholdQuestion, totals: list[int], words: list[bytes]) -> int:
    """The same in plain integers: bit i says whether count i is among the first ``most`` that reach the threshold."""
    noise = [noise_in(question, word) for word in words]
    above = [total + sum(of[i] for of in noise) >= question.threshold for i, total in enumerate(totals)]
    before = [0, *accumulate(above)]
    return sum(1 << i for i, b in enumerate(above) if b and before[i] < question.most)


def first_above(question: ThresholdQuestion, values: Elements) -> Circuit[Elements]:
    """Shares of the bits to be opened, (cells,), from the v_i in two's complement, (width, cells)."""
    above: Elements = values[-1] ^ ONE
    if question.most == question.cells:
        return above
    bits = question.cells.bit_length()
    counts = np.stack([extend(above[None, :-1], bits), zeros(bits, question.cells - 1)])
    sums = yield from running_sums(counts, single=True)
    # S ≥ c exactly if S + (2^bits − c) reaches 2^bits; S ≤ cells < 2^bits, so nothing is carried out of bits + 1 planes
    missing = (1 << bits) - question.most
    public = np.array([missing >> j & 1 for j in range(bits + 1)], dtype=np.uint8)[:, None]
    public = np.broadcast_to(public, (bits + 1, question.cells - 1))
    pair = yield from compress(np.stack([*(extend(part, bits + 1) for part in sums), public]))
    enough = yield from reaches(pair)
    kept = yield from both(above[1:], enough ^ ONE)
    return np.concatenate([above[:1], kept])


def answer_in(question: ThresholdQuestion, opened: Elements) -> int | None:
    """The bits as one whole number; None if no honest parties open these."""
    if int(opened.sum()) > question.most:
        return None
    return sum(1 << i for i in np.flatnonzero(opened).tolist())
