"""One message, one encoding: the strict binary codec of the masked sum.

    magic "TMSK" | version u16 | type u8 | zero u8 | body        all little-endian

Bodies are tables of fields (:mod:`tallystick.protocol.fields`): a decoder never allocates more than the message it was
given, and ``encode(decode(raw)) == raw`` whenever decoding succeeds.
"""

from __future__ import annotations

from tallystick.crypto.field import from_bytes
from tallystick.protocol.boots import Start
from tallystick.protocol.fields import KINDS, Codec, Fixed, Layout, Varying, end_of, nested
from tallystick.protocol.masked_sum import messages
from tallystick.protocol.masked_sum.messages import Code, Message
from tallystick.protocol.masked_sum.records import BLOBS

MAGIC = b"TMSK"
VERSION = 1
_START = Layout(Start, "u32 16 hash")


def _take_elements(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = end_of(raw, at, 8 * size)
    vector = raw[at:end]
    from_bytes(vector, size)  # every element below p
    return vector, end


def _take_signatures(raw: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
    end = end_of(raw, at, 64 * count)
    return tuple([raw[i : i + 64] for i in range(at, end, 64)]), end


def _take_hashes(raw: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
    end = end_of(raw, at, 32 * count)
    return tuple([raw[i : i + 32] for i in range(at, end, 32)]), end


_KINDS = KINDS | {
    "code": Fixed("B", allowed=frozenset(map(int, Code))),
    "start": nested(_START, many=False),
    "starts": nested(_START, many=True),
    "elements": Varying(bytes, _take_elements, by="size"),
    "signatures": Varying(b"".join, _take_signatures, by="signers"),
    "vouched": Varying(b"".join, _take_signatures, by="clients"),
    "sums": Varying(b"".join, _take_hashes, by="clients"),
    "hashes": Varying(b"".join, _take_hashes),
    "blobs": BLOBS,
}
_TABLES = {
    1: (messages.RoundOpen, "hash u32 u32 hash blob"),
    2: (messages.Dealing, "hash u32 u32 hash start hash hash signature blob blob"),
    3: (messages.Relay, "study_hash:hash round:u32 dealers:length32 dealers:ascending packets:blob"),
    4: (messages.Masked, "hash u32 u32 hash hash u32 signature elements"),
    5: (messages.Stored, "hash u32"),
    6: (
        messages.Survivors,
        "study_hash:hash round:u32 model_hash:hash dealers:length32 clients:length32 starts:length32 "
        "dealers:ascending clients:ascending starts:starts signatures:vouched",
    ),
    7: (messages.Signed, "hash u32 u32 hash signature"),
    8: (
        messages.Quorum,
        "study_hash:hash round:u32 agreement:hash signers:length32 signers:ascending signatures:signatures",
    ),
    9: (messages.Revealed, "hash u32 u32 hash blob"),
    10: (messages.Refused, "hash u32 code text"),
    11: (messages.Abort, "hash u32 code text text text"),
    12: (messages.RoundClosed, "hash u32 hash"),
    13: (messages.Inquiry, "hash u32"),
    14: (
        messages.TiedSurvivors,
        "study_hash:hash round:u32 model_hash:hash dealers:length32 clients:length32 starts:length32 "
        "keys:length32 dealers:ascending clients:ascending starts:starts signatures:vouched sums:sums keys:hashes",
    ),
    15: (
        messages.Evidence,
        "study_hash:hash round:u32 wrapped:length32 reveals:length32 survivors:blob quorum:blob commitments:blob "
        "vectors:blob dealt:blob wrapped:blobs reveals:blobs",
    ),
    16: (messages.Missed, "hash u32"),
    17: (messages.SecretOpen, "hash u32 u32 hash blob hash"),
}
_CODEC = Codec(MAGIC, VERSION, "masked-sum", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()})


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(_CODEC.parts(message))


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message
