"""Sums of shared numbers: carry-save, so that many are added in few layers, and logarithmic carries at the end.

Numbers are planes first, (bits, many); several addends are stacked before that, (addends, bits, many). Sums are taken
modulo 2^bits. Where all addends are non-negative and their whole sum is below 2^bits, as for weights, no carry ever
leaves the top: a carry-save pair then adds up to the sum itself, not only to its remainder.
"""

from __future__ import annotations

import numpy as np

from tallystick.crypto import gf16
from tallystick.crypto.gf16 import Elements
from tallystick.protocol.selection.gates import Circuit, both, reshare, zeros


def extend(numbers: Elements, bits: int) -> Elements:
    """The same non-negative numbers on ``bits`` planes; planes are the second axis from the front of (bits, many)."""
    return np.concatenate([numbers, zeros(bits - numbers.shape[0], *numbers.shape[1:])])


def compress(addends: Elements) -> Circuit[Elements]:
    """Two numbers with the same sum: three are made two by full adders, all at once, until two are left.

    a + b + c = (a ⊕ b ⊕ c) + 2 · majority, and the majority is ((a ⊕ c)(b ⊕ c)) ⊕ c: one product a bit. A layer takes
    a third of the addends away.
    """
    while len(addends) > 2:
        triples = len(addends) // 3
        a, b, c = addends[: 3 * triples].reshape(triples, 3, *addends.shape[1:]).swapaxes(0, 1)
        low = slice(None, -1)  # nothing is carried out of the top plane
        major = (yield from both((a ^ c)[:, low], (b ^ c)[:, low])) ^ c[:, low]
        carry = np.concatenate([zeros(triples, 1, *addends.shape[2:]), major], axis=1)
        addends = np.concatenate([a ^ b ^ c, carry, addends[3 * triples :]])
    if len(addends) == 1:
        addends = np.concatenate([addends, np.zeros_like(addends)])
    return addends


def add(a: Elements, b: Elements) -> Circuit[Elements]:
    """a + b: a prefix tree over (generate, propagate), as shallow as can be [Skl60].

    In level i every plane whose number has bit i set takes over from the last plane of the block before its own. A
    block that begins at plane 0 has nothing more to propagate; the top plane's own carry is not needed.
    """
    bits = a.shape[0]
    spread = a ^ b
    if bits == 1:
        return spread
    carry = yield from both(a[:-1], b[:-1])
    through = spread[:-1].copy()
    for level in range((bits - 2).bit_length()):
        places = np.array([j for j in range(bits - 1) if j >> level & 1])
        before = (places >> level << level) - 1
        going = places >> (level + 1) > 0
        gained, left = yield from reshare(
            [
                gf16.multiply(through[places], carry[before]),
                gf16.multiply(through[places[going]], through[before[going]]),
            ]
        )
        carry[places] ^= gained  # a plane that generates does not propagate: OR is XOR here
        through[places[going]] = left
    return np.concatenate([spread[:1], spread[1:] ^ carry])


def carry_out(a: Elements, b: Elements) -> Circuit[Elements]:
    """Whether a + b reaches 2^bits: the same tree, of which only the last carry is made."""
    carry = yield from both(a, b)
    through = a ^ b
    while len(carry) > 1:
        pairs = len(carry) // 2
        low, high = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        gained, left = yield from reshare(
            [
                gf16.multiply(through[high], carry[low]),
                gf16.multiply(through[high][1:], through[low][1:]),  # the lowest block passes nothing on
            ]
        )
        joined = np.concatenate([zeros(1, *left.shape[1:]), left])
        rest = slice(2 * pairs, None)
        carry, through = (
            np.concatenate([carry[high] ^ gained, carry[rest]]),
            np.concatenate([joined, through[rest]]),
        )
    last: Elements = carry[0]
    return last


def reaches(pair: Elements) -> Circuit[Elements]:
    """The top bit of the sum of a carry-save pair that is below 2^bits."""
    a, b = pair[0], pair[1]
    top: Elements = (yield from carry_out(a[:-1], b[:-1])) ^ a[-1] ^ b[-1]
    return top


def running_sums(pairs: Elements, *, single: bool = False) -> Circuit[Elements]:
    """Carry-save pairs of all sums from the first on, along the last axis of (2, bits, many): a prefix tree again.

    ``single``: the second number of each pair is zero; two such make a pair without any gate.
    """
    sums = pairs.copy()
    many = sums.shape[2]
    for level in range((many - 1).bit_length()):
        places = np.array([j for j in range(many) if j >> level & 1])
        before = (places >> level << level) - 1
        if level == 0 and single:
            sums[1][:, places] = sums[0][:, before]
            continue
        joined = yield from compress(np.concatenate([sums[:, :, places], sums[:, :, before]]))
        sums[:, :, places] = joined
    return sums
