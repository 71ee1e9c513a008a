"""A network in memory: lossless and in order by default, or faulty by a seeded schedule.

All faults come from one ``WordSource``, so a run is a function of its seed:
each message may be dropped, doubled, or delayed by a random time (which
reorders), and pairs of parties may be cut off from each other. Time is the
caller's: ``send`` is told ``now``, and ``next_at`` says when there is something
to deliver.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.transport.link import Envelope

__all__ = ["Faults", "MemoryLink", "MemoryNetwork"]


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How badly the network behaves: probabilities per message, and the longest delay in seconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    longest_delay: float = 1.0

    def __post_init__(self) -> None:
        if not all(0 <= p <= 1 for p in (self.drop, self.duplicate, self.delay)) or self.longest_delay < 0:
            raise StudyError("a fault probability is not between 0 and 1", remedy="Give probabilities.")


class MemoryNetwork:
    """Messages under way, ordered by time of arrival and then by time of sending."""

    def __init__(self, faults: Faults | None = None, source: WordSource | None = None) -> None:
        if faults is not None and source is None:
            raise StudyError("a faulty network needs a source of faults", remedy="Pass a seeded stream.")
        self._faults = faults
        self._source = source
        self._heap: list[tuple[float, int, Envelope]] = []
        self._count = 0
        self._cut: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def partition(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Nothing passes between these parties, either way, until :meth:`heal`."""
        others = tuple(other)
        for a in one:
            for b in others:
                self._cut.update(((a, b), (b, a)))

    def heal(self) -> None:
        """End every partition; what was lost stays lost."""
        self._cut.clear()

    def send(self, sender: str, to: str, raw: bytes, now: float) -> None:
        """Put a message under way, as many times and as late as the faults have it."""
        if (sender, to) in self._cut:
            return
        faults, source = self._faults, self._source
        if faults is None or source is None:
            self._push(now, Envelope(sender, to, raw))
            return
        words = source.words(5)
        chance = [float(word >> 11) * 2.0**-53 for word in words.tolist()]
        if chance[0] < faults.drop:
            return
        for copy in range(2 if chance[1] < faults.duplicate else 1):
            late = faults.longest_delay * chance[3 + copy] if chance[2] < faults.delay or copy else 0.0
            self._push(now + late, Envelope(sender, to, raw))

    def _push(self, at: float, envelope: Envelope) -> None:
        heapq.heappush(self._heap, (at, self._count, envelope))
        self._count += 1

    def next_at(self) -> float | None:
        """When the next message arrives."""
        return self._heap[0][0] if self._heap else None

    def deliver(self, now: float) -> Envelope | None:
        """The next message that has arrived by now; one cut off meanwhile is lost."""
        while self._heap and self._heap[0][0] <= now:
            envelope = heapq.heappop(self._heap)[2]
            if (envelope.sender, envelope.to) not in self._cut:
                return envelope
        return None


class MemoryLink:
    """One party's end of a lossless in-memory transport (see ``link``)."""

    def __init__(self, name: str, inboxes: dict[str, deque[Envelope]]) -> None:
        self._name = name
        self._inboxes = inboxes
        inboxes.setdefault(name, deque())

    @property
    def name(self) -> str:
        return self._name

    def send(self, to: str, raw: bytes) -> None:
        inbox = self._inboxes.get(to)
        if inbox is not None:
            inbox.append(Envelope(self._name, to, raw))

    def receive(self) -> Envelope | None:
        inbox = self._inboxes[self._name]
        return inbox.popleft() if inbox else None
