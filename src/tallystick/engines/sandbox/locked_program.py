"""A program's place in the children of a process: one locked child of each kind per program hash, whoever asks.

A child is started when it is first needed, told the program once, and told a state only when it is another one than
before. If it was killed from outside it is replaced and asked again: programs are deterministic, so the bits are the
same. A child that is near the end of its processor time is replaced before it gets there.
"""

from __future__ import annotations

import threading
from typing import Any

from tallystick.algorithms.user_programs.program_file import ProgramFile
from tallystick.crypto.prg import system_stream
from tallystick.engines.sandbox import messages
from tallystick.engines.sandbox.children import Child, Children, Contained, Kind

__all__ = ["LockedProgram", "locked_program"]

At = tuple[dict[str, Any], bytes, int]
"""A state as it is sent, its description and its numbers; and how many numbers a record has."""

_MOST_PROGRAMS = 64
_finding = threading.Lock()


class LockedProgram:
    """One kind of child of one program."""

    def __init__(self, children: Children, kind: Kind, file: ProgramFile) -> None:
        self._children, self._kind = children, kind
        self._text = {"text": file.text, "name": file.name}
        self._lock = threading.RLock()
        self._child: Child | None = None
        self._at: At | None = None

    def call(
        self, header: dict[str, Any], body: list[Any], *, body_limit: int = 0, at: At | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Ask, at this state if the child keeps one. :class:`Contained` if it does not end well."""
        seconds = self._children.limits.call_seconds
        with self._lock:
            for last in (False, True):
                try:
                    return self._ready(at).call(header, body, seconds=seconds, body_limit=body_limit)
                except Contained as contained:
                    if last or not contained.outside:
                        raise
        raise Contained("its process was killed from outside", outside=True)

    def _ready(self, at: At | None) -> Child:
        limits, child = self._children.limits, self._child
        if child is not None and child.busy_seconds > limits.cpu_seconds - 2 * limits.load_seconds:
            self.close()
        if self._child is None or self._child.ended or _kind_of(at) != _kind_of(self._at):
            return self._load(at)
        if at != self._at and at is not None:
            self._child.call({"do": "at", "state": at[0]}, [at[1]], seconds=limits.call_seconds)
            self._at = at
        return self._child

    def _load(self, at: At | None) -> Child:
        self.close()
        child = self._child = self._children.start(self._kind)
        told: dict[str, Any] = {}
        packed = b""
        if at is not None:
            # Guard areas and the place of the memory are drawn here: the child has no say in them.
            seeds = [int(word) for word in system_stream().words(3)]
            told, packed = {"state": at[0], "width": at[2], "seeds": seeds}, at[1]
        seconds = self._children.limits.load_seconds
        answer, _ = child.call({"do": "load", **self._text, **told}, [packed], seconds=seconds)
        if "error" in answer:
            self.close()
            raise messages.error_from(answer["error"])
        self._at = at
        return child

    def close(self) -> None:
        """End the child, or leave it to the one who is asking it right now; the next call starts another."""
        child, self._child, self._at = self._child, None, None
        if child is not None:
            child.end_if_idle()


def _kind_of(at: At | None) -> Any:
    """What the compiled code depends on: names, shapes and the record's width, not values."""
    if at is None:
        return None
    return at[0]["tuple"], at[0]["fields"], [shape for _, shape in at[0]["parts"]], at[2]


def locked_program(children: Children, file: ProgramFile, kind: Kind) -> LockedProgram:
    """This program in locked children of this kind: the same one for every study of this process that runs it."""
    with _finding:
        key = (file.hash, file.name, kind)
        found: LockedProgram = children.programs.pop(key, None) or LockedProgram(children, kind, file)
        children.programs[key] = found
        while len(children.programs) > _MOST_PROGRAMS:
            children.programs.pop(next(iter(children.programs))).close()
        return found
