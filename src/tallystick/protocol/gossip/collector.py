"""The collector: it has no records, gathers everybody's, and ends the exchanges when everybody holds everything.

It is run by one of the peers and learns nothing that every peer does not: perturbed records are what is published. It
counts the publications of peers that are vouched for (charged, countersigned, attested: the driver says which), waits
until the peers that are there hold them too, at most until the deadline, and ends with whose records there are.

Where models walk, it waits for the study's cycles besides, is told their models by some of the peers in each of its
cycles, and keeps the median of the last one of each peer that counts, before it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from tallystick.core.errors import TooFewParties
from tallystick.core.randomness import WordSource
from tallystick.protocol.gossip.codec import encode
from tallystick.protocol.gossip.member import GossipMember
from tallystick.protocol.gossip.messages import Code, Walk
from tallystick.protocol.gossip.newscast import uniform
from tallystick.protocol.gossip.parameters import GossipParameters
from tallystick.protocol.gossip.walks import MOST_AGE, Gathered, Model
from tallystick.protocol.instructions import Finished, Held, NoisySum, Persist, Wake

OPENED = "gossip/opened"
WALKED = "gossip/walked"
PART = 8  # of the peers, asked in one cycle


class CollectorState(Enum):
    """Whether it gathers."""

    IDLE = "idle"
    GATHERING = "gathering"
    ENDED = "ended"


class CollectorEvent(Enum):
    """What moves a collector."""

    OPENED = "opened"
    COMPLETE = "everything is everywhere, or the time is over"


class CollectorMachine(GossipMember):
    """Who says when it ends."""

    TRANSITIONS = {  # noqa: RUF012 - a table
        (CollectorState.IDLE, CollectorEvent.OPENED): CollectorState.GATHERING,
        (CollectorState.GATHERING, CollectorEvent.COMPLETE): CollectorState.ENDED,
    }

    def __init__(
        self, parameters: GossipParameters, name: str, records: Mapping[str, bytes], *, source: WordSource
    ) -> None:
        super().__init__(parameters, name, CollectorState.IDLE, source, records)
        self._deadline = 0.0
        self._vouched: set[int] = set()
        self._settled: dict[int, bytes] = {}
        self.round = 1 if OPENED in records else 0
        self.gathered = None if parameters.models is None else Gathered(parameters.models)
        self._asked = dict.fromkeys(range(len(parameters.peers)), 0)
        self._cycles = 0
        self._handlers[Walk] = self._walked

    def open(self, now: float) -> list[Any]:
        """Begin to gather, or go on after a restart; the time begins anew."""
        self._move(CollectorEvent.OPENED)
        self.round, self._next = 1, now
        self._deadline, self._cycles = now + self.parameters.round_seconds, 0
        return [Persist(OPENED, b"1"), Wake(now)]

    def vouch(self, peers: Iterable[str]) -> None:
        """These peers' charges and attestations are seen."""
        self._vouched |= {self.parameters.peers.index(name) for name in peers}

    @property
    def unvouched(self) -> tuple[str, ...]:
        """Peers whose records are held and not vouched for yet."""
        return tuple(self.parameters.peers[i] for i in sorted(self.publications.held - self._vouched))

    def tick(self, now: float) -> list[Any]:
        """A cycle, and the end if it has come."""
        if self.state is not CollectorState.GATHERING:
            return []
        return [*super().tick(now), *self._try_end(now)]

    def heard_offer(self, sender: str, held: frozenset[int], root: bytes, now: float) -> list[Any]:
        """What a peer holds, it tells in its offers."""
        if sender != self.parameters.collector:
            self._settled[self.parameters.peers.index(sender)] = root
        return self._try_end(now)

    def progressed(self, now: float) -> list[Any]:
        """More is held."""
        return self._try_end(now)

    def behind(self) -> tuple[str, ...]:
        """Peers that, as far as is known, do not hold what is held here."""
        books = self.publications
        return tuple(
            name
            for i, name in enumerate(self.parameters.peers)
            if i not in books.convicted and self._settled.get(i) != books.root
        )

    def _partners(self) -> list[int]:
        """Some of those who are behind, and of whom nothing is known: it hears of everybody within some cycles."""
        found = super()._partners()
        waiting = [self.parameters.peers.index(name) for name in self.behind()]
        for _ in range(min(len(waiting), max(1, len(self.parameters.peers) // PART))):
            found.append(uniform(self._source, waiting))
            waiting.remove(found[-1])
        if self.gathered is not None:  # those that were asked for their model longest ago
            longest = sorted(self._asked, key=lambda peer: (peer in found, self._asked[peer], peer))
            found += longest[: max(1, len(longest) // PART)]
        self._cycles += 1
        self._asked |= dict.fromkeys(found, self._cycles)
        return list(dict.fromkeys(found))

    def _walked(self, sender: str, message: Walk, now: float) -> list[Any]:
        if self.gathered is None or sender not in self.parameters.peers:
            return self._refuse(sender, message, Code.NOT_EXPECTED, "no models travel in this study")
        why = self.gathered.take(self.parameters.peers.index(sender), Model(message.age, message.weights))
        return self._try_end(now) if why is None else self._refuse(sender, message, Code.BAD_MODEL, why)

    def _complete(self) -> bool:
        """Whether all that there can be is here, and the peers have all of it."""
        books = self.publications
        everything = len(books.held) + len(books.convicted) == len(self.parameters.peers)
        if not everything or not books.held <= self._vouched or self.behind():
            return False
        walked = self._cycles >= self.parameters.cycles
        return self.gathered is None or (walked and self.gathered.of(books.held) == books.held)

    def _try_end(self, now: float) -> list[Any]:
        if self.state is not CollectorState.GATHERING:
            return []
        books, names = self.publications, self.parameters.peers
        if not self._complete() and now < self._deadline:
            return []
        self._move(CollectorEvent.COMPLETE)
        inside = sorted(books.held & self._vouched)
        participants = tuple([names[i] for i in inside])
        dropped = tuple([name for i, name in enumerate(names) if i not in inside])
        if len(inside) < self.parameters.min_peers:
            error = TooFewParties(
                f"records of {len(inside)} peers came, {self.parameters.min_peers} are needed",
                rule="too-few-clients",
                round=1,
                remedy="What was charged stays charged. Start the peers that are missing, then go on with the study.",
            )
            return [Held(error)]  # what is published stays: it goes on when they are back
        kept: list[Any] = []
        if self.gathered is not None:
            told = len(self.gathered.of(inside))
            if told < self.parameters.min_peers:
                error = TooFewParties(
                    f"models of {told} peers came, {self.parameters.min_peers} are needed",
                    rule="too-few-clients",
                    round=1,
                    remedy="What was charged stays charged. Go on with the study when the peers can be reached.",
                )
                return [Held(error)]
            weights = self.gathered.median(inside)
            kept = [Persist(WALKED, encode(Walk(study_hash=self.study_hash, age=MOST_AGE, weights=weights)))]
        # The records themselves are kept, each where it came in; what is counted is whose they are.
        return [*kept, Finished(NoisySum(round=1, total=np.array(inside), participants=participants, dropped=dropped))]
