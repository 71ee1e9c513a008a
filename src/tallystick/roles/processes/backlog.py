"""Messages for peers whose lines are full: they wait here, and the loop does not wait with them.

One thread moves them on as room appears, and exists only while something waits. What waits is bounded for each peer, in
number, in bytes and in time; a peer that takes nothing costs what is meant for it, and nothing of anybody else's.
What is passed on for others is bounded apart from this party's own words, and has a share for each sender: nobody who
speaks to a peer by way of this party can take the room of the others, or of this party.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tallystick.transport.network.frames import SMALL_BYTES

MESSAGES, BYTES = 1024, 16 << 20  # for one peer
SHARES = 4  # of that, for each sender whose messages are passed on to it
SECONDS = 30.0  # for one message, as long as the protocol's own patience
_NAP = 0.005

Offer = Callable[[str, Any, int | None], bool]
"""(to, message, length) -> whether the line has taken it; never waits."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    until: float
    raw: Any
    length: int | None
    of: str | None

    @property
    def size(self) -> int:
        """What it takes in memory: a message that is made as it is sent takes none yet."""
        return len(self.raw) if isinstance(self.raw, (bytes, bytearray, memoryview)) else 0


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
        self._waiting: dict[str, deque[_Waiting]] = {}  # none is empty
        self._moving = False

    def send(self, to: str, raw: Any, length: int | None = None, *, of: str | None = None) -> bool:
        """Hand over in order: at once if the line has room, later if it has not, never if there is no line.

        ``of``: whose message it is, if it is passed on. False if there is no room for it to wait; of this party's own
        messages ``lost`` is told as well.
        """
        if length is not None and length <= SMALL_BYTES and not isinstance(raw, (bytes, bytearray, memoryview)):
            raw, length = b"".join([bytes(piece) for piece in raw]), None  # pieces can be taken once, and it may wait
        with self._lock:
            behind = to in self._waiting
        if not behind and (self._offer(to, raw, length) or to not in self._connected()):
            return True
        later = _Waiting(self._now() + SECONDS, raw, length, of)
        with self._lock:
            room = _has_room(self._waiting.get(to, ()), later)
            if room:
                self._waiting.setdefault(to, deque()).append(later)
                start, self._moving = not self._moving, True
        if not room and of is None:
            self._lost(to)
        elif room and start:
            threading.Thread(target=self._run, name="backlog", daemon=True).start()
        return room

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
                    first = own[0]
                late = peer not in there or self._now() > first.until
                if not late and not self._offer(peer, first.raw, first.length):
                    break
                with self._lock:
                    own.popleft()
                    if not own:
                        del self._waiting[peer]
                moved = True
                if late and peer in there:
                    self._lost(peer)
        return moved


def _has_room(waiting: Iterable[_Waiting], more: _Waiting) -> bool:
    """Whether this party's own words, or all that is passed on and this sender's share of it, stay within bounds."""
    alike = [one for one in waiting if (one.of is None) == (more.of is None)]
    share = [one for one in alike if one.of == more.of]
    parts = 1 if more.of is None else SHARES
    return _fits(alike, more, MESSAGES, BYTES) and _fits(share, more, MESSAGES // parts, BYTES // parts)


def _fits(waiting: list[_Waiting], more: _Waiting, messages: int, size: int) -> bool:
    """One message, however long, always does."""
    return not waiting or (len(waiting) < messages and sum(one.size for one in waiting) + more.size <= size)
