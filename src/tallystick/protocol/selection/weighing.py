"""From the bits of the values to the weight of every cell: distance, clamp, table.

A *place* in the table is a clamped distance: the low bits of a number, all set if any bit above them is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto import gf16
from tallystick.crypto.gf16 import Elements
from tallystick.protocol.selection.adders import add, carry_out, extend, reaches
from tallystick.protocol.selection.gates import ONE, Circuit, any_of, both, inner, parallel, reshare, zeros
from tallystick.protocol.selection.question import Question
from tallystick.protocol.selection.table_lookup import halves, one_hot, read

_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def weigh(question: Question, values: Elements) -> Circuit[Elements]:
    """Planes of all weights, (bits, cells), from the values in two's complement, (width, many)."""
    coarse = values[question.shift :]  # floor(v / 2^shift)
    by = _by_rank if question.kind == "ranks" else _by_score
    return (yield from by(question, coarse))


def clamped(numbers: Elements, bits: int) -> Circuit[Elements]:
    """min(number, 2^bits − 1) of non-negative numbers."""
    low, high = numbers[:bits], numbers[bits:]
    if not len(high):
        return extend(low, bits)
    beyond = yield from any_of(high)
    neither = yield from both(low ^ ONE, np.broadcast_to(beyond ^ ONE, low.shape))
    return neither ^ ONE


# -- ranks -------------------------------------------------------------------------------------------------------------


def _by_rank(question: Question, edges: Elements) -> Circuit[Elements]:
    """A cell lies between edges e and e′, values b·rank − a·n. Its distance is max(0, e, −e′).

    Of counts that are zero or more e ≤ e′, and at most one of e and −e′ is positive. A client that lies about its
    counts can make both so; the maximum still moves by no more than its arguments do, so that an honest record costs
    what is charged, whatever others upload. With l = [e + e′ < 0], which is [e < −e′], and s the sign of e′, e′ ⊕ s is
    −e′ − 1 where e′ < 0: the place of a table that begins at distance 1. So nothing is ever negated; three public
    tables stand side by side, and which one holds is shared, too:

        above = (e ≥ 0) ¬l: w(e)        below = (e′ < 0) l: w(place + 1)        inside, e < 0 ≤ e′: w(0)
    """
    table, bits = question.table, question.table.index_bits
    negative = edges[-1]
    wide = np.concatenate([edges, edges[-1:]])  # one plane more, for the sum of two
    places, later = yield from parallel(
        clamped(edges[:-1] ^ negative, bits), reaches(np.stack([wide[:, :-1], wide[:, 1:]]))
    )
    moved, above, below = yield from reshare(
        [
            gf16.multiply(np.broadcast_to(later, (bits, question.cells)), places[:, :-1] ^ places[:, 1:]),
            gf16.multiply(negative[:-1] ^ ONE, later ^ ONE),
            gf16.multiply(negative[1:], later),
        ]
    )
    place = places[:, :-1] ^ moved
    inside = above ^ below ^ ONE
    column_bits = halves(bits)
    columns, rows = yield from parallel(_hot(place[:column_bits]), _hot(place[column_bits:]))
    both_sides = np.stack([np.broadcast_to(above, rows.shape), np.broadcast_to(below, rows.shape)])
    rows = (yield from both(both_sides, np.stack([rows, rows]))).reshape(-1, question.cells)
    weights = np.array(table.weights, dtype=np.uint64)
    shape = (-1, 1 << column_bits)
    beside = np.concatenate([weights.reshape(shape), np.append(weights[1:], weights[-1]).reshape(shape)])
    products = read(rows, columns, beside, table.bits)
    (found,) = yield from reshare([products])
    best: Elements = np.array([table.weights[0] >> j & 1 for j in range(table.bits)], dtype=np.uint8)
    result: Elements = found ^ best[:, None] * inside[None]  # 0 or 1 times a share: a linear map
    return result


def _hot(bits: Elements) -> Circuit[Elements]:
    if not len(bits):  # a table of two entries has no columns to choose from
        return zeros(1, bits.shape[1]) ^ ONE
    return (yield from one_hot(bits))


# -- scores ------------------------------------------------------------------------------------------------------------


def _by_score(question: Question, scores: Elements) -> Circuit[Elements]:
    table, bits = question.table, question.table.index_bits
    scores = scores.copy()
    scores[-1] ^= ONE  # plus 2^(width − 1): in the order of unsigned numbers
    best = yield from largest(scores)
    # max − s = ~(s + ~max), for ~x = −x − 1
    distance = (yield from add(scores, np.broadcast_to(best[:, None] ^ ONE, scores.shape))) ^ ONE
    place = yield from clamped(distance, bits)
    column_bits = halves(bits)
    columns, rows = yield from parallel(_hot(place[:column_bits]), _hot(place[column_bits:]))
    weights: NDArray[np.uint64] = np.array(table.weights, dtype=np.uint64).reshape(-1, 1 << column_bits)
    (found,) = yield from reshare([read(rows, columns, weights, table.bits)])
    return found


def largest(numbers: Elements) -> Circuit[Elements]:
    """The largest of unsigned numbers, (bits, many) → (bits,): a tournament of fours, each among all six pairs.

    In a four the winner is the first that no earlier number reaches and no later one exceeds; it is taken over by an
    inner product with those four bits, of which the last is 1 where the others are 0.
    """
    while numbers.shape[1] > 1:
        fours = -(-numbers.shape[1] // 4)
        padded = np.concatenate([numbers, zeros(len(numbers), 4 * fours - numbers.shape[1])], axis=1)
        x = padded.reshape(len(numbers), fours, 4)
        first, second = (x[:, :, [pair[side] for pair in _PAIRS]] for side in (0, 1))
        less = yield from carry_out(second, first ^ ONE)  # first < second
        lt = {pair: less[:, i] for i, pair in enumerate(_PAIRS)}
        early = np.stack([lt[0, 1] ^ ONE, lt[0, 1], lt[0, 2]])
        middle = np.stack([lt[0, 2] ^ ONE, lt[1, 2] ^ ONE, lt[1, 2]])
        late = np.stack([lt[0, 3] ^ ONE, lt[1, 3] ^ ONE, lt[2, 3] ^ ONE])
        wins = yield from both(early, middle)
        wins = yield from both(wins, late)
        wins = np.concatenate([wins, wins[:1] ^ wins[1:2] ^ wins[2:] ^ ONE])
        (numbers,) = yield from reshare([inner(x, wins.T[None], axis=2)])
    return numbers[:, 0]
