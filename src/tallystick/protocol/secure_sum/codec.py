"""One message, one encoding: the strict binary codec of the secure sum.

    magic "TSUM" | version u16 | type u8 | zero u8 | body        all little-endian

Bodies are fixed fields, then counted ones. Every count is compared with the
bytes that are there before anything is made of it, so a decoder never
allocates more than the message it was given; a model that travels sparse
(:mod:`tallystick.protocol.sparse_model`) is held to the study's limit instead,
by the size it would have dense. Truncation, trailing bytes,
an unknown version or type, an element >= p, an unsorted list or an unprintable
text is a ``RemoteProtocolError``, and since each value has
exactly one encoding, ``encode(decode(raw)) == raw`` whenever decoding succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from struct import Struct
from typing import Any, NoReturn

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.readable_text import one_line, what_is_unreadable
from tallystick.crypto.field import from_bytes
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Agreement,
    Code,
    Inquiry,
    Message,
    Partial,
    ReceivedList,
    Refused,
    RoundClosed,
    RoundOpen,
    Share,
    ShareKind,
    Start,
)
from tallystick.protocol.sparse_model import expand, sparse_parts, travelling_bytes

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "MODEL_BYTES",
    "SIGNATURE_BYTES",
    "TEXT_BYTES",
    "VERSION",
    "decode",
    "encode",
    "encode_parts",
    "share_head",
    "streamed_share",
]

MAGIC = b"TSUM"
VERSION = 1
HEADER_BYTES = 8
SIGNATURE_BYTES = 64
SEED_BYTES = 32
MODEL_BYTES = 1 << 30  # the longest model a sparse one may stand for where the caller knows no limit of the study
TEXT_BYTES = 500  # a cause or a remedy; longer ones are cut when encoded

_HEADER = Struct("<4sHBB")
_OPEN = Struct("<32sII32sQ")
_SHARE = Struct("<32sIIHHIB32s32sQ")
_ACCEPTED = Struct("<32sI32s")
_REFUSED = Struct("<32sIB")
_LIST = Struct("<32sIHI16s32s32sII")
_AGREEMENT = Struct("<32sIHH32sHI")
_PARTIAL = Struct("<32sIHI16s32s32sI")
_START = Struct("<I16s32s")
_ROUND = Struct("<32sI")
_CLOSED = Struct("<32sI32s")
_U16 = Struct("<H")
_U32 = Struct("<I")
_CODES = frozenset(int(code) for code in Code)
_SEED, _VECTOR = int(ShareKind.SEED), int(ShareKind.VECTOR)


def _refuse(cause: str, rule: str = "malformed") -> NoReturn:
    raise RemoteProtocolError(
        cause, rule=rule, remedy="The message was dropped; let the sender run the same release of tallystick."
    )


def _pack_text(text: str) -> bytes:
    raw = one_line(text, TEXT_BYTES).encode()
    if len(raw) > TEXT_BYTES:
        raw = raw[:TEXT_BYTES].decode(errors="ignore").encode()
    return _U16.pack(len(raw)) + raw


def _take_text(raw: bytes, at: int) -> tuple[str, int]:
    end = at + 2
    if end > len(raw):
        _refuse("a message ends inside a text")
    (size,) = _U16.unpack_from(raw, at)
    if size > TEXT_BYTES:
        _refuse(f"a text is longer than {TEXT_BYTES} bytes")
    if end + size > len(raw):
        _refuse("a message ends inside a text")
    try:
        text = raw[end : end + size].decode()
    except UnicodeDecodeError:
        _refuse("a text is not UTF-8")
    if what_is_unreadable(text):  # nothing that could forge a log line
        _refuse("a text holds control characters", "readable-text")
    return text, end + size


def _take_indices(raw: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    end = at + 4 * count
    if end > len(raw):
        _refuse("a list claims more entries than the message holds")
    values = Struct(f"<{count}I").unpack_from(raw, at)
    if any(a >= b for a, b in pairwise(values)):
        _refuse("a list of clients is not strictly ascending")
    return values, end


def _exact(raw: bytes, end: int) -> None:
    if end != len(raw):
        _refuse("a message has the wrong length")


def _encode_open(m: RoundOpen) -> list[bytes]:
    return [_OPEN.pack(m.study_hash, m.round, m.deadline_ms, m.model_hash, len(m.model)), m.model]


def _decode_open(raw: bytes) -> RoundOpen:
    study, round, deadline, model_hash, size = _OPEN.unpack_from(raw, HEADER_BYTES)
    start = HEADER_BYTES + _OPEN.size
    _exact(raw, start + size)
    model = raw[start:]
    if travelling_bytes(model) != size:
        _refuse("a model travels dense that would be shorter sparse")
    return RoundOpen(study_hash=study, round=round, deadline_ms=deadline, model_hash=model_hash, model=model)


def _decode_sparse_open(raw: bytes, limit: int) -> RoundOpen:
    """The same message; its model, here dense again, travelled by its non-zero entries."""
    study, round, deadline, model_hash, size = _OPEN.unpack_from(raw, HEADER_BYTES)
    if size > limit:  # before anything of that size is made
        _refuse(f"a model of {size} bytes is above the study's limit of {limit}", "too-long")
    model = expand(memoryview(raw)[HEADER_BYTES + _OPEN.size :], size)
    return RoundOpen(study_hash=study, round=round, deadline_ms=deadline, model_hash=model_hash, model=model)


def _encode_share(m: Share) -> list[bytes]:
    head = _SHARE.pack(
        m.study_hash, m.round, m.client, m.server, len(m.commitments), m.size, m.kind, m.model_hash, m.blind,
        len(m.payload),
    )  # fmt: skip
    return [head, *m.commitments, m.payload, _U32.pack(len(m.proof)), m.proof]


def vector_share_bytes(size: int, servers: int) -> int:
    """How long an encoded vector share is."""
    return HEADER_BYTES + _SHARE.size + 32 * servers + 8 * size + 4


def share_head(raw: bytes) -> tuple[Share, int, int]:
    """What stands before the payload in the first bytes of an encoded share; where the payload begins, its length.

    For a share that streams in: nothing is decided by it, the whole is decoded when it is there.
    """
    if len(raw) < HEADER_BYTES + _SHARE.size or raw[:HEADER_BYTES] != _ENCODERS[Share][0]:
        _refuse("this is not a share")
    study, round, client, server, servers, size, kind, model_hash, blind, length = _SHARE.unpack_from(raw, HEADER_BYTES)
    start = HEADER_BYTES + _SHARE.size
    middle = start + 32 * servers
    if len(raw) < middle:
        _refuse("a share begins with more commitments than its first bytes hold")
    head = Share(
        study_hash=study,
        round=round,
        client=client,
        server=server,
        size=size,
        kind=kind,
        model_hash=model_hash,
        commitments=tuple([raw[at : at + 32] for at in range(start, middle, 32)]),
        blind=blind,
        payload=b"",
    )
    return head, middle, length


def streamed_share(raw: bytes) -> Share:
    """The share in these bytes, as ``decode`` gives it; its elements were looked at when they came in, one by one."""
    if len(raw) < HEADER_BYTES + _SHARE.size + 4 or raw[:HEADER_BYTES] != _ENCODERS[Share][0]:
        _refuse("this is not a share")
    return _decode_share(raw, elements_checked=True)


def _decode_share(raw: bytes, elements_checked: bool = False) -> Share:
    study, round, client, server, servers, size, kind, model_hash, blind, length = _SHARE.unpack_from(raw, HEADER_BYTES)
    start = HEADER_BYTES + _SHARE.size
    middle = start + 32 * servers
    end = middle + length
    if end + 4 > len(raw):
        _refuse("a share claims more than the message holds")
    if kind == _SEED:
        if length != SEED_BYTES:
            _refuse("a seed share is not 32 bytes long", "wrong-shape")
    elif kind == _VECTOR:
        if length != 8 * size:
            _refuse("a vector share is not 8 bytes per element long", "wrong-shape")
    else:
        _refuse(f"share kind {kind} is unknown", "wrong-shape")
    payload = raw[middle:end]
    if kind == _VECTOR and not elements_checked:
        from_bytes(payload, size)  # every element below p
    (proof,) = _U32.unpack_from(raw, end)
    _exact(raw, end + 4 + proof)
    return Share(
        study_hash=study,
        round=round,
        client=client,
        server=server,
        size=size,
        kind=kind,
        model_hash=model_hash,
        commitments=tuple([raw[at : at + 32] for at in range(start, middle, 32)]),
        blind=blind,
        payload=payload,
        proof=raw[end + 4 :],
    )


def _encode_accepted(m: Accepted) -> list[bytes]:
    return [_ACCEPTED.pack(m.study_hash, m.round, m.digest)]


def _decode_accepted(raw: bytes) -> Accepted:
    _exact(raw, HEADER_BYTES + _ACCEPTED.size)
    study, round, digest = _ACCEPTED.unpack_from(raw, HEADER_BYTES)
    return Accepted(study_hash=study, round=round, digest=digest)


def _encode_refused(m: Refused) -> list[bytes]:
    return [_REFUSED.pack(m.study_hash, m.round, m.code), _pack_text(m.cause)]


def _check_code(code: int) -> int:
    if code not in _CODES:
        _refuse(f"code {code} is unknown")
    return code


def _decode_refused(raw: bytes) -> Refused:
    study, round, code = _REFUSED.unpack_from(raw, HEADER_BYTES)
    cause, end = _take_text(raw, HEADER_BYTES + _REFUSED.size)
    _exact(raw, end)
    return Refused(study_hash=study, round=round, code=_check_code(code), cause=cause)


def _encode_list(m: ReceivedList) -> list[bytes]:
    n, e = len(m.clients), len(m.equivocators)
    s = m.start
    return [
        _LIST.pack(m.study_hash, m.round, m.server, s.boot, s.value, s.noise, m.model_hash, n, e),
        Struct(f"<{n}I").pack(*m.clients),
        *m.digests,
        Struct(f"<{e}I").pack(*m.equivocators),
        m.signature,
    ]


def _decode_list(raw: bytes) -> ReceivedList:
    study, round, server, boot, value, noise, model_hash, n, e = _LIST.unpack_from(raw, HEADER_BYTES)
    start = HEADER_BYTES + _LIST.size
    _exact(raw, start + 36 * n + 4 * e + SIGNATURE_BYTES)
    clients, at = _take_indices(raw, start, n)
    end = at + 32 * n
    equivocators, after = _take_indices(raw, end, e)
    return ReceivedList(
        study_hash=study,
        round=round,
        server=server,
        start=Start(boot=boot, value=value, noise=noise),
        model_hash=model_hash,
        clients=clients,
        digests=tuple([raw[i : i + 32] for i in range(at, end, 32)]),
        equivocators=equivocators,
        signature=raw[after:],
    )


def _encode_agreement(m: Agreement) -> list[bytes]:
    n = len(m.clients)
    head = _AGREEMENT.pack(m.study_hash, m.round, m.server, m.honest, m.model_hash, len(m.starts), n)
    return [head, *(start.packed() for start in m.starts), Struct(f"<{n}I").pack(*m.clients), m.signature]


def _decode_agreement(raw: bytes) -> Agreement:
    study, round, server, honest, model_hash, m, n = _AGREEMENT.unpack_from(raw, HEADER_BYTES)
    start = HEADER_BYTES + _AGREEMENT.size
    middle = start + _START.size * m
    _exact(raw, middle + 4 * n + SIGNATURE_BYTES)
    starts = [_START.unpack_from(raw, at) for at in range(start, middle, _START.size)]
    clients, end = _take_indices(raw, middle, n)
    return Agreement(
        study_hash=study,
        round=round,
        server=server,
        honest=honest,
        model_hash=model_hash,
        starts=tuple([Start(boot=boot, value=value, noise=noise) for boot, value, noise in starts]),
        clients=clients,
        signature=raw[end:],
    )


def _encode_partial(m: Partial) -> list[bytes]:
    s = m.start
    head = _PARTIAL.pack(m.study_hash, m.round, m.server, s.boot, s.value, s.noise, m.agreement, m.size)
    return [head, m.vector, m.signature]


def _decode_partial(raw: bytes) -> Partial:
    study, round, server, boot, value, noise, agreement, size = _PARTIAL.unpack_from(raw, HEADER_BYTES)
    start = HEADER_BYTES + _PARTIAL.size
    end = start + 8 * size
    _exact(raw, end + SIGNATURE_BYTES)
    vector = raw[start:end]
    from_bytes(vector, size)  # every element below p
    return Partial(
        study_hash=study,
        round=round,
        server=server,
        start=Start(boot=boot, value=value, noise=noise),
        agreement=agreement,
        size=size,
        vector=vector,
        signature=raw[end:],
    )


def _encode_abort(m: Abort) -> list[bytes]:
    head = _REFUSED.pack(m.study_hash, m.round, m.code)
    return [head, _pack_text(m.party), _pack_text(m.cause), _pack_text(m.remedy)]


def _decode_abort(raw: bytes) -> Abort:
    study, round, code = _REFUSED.unpack_from(raw, HEADER_BYTES)
    party, end = _take_text(raw, HEADER_BYTES + _REFUSED.size)
    cause, end = _take_text(raw, end)
    remedy, end = _take_text(raw, end)
    _exact(raw, end)
    return Abort(study_hash=study, round=round, code=_check_code(code), party=party, cause=cause, remedy=remedy)


def _encode_closed(m: RoundClosed) -> list[bytes]:
    return [_CLOSED.pack(m.study_hash, m.round, m.agreement)]


def _decode_closed(raw: bytes) -> RoundClosed:
    _exact(raw, HEADER_BYTES + _CLOSED.size)
    study, round, agreement = _CLOSED.unpack_from(raw, HEADER_BYTES)
    return RoundClosed(study_hash=study, round=round, agreement=agreement)


def _encode_inquiry(m: Inquiry) -> list[bytes]:
    return [_ROUND.pack(m.study_hash, m.round)]


def _decode_inquiry(raw: bytes) -> Inquiry:
    _exact(raw, HEADER_BYTES + _ROUND.size)
    study, round = _ROUND.unpack_from(raw, HEADER_BYTES)
    return Inquiry(study_hash=study, round=round)


# type number -> (class, encoder, decoder, least body length); a number is never reused
_TYPES: dict[int, tuple[type[Any], Callable[[Any], list[bytes]], Callable[[bytes], Message], int]] = {
    1: (RoundOpen, _encode_open, _decode_open, _OPEN.size),
    2: (Share, _encode_share, _decode_share, _SHARE.size + 4),
    3: (Accepted, _encode_accepted, _decode_accepted, _ACCEPTED.size),
    4: (Refused, _encode_refused, _decode_refused, _REFUSED.size + 2),
    5: (ReceivedList, _encode_list, _decode_list, _LIST.size + SIGNATURE_BYTES),
    6: (Agreement, _encode_agreement, _decode_agreement, _AGREEMENT.size + SIGNATURE_BYTES),
    7: (Partial, _encode_partial, _decode_partial, _PARTIAL.size + SIGNATURE_BYTES),
    8: (Abort, _encode_abort, _decode_abort, _REFUSED.size + 6),
    9: (RoundClosed, _encode_closed, _decode_closed, _CLOSED.size),
    10: (Inquiry, _encode_inquiry, _decode_inquiry, _ROUND.size),
}
_SPARSE_OPEN = 11  # a RoundOpen whose model is shorter sparse: another body, the same message
_SPARSE_HEADER = _HEADER.pack(MAGIC, VERSION, _SPARSE_OPEN, 0)
_ENCODERS = {
    kind: (_HEADER.pack(MAGIC, VERSION, number, 0), encoder) for number, (kind, encoder, _, _) in _TYPES.items()
}
_FIXED = (  # attributes whose length the layout fixes; a wrong one would shift everything after it
    ("study_hash", 32), ("model_hash", 32), ("digest", 32), ("agreement", 32), ("blind", 32), ("signature", 64),
)  # fmt: skip
_CHECKED = {
    kind: tuple((name, size) for name, size in _FIXED if name in kind.__slots__) for kind, _, _, _ in _TYPES.values()
}


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(encode_parts(message))


def encode_parts(message: Message) -> list[bytes]:
    """The same bytes, not yet joined: a vector is not copied."""
    kind = type(message)
    for name, size in _CHECKED[kind]:
        if len(getattr(message, name)) != size:
            raise LocalProtocolError(f"{kind.__name__}.{name} must be {size} bytes long")
    header, encoder = _ENCODERS[kind]
    parts = encoder(message)
    if isinstance(message, RoundOpen):
        sparse = sparse_parts(message.model)
        if sparse is not None:
            return [_SPARSE_HEADER, parts[0], *sparse]
    return [header, *parts]


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    if limit is not None and len(raw) > limit:
        _refuse(f"a message of {len(raw)} bytes is above the study's limit of {limit}", "too-long")
    if len(raw) < HEADER_BYTES:
        _refuse("a message is shorter than its header")
    magic, version, number, zero = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        _refuse("this is not a secure-sum message")
    if version != VERSION:
        _refuse(f"the sender speaks secure-sum version {version}, this is version {VERSION}", "other-version")
    if number == _SPARSE_OPEN and not zero:
        if len(raw) < HEADER_BYTES + _OPEN.size:
            _refuse("a message is truncated")
        return _decode_sparse_open(raw, MODEL_BYTES if limit is None else limit)
    if number not in _TYPES or zero:
        _refuse(f"message type {number} is unknown", "other-version")
    _, _, decoder, least = _TYPES[number]
    if len(raw) < HEADER_BYTES + least:
        _refuse("a message is truncated")
    return decoder(raw)
