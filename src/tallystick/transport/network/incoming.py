"""One large message on its way in: announced, granted, streamed into a sink or into memory.

Nothing is allocated for the announced length: memory grows with what really
arrives, and a chunk beyond the announced length ends the stream before it is
written anywhere.
"""

from __future__ import annotations

import asyncio
import io
import logging
from concurrent.futures import Executor, Future
from typing import Any

from tallystick.transport.network.admission import Grants, Sink
from tallystick.transport.network.frames import HEADER_BYTES, LAST, FrameError, Reason
from tallystick.transport.network.options import Options

_log = logging.getLogger("tallystick.transport.network")


class StorageError(Exception):
    """The sink could not take the message."""


class IncomingMessage:
    """Announced by the peer; ``sink`` None assembles in memory."""

    def __init__(self, ident: int, length: int, sink: Sink | None, grants: Grants, workers: Executor) -> None:
        self.ident = ident
        self.length = length
        self.received = 0
        self.granted_at: float | None = None
        self._sink = sink
        self._memory = None if sink is not None else io.BytesIO()
        self._grants = grants
        self._workers = workers
        self._writing: Future[Any] | None = None
        self._closes = False  # whether the write under way is the last
        self._charge = 0 if sink is not None else length

    async def admit(self) -> None:
        """Wait for the grant."""
        await self._grants.acquire(self._charge)

    def is_slow(self, now: float, options: Options) -> bool:
        """Whether it comes in below the lowest rate since it was granted."""
        granted = self.granted_at
        return granted is not None and now - granted > options.slow_grace + self.received / options.lowest_rate

    async def take(self, raw: bytes, flags: int) -> bool:
        """Write the payload of a DATA frame; True when the message is complete."""
        size = len(raw) - HEADER_BYTES
        self.received += size
        if self.received > self.length:
            raise FrameError(Reason.TOO_LARGE, "a message is longer than it was announced")
        last = bool(flags & LAST)
        if last != (self.received == self.length) or not size:
            raise FrameError(Reason.MALFORMED, "a message does not end where it was announced to end")
        view = memoryview(raw)[HEADER_BYTES:]
        if self._memory is not None:
            self._memory.write(view)
        elif self._sink is not None:
            await self._written()  # one write behind the network, no more
            submit, sink = self._workers.submit, self._sink
            self._closes = last
            self._writing = submit(_write_and_close, sink, view) if last else submit(sink.write, view)
        return last

    async def _written(self) -> bytes | None:
        """Wait for the write under way, the last of which closes the sink; what that returned."""
        writing = self._writing
        if writing is None:
            return None
        try:
            if not writing.done():  # most often it is: then nobody had to wake the loop for it
                await asyncio.shield(asyncio.wrap_future(writing))
            closed: bytes | None = writing.result()
            return closed
        except _CloseError as error:
            self._sink = None  # it has closed, well or not: nothing to abort
            raise StorageError(str(error.__cause__)) from error.__cause__
        except Exception as error:
            raise StorageError(str(error)) from error
        finally:
            if writing.done():
                self._writing = None

    async def finish(self) -> tuple[bytes | None, int]:
        """The message, or what its sink delivers in its place, and the memory to release when it is taken."""
        if self._memory is not None:
            raw: bytes | None = self._memory.getvalue()  # shares the buffer, no copy
            self._memory = None
        else:
            raw = await self._written()
            self._sink = None
        self._grants.finish()
        self.granted_at = None
        return raw, self._charge

    def discard(self) -> None:
        """Erase what there is of it and give the grant back."""
        self._memory = None
        sink, self._sink = self._sink, None
        if sink is not None:
            if self._writing is None:
                self._workers.submit(_abort, sink)
            else:
                self._writing.add_done_callback(lambda done: self._after(done, sink))
        if self.granted_at is not None:
            self.granted_at = None
            self._grants.finish()
            self._grants.release(self._charge)

    def _after(self, done: Future[Any], sink: Sink) -> None:
        """Abort once the write under way has ended, unless it has closed the sink."""
        error = done.exception()
        closed = self._closes and (error is None or isinstance(error, _CloseError))
        if not closed:
            self._workers.submit(_abort, sink)


class _CloseError(Exception):
    """A sink did not close."""


def _write_and_close(sink: Sink, view: memoryview) -> bytes | None:
    """In one go, for a hop to another thread and back costs as much as a small chunk."""
    sink.write(view)
    try:
        return sink.close()
    except Exception as error:
        raise _CloseError from error


def _abort(sink: Sink) -> None:
    try:
        sink.abort()
    except Exception:
        _log.exception("a sink could not erase an incomplete message")
