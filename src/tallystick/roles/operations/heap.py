"""How a role's process uses memory that was freed: kept and used again, in few places.

A vector goes through a role in chunks of two megabytes, thousands of them, each allocated and freed by one of several
threads. As glibc is set by default, every thread has an arena of its own that holds what was its peak, and gives freed
chunks back to the system only to fault them in again: more memory, and about a seventh of the time a share takes. A
process of a role has two arenas and keeps what they have. What it may hold at once is bounded elsewhere
(``transport.network.options``), so what is kept is bounded, too. Between studies it is given back: a flood of
callers leaves holes in the heap that nothing else fills.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_ARENAS = 2
_KEPT = 64 << 20  # at the top of the heap
_LARGEST = 32 << 20  # what is larger is not the heap's: a share never sits in memory whole


def keep_freed_memory() -> bool:
    """Set this process's allocator; False where it is not glibc's, and then nothing is changed."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_ARENA_MAX, _ARENAS), (_TRIM_THRESHOLD, _KEPT), (_MMAP_THRESHOLD, _LARGEST))
    done = [mallopt(which, value) for which, value in settings]
    return all(done)


def give_back_memory() -> bool:
    """Give back to the system what is free in this process's heap; False where that cannot be asked for."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (OSError, AttributeError):
        return False
