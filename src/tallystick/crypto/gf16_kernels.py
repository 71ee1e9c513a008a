"""The inner loops of GF(16), eight elements to a 64-bit word, without tables.

An element is the low half of a byte; a byte's upper half is zero. Products are shifts, masks and XORs, eight
lanes to a word, which LLVM vectorises further to 32 or 64 lanes: faster than a table, and no memory access depends on
a secret. All arrays are ``uint64`` views of byte vectors whose length is a multiple of eight; callers
(:mod:`tallystick.crypto.gf16`, :mod:`tallystick.crypto.shamir_bits`) see to that.

    a · b = Σ over bits i of b of (a << i), degree at most 6, so at most 7 bits: no lane spills into the next
    x⁴ = x + 1:  with h = the upper three bits,  low ⊕ h ⊕ (h << 1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_F = TypeVar("_F", bound=Callable[..., object])


def _compiled(function: _F) -> _F:
    """Compiled on first call, cached on disk, run without the interpreter's lock."""
    return cast(_F, njit(cache=True, nogil=True)(function))


_ONES = np.uint64(0x0101010101010101)
_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_EVEN = np.uint64(0x0E0E0E0E0E0E0E0E)
_1, _2, _3, _4, _8 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4), np.uint64(8)
_ZERO = np.uint64(0)


@_compiled
def _times(a: np.uint64, b: np.uint64) -> np.uint64:
    """Eight products. (bit << 8) − bit spreads a lane's bit over its byte: borrow and shift meet in the next lane."""
    bit = b & _ONES
    r = a & ((bit << _8) - bit)
    bit = (b >> _1) & _ONES
    r ^= (a << _1) & ((bit << _8) - bit)
    bit = (b >> _2) & _ONES
    r ^= (a << _2) & ((bit << _8) - bit)
    bit = (b >> _3) & _ONES
    r ^= (a << _3) & ((bit << _8) - bit)
    h = (r >> _4) & _LOW
    return (r & _LOW) ^ h ^ (h << _1)


@_compiled
def _double(a: np.uint64) -> np.uint64:
    """Eight products with x."""
    h = (a >> _3) & _ONES
    return ((a << _1) & _EVEN) ^ h ^ (h << _1)


@_compiled
def multiply(a: Words, b: Words, out: Words) -> None:
    """out = a · b, lane by lane."""
    for i in range(out.size):
        out[i] = _times(a[i], b[i])


@_compiled
def add_scaled(acc: Words, a: Words, scale: int) -> None:
    """acc += scale · a for a public element."""
    k0 = np.uint64(0xFFFFFFFFFFFFFFFF) if scale & 1 else _ZERO
    k1 = np.uint64(0xFFFFFFFFFFFFFFFF) if scale & 2 else _ZERO
    k2 = np.uint64(0xFFFFFFFFFFFFFFFF) if scale & 4 else _ZERO
    k3 = np.uint64(0xFFFFFFFFFFFFFFFF) if scale & 8 else _ZERO
    for i in range(acc.size):
        x0 = a[i]
        x1 = _double(x0)
        x2 = _double(x1)
        x3 = _double(x2)
        acc[i] ^= (x0 & k0) ^ (x1 & k1) ^ (x2 & k2) ^ (x3 & k3)


@_compiled
def evaluate(secrets: Words, coefficients: Words, point: int, out: Words) -> None:
    """out = secrets + Σ coefficients[k − 1] · point^k, by Horner's rule; coefficients are (t, words)."""
    k0 = np.uint64(0xFFFFFFFFFFFFFFFF) if point & 1 else _ZERO
    k1 = np.uint64(0xFFFFFFFFFFFFFFFF) if point & 2 else _ZERO
    k2 = np.uint64(0xFFFFFFFFFFFFFFFF) if point & 4 else _ZERO
    k3 = np.uint64(0xFFFFFFFFFFFFFFFF) if point & 8 else _ZERO
    out[:] = _ZERO
    for k in range(coefficients.shape[0] - 1, -1, -1):
        row = coefficients[k]
        for i in range(out.size):
            x0 = out[i] ^ row[i]
            x1 = _double(x0)
            x2 = _double(x1)
            x3 = _double(x2)
            out[i] = (x0 & k0) ^ (x1 & k1) ^ (x2 & k2) ^ (x3 & k3)
    for i in range(out.size):
        out[i] ^= secrets[i]


@_compiled
def unpack(raw: Words, out: Words) -> None:
    """Sixteen elements of each word: its bytes' low halves, then its upper ones."""
    for i in range(raw.size):
        out[2 * i] = raw[i] & _LOW
        out[2 * i + 1] = (raw[i] >> _4) & _LOW


@_compiled
def lookup(rows: Words, columns: Words, table: Words, out: Words) -> None:
    """out[j] = Σ over (a, b) with bit j of table[a, b] set of rows[a] · columns[b], cell by cell.

    rows are (A, words), columns (B, words), out (bits, words). For each a the columns are added up by bit first: A ·
    bits products and A · B · bits/2 additions, whose operands stay in the first-level cache for a block of cells.
    """
    bits = out.shape[0]
    width = out.shape[1]
    part = np.empty((bits, width), dtype=np.uint64)
    out[:] = _ZERO
    for a in range(rows.shape[0]):
        part[:] = _ZERO
        for b in range(columns.shape[0]):
            entry = table[a, b]
            column = columns[b]
            for j in range(bits):
                if (entry >> np.uint64(j)) & _1:
                    target = part[j]
                    for i in range(width):
                        target[i] ^= column[i]
        row = rows[a]
        for j in range(bits):
            source = part[j]
            target = out[j]
            for i in range(width):
                target[i] ^= _times(row[i], source[i])
