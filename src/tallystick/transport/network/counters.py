"""What has passed, per peer: for metrics, benchmarks and tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from tallystick.transport.network.frames import Reason


@dataclass(slots=True)
class Traffic:
    """Bytes are those of frames, before TLS; ``dropped`` messages were not taken by the line or the peer.

    ``paced`` is how often a peer was read more slowly because it sends too much, ``ungranted`` how many large messages
    it let wait too long, ``busy`` how many of its calls came too soon after the last ones.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    dropped: int = 0
    declined: int = 0
    connections: int = 0
    paced: int = 0
    ungranted: int = 0
    busy: int = 0


class Counters:
    """Counted on the event loop and by senders; read from anywhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: dict[str, Traffic] = {}
        self._ends: dict[Reason, int] = {}
        self.strangers = 0  # streams refused because the certificate is not pinned
        self.sent_away = 0  # sockets closed because too many had not said who they are

    def add(self, peer: str, what: str, count: int = 1) -> None:
        """So many more of one of the counts of ``Traffic``."""
        with self._lock:
            traffic = self._peers.setdefault(peer, Traffic())
            setattr(traffic, what, getattr(traffic, what) + count)

    def ended(self, reason: Reason) -> None:
        with self._lock:
            self._ends[reason] = self._ends.get(reason, 0) + 1

    def peers(self) -> dict[str, Traffic]:
        """A copy of every peer's traffic."""
        return {name: replace(traffic) for name, traffic in list(self._peers.items())}

    def ends(self) -> dict[Reason, int]:
        """How many connections ended for each reason."""
        with self._lock:
            return dict(self._ends)

    def total(self) -> Traffic:
        """The sum over all peers."""
        out = Traffic()
        for traffic in self.peers().values():
            for name in Traffic.__slots__:
                setattr(out, name, getattr(out, name) + getattr(traffic, name))
        return out
