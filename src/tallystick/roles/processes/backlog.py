"""Messages for peers whose lines are full: they wait here, and the loop does not wait with them.

One thread moves them on as room appears, and exists only while something waits. What waits is bounded for each peer, in
number, in bytes and in time; a peer that takes nothing costs what is meant for it, and nothing of anybody else's.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tallystick.transport.network.frames import SMALL_BYTES

MESSAGES, BYTES = 1024, 16 << 20  # for one peer
SECONDS = 30.0  # for one message, as long as the protocol's own patience
_NAP = 0.005

Offer = Callable[[str, Any, int | None], bool]
"""(to, message, length) -> whether the line has taken it; never waits."""


class Backlog:
    """Any thread may use it. ``lost`` is told of each message that was given up: (peer)."""

    def __init__(
        self,
        offer: Offer,
        lost: Callable[[str], None],
        connected: Callable[[], set[str]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offer, self._lost, self._connected, self._now = offer, lost, connected, now
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[float, Any, int | None]]] = {}  # none is empty
        self._bytes: dict[str, int] = {}
        self._moving = False

    def send(self, to: str, raw: Any, length: int | None = None) -> None:
        """Hand over in order: at once if the line has room, later if it has not, never if there is no line."""
        if length is not None and length <= SMALL_BYTES and not isinstance(raw, (bytes, bytearray, memoryview)):
            raw, length = b"".join([bytes(piece) for piece in raw]), None  # pieces can be taken once, and it may wait
        with self._lock:
            behind = to in self._waiting
        if not behind and (self._offer(to, raw, length) or to not in self._connected()):
            return
        size = _size(raw)
        with self._lock:
            own = self._waiting.setdefault(to, deque())
            held = self._bytes.get(to, 0)
            if len(own) >= MESSAGES or (own and held + size > BYTES):
                lost = True
            else:
                own.append((self._now() + SECONDS, raw, length))
                self._bytes[to] = held + size
                lost, start = False, not self._moving
                self._moving = True
        if lost:
            self._lost(to)
        elif start:
            threading.Thread(target=self._run, name="backlog", daemon=True).start()

    def _run(self) -> None:
        while True:
            moved = self.move()
            with self._lock:
                if not self._waiting:
                    self._moving = False
                    return
            if not moved:
                time.sleep(_NAP)

    def move(self) -> bool:
        """Give every line what it takes now; whether any took something."""
        moved = False
        with self._lock:
            peers = list(self._waiting)
        there = self._connected()
        for peer in peers:
            while True:
                with self._lock:
                    own = self._waiting.get(peer)
                    if not own:
                        break
                    until, raw, length = own[0]
                late = peer not in there or self._now() > until
                if not late and not self._offer(peer, raw, length):
                    break
                with self._lock:
                    own.popleft()
                    self._bytes[peer] -= _size(raw)
                    if not own:
                        del self._waiting[peer], self._bytes[peer]
                moved = True
                if late and peer in there:
                    self._lost(peer)
        return moved


def _size(raw: Any) -> int:
    """What it takes in memory: a message that is made as it is sent takes none yet."""
    return len(raw) if isinstance(raw, (bytes, bytearray, memoryview)) else 0
