"""Weights from distances: a public table read at a shared place, in a layer or two of messages whatever its length.

A place of c bits is split in two halves; each half is turned into shared one-hot bits (a demultiplexer). Bit j of the
entry is Σ over (a, b) of T_j[a, b] · row_a · column_b: for each row a linear map of the columns, then an inner
product, of which BGW reshares only the sum. So the table costs 2^(c/2) products and one dealing for each bit of a
weight, and any table of integers is read exactly; the 2^c additions are local.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto import gf16
from tallystick.crypto import gf16_kernels as kernels
from tallystick.crypto.gf16 import Elements
from tallystick.protocol.selection.gates import ONE, Circuit, parallel, reshare

_BLOCK = 1024  # cells read together: the planes of their weights stay in the second-level cache


def one_hot(bits: Elements) -> Circuit[Elements]:
    """2^c bits of which the one at the number's place is set; (c, many) → (2^c, many)."""
    if len(bits) == 1:
        return np.concatenate([bits ^ ONE, bits])
    half = len(bits) // 2
    columns, rows = yield from parallel(one_hot(bits[:half]), one_hot(bits[half:]))
    crossed = yield from cross(rows, columns)
    return crossed


def cross(rows: Elements, columns: Elements) -> Circuit[Elements]:
    """row_a · column_b at a · B + b, of two one-hot vectors: (A − 1)(B − 1) products, the rest is linear.

    Σ_b row_a · column_b = row_a, and Σ_a row_a · column_b = column_b: the last of each follows from the others.
    """
    many = rows.shape[1]
    out: Elements = np.empty((len(rows), len(columns), many), dtype=np.uint8)
    shape = (len(rows) - 1, len(columns) - 1, many)
    left, right = np.broadcast_to(rows[:-1, None], shape), np.broadcast_to(columns[None, :-1], shape)
    (inside,) = yield from reshare([gf16.multiply(left, right)])
    out[:-1, :-1] = inside
    out[:-1, -1] = rows[:-1] ^ np.bitwise_xor.reduce(inside, axis=1)
    out[-1] = columns ^ np.bitwise_xor.reduce(out[:-1], axis=0)
    return out.reshape(len(rows) * len(columns), many)


def halves(index_bits: int) -> int:
    """How many bits of a place choose the column; the others choose the row."""
    return index_bits // 2


def read(rows: Elements, columns: Elements, table: NDArray[np.uint64], bits: int) -> Elements:
    """Products: the planes of table[a, b] for shared one-hot a and b, (bits, many)."""
    many = rows.shape[1]
    out: Elements = np.empty((bits, many), dtype=np.uint8)
    for start in range(0, many, _BLOCK):
        end = min(start + _BLOCK, many)
        width = -(-(end - start) // 8)
        block = np.empty((bits, width), dtype=np.uint64)
        kernels.lookup(_words(rows, start, end), _words(columns, start, end), table, block)
        out[:, start:end] = block.view(np.uint8)[:, : end - start]
    return out


def _words(planes: Elements, start: int, end: int) -> NDArray[np.uint64]:
    padded: Elements = np.zeros((len(planes), -(-(end - start) // 8) * 8), dtype=np.uint8)
    padded[:, : end - start] = planes[:, start:end]
    return padded.view(np.uint64)
