"""GF(16) by known answers, the field's laws, and kernels against the plain product."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tallystick.crypto import gf16, gf16_kernels
from tallystick.crypto.prg import AesStream

ALL = range(16)
TABLE = np.array([[gf16.product(a, b) for b in ALL] for a in ALL], dtype=np.uint8)


def test_known_answers() -> None:
    """x is a generator of the group: its powers, from the textbook table of x⁴ = x + 1."""
    powers, value = [], 1
    for _ in range(15):
        powers.append(value)
        value = gf16.product(value, 2)
    assert powers == [1, 2, 4, 8, 3, 6, 12, 11, 5, 10, 7, 14, 15, 13, 9]
    assert value == 1
    assert gf16.product(7, 11) == 4
    assert gf16.inverse(2) == 9


def test_field_laws() -> None:
    for a, b, c in itertools.product(ALL, repeat=3):
        assert TABLE[a, b] == TABLE[b, a]
        assert TABLE[TABLE[a, b], c] == TABLE[a, TABLE[b, c]]
        assert TABLE[a, b ^ c] == TABLE[a, b] ^ TABLE[a, c]
    for a in range(1, 16):
        assert TABLE[a, gf16.inverse(a)] == 1
    with pytest.raises(ZeroDivisionError):
        gf16.inverse(0)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 256, 1001])
def test_multiply_is_the_plain_product(size: int) -> None:
    stream = AesStream(bytes(32))
    a = gf16.from_words(gf16.uniform(size, stream), (size,))
    b = gf16.from_words(gf16.uniform(size, stream), (size,))
    assert (gf16.multiply(a, b) == TABLE[a, b]).all()
    assert (gf16.multiply(a[::-1], b) == TABLE[a[::-1], b]).all()  # not contiguous


def test_all_pairs_through_the_kernel() -> None:
    a, b = (
        np.ascontiguousarray(v.ravel())
        for v in np.meshgrid(np.arange(16, dtype=np.uint8), np.arange(16, dtype=np.uint8))
    )
    assert (gf16.multiply(a, b) == TABLE[a, b]).all()
    for scale in ALL:
        acc = gf16.to_words(a).copy()
        gf16_kernels.add_scaled(acc, gf16.to_words(b), scale)
        assert (acc.view(np.uint8) == a ^ TABLE[b, scale]).all()


def test_uniform_takes_every_half_byte_once() -> None:
    """Sixteen elements a word, none used twice: the words come back from them."""
    drawn = gf16.uniform(64, AesStream(bytes(32)))
    words = AesStream(bytes(32)).words(4)
    again = drawn[0::2] | drawn[1::2] << np.uint64(4)
    assert (again == words).all()
    assert drawn.view(np.uint8).max() < 16


@pytest.mark.parametrize("size", [0, 1, 2, 5, 64])
def test_packing(size: int) -> None:
    v = gf16.from_words(gf16.uniform(size + 8, AesStream(bytes(32))), (size,))
    raw = gf16.pack(v)
    assert len(raw) == (size + 1) // 2
    back = gf16.unpack(raw, size)
    assert back is not None
    assert (back == v).all()
    assert gf16.unpack(raw + b"\0", size) is None
    assert gf16.unpack(raw, size + 2) is None


def test_an_odd_packing_has_one_encoding() -> None:
    assert gf16.unpack(b"\x0f", 1) is not None
    assert gf16.unpack(b"\x1f", 1) is None


def test_lookup_is_the_sum_it_says() -> None:
    stream = AesStream(bytes([7]) * 32)
    rows = gf16.from_words(gf16.uniform(3 * 16, stream), (3, 16))
    columns = gf16.from_words(gf16.uniform(4 * 16, stream), (4, 16))
    table = (stream.words(12) >> np.uint64(59)).reshape(3, 4)
    out = np.empty((5, 2), dtype=np.uint64)
    gf16_kernels.lookup(rows.view(np.uint64), columns.view(np.uint64), table, out)
    for j in range(5):
        expected = np.zeros(16, dtype=np.uint8)
        for a, b in itertools.product(range(3), range(4)):
            if int(table[a, b]) >> j & 1:
                expected ^= TABLE[rows[a], columns[b]]
        assert (out[j].view(np.uint8) == expected).all()
