"""A model as it travels: dense, or by its non-zero entries where that is shorter.

    dense    8·n bytes: n float64s, little-endian
    sparse   k u32 | k indices u32, ascending | k float64s            4 + 12·k bytes

One model, one encoding: sparse if and only if strictly shorter. So hashes and signatures never depend on who encoded,
and a decoder refuses the other form. Entries are compared as the 64 bits they are: only +0.0 is left out, and −0.0 and
every NaN come back as they were.

What is hashed, signed and mapped at is always the dense model; this is about the wire alone.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from tallystick.protocol.fields import refuse

_COUNT = Struct("<I")
_ENTRY_BYTES = 4 + 8
_MOST_ENTRIES = 1 << 32
"""An index is 32 bits; a longer model travels dense."""


def _sparse_bytes(entries: int) -> int:
    return _COUNT.size + _ENTRY_BYTES * entries


def _is_shorter(entries: int, model_bytes: int) -> bool:
    """The one rule, for both directions."""
    return model_bytes % 8 == 0 and model_bytes // 8 <= _MOST_ENTRIES and _sparse_bytes(entries) < model_bytes


def _non_zero(model: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(model, dtype="<u8"))) if len(model) % 8 == 0 else len(model)


def travelling_bytes(model: bytes) -> int:
    """How many bytes of a message this model takes."""
    entries = _non_zero(model)
    return _sparse_bytes(entries) if _is_shorter(entries, len(model)) else len(model)


def sparse_parts(model: bytes) -> list[bytes] | None:
    """The sparse encoding, not yet joined; None where the dense one is the model's encoding."""
    if not _is_shorter(_non_zero(model), len(model)):
        return None
    words = np.frombuffer(model, dtype="<u8")
    at = np.flatnonzero(words)
    return [_COUNT.pack(len(at)), at.astype("<u4").tobytes(), words[at].tobytes()]


def expand(raw: memoryview, model_bytes: int) -> bytes:
    """The dense model of ``model_bytes`` bytes; the caller has held that number to a limit before anything is made.

    Refused with nothing allocated: another length than the count says, indices out of order, twice or beyond the
    model, an entry that is zero, and what is not shorter than the dense form.
    """
    if len(raw) < _COUNT.size:
        refuse("a sparse model is truncated")
    (entries,) = _COUNT.unpack_from(raw)
    if len(raw) != _sparse_bytes(entries):
        refuse("a sparse model does not have the length its count says")
    if not _is_shorter(entries, model_bytes):
        refuse("a sparse model is not shorter than the dense one")
    at = np.frombuffer(raw, dtype="<u4", count=entries, offset=_COUNT.size)
    words = np.frombuffer(raw, dtype="<u8", count=entries, offset=_COUNT.size + 4 * entries)
    if (at[1:] <= at[:-1]).any() or (entries and int(at[-1]) >= model_bytes // 8):
        refuse("the indices of a sparse model are not ascending and within it")
    if not words.all():
        refuse("a sparse model spells out a zero")
    dense = bytearray(model_bytes)
    np.frombuffer(dense, dtype="<u8")[at] = words
    return bytes(dense)
