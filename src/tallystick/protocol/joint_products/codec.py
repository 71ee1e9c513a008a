"""One message, one encoding: the strict binary codec of joint products.

magic "TJNT" | version u16 | type u8 | zero u8 | body        all little-endian
"""

from __future__ import annotations

from tallystick.protocol.fields import KINDS, Codec, Fixed, Layout
from tallystick.protocol.joint_products.messages import Code, Deal, DealWanted, Message, OpenedRows, Refused, RowsWanted

MAGIC = b"TJNT"
VERSION = 1
_KINDS = KINDS | {"code": Fixed("B", allowed=frozenset(map(int, Code)))}
_TABLES = {
    1: (Deal, "hash u32 hash blob"),
    2: (OpenedRows, "hash u32 blob"),
    3: (Refused, "hash code text"),
    4: (DealWanted, "hash"),
    5: (RowsWanted, "hash u32"),
}
_CODEC = Codec(
    MAGIC, VERSION, "joint-products", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()}
)


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(_CODEC.parts(message))


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message
