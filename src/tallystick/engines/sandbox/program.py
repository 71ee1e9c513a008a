"""A program file as a Program that lives elsewhere: same functions, same bits, none of its code in this process.

:class:`SandboxedProgram` reads rounds, bound and groups off the file's checked text; ``init``, ``reduce_in_aggregator``
and ``finished`` are asked of a locked child, and ``compiled_map`` asks another one, block by block, for the records'
vectors. The role keeps what is its own: it clips each vector and adds them up, and checks in every round that some
records drawn at random have the same vectors one by one as they do together. A program that is not row-independent
(state kept between records, a mean over the block) would have had to get past the allow-list and the compiler; this is
what stands behind them.

What becomes of a program that had to be ended:

| when                          | error                        | then                                                  |
|-------------------------------|------------------------------|-------------------------------------------------------|
| ``init``, or a made-up record | StudyError                   | the study is declined                                 |
| ``reduce…``, ``finished``     | RoundAborted                 | the study ends without a result                       |
| on records                    | DataError                    | the client is unavailable for the rest of the study   |
| its process is killed outside | none: asked again, same bits | after a second time as above, but only for that round |

On records nothing that the child says is repeated, and once is enough: whether it had to be ended may depend on a
record, so that must not be tried again round after round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Program, Public, State
from tallystick.algorithms.user_programs.compiled import BlockwiseMap
from tallystick.algorithms.user_programs.map_compiler.translate import MOST_STEPS
from tallystick.algorithms.user_programs.program_file import ProgramFile, read_program
from tallystick.core.errors import DataError, RoundAborted, StudyError, TallystickError
from tallystick.crypto.prg import system_stream
from tallystick.engines.sandbox import messages
from tallystick.engines.sandbox.children import Child, Children, Contained, Kind, shared_children

RULE = "program-contained"
_BLOCK_BYTES = 4 << 20
_BLOCK_STEPS = 200_000_000  # a second or two of work; a call may take 30
_FIRST_BLOCK = 1024  # records
_SOON = 0.5  # seconds
_CHECKED_RECORDS, _CHECKED_BYTES = 16, 64 << 20  # what vectors the child can hold side by side; always two at least
_Error = TypeVar("_Error", bound=TallystickError)

At = tuple[dict[str, Any], bytes, int]
"""A state as it is sent, its description and its numbers; and how many numbers a record has."""

_MOST_PROGRAMS = 64
_finding = threading.Lock()


def sandboxed_from_text(text: str, *, name: str) -> tuple[Program, str]:
    """A program file's text, checked against the allow-list, as a program in a locked child; and its hash."""
    file = read_program(text, name=name)
    return SandboxedProgram(file), file.hash


class SandboxedProgram(Program):
    """A checked program file whose code runs in locked children only."""

    def __init__(self, file: ProgramFile, *, children: Children | None = None) -> None:
        children = shared_children() if children is None else children
        self.file = file
        self.rounds = file.rounds
        self.bound = file.bound
        self.groups = file.groups
        self.source_text = file.text
        self.compiled_map = SandboxedMap(file.name, locked_program(children, file, "map"), children.limits.memory_bytes)
        self._locked = locked_program(children, file, "public")
        self._state_bytes = children.limits.state_bytes
        self._starts: dict[Public, tuple[dict[str, Any], bytes]] = {}

    def init(self, public: Public) -> State:
        """Asked once for the same public facts."""
        if public not in self._starts:
            told, body = self._ask(StudyError, {"do": "init", "public": asdict(public)}, [])
            self._state(StudyError, told, body)
            self._starts[public] = told, body
        return self._state(StudyError, *self._starts[public])

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: State) -> State:
        described, packed = messages.encode_state(state)
        numbers = np.ascontiguousarray(total, dtype="<f8")
        told, body = self._ask(
            RoundAborted, {"do": "reduce", "size": numbers.size, "state": described}, [numbers, packed]
        )
        after = self._state(RoundAborted, told, body)
        if not messages.same_shape(after, state):
            raise RoundAborted(
                f"{self.file.name}: reduce_in_aggregator returned a state of another shape than it was given",
                rule="state",
                remedy="Correct the program and propose the study anew. What was spent stays spent.",
            )
        return after

    def finished(self, state: State) -> bool:
        described, packed = messages.encode_state(state)
        told, _ = self._ask(RoundAborted, {"do": "finished", "state": described}, [packed])
        answer = told.get("finished")
        if not isinstance(answer, bool):
            raise _contained(RoundAborted, self.file.name, "its process broke the protocol")
        return answer

    def close(self) -> None:
        """End its children; they come back if they are asked again."""
        self._locked.close()
        self.compiled_map.close()

    def _ask(
        self, error: type[TallystickError], header: dict[str, Any], body: list[Any]
    ) -> tuple[dict[str, Any], bytes]:
        return _answer(error, self.file.name, lambda: self._locked.call(header, body, body_limit=self._state_bytes))

    def _state(self, error: type[TallystickError], told: dict[str, Any], body: bytes) -> State:
        try:
            return messages.decode_state(told.get("state"), body)
        except messages.BadReply as problem:
            self.close()
            raise _contained(error, self.file.name, f"its process broke the protocol: {problem}") from None


class SandboxedMap(BlockwiseMap):
    """The compiled map in a locked child: to the bit as :class:`~.user_programs.compiled.CompiledMap`, or DataError."""

    def __init__(self, name: str, locked: LockedProgram, memory_bytes: int) -> None:
        self.name, self._locked, self._most = name, locked, memory_bytes // 16
        self._steps: dict[int, int] = {}
        self.over: str | None = None

    def vector_size(self, record_size: int, state: State) -> int:
        """As CompiledMap's: no record is needed, and none of anybody's is there."""
        header = {"do": "size", "width": record_size}
        told, _ = _answer(StudyError, self.name, lambda: self._call(header, state, record_size))
        size, steps = told.get("size"), told.get("steps")
        if type(size) is not int or not 1 <= size <= self._most:
            raise _contained(StudyError, self.name, "it says that its vectors have an impossible length")
        if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
            raise _contained(StudyError, self.name, "it says that a record costs an impossible number of operations")
        self._steps[record_size] = steps
        return size

    def blocks(
        self, records: NDArray[np.float64], state: State, size: int
    ) -> Iterator[tuple[NDArray[np.float64], int]]:
        """Whatever contains the program on records ends it for this study, in words that say nothing of them."""
        if self.over is not None:
            raise _contained(DataError, self.name, self.over)
        try:
            width = records.shape[1]
            if width not in self._steps:  # of the most operations; a state's shape is the same in all rounds
                self.vector_size(width, state)
            for block in _blocks(records, size, self._steps[width]):
                yield self._vectors(block, state, size)
            self._check_rows(records, state, size)
        except StudyError as error:  # nothing ran: it could not be started or compiled again
            raise DataError(error.cause, rule=error.rule, remedy=error.remedy) from None
        except (Contained, messages.BadReply) as error:
            cause = error.cause if isinstance(error, Contained) else f"its process broke the rules: {error}"
            if not (isinstance(error, Contained) and error.outside):
                self.over = cause
                self.close()
            raise _contained(DataError, self.name, cause) from None

    def close(self) -> None:
        """End the child; it comes back if it is asked again."""
        self._locked.close()

    def _call(
        self, header: dict[str, Any], state: State, width: int, *blocks: Any, body_limit: int = 0
    ) -> tuple[Any, bytes]:
        at = (*messages.encode_state(state), width)
        return self._locked.call(header, list(blocks), body_limit=body_limit, at=at)

    def _vectors(self, block: NDArray[np.float64], state: State, size: int) -> tuple[NDArray[np.float64], int]:
        count, width = block.shape
        header = {"do": "vectors", "width": width, "size": size}
        told, body = self._call(header, state, width, block, body_limit=8 * size * count)
        if len(body) != 8 * size * count:
            raise messages.BadReply("vectors of another length")
        vectors = np.frombuffer(body, dtype="<f8").astype(np.float64).reshape(count, size)
        if not np.isfinite(vectors).all():
            raise messages.BadReply("vectors with NaN or infinity")
        failed = told.get("left_out")
        if type(failed) is not int or not 0 <= failed <= count - np.count_nonzero(vectors.any(axis=1)):
            raise messages.BadReply("an impossible number of records left out")
        return vectors, failed

    def _check_rows(self, records: NDArray[np.float64], state: State, size: int) -> None:
        """Some records, drawn at random: together and, in another order, one by one they must give the same bits."""
        if not len(records):
            return
        most = min(_CHECKED_RECORDS, max(2, _CHECKED_BYTES // (8 * size)))
        words = system_stream().words(min(most, len(records)))
        drawn = np.ascontiguousarray(records[(words % np.uint64(len(records))).astype(np.int64)])
        together, failed = self._vectors(drawn, state, size)
        singly = [self._vectors(drawn[i : i + 1], state, size) for i in reversed(range(len(drawn)))]
        alone = np.concatenate([vector for vector, _ in reversed(singly)])
        if failed != sum(f for _, f in singly) or together.tobytes() != alone.tobytes():
            raise messages.BadReply("what a record adds depends on other records")


def _blocks(records: NDArray[np.float64], size: int, steps: int) -> Iterator[NDArray[np.float64]]:
    """Few records first, more at a time if they are answered soon; never more than keep within a call's time, whatever
    the records hold: a time limit that only some records reach would tell others which ones these are."""
    whole = np.ascontiguousarray(records, dtype="<f8")
    most = max(1, min(_BLOCK_BYTES // (8 * max(records.shape[1], size, 1)), _BLOCK_STEPS // steps))
    at, step = 0, min(_FIRST_BLOCK, most)
    while at < len(whole):
        before = time.monotonic()
        yield whole[at : at + step]
        at += step
        if time.monotonic() - before < _SOON:
            step = min(4 * step, most)


def _answer(
    error: type[TallystickError], name: str, ask: Callable[[], tuple[dict[str, Any], bytes]]
) -> tuple[dict[str, Any], bytes]:
    """What a child says that has seen no record; its refusal, and whatever contains the program, as this error."""
    try:
        told, body = ask()
        if "error" in told:
            refusal = messages.error_from(told["error"])
            raise error(refusal.cause, rule=refusal.rule, remedy=refusal.remedy)
    except Contained as contained:
        raise _contained(error, name, contained.cause) from None
    except messages.BadReply as problem:
        raise _contained(error, name, f"its process broke the protocol: {problem}") from None
    return told, body


def _contained(error: type[_Error], name: str, cause: str) -> _Error:
    return error(
        f"{name} was stopped: {cause}; nothing of it left this machine",
        rule=RULE,
        remedy="Do not approve this program again before its author has explained it. The study may be proposed anew.",
    )


class LockedProgram:
    """One kind of child of one program: one for each program hash, whoever asks.

    A child is started when it is first needed, told the program once, and told a state only when it is another one than
    before. If it was killed from outside it is replaced and asked again: programs are deterministic, so the bits are
    the same. A child that is near the end of its processor time is replaced before it gets there.
    """

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
