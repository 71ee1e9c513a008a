"""A party's place in the network: it may listen, it dials some peers, and it is a link (``transport.link``) to all.

    with Node(credentials, peers, listen="0.0.0.0:7000", dial=["server-2", "aggregator"]) as node:
        node.send("aggregator", raw)
        envelope = node.receive(timeout=1.0)

A party has one line to each peer. When a peer connects again, the new line
replaces the old one (which is most likely dead); if both parties dialled each
other, the line of the one whose name sorts first is kept by both. What was
queued on a line that ended is lost: ``on_connect`` is the moment to inquire.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import nullcontext

from tallystick.core.allowance import Allowances
from tallystick.core.errors import StudyError
from tallystick.transport.link import Envelope
from tallystick.transport.network.admission import Grants, Inbox, SinkFactory
from tallystick.transport.network.background import Workers, background_loop, call
from tallystick.transport.network.connection import Connection
from tallystick.transport.network.counters import Counters
from tallystick.transport.network.credentials import Credentials, Peer, by_fingerprint, split_address
from tallystick.transport.network.dialler import Dialler
from tallystick.transport.network.doorkeeper import Doorkeeper, caller_of
from tallystick.transport.network.frames import End, Reason, Refusal
from tallystick.transport.network.grpc_streams import AcceptedStream, Acceptor
from tallystick.transport.network.options import Options
from tallystick.transport.network.outbound import Buffer, Pace, Piece, message_of

_log = logging.getLogger("tallystick.transport.network")
_LOOK, _LOOK_AGAIN = 0.5, 0.05  # seconds between two looks at the door, and while there is a crowd
_LEAST_SOCKETS = 512


class Node:
    """Start it, send and receive from any thread, stop it.

    Callbacks run on the network's thread: they may ``offer``, never block.
    """

    def __init__(
        self,
        credentials: Credentials,
        peers: Iterable[Peer],
        *,
        listen: str | None = None,
        dial: Iterable[str] = (),
        options: Options | None = None,
        sinks: SinkFactory | None = None,
        on_connect: Callable[[str], object] | None = None,
        on_disconnect: Callable[[str, Reason], object] | None = None,
    ) -> None:
        self.name = credentials.name
        self.options = options or Options()
        self.sinks = sinks
        self.counters = Counters()
        self.grants = Grants(self.options)
        self.pace = Pace()
        self._loop = background_loop()
        self.inbox = Inbox(self.options, self._loop)
        self.makers: Executor = Workers(outgoing=True)
        self.keepers: Executor = Workers()
        self.frames_read = Allowances(rate=self.options.peer_rate, burst=self.options.peer_burst)
        self._calls = Allowances(rate=self.options.call_rate, burst=self.options.call_burst)
        self._credentials = credentials
        self._listen = listen
        self._dial = tuple(dial)
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._peers: dict[str, Peer] = {}
        self._pinned: dict[str, Peer] = {}
        self._limits: dict[str, dict[bytes, int]] = {}  # replaced, never changed: connections read it on their loop
        self._lines: dict[str, Connection] = {}
        self._changed = threading.Condition()
        self._acceptor: Acceptor | None = None
        self._door: Doorkeeper | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._diallers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self.port: int | None = None  # that was bound, once it listens
        if listen is not None:
            split_address(listen)
        self._pin(peers)
        self._check_addresses(self._dial)

    def _check_addresses(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._peers or self._peers[name].address is None:
                raise StudyError(f"{name} is to be dialled and has no address", remedy="Give its address.")

    def _pin(self, peers: Iterable[Peer]) -> None:
        others = [peer for peer in peers if peer.name != self.name]
        pinned = by_fingerprint(others)
        self._peers, self._pinned = {peer.name: peer for peer in others}, pinned

    # For the party

    def start(self) -> Node:
        """Listen, if told to, and begin to dial."""
        call(self._start())
        return self

    def stop(self, grace: float = 5.0) -> None:
        """Send what is queued, for at most ``grace`` seconds, say goodbye, and close every line. Idempotent."""
        if not self._stopping:
            self._stopping = True
            call(self._stop(grace))
            self.inbox.close()
            self.keepers.shutdown(wait=True)
            self.makers.shutdown(wait=True)

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def connected(self) -> set[str]:
        """The peers with a line now."""
        with self._changed:
            return set(self._lines)

    def wait_connected(self, names: Iterable[str], timeout: float) -> bool:
        """Whether all of these have a line, within ``timeout`` seconds."""
        wanted = set(names)
        with self._changed:
            return self._changed.wait_for(lambda: wanted <= set(self._lines), timeout)

    def allow(self, limit: int, peer: str | None = None, *, study: bytes = b"") -> None:
        """Messages up to this many bytes may be assembled in memory, from one peer or from each, for one purpose.

        Studies run side by side: what one of them needs stays allowed when another, with shorter messages, begins.
        """
        self._limits[peer or ""] = {**self._limits.get(peer or "", {}), study: limit}

    def allow_no_more(self, study: bytes) -> None:
        """A study is over: what was allowed for it alone is not any more."""
        for peer, limits in list(self._limits.items()):
            self._limits[peer] = {purpose: limit for purpose, limit in limits.items() if purpose != study}

    def set_peers(self, peers: Iterable[Peer], dial: Iterable[str] | None = None) -> None:
        """Other parties or fingerprints from now on, and other ones to dial if that is given.

        Lines whose certificate is no longer pinned are cut.
        """
        self._pin(peers)
        if dial is not None:
            self._dial = tuple(dial)
            self._check_addresses(self._dial)
            self._loop.call_soon_threadsafe(self._dial_them)
        self._loop.call_soon_threadsafe(self._cut_unpinned)

    def send(self, to: str, raw: Buffer | Iterable[Piece], *, length: int | None = None) -> None:
        """Hand over a message, waiting for room up to ``send_timeout``; without a line it is lost.

        Pieces are made on a worker thread as they are sent; they need the total ``length``, and the first one at
        least 256 bytes of a message that is large. The next is asked for when nothing looks at the last any more.
        """
        self.offer(to, raw, length=length, timeout=self.options.send_timeout)

    def offer(self, to: str, raw: Buffer | Iterable[Piece], *, length: int | None = None, timeout: float = 0.0) -> bool:
        """The same, saying whether it is queued; does not wait by default. A buffer must not change until sent."""
        message = message_of(raw, length)
        with self._changed:
            line = self._lines.get(to)
        on_loop = _on_loop(self._loop)
        done = line is not None and not self._stopping and line.outbound.offer(message, 0.0 if on_loop else timeout)
        self.counters.add(to, "messages_sent" if done else "dropped")
        return done

    def receive(self, timeout: float | None = 0.0) -> Envelope | None:
        """The next message, or None; waits up to ``timeout`` seconds (None: until the node stops)."""
        return self.inbox.get(timeout)

    # For connections, on the event loop

    def limit_of(self, peer: str) -> int:
        limits = self._limits.get(peer) or self._limits.get("")
        return max(limits.values()) if limits else self.options.message_limit

    def attach(self, connection: Connection) -> bool:
        old = self._lines.get(connection.peer)
        if self._stopping:
            return False
        if old is not None:
            ours_first = self.name < connection.peer
            if old.dialled != connection.dialled and connection.dialled != ours_first:
                return False
            old.cut(Reason.REPLACED, "a newer connection of the same party took its place")
        with self._changed:
            self._lines[connection.peer] = connection
            self._changed.notify_all()
        self.counters.add(connection.peer, "connections")
        if old is None:
            _log.info("connected with %s", connection.peer)
        _tell(self._on_connect, connection.peer)
        return True

    def detach(self, connection: Connection, end: End) -> None:
        with self._changed:
            current = self._lines.get(connection.peer) is connection
            if current:
                del self._lines[connection.peer]
                self._changed.notify_all()
        if current:
            _log.info("disconnected from %s: %s, %s", connection.peer, end.reason.name, end.text)
            _tell(self._on_disconnect, connection.peer, end.reason)

    # Inner works, on the event loop

    async def _start(self) -> None:
        if self._listen is not None:
            self._acceptor = Acceptor(self._serve)
            half_open = max(self.options.half_open, 2 * len(self._peers))
            sockets = min(self.options.max_sockets, max(_LEAST_SOCKETS, 2 * half_open) + 2 * len(self._peers))
            try:
                self.port = await self._acceptor.start(self._credentials, self._listen, self.options, sockets=sockets)
            except RuntimeError as error:
                raise StudyError(
                    f"cannot listen at {self._listen}", party=self.name, remedy="Choose a free address of this machine."
                ) from error
            self._door = Doorkeeper(self.port, half_open)
            self._tasks.append(asyncio.create_task(self._watch_door(self._door)))
        self._dial_them()
        self._tasks.append(asyncio.create_task(self._watch()))

    def _dial_them(self) -> None:
        """Keep a line to each of those that are to be dialled, and to nobody else."""
        for name in [name for name in self._diallers if name not in self._dial]:
            self._diallers.pop(name).cancel()
        for name in self._dial:
            if name not in self._diallers and not self._stopping:
                dialler = Dialler(self._credentials, name, lambda n: self._peers.get(n), self)
                self._diallers[name] = self._loop.create_task(dialler.run())

    async def _stop(self, grace: float) -> None:
        until = time.monotonic() + grace
        while time.monotonic() < until and not all(line.outbound.idle() for line in self._lines.values()):
            await asyncio.sleep(0.01)
        for line in list(self._lines.values()):
            line.cut(Reason.STOPPED, "the party stops")
        until = time.monotonic() + 2 * self.options.linger
        while self._lines and time.monotonic() < until:
            await asyncio.sleep(0.01)
        tasks = [*self._tasks, *self._diallers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._acceptor is not None:
            await self._acceptor.stop()

    async def _serve(self, stream: AcceptedStream) -> tuple[Reason, str]:
        try:
            shown = stream.caller()
            peer = self._pinned.get(shown)
            if peer is None:
                raise Refusal(Reason.REFUSED, f"certificate {shown} is not pinned")
            if self._stopping:
                raise Refusal(Reason.STOPPED, "the party stops")
            if not self._calls.take(peer.name, time.monotonic()):
                self.counters.add(peer.name, "busy")
                raise Refusal(Reason.BUSY, f"{peer.name} calls too often")
        except Refusal as refusal:
            self.counters.strangers += refusal.reason is Reason.REFUSED
            self.counters.ended(refusal.reason)
            _log.warning("a caller was refused: %s", refusal.text, extra={"member": "a caller"})
            return refusal.reason, refusal.text
        connection = Connection(peer.name, stream, self, dialled=False)
        connection.fingerprint = shown
        with self._door.inside(caller_of(stream.place())) if self._door is not None else nullcontext():
            end = await connection.run()
        self.counters.ended(end.reason)
        return (Reason.LOST, end.text) if end.theirs else (end.reason, end.text)

    async def _watch(self) -> None:
        options = self.options
        often = min(1.0, options.heartbeat / 4, options.dead_after / 4, options.stall_after / 4, options.slow_grace / 4)
        while True:
            await asyncio.sleep(often)
            now = time.monotonic()
            for line in list(self._lines.values()):
                line.check(now)

    async def _watch_door(self, door: Doorkeeper) -> None:
        while True:
            gone = door.look(time.monotonic())
            self.counters.sent_away += gone
            if gone:
                said = "%d callers that did not say who they are were sent away"
                _log.warning(said, gone, extra={"member": "a caller"})
            await asyncio.sleep(_LOOK_AGAIN if gone else _LOOK)

    def _cut_unpinned(self) -> None:
        for line in list(self._lines.values()):
            peer = self._pinned.get(line.fingerprint)
            if peer is None or peer.name != line.peer:
                line.cut(Reason.REFUSED, "the certificate is no longer pinned")


def _on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _tell(callback: Callable[..., object] | None, *arguments: object) -> None:
    if callback is not None:
        try:
            callback(*arguments)
        except Exception:
            _log.exception("a callback failed")
