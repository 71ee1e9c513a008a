"""Limits and times of a node, with defaults that hold for institutions on the Internet."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tallystick.core.errors import StudyError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Seconds, bytes and counts; nothing here depends on the size of a study's vectors.

    A node's memory for inbound data is at most ``inbox_bytes`` of small messages, ``memory_bytes`` of large ones
    that no sink takes (or one such message, if it is larger and allowed), and a few chunks for each of
    ``max_streams`` messages under way, however many peers there are.
    """

    message_limit: int = 1 << 20  # of a message assembled in memory, until a study allows more; sinks decide themselves
    inbox_messages: int = 4096
    inbox_bytes: int = 64 << 20
    peer_inbox_messages: int = 256
    memory_bytes: int = 256 << 20
    max_streams: int = 16  # large inbound messages under way at once, over all peers
    fast_streams: int = 4  # of these at first; one more whenever none could begin for ``slow_after``
    slow_after: float = 0.25
    queue_messages: int = 256  # outbound, per peer
    queue_bytes: int = 4 << 20  # outbound small messages, per peer
    queue_large_bytes: int = 64 << 20  # outbound large messages that are in memory, per peer, besides the one under way
    peer_rate: float = 500.0  # frames a second that are read from a peer, other than data; data has grants
    peer_burst: float = 4000.0
    call_rate: float = 1.0  # connections a second that a peer may make
    call_burst: float = 32.0
    send_timeout: float = 30.0
    max_connections: int = 4096  # identified streams at once
    max_sockets: int = 10_000  # sockets at once, identified or not
    half_open: int = 128  # of these not identified yet; twice the number of peers if that is more
    handshake_timeout: float = 10.0  # TLS, and the greeting after it
    heartbeat: float = 10.0
    dead_after: float = 35.0  # nothing heard, although we were listening
    stall_after: float = 60.0  # the peer takes nothing of what we send
    grant_after: float = 300.0  # the peer does not grant a large message: it is given up; the third time, the line
    slow_grace: float = 20.0  # a large message may take this, plus its size at the lowest rate
    lowest_rate: float = 16_384.0  # bytes per second
    first_backoff: float = 0.2
    longest_backoff: float = 30.0
    linger: float = 1.0  # for the last word on a line that is being closed

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise StudyError(f"the network option {field.name} is not positive", remedy="Give a positive number.")
        if self.dead_after <= 2 * self.heartbeat:
            raise StudyError(
                "a connection would be taken for dead between two heartbeats",
                remedy="Make dead_after more than twice heartbeat.",
            )
