"""What goes over a line: which layer a message belongs to, of which study, and whether it is sealed.

    kind (1) ‖ study hash (32) ‖ payload      kind 1: study layer, 2: secure sum, 3: secure sum, sealed to its receiver
                                              kind 4: signed statements (governance/exchange; the hash may be zero)
                                              kind 5: passed on by a relay (transport/relayed)

Shares are sealed (:mod:`tallystick.crypto.sealing`), so that nobody who terminates TLS on the way sees one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.core.randomness import WordSource
from tallystick.crypto.key_agreement import AgreementKey, StudyKey, derive_channel
from tallystick.crypto.sealing import PIECE_BYTES, Opener, Opening, Sealer, sealed_size
from tallystick.protocol.study.roster import Roster
from tallystick.transport.network.frame_buffers import BUFFERS, FrameBuffer

STUDY, SUM, SEALED, GOVERNANCE, RELAYED = 1, 2, 3, 4, 5
HEADER_BYTES = 1 + HASH_BYTES


def head(kind: int, study: bytes) -> bytes:
    """The first 33 bytes of a message."""
    return bytes([kind]) + study


def parse(raw: bytes, sender: str) -> tuple[int, bytes, memoryview]:
    """(kind, study hash, payload)."""
    if len(raw) <= HEADER_BYTES or raw[0] not in (STUDY, SUM, SEALED, GOVERNANCE, RELAYED):
        raise RemoteProtocolError("a message of no known kind", party=sender, remedy="Run the same version everywhere.")
    return raw[0], bytes(raw[1:HEADER_BYTES]), memoryview(raw)[HEADER_BYTES:]


class Seals:
    """One party's sealed channels within a study, made when they are first used.

    Shares stream in on the network's threads while the loop opens short messages; ``lock`` is held for the moment in
    which a message counts as opened.
    """

    def __init__(self, own: AgreementKey, name: str, roster: Roster, source: WordSource, boot: int) -> None:
        self._own, self._name, self._roster, self._source, self._boot = own, name, roster, source, boot
        self._sealers: dict[str, Sealer] = {}
        self._openers: dict[str, Opener] = {}
        self.lock = threading.Lock()

    def meet(self, key: StudyKey) -> None:
        """A party that is not in the roster, and whose key for the study has been verified."""
        self._roster = replace(self._roster, keys={**self._roster.keys, key.party: key})

    def seal(self, to: str, *raw: bytes) -> tuple[Iterator[memoryview | FrameBuffer], int]:
        """The sealed message in pieces, header first, and its whole length; it may be given in several parts.

        A long message holds two buffers at a time: a piece is sealed while the one before it is on its way.
        """
        if to not in self._sealers:
            keys = self._roster.keys
            channel = derive_channel(self._own, sender=keys[self._name], receiver=keys[to])
            # A sender that restarts continues above everything it used.
            self._sealers[to] = Sealer(channel, self._source, first=self._boot << 40)
        length = HEADER_BYTES + sealed_size(sum(map(len, raw)))
        return self._pieces(self._sealers[to], raw, length), length

    def _pieces(self, sealer: Sealer, raw: tuple[bytes, ...], length: int) -> Iterator[memoryview | FrameBuffer]:
        first = head(SEALED, self._roster.study_hash)
        sealing = sealer.sealing(*raw, prefix=first)
        if length <= PIECE_BYTES:
            memory = memoryview(bytearray(sealing.longest))
            yield memory[: sealing.into(memory)]
            return
        held: deque[FrameBuffer] = deque()
        try:
            while size := sealing.next_size:
                if len(held) == 2:
                    BUFFERS.give(held.popleft())
                held.append(BUFFERS.take(size))
                held[-1].fill(sealing.into)
                yield held[-1]
        finally:
            for buffer in held:
                BUFFERS.give(buffer)

    def open(self, sender: str, sealed: memoryview) -> bytes:
        """The message, or RemoteProtocolError with nothing kept."""
        with self.lock:
            return self._opener(sender).open(sealed)

    def opening(self, sender: str, size: int) -> Opening:
        """A message of ``size`` sealed bytes that comes in by parts; hold ``lock`` to finish it."""
        with self.lock:
            return self._opener(sender).opening(size)

    def _opener(self, sender: str) -> Opener:
        keys = self._roster.keys
        if sender not in keys:
            raise RemoteProtocolError("a sealed message from somebody who does not take part", party=sender)
        if sender not in self._openers:
            channel = derive_channel(self._own, sender=keys[sender], receiver=keys[self._name])
            self._openers[sender] = Opener(channel)
        return self._openers[sender]

    def erase(self) -> None:
        """Forget every key (forward secrecy)."""
        with self.lock:
            for sealer in self._sealers.values():
                sealer.erase()
            for opener in self._openers.values():
                opener.erase()
            self._sealers.clear()
            self._openers.clear()
            self._own.erase()
