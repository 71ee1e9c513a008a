"""What one party does in a selection, from its additive share to the cell: dealing, layers of products, one opening.

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
from tallystick.protocol.selection.gates import Circuit
from tallystick.protocol.selection.question import Question
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


def program(
    question: Question,
    index: int,
    parties: int,
    colluding: int,
    *,
    share: NDArray[np.uint64],
    word: bytes,
    source: WordSource,
) -> Program:
    """All of party ``index``'s part; returns the cell."""
    weights = weights_at_zero(parties)
    own = pieces(linear(question, share), question.width, first=index == 0)
    random = np.unpackbits(np.frombuffer(word, dtype=np.uint8), bitorder="little")
    inputs = np.concatenate([own.reshape(-1), random])
    dealt = yield Exchange(Purpose.INPUT, deal(inputs, colluding, parties, source))
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
    if opened is None or not is_answer(question, opened):
        raise RoundAborted(
            "the shares of the answer do not fit together: a party did not follow the protocol",
            rule="inconsistent-shares",
            remedy="Nothing was released. Look at the releases of tallystick that the computing parties run.",
        )
    return place_of(question, opened)


def selection(question: Question, dealt: Elements) -> Circuit[Elements]:
    """Shares of the bits that name the cell, from what every party dealt, (parties, bits)."""
    many = question.cells + 1 if question.kind == "ranks" else question.cells
    size = (question.width + TOP_BITS) * many
    shares = dealt[:, :size].reshape(len(dealt), question.width + TOP_BITS, many)
    word = np.bitwise_xor.reduce(dealt[:, size:], axis=0)
    values = yield from to_bits(shares, question.width)
    weights = yield from weigh(question, values)
    return (yield from locate(question, weights, word))
