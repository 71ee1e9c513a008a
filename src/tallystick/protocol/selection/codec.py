"""One message, one encoding: ``magic "TSEL" | version u16 | type u8 | zero u8 | fields``, by tables of fields."""

from __future__ import annotations

from tallystick.protocol.fields import HEADER_BYTES, KINDS, Codec, Fixed, Layout
from tallystick.protocol.selection import messages
from tallystick.protocol.selection.messages import Code, Message

MAGIC = b"TSEL"
VERSION = 1
LAYER_HEAD_BYTES = HEADER_BYTES + 32 + 4 + 4 + 8
"""What stands before the payload of a layer."""
OTHER_BYTES = 2048
"""No other message is longer."""
_KINDS = KINDS | {"code": Fixed("B", allowed=frozenset(map(int, Code)))}
_TABLES = {
    1: (messages.Layer, "hash u32 u32 blob"),
    2: (messages.Again, "hash u32 u32"),
    3: (messages.Refused, "hash u32 code text"),
    4: (messages.Stopped, "hash u32 code text text"),
}
_CODEC = Codec(MAGIC, VERSION, "selection", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()})


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(encode_parts(message))


def encode_parts(message: Message) -> list[bytes]:
    """The same bytes, not yet joined: a vector is not copied."""
    return _CODEC.parts(message)


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the question allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message
