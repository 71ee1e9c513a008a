"""From additive shares modulo p = 2^64 − 2^32 + 1 to shared bits.

Party i holds s_i, 0 ≤ s_i < p, and Σ s_i = v + k·p for a signed v, |v| < 2^(width − 1) ≤ 2^51, and some whole k, 0 ≤
k ≤ m (both bounds because 0 ≤ Σ s_i < m·p and |v| < p). Each party deals the bits of two pieces of its share:

* the eight top bits, s_i >> 56. Their sum T has Σ s_i − m·2^56 < 2^56 · T ≤ Σ s_i. Since k·p = k·(2^64 − 2^32 + 1)
  lies within k·2^32 < 2^36 of 256k · 2^56 and |v| ≤ 2^51, T is above 256k − m − 1/2 and below 256k + 1/2; so 256k − m
  ≤ T ≤ 256k, for v of either sign, and with m ≤ 10: **k = (T + 128) >> 8, exactly**. T + 128 ≤ 10·255 + 128 < 2^12.
* the low ``width`` bits: v ≡ Σ s_i − k·p, and p ≡ 1 − 2^32 modulo 2^width (width ≤ 64), so −k·p ≡ ~k + 1 + (k << 32).

The constants 128 and 1 are added by party 0 to its own pieces before it deals them, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto.field import MODULUS
from tallystick.crypto.gf16 import Elements
from tallystick.protocol.selection.adders import add, compress
from tallystick.protocol.selection.gates import ONE, Circuit, parallel, zeros
from tallystick.protocol.selection.question import Question

TOP_BITS = 9
"""Planes dealt of a share's top: eight bits, and room for party 0's 128."""
_TOP_SHIFT = 56
_SUM_BITS = 12
_WRAP_BITS = 4


def linear(question: Question, share: NDArray[np.uint64]) -> list[int]:
    """This party's shares of the values that are compared, from its shares of the totals: linear, so local.

    Ranks: b · (rank of each edge of a cell) − a · n for the cells + 1 edges. Scores: the totals themselves.
    """
    totals = [int(s) for s in share]
    if question.kind == "scores":
        return totals
    a, b = question.numerator, question.denominator
    n = sum(totals)
    edges, rank = [], 0
    for count in totals[:-1]:
        rank += count
        edges.append((b * rank - a * n) % MODULUS)
    return edges


def planes(values: Sequence[int], bits: int) -> Elements:
    """The bits of non-negative numbers, (bits, many)."""
    words = np.array(values, dtype=np.uint64)
    shifts = np.arange(bits, dtype=np.uint64)[:, None]
    return ((words[None, :] >> shifts) & np.uint64(1)).astype(np.uint8)


def pieces(shares: Sequence[int], width: int, *, first: bool) -> Elements:
    """The bits this party deals of its shares: (width + 9, many); ``first``: it is party 0 and adds the constants."""
    low = [(s + first) % (1 << width) for s in shares]
    top = [(s >> _TOP_SHIFT) + 128 * first for s in shares]
    return np.concatenate([planes(low, width), planes(top, TOP_BITS)])


def to_bits(dealt: Elements, width: int) -> Circuit[Elements]:
    """The values modulo 2^width, two's complement, from everybody's pieces, (parties, width + 9, many)."""
    parties, _, many = dealt.shape
    tops = np.concatenate([dealt[:, width:], zeros(parties, _SUM_BITS - TOP_BITS, many)], axis=1)
    wraps, pair = yield from parallel(_wraps(tops), compress(dealt[:, :width]))
    minus = np.concatenate([wraps ^ ONE, zeros(width - _WRAP_BITS, many) ^ ONE])
    addends = [*pair, minus]
    if width > 32:
        shifted = np.concatenate([zeros(32, many), wraps, zeros(max(0, width - 32 - _WRAP_BITS), many)])
        addends.append(shifted[:width])
    low, high = yield from compress(np.stack(addends))
    return (yield from add(low, high))


def _wraps(tops: Elements) -> Circuit[Elements]:
    """k, four bits."""
    low, high = yield from compress(tops)
    total = yield from add(low, high)
    return total[8:]
