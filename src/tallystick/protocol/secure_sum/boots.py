"""Which start of a server others have met, and when a server is an old copy of itself.

THEORY. A server whose disk was set back to an earlier state (a backup, a snapshot, a cloned machine) has forgotten what
it released and would draw noise anew for a round it has answered: two partial sums with independent noise tell more
than one. It cannot notice by itself, so others do, by two means that need no trust in it:

1. Every start is counted and gets a random value, both on disk before anything else. Whoever has met start 7 of a
   server refuses start 6, and start 7 with another value: somebody took a copy before start 7 and started it again.
   A higher counter is an ordinary restart. What was met is remembered over all studies, by the server's key: a server
   that is enrolled anew begins anew.
2. All servers sign all starts of a round, and with each a commitment to that server's noise (``Agreement``). A copy
   that opens a round its original has answered, from whatever state, even from its memory, has other noise: its
   agreement never equals the others', and it releases nothing.

A server's start is only ever taken from that server's own signed words: nobody can spoil the memory about another.
Rounds of one study begin one after the other, those of two studies do not: a server may restart between the opening of
a round here and of another there. So a study goes by what it has met itself, and by what was known when it began.
"""

from __future__ import annotations

from typing import Protocol

from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.secure_sum.instructions import Instruction, Witness
from tallystick.protocol.secure_sum.messages import Agreement, Code, Start
from tallystick.protocol.secure_sum.parameters import SumParameters


class BootBook(Protocol):
    """What a party has witnessed so far; it is written by its driver, on ``Witness``."""

    def last(self, server: VerifyKey) -> tuple[int, bytes] | None:
        """The highest start met in this study, or else in any."""
        ...

    def value(self, server: VerifyKey, boot: int) -> bytes | None:
        """The value this start was met with, in any study."""
        ...


class MemoryBoots:
    """A book in memory."""

    def __init__(self) -> None:
        self._met: dict[VerifyKey, dict[int, bytes]] = {}

    def note(self, witness: Witness) -> None:
        """Carry out a ``Witness``."""
        self._met.setdefault(witness.server, {})[witness.boot] = witness.value

    def last(self, server: VerifyKey) -> tuple[int, bytes] | None:
        met = self._met.get(server)
        return max(met.items()) if met else None

    def value(self, server: VerifyKey, boot: int) -> bytes | None:
        return self._met.get(server, {}).get(boot)


class SeenBoots:
    """One machine's view of the servers of its study."""

    def __init__(self, parameters: SumParameters, book: BootBook) -> None:
        self._keys, self._book = parameters.server_keys, book
        self._floor = {i: met[0] for i, key in enumerate(self._keys) if (met := book.last(key)) is not None}
        self._here: dict[int, tuple[int, bytes]] = {}

    def objection(self, server: int, start: Start) -> str | None:
        """Why this start is not one the server can be at, or None."""
        least = self._floor.get(server, 0)
        if start.boot < least:
            return f"it was met at its start number {least} before, and now speaks as of number {start.boot}"
        met = self._here.get(server)
        values = (self._book.value(self._keys[server], start.boot), met[1] if met and met[0] == start.boot else None)
        if any(value is not None and value != start.value for value in values):
            return f"its start number {start.boot} has happened twice: it was set back to a copy, or two copies run"
        return None

    def note(self, server: int, start: Start) -> list[Instruction]:
        """Remember a start nothing speaks against; durable before anything is said on the strength of it."""
        met = (start.boot, start.value)
        if self._here.get(server) == met:
            return []
        self._here[server], self._floor[server] = met, start.boot
        return [Witness(self._keys[server], *met)]


def dispute(one: Agreement, other: Agreement, servers: tuple[str, ...]) -> tuple[Code, str, str]:
    """What two unequal agreements disagree on, and at which server that lies."""
    parties = servers[one.server], servers[other.server]
    for server, mine, theirs in zip(servers, one.starts, other.starts):
        if mine != theirs:
            cause = f"{parties[0]} and {parties[1]} were told of different starts of {server}"
            return Code.STALE_SERVER, server, cause
    return Code.SET_DISAGREEMENT, parties[1], "the servers signed different sets of clients"
