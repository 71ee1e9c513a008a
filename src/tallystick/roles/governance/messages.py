"""The messages of governance, byte for byte:

op (1) ‖ body       STATEMENTS  statements, each after its length
                    HAVE        the idents of what I hold: send me what I lack, ask for what you lack
                    WANT        idents: send me these
                    NOTICE      client to server: the charge of a study, and the links of my ledger up to it
                    HEAD        client to server: which head of my ledger have you seen last?
                    SEEN        server to client: this one
                    RESULT_WANTED / RESULT / NO_RESULT    the result of a study, sealed to who may see it
                    RECEIPT_WANTED / RECEIPT              its privacy receipt, for everybody
                    TICK / TICK_SEEN    a stream's client to server and back: the last tick seen (streams/ticks)
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, unique
from struct import Struct

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.privacy.chain import LEDGER_BYTES, Head

_LENGTH = Struct("<I")
_HEAD = Struct(f"<{LEDGER_BYTES}sQ{HASH_BYTES}s")
MOST_PARTS = 1 << 13  # in one message; a batch of the shortest statements has fewer


@unique
class Op(IntEnum):
    """What a message of this layer is."""

    STATEMENTS = 1
    HAVE = 2
    WANT = 3
    NOTICE = 4
    HEAD = 5
    SEEN = 6
    RESULT_WANTED = 7
    RESULT = 8
    NO_RESULT = 9
    RECEIPT_WANTED = 10
    RECEIPT = 11
    TICK = 12
    TICK_SEEN = 13


def pack_parts(parts: Iterable[bytes]) -> bytes:
    """Byte strings after one another, each behind its length."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack_parts(raw: bytes | memoryview, sender: str) -> list[bytes]:
    """Inverse of :func:`pack_parts`; lengths are compared with what is there before anything is made of them."""
    parts: list[bytes] = []
    at = 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise RemoteProtocolError("a message claims more than it holds", rule="malformed", party=sender)
        if len(parts) == MOST_PARTS:  # a megabyte of empty ones would take half a second of the loop
            raise RemoteProtocolError("a message has more parts than are read", rule="malformed", party=sender)
        size = _LENGTH.unpack_from(raw, at)[0]
        at += 4
        if at + size > len(raw):
            raise RemoteProtocolError("a message claims more than it holds", rule="malformed", party=sender)
        parts.append(bytes(raw[at : at + size]))
        at += size
    return parts


def pack_head(head: Head) -> bytes:
    """A head of a ledger as witnesses and clients tell it each other."""
    return _HEAD.pack(head.ledger, head.sequence, head.hash)


def unpack_head(raw: bytes, sender: str) -> Head:
    """Inverse of :func:`pack_head`."""
    if len(raw) != _HEAD.size:
        raise RemoteProtocolError("a ledger's head is not one", rule="malformed", party=sender)
    ledger, sequence, hashed = _HEAD.unpack(raw)
    return Head(ledger=ledger, sequence=sequence, hash=hashed)
