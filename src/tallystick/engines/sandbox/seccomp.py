"""What a locked process may ask of the kernel, as seccomp-BPF filters written by ctypes; nothing else is let through.

Two filters, each installed for ever and stacked (of two answers the stricter one holds):

* :func:`no_windows`, before a word of a program file is read. The process may compute, take memory, read its one
  inbox and write its one outbox. A file it asks for is refused (EACCES), as is what a language runtime may ask out of
  habit (its user, the machine's name, random bytes). Everything else ends the process: sockets, ``execve``,
  ``fork``, threads, ``ptrace``, signals to others, new descriptors, new privileges. What is not known here is in
  "everything else".
* :func:`no_new_code`, once the program is compiled: memory can no longer be made executable, so that a program that
  got hold of the process would have no way to bring code of its own into it.

The kernel hands over the architecture and the number of each call; a foreign architecture ends the process, since its
numbers would mean something else (on x86-64 also the x32 numbers). Linux on x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Instruction = tuple[int, int, int, int]
"""(code, jump if true, jump if false, k): one ``struct sock_filter`` of classic BPF."""

EACCES = 13

# Classic BPF: load a word of ``struct seccomp_data``; jump on equality, on a bit, on magnitude; return.
_LOAD, _IF_EQUAL, _IF_BIT, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_PROT_EXEC = 4
_X32_BIT = 0x40000000
_SET_SECCOMP, _MODE_FILTER, _SET_NO_NEW_PRIVILEGES = 22, 2, 38


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The numbers of system calls on one kind of machine. ``audit`` is how the kernel names it to a filter."""

    audit: int
    prctl: int
    read: int
    write: int
    mmap: int
    mprotect: int
    allowed: tuple[int, ...]
    refused: tuple[int, ...]


# allowed: munmap mremap brk madvise futex sched_yield rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack
#          restart_syscall exit exit_group clock_gettime clock_getres gettimeofday getrusage lseek getpid gettid
#          getcwd (a compiler's messages ask for it; it is /), and time
# refused: open openat openat2 stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
#          getdents64 ioctl fcntl close getuid geteuid getgid getegid uname sysinfo sched_getaffinity getrandom
ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        prctl=157,
        read=0,
        write=1,
        mmap=9,
        mprotect=10,
        allowed=(11, 25, 12, 28, 202, 24, 13, 14, 15, 131, 219, 60, 231, 228, 229, 96, 98, 8, 39, 186, 79, 201),
        refused=(
            *(2, 257, 437, 4, 5, 6, 262, 332, 21, 269, 439, 89, 267, 217, 16, 72, 3),
            *(102, 107, 104, 108, 63, 99, 204, 318),
        ),
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        prctl=167,
        read=63,
        write=64,
        mmap=222,
        mprotect=226,
        allowed=(215, 216, 214, 233, 98, 124, 134, 135, 139, 132, 128, 93, 94, 113, 114, 169, 165, 62, 172, 178, 17),
        refused=(
            *(56, 437, 79, 80, 291, 48, 439, 78, 61, 29, 25, 57),
            *(174, 175, 176, 177, 160, 179, 123, 278),
        ),
    ),
}


def architecture_here() -> Architecture | None:
    """The table for this machine; None where there is none, and so no sandbox."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8 or sys.byteorder != "little":
        return None
    return ARCHITECTURES.get(platform.machine())


def no_windows(machine: Architecture, *, inbox: int, outbox: int) -> list[Instruction]:
    """Compute, read ``inbox``, write ``outbox``; files are refused, all else is fatal."""
    return [
        *_of_this_machine(machine),
        *_answer([machine.mmap, machine.mprotect, *machine.allowed], _ALLOW),
        *_answer(machine.refused, _ERRNO | EACCES),
        *_first_argument_is(machine.read, inbox),
        *_first_argument_is(machine.write, outbox),
        *_first_argument_is(machine.prctl, _SET_SECCOMP),  # a stricter filter may always be added
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]


def no_new_code(machine: Architecture) -> list[Instruction]:
    """Memory that is to be executable is fatal, another filter too; all else as the filters before say."""
    third = _ARGUMENTS_AT + 2 * 8  # the protection, in both calls
    return [
        *_of_this_machine(machine),
        *_answer([machine.prctl], _KILL_PROCESS),
        (_IF_EQUAL, 1, 0, machine.mmap),
        (_IF_EQUAL, 0, 2, machine.mprotect),
        (_LOAD, 0, 0, third),
        (_IF_BIT, 1, 0, _PROT_EXEC),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]


def _of_this_machine(machine: Architecture) -> list[Instruction]:
    """Leaves the number of the call in the accumulator."""
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]


def _answer(numbers: Iterable[int], answer: int) -> list[Instruction]:
    return [step for number in numbers for step in ((_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer))]


def _first_argument_is(number: int, wanted: int) -> list[Instruction]:
    """Allowed with this first argument; with another it is refused (a stray print is no reason to die)."""
    return [
        (_IF_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENTS_AT),
        (_IF_EQUAL, 0, 1, wanted),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | EACCES),
    ]


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter)))


def install(filters: Sequence[Instruction]) -> None:
    """Put a filter over this process, for ever; it has one thread. OSError where the kernel does not take it.

    By ``prctl``, which profiles of service managers and containers let through that know no ``seccomp`` call.
    """
    steps = (_Filter * len(filters))(*(_Filter(*step) for step in filters))
    program = _Program(len(filters), steps)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not take a seccomp filter")


def forbid_new_privileges() -> None:
    """No set-user-ID, no file capabilities from here on; what a filter needs that is not installed by root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
