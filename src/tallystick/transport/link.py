"""What a transport is to the protocols: addressed bytes in, addressed bytes out.

A transport authenticates the sender (``sender`` below is who it really was),
keeps message boundaries, and promises nothing else: messages may be lost,
late, doubled or out of order, and the machines cope. Every transport passes
the contract suite in ``tests/transport``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message on its way; ``sender`` is authenticated by the transport."""

    sender: str
    to: str
    raw: bytes = field(repr=False)


class Link(Protocol):
    """One party's end of a transport."""

    @property
    def name(self) -> str:
        """Who is at this end."""
        ...

    def send(self, to: str, raw: bytes) -> None:
        """Hand over a message; returning does not mean it arrived."""
        ...

    def receive(self) -> Envelope | None:
        """The next message that is there for this party, or None."""
        ...
