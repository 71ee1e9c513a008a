"""The life of a line between two nodes: its states, why it ended, and the raw stream it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tallystick.transport.network.frames import Reason


class State(Enum):
    """Where a connection is in its life."""

    GREETING = "greeting"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class End:
    """Why a connection is over; ``theirs`` if it was the peer who said so."""

    reason: Reason
    text: str
    theirs: bool = False


class Stream(Protocol):
    """A gRPC stream of raw messages, either side's; reading returns None at its end or when it breaks."""

    async def read(self) -> bytes | None: ...

    async def write(self, raw: bytes) -> bool: ...
