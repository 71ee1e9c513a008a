"""One cell by its weight: the group of cells first, then the cell within it, both found obliviously.

r = floor(R · W / 2^L) lies in exactly one cell's stretch of [0, W). With P_g the sum of the weights up to the end of
group g, the bits [r < P_g] rise once, at the group that is drawn; differences of neighbours are its one-hot bits, by
which the weights of that group are taken over in one inner product. Nobody learns the group here: it is opened at the
very end, together with the cell, so that a selection that is given up before its last layer has opened nothing at
all.

What is opened are the bits [g ≥ g*] of the groups and [j ≥ j*] of the cells within the group: both are functions of the
cell g*·size + j* that is drawn, and tell nothing else.
"""

from __future__ import annotations

import numpy as np

from tallystick.crypto.gf16 import Elements
from tallystick.protocol.selection.adders import add, compress, extend, reaches, running_sums
from tallystick.protocol.selection.gates import ONE, Circuit, inner, parallel, reshare, zeros
from tallystick.protocol.selection.question import Question


def locate(question: Question, weights: Elements, word: Elements) -> Circuit[Elements]:
    """Shares of the bits to be opened: groups − 1, then size − 1 of them; weights (bits, cells), word (L,)."""
    bits, groups, size = question.total_bits, question.groups, question.group_size
    grouped = np.concatenate([weights, zeros(len(weights), groups * size - question.cells)], axis=1)
    grouped = grouped.reshape(len(weights), groups, size)  # cells that are not there weigh nothing, and are never drawn
    group_sums = yield from compress(np.stack([extend(grouped[:, :, j], bits) for j in range(size)]))
    ends = yield from running_sums(group_sums)
    r = yield from scaled(word, ends[:, :, -1])
    below = yield from _below(r, ends[:, :, :-1])
    # one-hot bits of the group: where the bits [r < P_g] rise; beyond the last group's end r never is
    steps = np.concatenate([zeros(1), below, zeros(1) ^ ONE])
    drawn = steps[1:] ^ steps[:-1]
    starts = np.concatenate([zeros(2, bits, 1), ends[:, :, :-1]], axis=2)
    cells, start = yield from reshare([inner(grouped, drawn[None, :, None], axis=1), inner(starts, drawn, axis=2)])
    wide = bits + 1
    inside, level = yield from parallel(
        running_sums(np.stack([extend(cells, wide), zeros(wide, size)]), single=True),
        compress(np.stack([_complement(r, wide), *(extend(part, wide) for part in start)])[:, :, None]),
    )
    places = inside[:, :, : size - 1]
    within = yield from _top(np.concatenate([places, np.broadcast_to(level, places.shape)]))
    return np.concatenate([below, within])


def place_of(question: Question, opened: Elements) -> int:
    """The cell that the opened bits name."""
    groups = question.groups - 1
    group, cell = groups - int(opened[:groups].sum()), question.group_size - 1 - int(opened[groups:].sum())
    return group * question.group_size + cell


def is_answer(question: Question, opened: Elements) -> bool:
    """Whether these bits rise once in each part and name a cell: anything else no honest parties open."""
    groups = question.groups - 1
    parts = opened[:groups], opened[groups:]
    return all(bool((part[:-1] <= part[1:]).all()) for part in parts) and place_of(question, opened) < question.cells


def scaled(word: Elements, total: Elements) -> Circuit[Elements]:
    """floor(R · W / 2^L) for the word's L bits and a carry-save pair of W: shift and add, both halves of the pair."""
    length, bits = len(word), total.shape[1]
    factors = total.reshape(-1)
    products = inner(word[None, :, None], factors[:, None, None], axis=2)  # every bit with every bit
    (bits_of,) = yield from reshare([products])
    addends = zeros(len(factors), length + bits, 1)
    for i in range(len(factors)):
        shift = i % bits
        addends[i, shift : shift + length, 0] = bits_of[i]
    low, high = yield from compress(addends)
    return (yield from add(low, high))[length:, 0]


def _complement(r: Elements, wide: int) -> Elements:
    """2^(wide − 1) − 1 − r, on ``wide`` planes."""
    return extend(r ^ ONE, wide)


def _below(r: Elements, ends: Elements) -> Circuit[Elements]:
    """[r < P] for carry-save pairs of P, (2, bits, many): P + (2^bits − 1 − r) reaches 2^bits exactly then."""
    _, bits, many = ends.shape
    if not many:
        return zeros(0)
    wide = bits + 1
    complement = np.broadcast_to(_complement(r, wide)[:, None], (wide, many))
    return (yield from _top(np.stack([*(extend(part, wide) for part in ends), complement])))


def _top(addends: Elements) -> Circuit[Elements]:
    pair = yield from compress(addends)
    return (yield from reaches(pair))
