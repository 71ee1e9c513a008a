"""What one party does in a selection, from its additive share to the answer: dealing, layers of products, one opening.

A generator as well: it yields a matrix with one row for each party (what that one is to get; this party's own row among
them) and is sent the rows that everybody gave it. The machine beside it only carries them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import RoundAborted
from tallystick.core.randomness import WordSource
from tallystick.crypto.gf16 import Elements
from tallystick.crypto.shamir_bits import combine, deal, open_bits, weights_at_zero
from tallystick.protocol.selection.conversion import TOP_BITS, linear, pieces, to_bits
from tallystick.protocol.selection.drawing import is_answer, locate, place_of
from tallystick.protocol.selection.gates import Circuit, parallel
from tallystick.protocol.selection.grouped import GroupedQuestion, joined, parts
from tallystick.protocol.selection.question import Question
from tallystick.protocol.selection.threshold import ThresholdQuestion, answer_in, first_above, noisy_shares
from tallystick.protocol.selection.weighing import weigh


class Purpose(Enum):
    """What a layer is for."""

    INPUT = "input"
    PRODUCT = "product"
    OPENING = "opening"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One layer: ``rows[j]`` goes to party j."""

    purpose: Purpose
    rows: Elements = field(repr=False)


Program = Generator[Exchange, Elements, int]
Asked = Question | GroupedQuestion | ThresholdQuestion


def program(
    question: Asked,
    index: int,
    parties: int,
    colluding: int,
    *,
    share: NDArray[np.uint64],
    word: bytes,
    source: WordSource,
) -> Program:
    """All of party ``index``'s part; returns the cell, or the bits of the counts above as one whole number."""
    weights = weights_at_zero(parties)
    own = inputs(question, share, word, first=index == 0)
    dealt = yield Exchange(Purpose.INPUT, deal(own, colluding, parties, source))
    circuit = selection(question, dealt)
    try:
        products = next(circuit)
        while True:
            received = yield Exchange(Purpose.PRODUCT, deal(products, colluding, parties, source))
            products = circuit.send(combine(received, weights))
    except StopIteration as end:
        answer: Elements = end.value
    shares = yield Exchange(Purpose.OPENING, np.broadcast_to(answer, (parties, answer.size)))
    opened = open_bits(shares, colluding, weights)
    found = None if opened is None else _answer(question, opened)
    if found is None:
        raise RoundAborted(
            "the shares of the answer do not fit together: a party did not follow the protocol",
            rule="inconsistent-shares",
            remedy="Nothing was released. Look at the releases of tallystick that the computing parties run.",
        )
    return found


def inputs(question: Asked, share: NDArray[np.uint64], word: bytes, *, first: bool) -> Elements:
    """The bits that a party deals: of its shares of the values, then of its random word. Noise is in the values."""
    if isinstance(question, ThresholdQuestion):
        noisy = noisy_shares(question, share, word, first=first)
        return pieces(noisy, question.width, first=first).reshape(-1)
    if isinstance(question, GroupedQuestion):
        shares = np.split(share, question.groups)
        own = zip(shares, parts(word, question.groups), strict=True)
        return np.concatenate([inputs(question.each, s, w, first=first) for s, w in own])
    values = pieces(linear(question, share), question.width, first=first)
    random = np.unpackbits(np.frombuffer(word, dtype=np.uint8), bitorder="little")
    return np.concatenate([values.reshape(-1), random])


def _answer(question: Asked, opened: Elements) -> int | None:
    if isinstance(question, ThresholdQuestion):
        return answer_in(question, opened)
    if isinstance(question, GroupedQuestion):
        places = [_answer(question.each, one) for one in np.split(opened, question.groups)]
        return None if any(place is None for place in places) else joined([p for p in places if p is not None])
    return place_of(question, opened) if is_answer(question, opened) else None


def selection(question: Asked, dealt: Elements) -> Circuit[Elements]:
    """Shares of the bits that name the answer, from what every party dealt, (parties, bits)."""
    if isinstance(question, ThresholdQuestion):
        shape = (len(dealt), question.width + TOP_BITS, question.cells)
        noisy = yield from to_bits(dealt.reshape(shape), question.width)
        return (yield from first_above(question, noisy))
    if isinstance(question, GroupedQuestion):
        own = np.split(dealt, question.groups, axis=1)
        answers = yield from parallel(*(selection(question.each, of_group) for of_group in own))
        return np.concatenate(answers)
    many = question.cells + 1 if question.kind == "ranks" else question.cells
    size = (question.width + TOP_BITS) * many
    shares = dealt[:, :size].reshape(len(dealt), question.width + TOP_BITS, many)
    word = np.bitwise_xor.reduce(dealt[:, size:], axis=0)
    values = yield from to_bits(shares, question.width)
    weights = yield from weigh(question, values)
    return (yield from locate(question, weights, word))
