"""The process that locked children are forked from: ``python -I -m tallystick.engines.sandbox.fork_server FD``.

A role starts it when the first program file comes along. It imports and warms up what a child needs (numba takes
seconds), then forks a child whenever the role asks, in milliseconds. It was started fresh and given nothing, so a child
inherits no key, no record, no connection of the role. It never reads a program's text. It ends when the role does, and
its children with it; it alone may end and bury them, so that a process number always means the child it was given for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

import numpy as np

from tallystick.algorithms.user_programs.program_file import compile_program, read_program
from tallystick.engines.sandbox import messages, seccomp, worker
from tallystick.engines.sandbox.confinement import (
    OUTBOX,
    Allowance,
    fatal_when_out_of_memory,
    lock_in,
    make_allocators,
)

_UNLOCKED = 71
_WARM_UP = """
import numpy as np
import tallystick as ts


class WarmUp(ts.Program):
    bound = 1.0

    def init(self, public):
        return np.zeros(1)

    def map_in_client(self, record, state):
        return np.array([record[0] + state[0]])

    def reduce_in_aggregator(self, total, state):
        return state
"""


def main() -> NoReturn:
    """Serve the role at the other end of the control socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    machine = seccomp.architecture_here()
    if machine is None:
        _reply(control, {"refused": "there is no seccomp filter for this system"})
        sys.exit(1)
    allocators = make_allocators()
    worker.precompile(compile_program(read_program(_WARM_UP)), 1, np.zeros(1))  # imports all that a compilation imports
    _reply(control, {"ready": True})
    children: set[int] = set()
    while True:
        raw, descriptors, _, _ = socket.recv_fds(control, 4096, 2)
        if not raw:
            sys.exit(0)  # the role has ended; the kernel ends the children
        asked = json.loads(raw)
        if asked["do"] == "start":
            pid = _fork(control, machine, asked, descriptors, allocators)
            children.add(pid)
            for descriptor in descriptors:
                os.close(descriptor)
            _reply(control, {"pid": pid})
        elif asked["pid"] in children:
            children.discard(asked["pid"])
            os.kill(asked["pid"], signal.SIGKILL)  # one that has ended by itself keeps the status it ended with
            _reply(control, {"status": os.waitpid(asked["pid"], 0)[1]})
        else:
            _reply(control, {"status": None})


def _reply(control: socket.socket, told: dict[str, Any]) -> None:
    control.sendall(json.dumps(told).encode())


def _fork(
    control: socket.socket, machine: seccomp.Architecture, asked: Any, descriptors: list[int], allocators: Any
) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        control.close()
        inbox, outbox = descriptors
        allowance = Allowance(memory_bytes=asked["memory_bytes"], cpu_seconds=asked["cpu_seconds"])
        try:
            lock_in(machine, inbox, outbox, allowance, parent=parent)
        except OSError as error:
            _refuse(outbox, f"a process cannot be locked in here: {error.strerror or error}")
        os.write(OUTBOX, messages.pack({"locked": True}))
        if asked["kind"] == "map":
            fatal_when_out_of_memory(allocators)
            worker.serve_map(machine)
        worker.serve_public(machine)
    finally:
        os._exit(worker.FAILED)


def _refuse(outbox: int, cause: str) -> NoReturn:
    """Said wherever the outbox is by now; before the lock it still has the number it came with."""
    for descriptor in (outbox, OUTBOX):
        try:
            os.write(descriptor, messages.pack({"refused": cause}))
        except OSError:
            continue
        break
    os._exit(_UNLOCKED)


if __name__ == "__main__":
    main()
