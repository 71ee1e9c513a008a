"""The two kinds of locked child, and what each answers.

* ``public`` executes the program file's Python: ``init``, ``reduce_in_aggregator``, ``finished``. It sees public and
  released values, and never a record.
* ``map`` executes no Python of the file: it compiles ``map_in_client`` and runs the machine code on records. It sees
  records, and never what the other child did.

Both are locked (:mod:`tallystick.engines.sandbox.confinement`) before they are told the program's text, and check the
text against the allow-list again. The shapes of record and state are fixed when ``map`` compiles; after that no memory
can be made executable, so that nothing is compiled later. Where records are mapped, what goes wrong is not described:
the child ends, and its parent says what may be said.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from tallystick.algorithms.program import Program
from tallystick.algorithms.user_programs.compiled import CompiledMap
from tallystick.algorithms.user_programs.program_file import ProgramFile, compile_program, load_program, read_program
from tallystick.core.errors import StudyError, TallystickError
from tallystick.engines.sandbox import messages, seccomp
from tallystick.engines.sandbox.confinement import INBOX, OUTBOX
from tallystick.engines.sandbox.placement import far_away

FAILED = 70
"""The exit status of a child in which something went wrong that is not described."""

Reply = tuple[Mapping[str, Any], bytes]


def serve_public(machine: seccomp.Architecture) -> NoReturn:
    """Answer until the inbox closes."""
    program: Program | None = None

    def answer(asked: Mapping[str, Any], body: bytes) -> Reply:
        nonlocal program
        if asked["do"] == "load":
            seccomp.install(seccomp.no_new_code(machine))
            program = load_program(_read(asked))
            return {}, b""
        if program is None:
            raise StudyError("the program was not loaded")
        if asked["do"] == "init":
            state = _guarded("init", lambda: program.init(messages.decode_public(asked["public"])))
        elif asked["do"] == "finished":
            at = messages.decode_state(asked["state"], body)
            return {"finished": bool(_guarded("finished", lambda: program.finished(at)))}, b""
        else:
            total = np.frombuffer(body, dtype="<f8", count=asked["size"]).astype(np.float64)
            before = messages.decode_state(asked["state"], body[total.nbytes :])
            state = _guarded("reduce_in_aggregator", lambda: program.reduce_in_aggregator(total, before))
        told, packed = messages.encode_state(state)
        return {"state": told}, packed

    _serve(answer)


def serve_map(machine: seccomp.Architecture) -> NoReturn:
    """Answer until the inbox closes."""
    compiled: CompiledMap | None = None
    state: Any = None

    def answer(asked: Mapping[str, Any], body: bytes) -> Reply:
        nonlocal compiled, state
        if asked["do"] == "load":
            state = messages.decode_state(asked["state"], body)
            one, two, where = asked["seeds"]
            compiled = replace(compile_program(_read(asked)), seeds=(one, two), place=far_away(where))
            precompile(compiled, asked["width"], state)
            seccomp.install(seccomp.no_new_code(machine))
            return {}, b""
        if compiled is None:
            raise StudyError("the program was not loaded")
        if asked["do"] == "at":
            state = messages.decode_state(asked["state"], body)
            return {}, b""
        if asked["do"] == "size":
            width = asked["width"]
            return {"size": compiled.vector_size(width, state), "steps": compiled.steps(width, state)}, b""
        try:
            records = np.frombuffer(body, dtype="<f8").reshape(-1, asked["width"])
            vectors, left_out = compiled.vectors_leaving_out(records, state, asked["size"])
            return {"left_out": left_out}, vectors.astype("<f8").tobytes()
        except BaseException:
            os._exit(FAILED)  # a record may have caused it: not a word

    _serve(answer)


def precompile(compiled: CompiledMap, width: int, state: Any) -> None:
    """Compile for records of this width and a state of this shape by mapping no record at all."""
    compiled.vectors_leaving_out(np.zeros((0, width)), state, compiled.vector_size(width, state))


def _read(asked: Mapping[str, Any]) -> ProgramFile:
    return read_program(asked["text"], name=asked["name"])


def _guarded(function: str, work: Callable[[], Any]) -> Any:
    """The author's own code on public values: whatever it raises becomes a refusal that says so."""
    try:
        return work()
    except TallystickError:
        raise
    except MemoryError:
        raise StudyError(
            f"the program's {function} needs more memory than it may have",
            rule="program-contained",
            remedy="Keep its arrays small, or sum less at a time.",
        ) from None
    except Exception as error:
        raise StudyError(messages.failure_of(function, error), rule="run", remedy=messages.TRY_IT) from None


def _serve(answer: Callable[[Mapping[str, Any], bytes], Reply]) -> NoReturn:
    warnings.simplefilter("ignore")  # there is nowhere to show them
    while True:
        header, length = messages.lengths(_take(messages.FRAME.size), body_limit=1 << 40, header_limit=1 << 30)
        asked = messages.header_of(_take(header))
        body = _take(length)
        try:
            told, packed = answer(asked, body)
        except TallystickError as error:
            told, packed = {"error": {"cause": error.cause, "rule": error.rule, "remedy": error.remedy}}, b""
        del asked, body
        _say(messages.pack(told, len(packed)))
        _say(packed)


def _take(size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = os.read(INBOX, min(size, 1 << 20))
        if not piece:
            os._exit(0)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _say(raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(OUTBOX, view) :]
