"""Locking a process in, from within, before it reads a word of a program file.

Order matters, and each step is checked or fatal: dies with its parent → no descriptor but inbox and outbox → limits →
not dumpable, no new privileges → the filter → a try of the lock. A process that cannot be locked ends; nothing runs.

Memory. Memory that one record's failure left behind could make the *next* record fail for want of it, and a vector of
zeros would then tell something about the neighbour. So where records are mapped, memory that cannot be had ends the
process (:func:`fatal_when_out_of_memory`): a record either fails by itself or the whole contribution is withdrawn.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.engines.sandbox import seccomp

INBOX, OUTBOX = 3, 4
OUT_OF_MEMORY = 77
"""The exit status of a child that asked for more memory than it may have."""

_DIE_WITH_PARENT, _SET_DUMPABLE = 1, 4
_RAW_DOMAIN = 0


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a child may use: ``memory_bytes`` above what it starts with, ``cpu_seconds`` in its whole life."""

    memory_bytes: int
    cpu_seconds: int


def lock_in(machine: seccomp.Architecture, inbox: int, outbox: int, allowance: Allowance, *, parent: int) -> None:
    """Everything but computing is over after this. OSError if any of it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
        raise OSError(ctypes.get_errno(), "cannot be tied to its parent")
    _be_the_first_to_go()
    _keep_only(inbox, outbox)
    _set_limits(allowance)
    if libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot be made undumpable")
    seccomp.forbid_new_privileges()
    seccomp.install(seccomp.no_windows(machine, inbox=INBOX, outbox=OUTBOX))
    try:
        os.open("/", os.O_RDONLY)
    except PermissionError:
        return
    raise OSError("the lock does not hold")


def _be_the_first_to_go() -> None:
    """Should the machine run out of memory all the same, the kernel ends this process rather than the role."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


def _keep_only(inbox: int, outbox: int) -> None:
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: what follows is never among these three
    high_in, high_out = (_above_reach(descriptor) for descriptor in (inbox, outbox))
    os.dup2(high_in, INBOX)
    os.dup2(high_out, OUTBOX)
    os.closerange(0, INBOX)
    os.closerange(OUTBOX + 1, 1 << 20)


def _above_reach(descriptor: int) -> int:
    """The same descriptor under a number that neither INBOX nor OUTBOX has."""
    copies = [os.dup(descriptor) for _ in range(3)]
    return max(copies)


def _set_limits(allowance: Allowance) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + allowance.memory_bytes
    for what, soft, hard in (
        (resource.RLIMIT_AS, room, room),
        (resource.RLIMIT_CPU, allowance.cpu_seconds, allowance.cpu_seconds + 5),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NPROC, 0, 0),
        (resource.RLIMIT_NOFILE, OUTBOX + 1, OUTBOX + 1),
    ):
        _, most = resource.getrlimit(what)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(what, (soft, hard))


class _Allocators(ctypes.Structure):
    """``PyMemAllocatorEx``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free"))


def make_allocators() -> Any:
    """Allocators that end the process where malloc would return nothing; compiled once, before anything is locked."""
    from numba import cfunc, types

    libc = ctypes.CDLL(None)

    def foreign(name: str, arguments: int) -> Any:
        function = getattr(libc, name)
        function.argtypes, function.restype = [ctypes.c_size_t] * arguments, ctypes.c_size_t
        return function

    malloc, calloc, realloc = foreign("malloc", 1), foreign("calloc", 2), foreign("realloc", 2)
    free, end = foreign("free", 1), foreign("_exit", 1)
    word = types.uintp

    @cfunc(word(word, word))
    def take(_context, size):  # type: ignore[no-untyped-def]
        place = malloc(max(size, 1))
        if place == 0:
            end(OUT_OF_MEMORY)
        return place

    @cfunc(word(word, word, word))
    def take_zeroed(_context, count, size):  # type: ignore[no-untyped-def]
        place = calloc(max(count, 1), max(size, 1))
        if place == 0:
            end(OUT_OF_MEMORY)
        return place

    @cfunc(word(word, word, word))
    def take_again(_context, old, size):  # type: ignore[no-untyped-def]
        place = realloc(old, max(size, 1))
        if place == 0:
            end(OUT_OF_MEMORY)
        return place

    @cfunc(types.void(word, word))
    def give_back(_context, place):  # type: ignore[no-untyped-def]
        free(place)

    table = _Allocators(None, take.address, take_zeroed.address, take_again.address, give_back.address)
    return table, (take, take_zeroed, take_again, give_back)  # the functions must outlive the table


def fatal_when_out_of_memory(allocators: Any) -> None:
    """Have compiled code ask for its memory there."""
    from numba.core.runtime import _nrt_python

    ctypes.pythonapi.PyMem_SetAllocator(_RAW_DOMAIN, ctypes.byref(allocators[0]))
    _nrt_python.memsys_use_cpython_allocator()
