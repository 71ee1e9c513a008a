"""One message, one encoding: the strict binary codec of alignment.

magic "TALN" | version u16 | type u8 | zero u8 | body        all little-endian
"""

from __future__ import annotations

from tallystick.protocol.alignment.messages import BlindedList, Code, Message, Refused, Wanted
from tallystick.protocol.fields import KINDS, Codec, Fixed, Layout

MAGIC = b"TALN"
VERSION = 1
_KINDS = KINDS | {"code": Fixed("B", allowed=frozenset(map(int, Code)))}
_TABLES = {1: (BlindedList, "hash u16 u16 hash blob"), 2: (Refused, "hash code text"), 3: (Wanted, "hash u16 u16")}
_CODEC = Codec(MAGIC, VERSION, "alignment", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()})


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(_CODEC.parts(message))


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message
