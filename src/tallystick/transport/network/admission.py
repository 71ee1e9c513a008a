"""What may come in: a bounded inbox for whole messages, grants for large ones, and sinks that stream them away.

The inbox is where the network's thread meets the party's: ``put`` waits on the
event loop until there is room (so that the connection is not read, and gRPC's
flow control holds the sender back), ``get`` blocks the party's thread. Senders
take turns: whoever has sent a thousand messages holds up nobody who has sent
one. Order is kept among the messages of a sender. A grant
is given in order of asking when fewer than ``max_streams`` large messages are
under way and the memory asked for is free; memory comes back when the party
takes the message.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tallystick.transport.link import Envelope
from tallystick.transport.network.options import Options

_ENVELOPE_BYTES = 256  # what an empty message costs


class Sink(Protocol):
    """Takes a large message chunk by chunk, on a worker thread, one call at a time."""

    def write(self, chunk: memoryview, /) -> object:
        """Take the next chunk; it is valid during the call only. An ``OSError`` declines the message."""
        ...

    def close(self) -> bytes | None:
        """The message is complete. The bytes returned are delivered in its place; None delivers nothing."""
        ...

    def abort(self) -> None:
        """The message will not be completed: erase what there is of it. Never after ``close``."""
        ...


class Unwanted(Exception):  # noqa: N818 - a decision, not a malfunction
    """Raised by a sink factory: this message is not taken at all."""


SinkFactory = Callable[[str, int, bytes], Sink | None]
"""(sender, length, first 256 bytes) -> a sink, None to assemble in memory under ``message_limit``, or Unwanted.

Called on the event loop, so it must not wait for a disk: a sink takes its room when it is first written to."""


class Inbox:
    """Messages that have arrived, bounded in number and bytes, overall and per peer; taken from each peer in turn."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._there = threading.Condition()
        self._queues: dict[str, deque[tuple[Envelope, int, Callable[[], None] | None]]] = {}  # none is empty
        self._turns: deque[str] = deque()  # whose message is taken next: everybody's in turn
        self._count = 0
        self._bytes = 0
        self._waiting: deque[tuple[Envelope, asyncio.Future[None]]] = deque()
        self._closed = False

    def _room(self, envelope: Envelope) -> bool:
        options = self._options
        return (
            self._count < options.inbox_messages
            and (not self._count or self._bytes + len(envelope.raw) + _ENVELOPE_BYTES <= options.inbox_bytes)
            and len(self._queues.get(envelope.sender, ())) < options.peer_inbox_messages
        )

    def _append(self, envelope: Envelope, cost: int, taken: Callable[[], None] | None) -> None:
        own = self._queues.get(envelope.sender)
        if own is None:
            own = self._queues[envelope.sender] = deque()
            self._turns.append(envelope.sender)
        own.append((envelope, cost, taken))
        self._count += 1
        self._bytes += cost
        self._there.notify()

    def _take(self) -> tuple[Envelope, int, Callable[[], None] | None]:
        peer = self._turns.popleft()
        own = self._queues[peer]
        taken = own.popleft()
        if own:
            self._turns.append(peer)
        else:
            del self._queues[peer]
        self._count -= 1
        self._bytes -= taken[1]
        return taken

    async def put(self, envelope: Envelope) -> None:
        """Deliver a small message, waiting for room; on the event loop."""
        with self._there:
            if not self._waiting and self._room(envelope):
                self._append(envelope, len(envelope.raw) + _ENVELOPE_BYTES, None)
                return
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((envelope, turn))
        self._admit()  # room may be there for this sender although others wait
        await turn

    def put_now(self, envelope: Envelope, taken: Callable[[], None] | None = None) -> None:
        """Deliver a message whose memory a grant has counted; ``taken`` is called on the event loop."""
        with self._there:
            self._append(envelope, 0 if taken else _ENVELOPE_BYTES, taken)

    def get(self, timeout: float | None) -> Envelope | None:
        """The next message, waiting up to ``timeout`` seconds (None: for ever, or until closed)."""
        with self._there:
            if not self._count and timeout != 0:
                self._there.wait_for(lambda: self._count or self._closed, timeout)
            if not self._count:
                return None
            envelope, _, taken = self._take()
            waiting = bool(self._waiting)
        if waiting and not self._closed:
            self._loop.call_soon_threadsafe(self._admit)
        if taken is not None:
            self._loop.call_soon_threadsafe(taken)
        return envelope

    def close(self) -> None:
        """Wake everyone who waits; what has arrived can still be taken."""
        with self._there:
            self._closed = True
            self._there.notify_all()

    def _admit(self) -> None:
        with self._there:
            blocked: deque[tuple[Envelope, asyncio.Future[None]]] = deque()
            while self._waiting:
                envelope, turn = self._waiting.popleft()
                if turn.cancelled():
                    continue
                if self._room(envelope):
                    self._append(envelope, len(envelope.raw) + _ENVELOPE_BYTES, None)
                    turn.set_result(None)
                else:
                    blocked.append((envelope, turn))
                    if self._count >= self._options.inbox_messages or self._bytes >= self._options.inbox_bytes:
                        break
            blocked.extend(self._waiting)
            self._waiting = blocked


class Grants:
    """Who may stream a large message now; only used on the event loop.

    A few streams fill a fast line, and every further one only costs memory. So there are ``fast_streams`` turns at
    first; for every ``slow_after`` seconds in which somebody waited and no turn came, there is one more, up to
    ``max_streams``: peers on slow lines, or one that stalls, hold nobody up for long.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._streams = 0
        self._memory = 0
        self._turns = min(options.fast_streams, options.max_streams)
        self._given = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def _free(self, memory: int) -> bool:
        fits = not memory or not self._memory or self._memory + memory <= self._options.memory_bytes
        return self._streams < self._turns and fits

    def _give(self, memory: int) -> None:
        self._given += 1
        self._streams += 1
        self._memory += memory

    async def acquire(self, memory: int) -> None:
        """Wait for a turn to stream a message that needs this much memory here (0: it has a sink)."""
        if not self._waiting and self._free(memory):
            self._give(memory)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((memory, turn))
        self._watch()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.finish()
                self.release(memory)
            raise

    def finish(self) -> None:
        """A message is no longer under way."""
        self._streams -= 1
        self._next()
        if not self._streams and not self._waiting:
            self._turns = min(self._options.fast_streams, self._options.max_streams)

    def release(self, memory: int) -> None:
        """Memory of a message is free again."""
        self._memory -= memory
        self._next()

    def _next(self) -> None:
        while self._waiting:
            memory, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
            elif self._free(memory):
                self._waiting.popleft()
                self._give(memory)
                turn.set_result(None)
            else:
                return

    def _watch(self) -> None:
        if self._timer is None and self._turns < self._options.max_streams:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.slow_after, self._look, self._given)

    def _look(self, given: int) -> None:
        self._timer = None
        if self._waiting and self._given == given and self._streams >= self._turns:
            self._turns += 1
            self._next()
        if self._waiting:
            self._watch()
