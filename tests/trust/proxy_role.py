"""A nursery of role processes: forks one per line of stdin (role and config), and again when it was killed.

Children are what ``tallystick ROLE start`` runs, but for one thing: when a child has just done a step that stands in
the file ``orders`` beside its config, it strikes it out and ends itself with SIGKILL. Not in the wheel.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
from pathlib import Path

import seal  # noqa: F401 - children must not take a second each to load it

import tallystick.roles.analyst.federation  # noqa: F401
from tallystick.protocol.encrypted_sum import parameters
from tallystick.roles.operations.logs import configure_logs
from tallystick.roles.processes import start
from tallystick.roles.processes.session import Parts
from tallystick.roles.storage import crash_points
from tallystick.transport.network.options import Options
from tallystick.trust.proxy import memory_rounds, parts, proxy  # noqa: F401

OPTIONS = Options(first_backoff=0.05, longest_backoff=0.25)
_PR_SET_PDEATHSIG = 1


def _obey(orders: Path) -> None:
    def reached(step: str) -> None:
        waiting = orders.read_text().split() if orders.exists() else []
        if step in waiting:
            waiting.remove(step)
            orders.write_text("\n".join(waiting))
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.install(reached)


def _child(role: str, config: Path, log: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    configure_logs("text")
    _obey(config.parent / "orders")
    start.Parts = lambda **facts: Parts(**facts, options=OPTIONS)  # lines are tried again at once
    start.start(config, role)


def main() -> None:
    parameters.CHUNK_BYTES = 4096  # so that a short vector has several chunks too, at every party
    running: dict[int, tuple[str, str, str]] = {}
    rest = b""

    def spawn(order: tuple[str, str, str]) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(0)
                _child(order[0], Path(order[1]), order[2])
                code = 0
            finally:
                os._exit(code)
        running[pid] = order
        Path(order[1]).parent.joinpath("pid").write_text(str(pid))

    while True:
        ready, _, _ = select.select([0], [], [], 0.02)
        if ready:
            some = os.read(0, 1 << 16)
            if not some:
                return
            *lines, rest = (rest + some).split(b"\n")
            for line in lines:
                spawn(tuple(json.loads(line)))
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            order = running.pop(pid)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                spawn(order)


if __name__ == "__main__":
    main()
