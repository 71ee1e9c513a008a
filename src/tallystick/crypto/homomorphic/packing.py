"""Many signed integers in one: slots of whole bytes, head-room included.

Slot j of width w bits holds v_j with |v_j| < 2^(w−1), and the packed integer is Σ v_j·2^(w·j), which may be negative.
Packed integers add up slot by slot as long as no slot's total leaves its range. Unpacking adds 2^(w−1) to every slot,
which makes all of them non-negative: then the bytes are the slots.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KEY_BITS = 3072
"""Of a Paillier modulus; a ciphertext is twice as long."""
_WORD = 8


def slot_bytes(limit: int) -> int:
    """How wide a slot is for totals of at most ``limit``, with as much room again.

    Whether a total is out of range is decided after the last noise is in it: one that has left the range of its slot
    must not come back into it by noise. Slots end at twice the limit or beyond, and the limit is far above all noise.
    """
    return -(-((2 * limit + 1).bit_length() + 1) // 8)


def slots_for(limit: int) -> int:
    """How many slots a plaintext below half the modulus has."""
    return (KEY_BITS - 2) // (8 * slot_bytes(limit))


def _offset(slots: int, width: int) -> int:
    return int.from_bytes((bytes(width - 1) + b"\x80") * slots, "little")


def pack(values: NDArray[np.int64], slots: int, width: int) -> int:
    """The packed integer; slots that no value is given for hold 0."""
    words = np.zeros((slots, max(width, _WORD)), dtype=np.uint8)
    words[: values.size, :_WORD] = values.astype("<i8").view(np.uint8).reshape(-1, _WORD)
    words[: values.size, _WORD:] = np.where(values < 0, 255, 0).astype(np.uint8)[:, None]  # the sign goes on
    words = words[:, :width]
    words[:, width - 1] ^= 0x80
    return int.from_bytes(words.tobytes(), "little") - _offset(slots, width)


def unpack(packed: int, slots: int, width: int) -> NDArray[np.int64]:
    """The integers of all slots. What has overflowed beyond all of them wraps around, and is not told here: a total
    is judged once its last noise is in it, and not before."""
    raw = ((packed + _offset(slots, width)) % (1 << 8 * slots * width)).to_bytes(slots * width, "little")
    shifted = np.frombuffer(raw, dtype=np.uint8).reshape(slots, width).copy()
    shifted[:, width - 1] ^= 0x80
    words = np.zeros((slots, max(width, _WORD)), dtype=np.uint8)
    words[:, :width] = shifted
    negative = (shifted[:, width - 1] & 0x80).astype(bool)
    words[negative, width:] = 255
    return np.ascontiguousarray(words[:, :_WORD]).view("<i8").ravel().astype(np.int64)
