"""One message, one encoding: the strict binary codec of the secure sum.

    magic "TSUM" | version u16 | type u8 | zero u8 | body        all little-endian

Bodies are fixed fields, then counted ones, by tables (:mod:`tallystick.protocol.fields`): a decoder never
allocates more than the message it was given; a model that travels sparse
(:mod:`tallystick.protocol.sparse_model`) is held to the study's limit instead,
by the size it would have dense. Truncation, trailing bytes,
an unknown version or type, an element >= p, an unsorted list or an unprintable
text is a ``RemoteProtocolError``, and since each value has
exactly one encoding, ``encode(decode(raw)) == raw`` whenever decoding succeeds.
"""

from __future__ import annotations

from struct import Struct

from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.field import from_bytes
from tallystick.protocol.fields import (
    HEADER_BYTES,
    KINDS,
    Codec,
    Fixed,
    Layout,
    Varying,
    end_of,
    nested,
    refuse,
)
from tallystick.protocol.secure_sum import messages
from tallystick.protocol.secure_sum.messages import Code, Message, RoundOpen, Share, ShareKind, Start
from tallystick.protocol.sparse_model import expand, sparse_parts, travelling_bytes

MAGIC = b"TSUM"
VERSION = 1
SEED_BYTES = 32
MODEL_BYTES = 1 << 30  # the longest model a sparse one may stand for where the caller knows no limit of the study
_U32 = Struct("<I")
_SEED, _VECTOR = int(ShareKind.SEED), int(ShareKind.VECTOR)


class _ShareLayout(Layout):
    """The one message there are many of, by hand: a share is packed and read in one step."""

    kind = Share
    fixed = Struct("<32sIIHHIB32s32sQ")

    def __init__(self) -> None:
        pass

    def parts(self, m: Share) -> list[bytes]:
        if not len(m.study_hash) == len(m.model_hash) == len(m.blind) == 32:
            raise LocalProtocolError("study_hash, model_hash and blind of a Share must be 32 bytes long")
        head = self.fixed.pack(
            m.study_hash, m.round, m.client, m.server, len(m.commitments), m.size, m.kind, m.model_hash, m.blind,
            len(m.payload),
        )  # fmt: skip
        return [head, *m.commitments, m.payload, _U32.pack(len(m.proof)), m.proof]

    def read(self, raw: bytes, at: int, *, checked: bool = False) -> Share:
        share, middle, length = self.head(raw, at, whole=True)
        if share.kind == _SEED:
            if length != SEED_BYTES:
                refuse("a seed share is not 32 bytes long", "wrong-shape")
        elif share.kind == _VECTOR:
            if length != 8 * share.size:
                refuse("a vector share is not 8 bytes per element long", "wrong-shape")
            if not checked:
                from_bytes(share.payload, share.size)  # every element below p
        else:
            refuse(f"share kind {share.kind} is unknown", "wrong-shape")
        if _U32.unpack_from(raw, middle + length)[0] != len(share.proof):
            refuse("a message has the wrong length")
        return share

    def head(self, raw: bytes, at: int, *, whole: bool) -> tuple[Share, int, int]:
        """The share, with or without its payload and the rest; where the payload begins, and its length."""
        there, start = len(raw), at + self.fixed.size
        if start > there:
            refuse("a message is truncated")
        study, round, client, server, servers, size, kind, model, blind, length = self.fixed.unpack_from(raw, at)
        middle = start + 32 * servers
        end = middle + length if whole else middle
        if (end + 4 if whole else end) > there:
            refuse("a share claims more than the message holds")
        payload, proof = (raw[middle:end], raw[end + 4 :]) if whole else (b"", b"")
        share = Share(
            study_hash=study, round=round, client=client, server=server, size=size, kind=kind, model_hash=model,
            commitments=tuple([raw[i : i + 32] for i in range(start, middle, 32)]), blind=blind, payload=payload,
            proof=proof,
        )  # fmt: skip
        return share, middle, length


def _take_elements(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    vector = raw[at : end_of(raw, at, 8 * size)]
    from_bytes(vector, size)  # every element below p
    return vector, at + 8 * size


def _take_digests(raw: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
    end = end_of(raw, at, 32 * count)
    return tuple([raw[i : i + 32] for i in range(at, end, 32)]), end


_START = Layout(Start, "u32 16 hash")
_KINDS = KINDS | {
    "code": Fixed("B", allowed=frozenset(map(int, Code))),
    "flag": Fixed("B", allowed=frozenset((0, 1))),
    "start": nested(_START, many=False),
    "starts": nested(_START, many=True),
    "digests": Varying(b"".join, _take_digests, by="clients"),
    "elements": Varying(bytes, _take_elements, by="size"),
}
_SPARSE_OPEN = 11  # a RoundOpen whose model is shorter sparse: another body, the same message
_TABLES = {
    _SPARSE_OPEN: (RoundOpen, "hash u32 u32 hash blob"),  # before 1: the last one of a type is how it is encoded
    1: (RoundOpen, "hash u32 u32 hash blob"),
    3: (messages.Accepted, "hash u32 hash"),
    4: (messages.Refused, "hash u32 code text"),
    5: (
        messages.ReceivedList,
        "study_hash:hash round:u32 server:u16 start:start model_hash:hash clients:length32 equivocators:length32 "
        "clients:ascending digests:digests equivocators:ascending signature:signature",
    ),
    6: (
        messages.Agreement,
        "study_hash:hash round:u32 server:u16 honest:u16 model_hash:hash starts:length16 clients:length32 "
        "starts:starts clients:ascending signature:signature",
    ),
    7: (messages.Partial, "hash u32 u16 start hash u32 elements signature"),
    8: (messages.Abort, "hash u32 code text text text"),
    9: (messages.RoundClosed, "hash u32 hash"),
    10: (messages.Inquiry, "hash u32"),
    12: (messages.Confirmed, "hash u32 hash flag 16"),
    13: (messages.StillIn, "hash u32 16"),
    14: (messages.HashOpen, "hash u32 u32 hash"),
    15: (messages.SecretOpen, "hash u32 u32 hash blob hash"),
}
_SHARE = _ShareLayout()
_LAYOUTS = {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()}
_CODEC = Codec(MAGIC, VERSION, "secure-sum", _LAYOUTS | {2: _SHARE})
_SHARE_HEADER = _CODEC.header(2)


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(encode_parts(message))


def encode_parts(message: Message) -> list[bytes]:
    """The same bytes, not yet joined: a vector is not copied."""
    parts = _CODEC.parts(message)
    if type(message) is RoundOpen:
        sparse = sparse_parts(message.model)
        if sparse is not None:
            return [_CODEC.header(_SPARSE_OPEN), parts[1], *sparse]
    return parts


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    if raw[:HEADER_BYTES] == _SHARE_HEADER and (limit is None or len(raw) <= limit):  # most of them are shares
        return _SHARE.read(raw, HEADER_BYTES)
    number = _CODEC.number_of(raw, limit)
    if number == _SPARSE_OPEN:
        return _decode_sparse_open(raw, MODEL_BYTES if limit is None else limit)
    message: Message = _CODEC.layouts[number].read(raw, HEADER_BYTES)
    if type(message) is RoundOpen and travelling_bytes(message.model) != len(message.model):
        refuse("a model travels dense that would be shorter sparse")
    return message


def _decode_sparse_open(raw: bytes, limit: int) -> RoundOpen:
    """The message with its model, here dense again, that travelled by its non-zero entries."""
    values, at = _LAYOUTS[_SPARSE_OPEN].values(raw, HEADER_BYTES, before="model")
    if values["model"] > limit:  # before anything of that size is made
        refuse(f"a model of {values['model']} bytes is above the study's limit of {limit}", "too-long")
    return RoundOpen(**values | {"model": expand(memoryview(raw)[at:], values["model"])})


def vector_share_bytes(size: int, servers: int) -> int:
    """How long an encoded vector share is."""
    return HEADER_BYTES + _SHARE.fixed.size + 32 * servers + 8 * size + 4


def share_head(raw: bytes) -> tuple[Share, int, int]:
    """What stands before the payload in the first bytes of an encoded share; where the payload begins, its length.

    For a share that streams in: nothing is decided by it, the whole is decoded when it is there.
    """
    _check_is_share(raw)
    return _SHARE.head(raw, HEADER_BYTES, whole=False)


def streamed_share(raw: bytes) -> Share:
    """The share in these bytes, as ``decode`` gives it; its elements were looked at when they came in, one by one."""
    _check_is_share(raw)
    return _SHARE.read(raw, HEADER_BYTES, checked=True)


def _check_is_share(raw: bytes) -> None:
    if raw[:HEADER_BYTES] != _SHARE_HEADER:
        refuse("this is not a share")
