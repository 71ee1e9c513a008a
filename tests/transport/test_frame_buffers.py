"""Buffers for frames: memory that becomes the bytes of one frame after another, never changing bytes somebody has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.transport.network.frame_buffers import BufferPool, FrameBuffer
from tallystick.transport.network.frames import HEADER_BYTES, LAST, Kind, frame

SIZE = 5000


def writer(payload: bytes) -> Callable[[memoryview], int]:
    def write(memory: memoryview) -> int:
        assert memory.nbytes == SIZE
        memory[: len(payload)] = payload
        return len(payload)

    return write


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=SIZE), st.booleans(), st.booleans()), max_size=12))
def test_frames_are_those_of_a_join_whoever_keeps_what(steps: list[tuple[bytes, bool, bool]]) -> None:
    """Bytes of earlier frames that are kept do not change; views that are kept do not spoil later frames."""
    buffer, kept, views = FrameBuffer(SIZE), [], []
    for ident, (payload, keep, view) in enumerate(steps):
        assert buffer.fill(writer(payload))
        assert buffer.used == len(payload)
        if view:
            views.append(buffer.view())
            assert bytes(views[-1]) == payload
        framed = buffer.framed(Kind.DATA, ident, LAST)
        assert framed == frame(Kind.DATA, ident, payload, LAST)
        if keep:
            kept.append((framed, frame(Kind.DATA, ident, payload, LAST)))
        del framed
    for framed, expected in kept:
        assert framed == expected


@pytest.mark.parametrize("size", [SIZE, SIZE - 1, 1])
def test_the_same_memory_is_used_again_when_nobody_has_it(size: int) -> None:
    buffer = FrameBuffer(SIZE)
    buffer.fill(writer(b"a" * size))
    framed = buffer.framed(Kind.DATA, 1, 0)
    assert len(framed) == HEADER_BYTES + size
    place = id(framed)
    del framed
    buffer.fill(writer(b"b" * size))
    again = buffer.framed(Kind.DATA, 2, 0)
    if size == SIZE:  # a shorter one may have moved
        assert id(again) == place
    buffer.fill(writer(b"c" * size))
    assert again[HEADER_BYTES:] == b"b" * size, "bytes that somebody has must never change"


def test_nothing_written_is_the_end() -> None:
    assert not FrameBuffer(SIZE).fill(lambda _memory: 0)


def test_a_buffer_given_back_is_taken_again_by_its_size_the_oldest_first() -> None:
    buffers = BufferPool(kept=3)
    first, second, other = (buffers.take(size) for size in (SIZE, SIZE, SIZE + 1))
    for buffer in (first, second, other):
        buffers.give(buffer)
    assert buffers.take(SIZE + 1) is other
    assert buffers.take(SIZE) is first
    assert buffers.take(SIZE) is second
    assert buffers.take(SIZE) not in (first, second)
    for buffer in (first, second, other, FrameBuffer(7)):
        buffers.give(buffer)  # one more than are kept: the oldest goes
    assert buffers.take(SIZE) is second
    assert buffers.take(SIZE) is not first


def test_a_frame_on_its_way_does_not_change_when_its_buffer_is_taken_by_somebody_else() -> None:
    buffers = BufferPool()
    buffer = buffers.take(SIZE)
    buffer.fill(writer(b"a" * SIZE))
    on_its_way = buffer.framed(Kind.DATA, 1, 0)
    buffers.give(buffer)
    again = buffers.take(SIZE)
    assert again is buffer
    again.fill(writer(b"b" * SIZE))
    assert on_its_way == frame(Kind.DATA, 1, b"a" * SIZE)
    assert again.framed(Kind.DATA, 2, 0) == frame(Kind.DATA, 2, b"b" * SIZE)
