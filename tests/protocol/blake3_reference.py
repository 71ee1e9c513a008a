"""BLAKE3 in plain Python, after the specification (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020, section 2)."""

from __future__ import annotations

import struct

_IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_STARTS, _ENDS, _PARENT, _ROOT = 1, 2, 4, 8
_MASK = 2**32 - 1


def _compress(chain: tuple[int, ...], words: tuple[int, ...], counter: int, size: int, flags: int) -> tuple[int, ...]:
    v = [*chain, *_IV[:4], counter & _MASK, counter >> 32, size, flags]

    def turn(a: int, b: int, c: int, d: int, x: int, y: int) -> None:
        for word, first, second in ((x, 16, 12), (y, 8, 7)):
            v[a] = (v[a] + v[b] + word) & _MASK
            v[d] ^= v[a]
            v[d] = (v[d] >> first | v[d] << 32 - first) & _MASK
            v[c] = (v[c] + v[d]) & _MASK
            v[b] ^= v[c]
            v[b] = (v[b] >> second | v[b] << 32 - second) & _MASK

    for _ in range(7):
        for column in range(4):
            turn(column, 4 + column, 8 + column, 12 + column, words[2 * column], words[2 * column + 1])
        for i in range(4):
            turn(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[8 + 2 * i], words[9 + 2 * i])
        words = tuple([words[i] for i in _ORDER])
    return tuple([v[i] ^ v[i + 8] for i in range(8)])


def _node(raw: bytes, index: int, root: int) -> tuple[int, ...]:
    if len(raw) <= 1024:
        blocks = [raw[i : i + 64] for i in range(0, len(raw), 64)] or [b""]
        chain: tuple[int, ...] = _IV
        for number, block in enumerate(blocks):
            last = number == len(blocks) - 1
            flags = (_STARTS if number == 0 else 0) | ((_ENDS | root) if last else 0)
            chain = _compress(chain, struct.unpack("<16I", block.ljust(64, b"\0")), index, len(block), flags)
        return chain
    left = 1024
    while 2 * left < len(raw):
        left *= 2
    words = _node(raw[:left], index, 0) + _node(raw[left:], index + left // 1024, 0)
    return _compress(_IV, words, 0, 64, _PARENT | root)


def plain_blake3(raw: bytes) -> bytes:
    """The 32-byte hash."""
    return struct.pack("<8I", *_node(raw, 0, _ROOT))
