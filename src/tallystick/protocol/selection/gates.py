"""Circuits as generators: a layer of products is yielded, and comes back reshared.

A circuit runs at one party on that party's shares. It does what is local (XOR, NOT, any linear map) and yields one flat
vector of *products*, values on polynomials of degree up to 2t; whoever drives it deals them anew among the parties
and sends back shares of degree t. It knows nothing of messages. Bits are arrays of GF(16) elements: planes of a number
first, least significant at 0, then whatever there are many of.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import numpy as np

from tallystick.crypto import gf16
from tallystick.crypto.gf16 import Elements

T = TypeVar("T")
Circuit = Generator[Elements, Elements, T]

ONE = np.uint8(1)
"""The public bit 1, as everybody's share; XOR with it is NOT."""


def zeros(*shape: int) -> Elements:
    """Shares of public zeros."""
    return np.zeros(shape, dtype=np.uint8)


def both(a: Elements, b: Elements) -> Circuit[Elements]:
    """a AND b."""
    out = yield gf16.multiply(a, b).reshape(-1)
    return out.reshape(a.shape)


def reshare(products: Sequence[Elements]) -> Circuit[list[Elements]]:
    """Several arrays of products in one layer."""
    flat = yield np.concatenate([p.reshape(-1) for p in products])
    out, at = [], 0
    for p in products:
        out.append(flat[at : at + p.size].reshape(p.shape))
        at += p.size
    return out


def inner(a: Elements, b: Elements, axis: int) -> Elements:
    """Σ a · b along an axis, with shapes that broadcast: a product like any other, whatever the length."""
    left, right = np.broadcast_arrays(a, b)
    total: Elements = np.bitwise_xor.reduce(gf16.multiply(left, right), axis=axis)
    return total


def parallel(*circuits: Circuit[Any]) -> Circuit[list[Any]]:
    """Several circuits at once, their layers in step: as deep as the deepest of them."""
    results: list[Any] = [None] * len(circuits)
    running: dict[int, Elements] = {}

    def go(i: int, reply: Elements | None) -> None:
        try:
            running[i] = next(circuits[i]) if reply is None else circuits[i].send(reply)
        except StopIteration as end:
            running.pop(i, None)
            results[i] = end.value

    for i in range(len(circuits)):
        go(i, None)
    while running:
        asked = list(running.items())
        replies = yield from reshare([products for _, products in asked])
        for (i, _), reply in zip(asked, replies):
            go(i, reply)
    return results


def all_of(bits: Elements) -> Circuit[Elements]:
    """AND over the first axis, in a tree."""
    while bits.shape[0] > 1:
        half = bits.shape[0] // 2
        joined = yield from both(bits[:half], bits[half : 2 * half])
        bits = np.concatenate([joined, bits[2 * half :]])
    result: Elements = bits[0]
    return result


def any_of(bits: Elements) -> Circuit[Elements]:
    """OR over the first axis."""
    none: Elements = yield from all_of(bits ^ ONE)
    return none ^ ONE
