"""One message, one encoding: the strict binary codec of the encrypted sum.

    magic "TENC" | version u16 | type u8 | zero u8 | body        all little-endian

Bodies are tables of fields (:mod:`tallystick.protocol.fields`): a decoder never allocates more than the message it was
given, and ``encode(decode(raw)) == raw`` whenever decoding succeeds.
"""

from __future__ import annotations

from tallystick.protocol.boots import Start
from tallystick.protocol.encrypted_sum import messages
from tallystick.protocol.encrypted_sum.messages import Code, Message
from tallystick.protocol.fields import KINDS, Codec, Fixed, Layout, Varying, end_of, nested

MAGIC = b"TENC"
VERSION = 1


def _take_digests(raw: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
    end = end_of(raw, at, 32 * count)
    return tuple([raw[i : i + 32] for i in range(at, end, 32)]), end


_KINDS = KINDS | {
    "code": Fixed("B", allowed=frozenset(map(int, Code))),
    "flag": Fixed("B", allowed=frozenset((0, 1))),
    "start": nested(Layout(Start, "u32 16 hash"), many=False),
    "digests": Varying(b"".join, _take_digests),
}
_TABLES = {
    1: (messages.RoundOpen, "hash u32 u32 hash hash blob"),
    2: (messages.KeyWanted, "hash u32"),
    3: (messages.KeyNotice, "hash u32 blob signature"),
    4: (messages.Chunk, "hash u32 u32 u32 16 hash hash blob"),
    5: (messages.Stored, "hash u32 u32 flag 16"),
    6: (messages.Refused, "hash u32 code text"),
    7: (
        messages.Participants,
        "study_hash:hash round:u32 model_hash:hash key_hash:hash start:start clients:length32 clients:ascending "
        "signature:signature",
    ),
    8: (messages.Countersigned, "hash u32 hash start signature"),
    9: (
        messages.Summed,
        "study_hash:hash round:u32 agreement:hash digests:length32 digests:digests signature:signature",
    ),
    10: (messages.Wanted, "hash u32 u32 hash"),
    11: (messages.SumChunk, "hash u32 u32 blob"),
    12: (messages.Abort, "hash u32 code text text text"),
    13: (messages.RoundClosed, "hash u32 hash"),
    14: (messages.Inquiry, "hash u32"),
    15: (messages.HashOpen, "hash u32 u32 hash hash"),
    16: (messages.SecretOpen, "hash u32 u32 hash hash blob hash"),
}
_CODEC = Codec(
    MAGIC, VERSION, "encrypted-sum", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()}
)


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(_CODEC.parts(message))


def encode_parts(message: Message) -> list[bytes]:
    """The same bytes, not yet joined: a payload is not copied."""
    return _CODEC.parts(message)


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message
