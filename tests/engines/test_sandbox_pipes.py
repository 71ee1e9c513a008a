"""A child that sends garbage, too much, too little or nothing: refused, in bounded time and room, never a crash."""

from __future__ import annotations

import json
import math
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox_programs import GRID, PUBLIC, program_text

from tallystick.algorithms.user_programs.program_file import read_program
from tallystick.core.errors import DataError, RoundAborted, StudyError, TallystickError
from tallystick.engines.sandbox import children as module
from tallystick.engines.sandbox import messages
from tallystick.engines.sandbox.children import Child, Contained, Limits
from tallystick.engines.sandbox.program import SandboxedProgram

MANY = settings(deadline=None, max_examples=150)
FILE = read_program(program_text())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


class Nobody:
    """Children without processes: a child of theirs is whoever holds the other end of the pipes."""

    limits = Limits(call_seconds=0.2, load_seconds=0.2)

    def __init__(self) -> None:
        self.programs: dict[Any, Any] = {}
        self.buried = 0

    def bury(self, _child: Child) -> int | None:
        self.buried += 1
        return 9 << 8


@contextmanager
def child_that(says: Callable[[int, int], None]) -> Iterator[Child]:
    """``says(inbox, outbox)`` runs in a thread as the process at the other end."""
    ours_in, theirs_in, theirs_out, ours_out = module._pipes()

    def run() -> None:
        try:
            says(theirs_in, theirs_out)
        except OSError:
            pass
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    child = Child(Nobody(), None, 0, ours_in, ours_out)  # type: ignore[arg-type]
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield child
    finally:
        child.close()
        thread.join()


def after_the_question(reply: bytes) -> Callable[[int, int], None]:
    def says(inbox: int, outbox: int) -> None:
        os.read(inbox, 1 << 16)
        view = memoryview(reply)
        while view:
            view = view[os.write(outbox, view) :]

    return says


def frame(header: bytes, body: bytes = b"", *, magic: bytes = b"TSP1", lengths: tuple[int, int] | None = None) -> bytes:
    stated = lengths or (len(header), len(body))
    return messages.FRAME.pack(magic, *stated) + header + body


@MANY
@given(st.binary(max_size=300))
def test_garbage_is_refused(reply: bytes) -> None:
    with child_that(after_the_question(reply)) as child, pytest.raises(Contained):
        child.call({"do": "init"}, seconds=60, body_limit=1 << 20)
    assert child.ended


@MANY
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_frames_with_other_lengths_than_they_have_are_refused(
    header: bytes, body: bytes, header_length: int, body_length: int
) -> None:
    reply = frame(header, body, lengths=(header_length, body_length))
    with child_that(after_the_question(reply)) as child, pytest.raises(Contained):
        child.call({"do": "init"}, seconds=60, body_limit=1 << 40)


@MANY
@given(JSON, st.binary(max_size=40))
def test_a_well_formed_frame_arrives_or_is_refused(header: Any, body: bytes) -> None:
    reply = frame(json.dumps(header).encode(), body)
    with child_that(after_the_question(reply)) as child:
        if not isinstance(header, dict):
            with pytest.raises(Contained, match="not an object"):
                child.call({}, seconds=60, body_limit=40)
        else:
            found, packed = child.call({}, seconds=60, body_limit=40)
            assert packed == body
            assert repr(found) == repr(json.loads(json.dumps(header)))


@pytest.mark.parametrize(
    "header",
    [b"[" * 100_000, b'{"a":' * 50_000, b"{" + b'"' * 1000, b"9" * 10_000, b'{"a":' + b"9" * 10_000 + b"}", b"\xff{}"],
)
def test_json_bombs_are_refused(header: bytes) -> None:
    with child_that(after_the_question(frame(header))) as child, pytest.raises(Contained, match="broke the protocol"):
        child.call({}, seconds=60)


def test_announcing_much_makes_no_room_for_it() -> None:
    """A body of a tebibyte is refused if it was not asked for; if it was, room is made as it comes."""
    with child_that(after_the_question(frame(b"{}", lengths=(2, 1 << 40)))) as child:
        tracemalloc.start()
        with pytest.raises(Contained, match="more than was asked for"):
            child.call({}, seconds=60, body_limit=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        tracemalloc.stop()
    with child_that(after_the_question(frame(b"{}", b"few", lengths=(2, 1 << 40)))) as child:
        tracemalloc.start()
        with pytest.raises(Contained):
            child.call({}, seconds=60, body_limit=1 << 41)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        tracemalloc.stop()


def test_a_flood_is_cut_off() -> None:
    """Endless output: what was asked for is read, the rest ends the child at the next question."""

    def flood(inbox: int, outbox: int) -> None:
        os.read(inbox, 1 << 16)
        while True:
            os.write(outbox, frame(b"{}"))

    with child_that(flood) as child:
        assert child.call({}, seconds=60) == ({}, b"")
        assert child._readable(30)
        with pytest.raises(Contained, match="speaks unasked"):
            child.call({}, seconds=60)


@pytest.mark.parametrize("drip", [b"", b"T", messages.FRAME.pack(b"TSP1", 10, 0) + b"{"])
def test_silence_and_half_an_answer_end_in_time(drip: bytes) -> None:
    stop = threading.Event()

    def says(inbox: int, outbox: int) -> None:
        os.read(inbox, 1 << 16)
        os.write(outbox, drip)
        stop.wait(30)

    with child_that(says) as child:
        before = time.monotonic()
        with pytest.raises(Contained, match="did not answer within"):
            child.call({}, seconds=0.1)
        assert time.monotonic() - before < 20
        stop.set()


def test_a_child_that_does_not_read_ends_in_time() -> None:
    stop = threading.Event()
    with child_that(lambda _in, _out: stop.wait(30)) as child:
        with pytest.raises(Contained, match="did not answer within"):
            child.call({}, [np.zeros(1 << 20)], seconds=0.1)
        stop.set()


def test_a_child_that_answers_before_it_has_heard_everything_is_not_waited_for_in_vain() -> None:
    def says(inbox: int, outbox: int) -> None:
        os.read(inbox, 10)
        os.write(outbox, frame(b"{}"))

    with child_that(says) as child, pytest.raises(Contained):
        child.call({}, [np.zeros(1 << 20)], seconds=5)


# -- values ------------------------------------------------------------------------------------------------------------


@MANY
@given(JSON, st.binary(max_size=64))
def test_any_json_is_a_state_or_refused(told: Any, body: bytes) -> None:
    with pytest.raises(messages.BadReply):
        messages.decode_state(told, body)


KINDS = sorted([*messages._PART, "complex", "object"])
PARTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.integers(-1, 3) | st.just(2**62), max_size=3)).map(list), max_size=4
)


@MANY
@given(PARTS, st.booleans(), st.none() | st.lists(st.sampled_from(["a", "b", "_c", "class", "a b"])), st.binary())
def test_any_description_is_a_state_of_these_very_numbers_or_refused(
    parts: list[Any], is_tuple: bool, fields: list[str] | None, body: bytes
) -> None:
    try:
        state = messages.decode_state({"tuple": is_tuple, "fields": fields, "parts": parts}, body)
    except messages.BadReply:
        return
    told, packed = messages.encode_state(state)
    assert told["parts"] == parts
    assert len(packed) == len(body)


@pytest.mark.parametrize("shape", [[0, 2**39, 2**39], [2**39, 0, 2**39, 2**39], [0, *[2**20] * 7]], ids=str)
def test_an_empty_state_with_sides_that_numpy_does_not_make(shape: list[int]) -> None:
    with pytest.raises(messages.BadReply):
        messages.decode_state({"tuple": False, "fields": None, "parts": [["floats", shape]]}, b"")


@MANY
@given(JSON)
def test_any_error_is_words_or_refused(told: Any) -> None:
    try:
        error = messages.error_from(told)
    except messages.BadReply:
        assert not isinstance(told, dict)
        return
    assert error.cause.isprintable()
    assert len(str(error)) < 2000


class Saying:
    """A locked program whose child says just this."""

    def __init__(self, told: Any, body: bytes) -> None:
        self.answer = told, body

    def call(self, *_: Any, **__: Any) -> tuple[Any, bytes]:
        return self.answer

    def close(self) -> None:
        pass


REPLY = st.dictionaries(st.sampled_from(["state", "finished", "size", "left_out", "error", "x"]), JSON, max_size=3)


@MANY
@given(REPLY, st.binary(max_size=48))
def test_no_reply_brings_the_role_down(told: dict[str, Any], body: bytes) -> None:
    program = SandboxedProgram(FILE, children=Nobody())  # type: ignore[arg-type]
    program._locked = program.compiled_map._locked = Saying(told, body)  # type: ignore[assignment]
    records, state = np.ones((3, 3)), np.zeros(2)
    calls: tuple[tuple[Callable[[], Any], type[TallystickError]], ...] = (
        (lambda: program.init(PUBLIC), StudyError),
        (lambda: program.reduce_in_aggregator(state, state), RoundAborted),
        (lambda: program.finished(state), RoundAborted),
        (lambda: program.compiled_map.vector_size(3, state), StudyError),
        (lambda: program.compiled_map.total_leaving_out(records, state, GRID), DataError),
        (lambda: program.compiled_map.vectors_leaving_out(records, state, 2), DataError),
    )
    for call, error in calls:
        try:
            call()
        except error:
            continue


class Mapping:
    """A locked program whose child gives every record of a block the same vector, which may depend on the block."""

    def __init__(self, vector: Callable[[int], list[float]], left_out: Any = 0) -> None:
        self.vector, self.left_out = vector, left_out

    def call(self, header: Any, body: list[Any], **_: Any) -> tuple[Any, bytes]:
        (block,) = body
        return {"left_out": self.left_out}, np.array([self.vector(len(block))] * len(block), dtype="<f8").tobytes()

    def close(self) -> None:
        pass


def mapped_by(child: Mapping) -> SandboxedProgram:
    program = SandboxedProgram(FILE, children=Nobody())  # type: ignore[arg-type]
    program.compiled_map._locked = child  # type: ignore[assignment]
    program.compiled_map._steps[3] = 100
    return program


@pytest.mark.parametrize(
    ("vector", "left_out"),
    [
        ([math.nan, 0.0], 0),
        ([0.0, math.inf], 0),
        ([1.0, 0.0], 1),  # a record that was left out has zeros
        ([0.0, 0.0], 4),
        ([0.0, 0.0], -1),
        ([0.0, 0.0], True),
        ([0.0, 0.0, 0.0], 0),
        ([0.0], 0),
    ],
)
def test_vectors_that_three_records_cannot_have_are_refused(vector: list[float], left_out: Any) -> None:
    program = mapped_by(Mapping(lambda _: vector, left_out))
    with pytest.raises(DataError, match="broke the rules"):
        program.compiled_map.total_leaving_out(np.ones((3, 3)), np.zeros(2), GRID)
    with pytest.raises(DataError):  # once is enough
        program.compiled_map.total_leaving_out(np.ones((3, 3)), np.zeros(2), GRID)


@pytest.mark.parametrize("vector", [[1e300, 0.0], [-1e300, 0.0], [2.0, 2.0], [1e308, -1e308]])
def test_the_role_clips_whatever_the_child_says(vector: list[float]) -> None:
    program = mapped_by(Mapping(lambda _: vector))
    total, left_out = program.compiled_map.total_leaving_out(np.ones((3, 3)), np.zeros(2), GRID)
    assert left_out == 0
    assert 0 < math.isqrt(sum(int(x) ** 2 for x in total)) <= 3 * GRID.integer_bounds[0]


def test_vectors_that_depend_on_the_block_are_noticed() -> None:
    """Other vectors for one record than for three: within range, and yet not each record's own."""
    program = mapped_by(Mapping(lambda count: [1.0 / count, 0.5]))
    with pytest.raises(DataError, match="depends on other records"):
        program.compiled_map.total_leaving_out(np.ones((3, 3)), np.zeros(2), GRID)
