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

from tallystick.transport.network.admission import Grants, Sink
from tallystick.transport.network.frames import HEADER_BYTES, LAST, FrameError, Reason

__all__ = ["IncomingMessage", "StorageError"]

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
        self._writing: Future[object] | None = None
        self._charge = 0 if sink is not None else length

    async def admit(self) -> None:
        """Wait for the grant."""
        await self._grants.acquire(self._charge)

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
            self._writing = self._workers.submit(self._sink.write, view)
        return last

    async def _written(self) -> None:
        writing = self._writing
        if writing is not None:
            try:
                if writing.done():  # most often: then nobody had to wake the loop for it
                    writing.result()
                else:
                    await asyncio.shield(asyncio.wrap_future(writing))
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
            await self._written()
            sink, self._sink = self._sink, None
            try:
                loop = asyncio.get_running_loop()
                raw = None if sink is None else await loop.run_in_executor(self._workers, sink.close)
            except Exception as error:
                self._grants.finish()
                self.granted_at = None
                raise StorageError(str(error)) from error
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
                self._writing.add_done_callback(lambda _done: self._workers.submit(_abort, sink))
        if self.granted_at is not None:
            self.granted_at = None
            self._grants.finish()
            self._grants.release(self._charge)


def _abort(sink: Sink) -> None:
    try:
        sink.abort()
    except Exception:
        _log.exception("a sink could not erase an incomplete message")
