"""One stream between this node and a peer, whoever dialled: greeting, reading, writing, and the end.

A reader and a writer task share the stream. The reader stops reading while
the inbox is full or a disk is slow, which holds the peer back by gRPC's flow
control; times during which it was we who did not read never count against
the peer. The node's watchdog calls :meth:`Connection.check` to cut lines that
are dead, stalled or slower than the lowest rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tallystick.core.errors import LocalProtocolError
from tallystick.transport.link import Envelope
from tallystick.transport.network.admission import Unwanted
from tallystick.transport.network.frames import (
    ABANDON,
    GREETING,
    HEADER_BYTES,
    End,
    FrameError,
    Kind,
    Reason,
    State,
    Stream,
    close_frame,
    decline_frame,
    frame,
    parse,
    parse_close,
    parse_decline,
    parse_open,
)
from tallystick.transport.network.incoming import IncomingMessage, StorageError
from tallystick.transport.network.outbound import FIRST_STEP, Outbound, Piece

if TYPE_CHECKING:
    from tallystick.transport.network.node import Node

_log = logging.getLogger("tallystick.transport.network")
UNGRANTED = 3  # so many large messages in a row that were never granted, and the line is cut


class Connection:
    """A line to ``peer``; :meth:`run` is its whole life."""

    def __init__(self, peer: str, stream: Stream, node: Node, *, dialled: bool) -> None:
        self.peer = peer
        self.dialled = dialled
        self.fingerprint = ""
        self.state = State.GREETING
        step = node.pace.begin(peer) if dialled else FIRST_STEP
        self.outbound = Outbound(node.options, asyncio.get_running_loop(), step)
        self._stream = stream
        self._node = node
        self._incoming: IncomingMessage | None = None
        self._admitting: asyncio.Task[None] | None = None
        self._declined = 0
        self._last_ident = 0
        self._reading_since: float | None = None
        self._writing_since: float | None = None
        self._written_at = time.monotonic()
        self._beat = False
        self._ungranted = 0
        self._cut: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._farewell = False
        self._ahead: tuple[Iterator[Piece], Future[Piece | None]] | None = None

    def cut(self, reason: Reason, text: str) -> None:
        """End the connection and tell the peer why; on the event loop."""
        if not self._cut.done():
            self._cut.set_result(End(reason, text))

    async def run(self) -> End:
        """Greet, carry messages until the line ends, clean up; never raises."""
        try:
            end = await self._greet()
            if end is None and not self._node.attach(self):
                end = End(Reason.REPLACED, "another connection of the same parties is kept")
            if end is not None:
                await self._say_last(end)
                return end
        finally:
            if self.state is not State.OPEN:
                self.state = State.CLOSED
                self.outbound.close()
        try:
            end = await self._carry()
        except asyncio.CancelledError:
            end = End(Reason.LOST, "the stream was cancelled")
            raise
        finally:
            self.state = State.CLOSED
            self.outbound.close()
            self._node.pace.broke(self.peer)
            if self._admitting is not None:
                self._admitting.cancel()
            if self._incoming is not None:
                self._incoming.discard()
                self._incoming = None
            self._node.detach(self, end or End(Reason.LOST, "failed"))
        return end

    async def _greet(self) -> End | None:
        try:
            async with asyncio.timeout(self._node.options.handshake_timeout):
                if not await self._stream.write(frame(Kind.HELLO, 0, GREETING)):
                    return End(Reason.LOST, "the connection broke before the greeting")
                raw = await self._stream.read()
        except TimeoutError:
            return End(Reason.SLOW, "no greeting in time")
        if raw is None:
            return End(Reason.LOST, "the connection broke before the greeting")
        try:
            kind, _, _ = parse(raw)
            if kind == Kind.CLOSE:
                reason, text = parse_close(raw)
                return End(reason, text, theirs=True)
            if kind != Kind.HELLO:
                return End(Reason.MALFORMED, "the first frame is not a greeting")
        except FrameError as error:
            return End(error.reason, error.text)
        if raw[HEADER_BYTES:] != GREETING:
            theirs = ascii(raw[HEADER_BYTES:].decode("latin-1"))
            return End(Reason.VERSION, f"the peer speaks {theirs}, we speak {GREETING.decode()!r}")
        self.state = State.OPEN
        return None

    async def _carry(self) -> End:
        reader = asyncio.create_task(self._read_all())
        writer = asyncio.create_task(self._write_all())
        try:
            first: set[asyncio.Future[Any]] = {reader, writer, self._cut}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if self._cut.done():
                end = self._cut.result()
            elif reader.done():
                end = reader.result()
            else:
                writer.result()
                await asyncio.wait({reader}, timeout=self._node.options.linger)  # it may know why
                end = reader.result() if reader.done() else End(Reason.LOST, "the connection broke")
            if not end.theirs and end.reason is not Reason.LOST and not writer.done():
                self._farewell = True
                self.outbound.close()
                self.outbound.control(close_frame(end.reason, end.text))
                until = time.monotonic() + self._node.options.linger
                await asyncio.wait({writer}, timeout=self._node.options.linger)
                # What is written is not yet read: a call that is cancelled now would take it back from the peer.
                await asyncio.wait({reader}, timeout=max(0.0, until - time.monotonic()))
            return end
        except Exception:
            _log.exception("the connection with %s failed", self.peer)
            return End(Reason.LOST, "an error in this node")
        finally:
            for task in (reader, writer):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _say_last(self, end: End) -> None:
        if end.theirs or end.reason is Reason.LOST:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._node.options.linger):
                await self._stream.write(close_frame(end.reason, end.text))

    # Reading

    async def _read_all(self) -> End:
        counters = self._node.counters
        raw: bytes | None
        try:
            while True:
                self._reading_since = time.monotonic()
                raw = None  # an idle line holds no chunk
                raw = await self._stream.read()
                self._reading_since = None
                if raw is None:
                    return End(Reason.LOST, "the connection broke")
                counters.add(self.peer, "bytes_received", len(raw))
                kind, flags, ident = parse(raw)
                if kind != Kind.DATA and not self._node.frames_read.take(self.peer, time.monotonic()):
                    counters.add(self.peer, "paced")  # nothing is lost: what is not read yet holds its sender back
                    await asyncio.sleep(self._node.frames_read.wait(self.peer, time.monotonic()))
                if kind == Kind.DATA:
                    started = time.monotonic()
                    await self._on_data(raw, flags, ident)
                    if self._incoming is not None and self._incoming.granted_at is not None:
                        self._incoming.granted_at += time.monotonic() - started  # our time, not the peer's
                elif kind == Kind.SMALL:
                    self._next_ident(ident)
                    await self._node.inbox.put(Envelope(self.peer, self._node.name, raw[HEADER_BYTES:]))
                    counters.add(self.peer, "messages_received")
                elif kind == Kind.OPEN:
                    self._on_open(raw, ident)
                elif kind == Kind.GRANT:
                    if self.outbound.granted(ident):
                        self._ungranted = 0
                    elif ident == 0:
                        raise FrameError(Reason.MALFORMED, "a grant for nothing")
                elif kind == Kind.DECLINE:
                    reason = parse_decline(raw)
                    if not self.outbound.refused(ident):
                        raise FrameError(Reason.MALFORMED, "a message was declined that was never announced")
                    counters.add(self.peer, "dropped")
                    _log.warning("%s did not take a message: %s", self.peer, reason.name, extra={"member": self.peer})
                elif kind == Kind.CLOSE:
                    reason, text = parse_close(raw)
                    return End(reason, text, theirs=True)
                elif kind == Kind.HELLO:
                    raise FrameError(Reason.MALFORMED, "a second greeting")
        except FrameError as error:
            return End(error.reason, error.text)

    def _next_ident(self, ident: int) -> None:
        self._last_ident += 1
        if ident != self._last_ident:
            raise FrameError(Reason.MALFORMED, "message ids do not count up")

    def _on_open(self, raw: bytes, ident: int) -> None:
        self._next_ident(ident)
        if self._incoming is not None:
            raise FrameError(Reason.MALFORMED, "a second large message was announced before the first ended")
        length, head = parse_open(raw)
        node, sink = self._node, None
        try:
            if node.sinks is not None:
                sink = node.sinks(self.peer, length, head)  # touches no disk: the first write does, on a worker
        except Unwanted:
            self._decline(ident, Reason.REFUSED)
            return
        except Exception:
            _log.exception("a message from %s could not be stored", self.peer)
            self._decline(ident, Reason.STORAGE)
            return
        if sink is None and length > node.limit_of(self.peer):
            self._decline(ident, Reason.TOO_LARGE)
            return
        self._incoming = IncomingMessage(ident, length, sink, node.grants, node.keepers)
        self._admitting = asyncio.create_task(self._grant(self._incoming))

    async def _grant(self, incoming: IncomingMessage) -> None:
        await incoming.admit()
        incoming.granted_at = time.monotonic()
        if self._incoming is not incoming or self.state is not State.OPEN:
            incoming.discard()
            return
        self.outbound.control(frame(Kind.GRANT, incoming.ident))

    def _decline(self, ident: int, reason: Reason) -> None:
        self._declined = ident
        self._node.counters.add(self.peer, "declined")
        _log.warning("a message from %s was not taken: %s", self.peer, reason.name, extra={"member": self.peer})
        self.outbound.control(decline_frame(ident, reason))

    async def _on_data(self, raw: bytes, flags: int, ident: int) -> None:
        incoming = self._incoming
        if incoming is None or incoming.ident != ident:
            if ident == self._declined and ident:
                return  # was under way when we declined
            raise FrameError(Reason.MALFORMED, "data of a message that was not announced")
        if flags & ABANDON:
            if self._admitting is not None:
                self._admitting.cancel()
            self._incoming = None
            incoming.discard()
            return
        if incoming.granted_at is None:
            raise FrameError(Reason.MALFORMED, "data of a message that was not granted")
        try:
            if not await incoming.take(raw, flags):
                return
            whole, charge = await incoming.finish()
        except StorageError as error:
            self._incoming = None
            incoming.discard()
            if isinstance(error.__cause__, Unwanted):  # it has changed its mind: that is no fault of a disk
                self._decline(ident, Reason.REFUSED)
                return
            _log.error("a message from %s could not be stored: %s", self.peer, error)
            self._decline(ident, Reason.STORAGE)
            return
        self._incoming = None
        self._node.counters.add(self.peer, "messages_received")
        if whole is not None:
            grants = self._node.grants
            taken = (lambda: grants.release(charge)) if charge else None
            self._node.inbox.put_now(Envelope(self.peer, self._node.name, whole), taken)

    # Writing

    async def _write_all(self) -> None:
        outbound, stream, counters = self.outbound, self._stream, self._node.counters
        while True:
            outbound.wake.clear()
            raw = None  # an idle line holds no chunk
            raw = outbound.draw()
            if raw is None and (source := outbound.wants_piece()) is not None:
                raw = await self._make_piece(source)
                if raw is None:
                    continue
            if raw is None:
                if not self._beat:
                    await outbound.wake.wait()
                    continue
                raw = frame(Kind.BEAT)
            self._beat = False
            self._make_ahead()
            self._writing_since = started = time.monotonic()
            if not await stream.write(raw):
                return
            self._writing_since, self._written_at = None, time.monotonic()
            if outbound.paced(len(raw), self._written_at - started) and self.dialled:
                self._node.pace.learned(self.peer, outbound.step)
            counters.add(self.peer, "bytes_sent", len(raw))
            if self._farewell and outbound.idle():
                return

    def _make_ahead(self) -> None:
        """While a chunk is on its way, a worker makes the next: ready when it is wanted, nobody wakes the loop."""
        source = self.outbound.wants_piece()
        if source is not None and (self._ahead is None or self._ahead[0] is not source):
            self._ahead = source, self._node.makers.submit(next, source, None)

    async def _make_piece(self, source: Iterator[Piece]) -> bytes | None:
        self._make_ahead()
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is None or ahead[0] is not source:
                return None  # cannot be: it was just begun
            raw = ahead[1].result() if ahead[1].done() else await asyncio.wrap_future(ahead[1])
            return self.outbound.piece(source, raw)
        except LocalProtocolError as error:
            _log.error("a message to %s was not sent: %s", self.peer, error)
            return None
        except Exception:
            _log.exception("a message to %s was not sent", self.peer)
            return self.outbound.abandon()

    # Watching

    def check(self, now: float) -> None:
        """Cut the line if the peer is silent, takes nothing, or sends a message too slowly; say that we live."""
        options = self._node.options
        if self._writing_since is None and now - self._written_at >= options.heartbeat:
            self._beat = True
            self.outbound.wake.set()
        reading, writing, incoming = self._reading_since, self._writing_since, self._incoming
        if reading is not None and now - reading > options.dead_after:
            self.cut(Reason.SILENT, "nothing was heard for too long")
        elif writing is not None and now - writing > options.stall_after:
            self.cut(Reason.SLOW, "nothing was taken for too long")
        elif reading is not None and incoming is not None and incoming.is_slow(now, options):
            self.cut(Reason.SLOW, "a message came in below the lowest rate")
        elif self.outbound.waits_for_grant(now) > options.grant_after:
            self._give_up()

    def _give_up(self) -> None:
        """The peer does not grant a large message: it must not wait for ever, nor must what comes after it."""
        told = self.outbound.abandon()
        if told is not None:
            self.outbound.control(told)
        self._ungranted += 1
        self._node.counters.add(self.peer, "ungranted")
        self._node.counters.add(self.peer, "dropped")
        _log.warning("%s lets a large message wait; it was given up", self.peer, extra={"member": self.peer})
        if self._ungranted >= UNGRANTED:
            self.cut(Reason.SLOW, "large messages were not granted for too long")
