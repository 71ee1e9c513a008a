"""One message, one encoding: the strict binary codec of labels that are told.

magic "TLAB" | version u16 | type u8 | zero u8 | body        all little-endian
"""

from __future__ import annotations

from tallystick.protocol.fields import KINDS, Codec, Fixed, Layout
from tallystick.protocol.labels.messages import Code, Labels, LabelsWanted, Message, Refused

MAGIC = b"TLAB"
VERSION = 1
_KINDS = KINDS | {"code": Fixed("B", allowed=frozenset(map(int, Code)))}
_TABLES = {1: (LabelsWanted, "hash hash signature"), 2: (Labels, "hash signature blob"), 3: (Refused, "hash code text")}
_CODEC = Codec(MAGIC, VERSION, "labels", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()})


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(_CODEC.parts(message))


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message
