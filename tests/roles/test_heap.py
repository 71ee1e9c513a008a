"""A role's allocator: set where it is glibc's, so that its threads share two arenas."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, sys, threading
from tallystick.roles.operations.heap import keep_freed_memory
assert sys.argv[1] == "default" or keep_freed_memory() is True
def work():
    held.append(bytes(100_000))
    together.wait()
held, together = [], threading.Barrier(12)
workers = [threading.Thread(target=work) for _ in range(12)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


def arenas(how: str) -> int:
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_the_threads_of_a_role_share_two_arenas() -> None:
    assert 1 <= arenas("as a role") <= 2 < arenas("default")


def test_elsewhere_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.roles.operations import heap

    monkeypatch.setattr(heap.sys, "platform", "darwin")
    assert heap.keep_freed_memory() is False
