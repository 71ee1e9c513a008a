"""Where a locked child maps records: a memory of its own, nowhere near anything that holds another record.

The memory lies at an address drawn by the role, between pages that nobody can read, so no other record is at a
distance that a program could know. A read or write that runs over the guard areas ends the child; one that jumps finds
nothing mapped.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_FENCE = 1 << 20
_LOWEST, _SPAN = 1 << 40, 1 << 46
_NONE, _READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_size_t(-1).value
_EXACTLY_THERE = 0x100000  # MAP_FIXED_NOREPLACE
_ATTEMPTS = 32
_MIX = 0x9E3779B97F4A7C15


def far_away(word: int) -> Callable[[int], NDArray[np.int64]]:
    """A place for memories, drawn by ``word`` (64 random bits); each size is placed once and kept."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    kept: dict[int, NDArray[np.int64]] = {}

    def place(words: int) -> NDArray[np.int64]:
        if words not in kept:
            room = -(-8 * words // mmap.PAGESIZE) * mmap.PAGESIZE
            start = _reserved(libc, word + len(kept), room + 2 * _FENCE)
            if libc.mprotect(start + _FENCE, room, _READ_WRITE) != 0:
                raise MemoryError
            # The memory ends where the fence begins: running over its last word ends the process.
            whole = (ctypes.c_int64 * (room // 8)).from_address(start + _FENCE)
            kept[words] = np.ctypeslib.as_array(whole)[room // 8 - words :]
        return kept[words]

    return place


def _reserved(libc: ctypes.CDLL, word: int, size: int) -> int:
    """A stretch of addresses that nobody can use yet, at a place that ``word`` draws; smaller spaces are tried, too."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _EXACTLY_THERE
    for attempt in range(_ATTEMPTS):
        span = _SPAN >> (attempt // 8 * 4)  # some machines have 39 bits of addresses, not 47
        lowest = min(_LOWEST, span >> 2)
        drawn = (word * _MIX + attempt * (_MIX >> 7)) % (1 << 64)
        where = (lowest + drawn % (span - lowest)) // mmap.PAGESIZE * mmap.PAGESIZE
        start = int(libc.mmap(where, size, _NONE, private, -1, 0))
        if start == where:
            return start
        if start != _FAILED:  # an old kernel took the place for a hint
            libc.munmap(start, size)
    raise MemoryError
