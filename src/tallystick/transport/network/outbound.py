"""What is to go out on one connection: two bounded lanes, and the frames drawn from them.

Any thread offers; the connection's writer draws. Small messages go first, so
that a control message overtakes a vector; a large message is announced, and
drawn in chunks once it is granted. A large message is held by reference: the
same model queued for a thousand clients is in memory once. A peer that grants
nothing keeps waiting what is meant for it and nothing else: its lanes are
bounded, and the message it does not want is given up after a while.

A frame of data is as long as the line carries in about a second: on a slow one
a whole chunk would take longer than a line may be silent, and hold up what is
small all that time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.core.errors import LocalProtocolError
from tallystick.transport.network.background import wake_soon
from tallystick.transport.network.frame_buffers import FrameBuffer
from tallystick.transport.network.frames import (
    ABANDON,
    CHUNK,
    HEAD_BYTES,
    HEADER_BYTES,
    LAST,
    MAX_FRAME,
    SMALL_BYTES,
    Kind,
    frame,
    open_frame,
)
from tallystick.transport.network.options import Options

Buffer = bytes | bytearray | memoryview
Piece = Buffer | FrameBuffer  # of a message that is made as it is sent
_MAX_PIECE = MAX_FRAME - HEADER_BYTES
FIRST_STEP, _LEAST_STEP = 1 << 18, 1 << 16  # bytes of the first frame of data, and of the shortest
_STEP_SECONDS = 1.0  # how long a frame should take


@dataclass(slots=True)
class OutgoingMessage:
    """A message handed over: its length, and its bytes whole or in pieces that are made as they are sent."""

    length: int
    whole: memoryview | None = field(repr=False)
    pieces: Iterator[Piece] | None = field(repr=False)


def message_of(raw: Buffer | Iterable[Piece], length: int | None) -> OutgoingMessage:
    """Check what is to be sent; pieces need their total length beforehand, for it is announced."""
    if isinstance(raw, (bytes, bytearray, memoryview)):
        view = memoryview(raw).cast("B") if len(raw) else memoryview(b"")
        if length is not None and length != len(view):
            raise LocalProtocolError("a message does not have the length that was given for it")
        return OutgoingMessage(len(view), view, None)
    if length is None or length < 0:
        raise LocalProtocolError("a message in pieces needs its length")
    if length <= SMALL_BYTES:
        whole = b"".join(bytes(_view_of(piece)) for piece in raw)  # a piece may be gone when the next is asked for
        if len(whole) != length:
            raise LocalProtocolError("the pieces of a message do not add up to its length")
        return OutgoingMessage(length, memoryview(whole), None)
    return OutgoingMessage(length, None, iter(raw))


def _view_of(piece: Piece) -> memoryview:
    if isinstance(piece, FrameBuffer):
        return piece.view()
    return memoryview(piece).cast("B") if len(piece) else memoryview(b"")


class _Current:
    """The large message at the head of its lane: announced, then streamed."""

    __slots__ = ("announced_at", "buffer", "granted", "ident", "left", "message", "rest")

    def __init__(self, message: OutgoingMessage, ident: int, rest: memoryview, buffer: FrameBuffer | None) -> None:
        self.message = message
        self.ident = ident
        self.left = message.length
        self.rest = rest  # of the piece being sent
        self.buffer = buffer  # where the whole piece is, if it can be a frame as it is
        self.granted = False
        self.announced_at = time.monotonic()


class Pace:
    """How long the first frame of data may be on a line that a node dialled.

    It begins with what the node's lines carried last, for there it is most often the node's own access to the network
    that is slow. A line that broke may have been too slow for that: the next one to the same peer begins short.
    """

    def __init__(self) -> None:
        self._last = FIRST_STEP
        self._broken: set[str] = set()

    def begin(self, peer: str) -> int:
        """Bytes of the first frame on a new line."""
        return FIRST_STEP if peer in self._broken else self._last

    def learned(self, peer: str, step: int) -> None:
        """What a line carries now."""
        self._last = step
        self._broken.discard(peer)

    def broke(self, peer: str) -> None:
        """A line has ended, whatever the reason."""
        self._broken.add(peer)


class Outbound:
    """The lanes of one connection."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop, step: int) -> None:
        self._options = options
        self._loop = loop
        self._room = threading.Condition()
        self._small: deque[memoryview] = deque()
        self._small_bytes = 0
        self._large: deque[OutgoingMessage] = deque()
        self._large_bytes = 0  # of these in memory; those made as they are sent are not
        self._control: deque[bytes] = deque()
        self._current: _Current | None = None
        self._count = 0
        self._closed = False
        self.step = step
        self.wake = asyncio.Event()

    def offer(self, message: OutgoingMessage, timeout: float) -> bool:
        """Queue a message, waiting up to ``timeout`` seconds for room; False when there is none, or no line."""
        small = message.length <= SMALL_BYTES
        held = 0 if message.whole is None else message.length

        def room() -> bool:
            if self._closed:
                return True
            if not small:
                return len(self._large) < self._options.queue_messages and (
                    not self._large or self._large_bytes + held <= self._options.queue_large_bytes
                )
            return len(self._small) < self._options.queue_messages and (
                not self._small or self._small_bytes + message.length <= self._options.queue_bytes
            )

        with self._room:
            if not room() and not (timeout > 0 and self._room.wait_for(room, timeout)):
                return False
            if self._closed:
                return False
            if small and message.whole is not None:
                self._small.append(message.whole)
                self._small_bytes += message.length
            else:
                self._large.append(message)
                self._large_bytes += held
        wake_soon(self._loop, self.wake)
        return True

    def control(self, raw: bytes) -> None:
        """Queue a frame of our own ahead of everything; on the event loop."""
        self._control.append(raw)
        self.wake.set()

    def granted(self, ident: int) -> bool:
        """The peer has room for the announced message; False if there is no such message."""
        current = self._current
        if current is None or current.ident != ident or current.granted:
            return False
        current.granted = True
        self.wake.set()
        return True

    def refused(self, ident: int) -> bool:
        """The peer does not take the announced message, or no longer; False if it cannot know of it."""
        if not 1 <= ident <= self._count:
            return False
        if self._current is not None and self._current.ident == ident:
            self._current = None
            self.wake.set()
        return True

    def waits_for_grant(self, now: float) -> float:
        """For how long the announced message has been waiting to be granted; 0 if none is."""
        current = self._current
        return 0.0 if current is None or current.granted else now - current.announced_at

    def _pop_large(self) -> OutgoingMessage:
        message = self._large.popleft()
        self._large_bytes -= 0 if message.whole is None else message.length
        self._room.notify()
        return message

    def paced(self, size: int, seconds: float) -> bool:
        """A frame of this size took this long: on a slow line frames are short, so that it is not taken for dead.

        Whether that says anything of the line: a short frame does not.
        """
        if size < min(self.step, FIRST_STEP):
            return False
        self.step = int(min(max(size / max(seconds, 1e-6) * _STEP_SECONDS, _LEAST_STEP), CHUNK))
        return True

    def idle(self) -> bool:
        """Whether everything has been drawn."""
        return not (self._control or self._small or self._large or self._current)

    def close(self) -> None:
        """Drop what is queued and wake the senders that wait for room."""
        with self._room:
            self._closed = True
            self._small.clear()
            self._large.clear()
            self._large_bytes = 0
            self._current = None
            self._room.notify_all()

    def draw(self) -> bytes | None:
        """The next frame, None if there is none now; see :meth:`wants_piece`."""
        if self._control:
            return self._control.popleft()
        if self._small:
            with self._room:
                if not self._small:
                    return None
                raw = self._small.popleft()
                self._small_bytes -= len(raw)
                self._room.notify()
            self._count += 1
            return frame(Kind.SMALL, self._count, raw)
        current = self._current
        if current is not None:
            return self._draw_data(current) if current.granted and current.rest else None
        if self._large:
            return self._announce()
        return None

    def wants_piece(self) -> Iterator[Piece] | None:
        """Where the next piece of the message being sent comes from, when it is time to make it."""
        current = self._current
        if current is None:
            return None if not self._large or self._large[0].whole is not None else self._large[0].pieces
        return current.message.pieces if current.granted and not current.rest else None

    def _announce(self) -> bytes | None:
        message = self._large[0]
        if message.whole is None:
            return None  # its first piece has to be made first
        return self._take_large(message.whole)

    def _take_large(self, first: memoryview, buffer: FrameBuffer | None = None) -> bytes:
        with self._room:
            message = self._pop_large()
        self._count += 1
        self._current = _Current(message, self._count, first, buffer)
        return open_frame(self._count, message.length, bytes(first[:HEAD_BYTES]))

    def piece(self, source: Iterator[Piece], raw: Piece | None) -> bytes | None:
        """Continue with the piece that ``source`` made, None at its end; a frame to send at once, if any."""
        view = memoryview(b"") if raw is None else _view_of(raw)
        buffer = raw if isinstance(raw, FrameBuffer) else None
        current = self._current
        if current is None:
            if not self._large or self._large[0].pieces is not source:
                return None  # closed meanwhile
            if len(view) < HEAD_BYTES or len(view) > self._large[0].length:
                with self._room:
                    self._pop_large()
                raise LocalProtocolError("the first piece of a message is too short, or longer than the message")
            return self._take_large(view, buffer)
        if current.message.pieces is not source:
            return None  # declined meanwhile
        if raw is None or len(view) > current.left:
            return self.abandon()
        current.rest, current.buffer = view, buffer
        return None

    def abandon(self) -> bytes | None:
        """Give up the large message being sent: its pieces do not come, or do not add up."""
        current, self._current = self._current, None
        if current is None:
            with self._room:
                if self._large:
                    self._pop_large()
            return None
        return frame(Kind.DATA, current.ident, b"", LAST | ABANDON)

    def _draw_data(self, current: _Current) -> bytes:
        size = min(len(current.rest), _MAX_PIECE if self.step == CHUNK else self.step)
        current.left -= size
        flags = 0 if current.left else LAST
        if not current.left:
            self._current = None
        buffer, current.buffer = current.buffer, None
        if buffer is not None and size == buffer.used:
            current.rest.release()
            current.rest = memoryview(b"")
            return buffer.framed(Kind.DATA, current.ident, flags)
        chunk, current.rest = current.rest[:size], current.rest[size:]
        return frame(Kind.DATA, current.ident, chunk, flags)
