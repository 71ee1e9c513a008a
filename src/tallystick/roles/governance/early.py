"""Statements that came before the proposal they are about: a few of each signer wait in memory, unread and unkept.

The network may have a short decision overtake a long proposal. Nothing else is waited for: when a signer has too many
here, its oldest is forgotten. The proposal's own way back is HAVE.
"""

from __future__ import annotations

from collections import deque

OF_A_SIGNER = 32
BYTES_OF_A_SIGNER = 1 << 18


class EarlyStatements:
    """By signer; each signer pushes out only its own."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[bytes, str, bytes]]] = {}

    def put(self, signer: str, study: bytes, sender: str, raw: bytes) -> bool:
        """Keep it a while; False if one had to go for it, or it is too long to wait at all."""
        own = self._waiting.setdefault(signer, deque())
        own.append((study, sender, raw))
        fitted = True
        while own and (len(own) > OF_A_SIGNER or sum(len(one[2]) for one in own) > BYTES_OF_A_SIGNER):
            own.popleft()
            fitted = False
        return fitted

    def take(self, study: bytes) -> list[tuple[str, bytes]]:
        """What waited for this study: (sender, statement)."""
        found = [(sender, raw) for own in self._waiting.values() for of, sender, raw in own if of == study]
        for signer, own in list(self._waiting.items()):
            left = deque(one for one in own if one[0] != study)
            if left:
                self._waiting[signer] = left
            else:
                del self._waiting[signer]
        return found
