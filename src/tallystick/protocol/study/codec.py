"""One message, one encoding: the strict binary codec of the study layer.

    magic "TSTU" | version u16 | type u8 | zero u8 | study hash (32) | fields in the order of the message's type

Integers are little-endian of fixed width, hashes, keys and signatures have their fixed length, bytes and texts come
after their length. Each message is a list of field kinds below; the same list encodes and decodes, every length is
compared with the bytes that are there before anything is made of it, and since each value has exactly one
encoding, ``encode(decode(raw)) == raw`` whenever decoding succeeds. Anything else is a ``RemoteProtocolError``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from struct import Struct
from typing import Any, NoReturn

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, StudyError
from tallystick.core.identifiers import check_party_name
from tallystick.core.readable_text import one_line, what_is_unreadable
from tallystick.protocol.study.messages import (
    Failed,
    Message,
    Progress,
    Propose,
    Result,
    StudyCode,
    StudyDeclined,
    StudyEnd,
    StudyInquiry,
    StudyOpen,
    StudyReady,
    StudyRefused,
    StudyStart,
    Ticket,
)

__all__ = ["HEADER_BYTES", "MAGIC", "TEXT_BYTES", "VERSION", "decode", "encode", "is_study_message", "study_of"]

MAGIC = b"TSTU"
VERSION = 1
HEADER_BYTES = 8
TEXT_BYTES = 500  # a cause, rule or remedy; longer ones are cut when encoded
HASH, REQUEST, KEY, SIGNATURE = 32, 16, 32, 64
TICKET_LEAST = 1 + 1 + KEY + SIGNATURE

_HEADER = Struct("<4sHBB")
_CODES = frozenset(int(code) for code in StudyCode)
_U8, _U16, _U32, _U64 = Struct("<B"), Struct("<H"), Struct("<I"), Struct("<Q")


def _refuse(cause: str, rule: str = "malformed") -> NoReturn:
    raise RemoteProtocolError(
        cause, rule=rule, remedy="The message was dropped; let the sender run the same release of tallystick."
    )


def _take(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(raw):
        _refuse("a message claims more than it holds")
    return raw[at : at + size], at + size


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one field is written and read."""

    pack: Callable[[Any], bytes]
    take: Callable[[bytes, int], tuple[Any, int]]


def _number(layout: Struct, allowed: frozenset[int] | None = None) -> _Kind:
    def pack(value: int) -> bytes:
        if not 0 <= value < 1 << 8 * layout.size or (allowed is not None and value not in allowed):
            raise LocalProtocolError(f"the number {value} has no place in a study message")
        return layout.pack(value)

    def take(raw: bytes, at: int) -> tuple[int, int]:
        part, end = _take(raw, at, layout.size)
        value = int(layout.unpack(part)[0])
        if allowed is not None and value not in allowed:
            _refuse(f"the number {value} is unknown here")
        return value, end

    return _Kind(pack, take)


def _fixed(size: int) -> _Kind:
    def pack(value: bytes) -> bytes:
        if len(value) != size:
            raise LocalProtocolError(f"a field of {size} bytes has {len(value)}")
        return value

    return _Kind(pack, lambda raw, at: _take(raw, at, size))


def _take_blob(raw: bytes, at: int) -> tuple[bytes, int]:
    part, at = _take(raw, at, 8)
    return _take(raw, at, _U64.unpack(part)[0])


def _take_utf8(raw: bytes, at: int, layout: Struct, most: int | None = None) -> tuple[str, int]:
    part, at = _take(raw, at, layout.size)
    size = layout.unpack(part)[0]
    if most is not None and size > most:
        _refuse(f"a text is longer than {most} bytes")
    part, at = _take(raw, at, size)
    try:
        return part.decode(), at
    except UnicodeDecodeError:
        _refuse("a text is not UTF-8")


def _pack_program(text: str) -> bytes:
    raw = text.encode()
    return _U64.pack(len(raw)) + raw


def _pack_text(text: str) -> bytes:
    clean = one_line(text, TEXT_BYTES)  # nothing that could forge a log line
    raw = clean.encode()[:TEXT_BYTES].decode(errors="ignore").encode()
    return _U16.pack(len(raw)) + raw


def _take_text(raw: bytes, at: int) -> tuple[str, int]:
    text, end = _take_utf8(raw, at, _U16, TEXT_BYTES)
    if what_is_unreadable(text):
        _refuse("a text holds control characters", "readable-text")
    return text, end


def _pack_name(name: str) -> bytes:
    raw = check_party_name(name).encode()
    return _U8.pack(len(raw)) + raw


def _take_name(raw: bytes, at: int) -> tuple[str, int]:
    name, end = _take_utf8(raw, at, _U8)
    try:
        return check_party_name(name), end
    except StudyError:
        _refuse("a party has a name that is not allowed", "readable-text")


def _pack_tickets(tickets: tuple[Ticket, ...]) -> bytes:
    parts = [_U32.pack(len(tickets))]
    for ticket in tickets:
        parts += [_pack_name(ticket.party), _KEY.pack(ticket.public), _SIGNATURE.pack(ticket.signature)]
    return b"".join(parts)


def _take_tickets(raw: bytes, at: int) -> tuple[tuple[Ticket, ...], int]:
    part, at = _take(raw, at, 4)
    count = _U32.unpack(part)[0]
    if count * TICKET_LEAST > len(raw) - at:
        _refuse("a list claims more entries than the message holds")
    tickets = []
    for _ in range(count):
        party, at = _take_name(raw, at)
        public, at = _take(raw, at, KEY)
        signature, at = _take(raw, at, SIGNATURE)
        tickets.append(Ticket(party=party, public=public, signature=signature))
    return tuple(tickets), at


_HASH, _REQUEST, _KEY, _SIGNATURE = _fixed(HASH), _fixed(REQUEST), _fixed(KEY), _fixed(SIGNATURE)
_COUNT, _SMALL, _FLAG = _number(_U32), _number(_U8), _number(_U8, frozenset((0, 1)))
_CODE = _number(_U8, _CODES)
_BLOB = _Kind(lambda value: _U64.pack(len(value)) + value, _take_blob)
_PROGRAM = _Kind(_pack_program, lambda raw, at: _take_utf8(raw, at, _U64))
_TEXT, _NAME = _Kind(_pack_text, _take_text), _Kind(_pack_name, _take_name)
_TICKETS = _Kind(_pack_tickets, _take_tickets)

# type number -> (class, kinds of the fields after the study hash); a number is never reused
_TYPES: dict[int, tuple[type[Any], tuple[_Kind, ...]]] = {
    1: (Propose, (_REQUEST, _HASH, _BLOB, _PROGRAM)),
    2: (StudyOpen, (_COUNT, _COUNT, _COUNT, _HASH, _BLOB, _PROGRAM)),
    3: (StudyReady, (_COUNT, _COUNT, _NAME, _KEY, _SIGNATURE)),
    4: (StudyDeclined, (_COUNT, _NAME, _CODE, _TEXT)),
    5: (StudyStart, (_COUNT, _COUNT, _TICKETS)),
    6: (StudyEnd, (_COUNT, _CODE, _HASH)),
    7: (Progress, (_COUNT, _COUNT)),
    8: (Result, (_COUNT, _BLOB)),
    9: (Failed, (_COUNT, _REQUEST, _FLAG, _CODE, _COUNT, _SMALL, _TEXT, _TEXT, _TEXT, _TEXT)),
    10: (StudyInquiry, (_REQUEST,)),
    11: (StudyRefused, (_CODE, _TEXT)),
}
_LAYOUTS = {
    kind: (_HEADER.pack(MAGIC, VERSION, number, 0), tuple(zip([f.name for f in fields(kind)], (_HASH, *kinds))))
    for number, (kind, kinds) in _TYPES.items()
}


def encode(message: Message) -> bytes:
    """The canonical bytes of a message; texts are cut and cleaned, anything else that does not fit is our bug."""
    header, layout = _LAYOUTS[type(message)]
    return b"".join([header, *(kind.pack(getattr(message, name)) for name, kind in layout)])


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest that is taken."""
    if limit is not None and len(raw) > limit:
        _refuse(f"a message of {len(raw)} bytes is above the limit of {limit}", "too-long")
    if len(raw) < HEADER_BYTES:
        _refuse("a message is shorter than its header")
    magic, version, number, zero = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        _refuse("this is not a study message")
    if version != VERSION:
        _refuse(f"the sender speaks study version {version}, this is version {VERSION}", "other-version")
    if number not in _TYPES or zero:
        _refuse(f"message type {number} is unknown", "other-version")
    kind = _TYPES[number][0]
    values: dict[str, Any] = {}
    at = HEADER_BYTES
    for name, field in _LAYOUTS[kind][1]:
        values[name], at = field.take(raw, at)
    if at != len(raw):
        _refuse("a message has the wrong length")
    message: Message = kind(**values)
    return message


def is_study_message(raw: bytes) -> bool:
    """Whether these bytes are for the study layer, by their magic alone."""
    return raw[:4] == MAGIC


def study_of(raw: bytes) -> bytes:
    """The hash of the study a message is about, for finding its machine; the rest is checked by ``decode``."""
    if len(raw) < HEADER_BYTES + HASH or not is_study_message(raw):
        _refuse("this is not a study message")
    return raw[HEADER_BYTES : HEADER_BYTES + HASH]
