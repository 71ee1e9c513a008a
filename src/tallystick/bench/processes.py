"""Processes of a bench, told what to do command by command through a pipe."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tallystick.core.errors import LocalProtocolError

__all__ = ["PATIENCE", "ToldProcess", "obey", "preload", "tell"]

PATIENCE = 120.0  # seconds for one step; a stuck run ends
_processes = multiprocessing.get_context("forkserver")


def preload(module: str) -> None:
    """Have the processes that start from now on find this module imported: once, not once a process."""
    _processes.set_forkserver_preload([module])


class ToldProcess:
    """``target(line, *arguments)`` in a process of its own; it answers once when it is ready."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._line, theirs = _processes.Pipe()
        self._process = _processes.Process(target=target, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, **command: Any) -> None:
        """Say what to do."""
        with contextlib.suppress(BrokenPipeError):  # the missing answer says it
            self._line.send(command)

    def answer(self) -> dict[str, Any]:
        """What it says when done."""
        try:
            if self._line.poll(PATIENCE + 30.0):
                answer: dict[str, Any] = self._line.recv()
                return answer
        except (EOFError, ConnectionResetError):
            pass
        raise LocalProtocolError("a process of the bench ended early or is stuck", remedy="Its own words are above.")

    def end(self) -> None:
        """Stop it, one way or the other."""
        self.ask(do="stop")
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._line.close()


def tell(processes: Sequence[ToldProcess], **command: Any) -> list[dict[str, Any]]:
    """The same to several at once; their answers."""
    for process in processes:
        process.ask(**command)
    return [process.answer() for process in processes]


def obey(line: Connection[Any, Any], process: Any) -> None:
    """Say that it is ready, and carry out one command after the other, until told to stop or left alone."""
    line.send({})
    with contextlib.suppress(EOFError):
        while True:
            command: dict[str, Any] = line.recv()
            name = command.pop("do")
            answer = getattr(process, name)(**command)
            if name == "stop":
                break
            line.send(answer or {})
    os._exit(0)  # threads of the network wait for nobody here
