"""Which start of a noise maker others have met, and when it is an old copy of itself.

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

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol

from tallystick.crypto.signing import VerifyKey

BOOT_VALUE_BYTES = 16
_START = Struct("<I16s32s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a server was when it opened a round, and stands by to the round's end, restarts included.

    ``boot`` counts its starts, ``value`` is random and drawn at each, ``noise`` commits to the round's one draw.
    """

    boot: int
    value: bytes
    noise: bytes

    def packed(self) -> bytes:
        """52 bytes, as they travel and are signed."""
        return _START.pack(self.boot, self.value, self.noise)


@dataclass(frozen=True, slots=True)
class Witness:
    """An instruction: remember, over all studies, that a server was met under this start. Durable as ``Persist`` is."""

    server: VerifyKey
    boot: int
    value: bytes


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
    """One machine's view of the noise makers of its study, in the order of their keys."""

    def __init__(self, keys: Sequence[VerifyKey], book: BootBook) -> None:
        self._keys, self._book = tuple(keys), book
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

    def note(self, server: int, start: Start) -> list[Any]:
        """Remember a start nothing speaks against; durable before anything is said on the strength of it."""
        met = (start.boot, start.value)
        if self._here.get(server) == met:
            return []
        self._here[server], self._floor[server] = met, start.boot
        return [Witness(self._keys[server], *met)]
