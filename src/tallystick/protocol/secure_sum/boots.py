"""Which start of a server others have met (:mod:`tallystick.protocol.boots`), among the servers of a secure sum."""

from __future__ import annotations

from tallystick.protocol import boots
from tallystick.protocol.boots import BootBook, MemoryBoots
from tallystick.protocol.secure_sum.messages import Agreement, Code
from tallystick.protocol.secure_sum.parameters import SumParameters

__all__ = ["BootBook", "MemoryBoots", "SeenBoots", "dispute"]


class SeenBoots(boots.SeenBoots):
    """One machine's view of the servers of its study."""

    def __init__(self, parameters: SumParameters, book: BootBook) -> None:
        super().__init__(parameters.server_keys, book)


def dispute(one: Agreement, other: Agreement, servers: tuple[str, ...]) -> tuple[Code, str, str]:
    """What two unequal agreements disagree on, and at which server that lies."""
    parties = servers[one.server], servers[other.server]
    for server, mine, theirs in zip(servers, one.starts, other.starts):
        if mine != theirs:
            cause = f"{parties[0]} and {parties[1]} were told of different starts of {server}"
            return Code.STALE_SERVER, server, cause
    return Code.SET_DISAGREEMENT, parties[1], "the servers signed different sets of clients"
