"""The field of sixteen elements, GF(2)[x] / (x⁴ + x + 1), in vectors of bytes: what shares of bits are made of.

Addition is XOR, 0 and 1 are the bits; so XOR of shared bits is local and AND is one product of shares. Sixteen elements
give fifteen points to share at, enough for ten parties, and two elements fit a byte of a message: GF(256) would double
every message and gain nothing.

A vector is a C-contiguous ``np.uint8`` array of elements 0 … 15, of any shape.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto import gf16_kernels as kernels

Elements = NDArray[np.uint8]
Words = NDArray[np.uint64]

ORDER = 16


def product(a: int, b: int) -> int:
    """The product of two elements."""
    value = 0
    for i in range(4):
        if b >> i & 1:
            value ^= a << i
    for i in (6, 5, 4):
        if value >> i & 1:
            value ^= 0b10011 << (i - 4)
    return value


def inverse(a: int) -> int:
    """a^14: the group has order 15."""
    if a == 0:
        raise ZeroDivisionError("zero has no inverse in GF(16)")
    result = 1
    for _ in range(ORDER - 2):
        result = product(result, a)
    return result


def to_words(v: Elements) -> Words:
    """The vector, flat, in words of eight elements, zeros at the end: a view where nothing need be added."""
    flat = np.ascontiguousarray(v).reshape(-1)
    if flat.size % 8 or flat.ctypes.data % 8:
        padded: Elements = np.zeros(-(-flat.size // 8) * 8, dtype=np.uint8)
        padded[: flat.size] = flat
        flat = padded
    return flat.view(np.uint64)


def from_words(words: Words, shape: tuple[int, ...]) -> Elements:
    """The first elements of these words, in this shape."""
    size = 1
    for side in shape:
        size *= side
    return words.view(np.uint8)[:size].reshape(shape)


def multiply(a: Elements, b: Elements) -> Elements:
    """a · b, element by element; of one shape."""
    if a.shape != b.shape:
        raise LocalProtocolError(f"vectors of shapes {a.shape} and {b.shape} are not multiplied")
    left, right = to_words(a), to_words(b)
    out = np.empty_like(left)
    kernels.multiply(left, right, out)
    return from_words(out, a.shape)


def uniform(size: int, source: WordSource) -> Words:
    """At least ``size`` independent uniform elements, in words of eight: each word of the stream gives sixteen."""
    words = -(-size // 8)
    drawn = source.words(-(-words // 2))
    out: Words = np.empty(2 * drawn.size, dtype=np.uint64)
    kernels.unpack(drawn, out)
    return out[:words]


def pack(v: Elements) -> bytes:
    """Two elements to a byte, the first one low; an odd last one alone."""
    flat = v.reshape(-1)
    even = flat[0::2].copy()
    even[: flat.size // 2] |= flat[1::2] << np.uint8(4)
    return even.tobytes()


def unpack(raw: bytes, size: int) -> Elements | None:
    """Inverse of :func:`pack`; None if these bytes are not the packing of ``size`` elements."""
    packed = np.frombuffer(raw, dtype=np.uint8)
    if packed.size != (size + 1) // 2 or (size % 2 and packed[-1] >> 4):
        return None
    out: Elements = np.empty(2 * packed.size, dtype=np.uint8)
    out[0::2] = packed & np.uint8(15)
    out[1::2] = packed >> np.uint8(4)
    return out[:size]
