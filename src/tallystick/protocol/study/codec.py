"""One message, one encoding: the strict binary codec of the study layer.

    magic "TSTU" | version u16 | type u8 | zero u8 | study hash (32) | fields in the order of the message's type

Each message is a table of fields (:mod:`tallystick.protocol.fields`), which encodes and decodes it:
``encode(decode(raw)) == raw`` whenever decoding succeeds. Anything else is a ``RemoteProtocolError``.
"""

from __future__ import annotations

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import check_party_name
from tallystick.protocol.fields import HEADER_BYTES, KINDS, Codec, Fixed, Layout, nested, refuse, text
from tallystick.protocol.study import messages
from tallystick.protocol.study.messages import Message, StudyCode, Ticket

MAGIC = b"TSTU"
VERSION = 1


def _check_name(name: str) -> None:
    try:
        check_party_name(name)
    except StudyError:
        refuse("a party has a name that is not allowed", "readable-text")


_NAMES = {"name": text("B", write=lambda name: check_party_name(name).encode(), check=_check_name)}
_TICKET = Layout(Ticket, "name hash signature", KINDS | _NAMES)
_KINDS = KINDS | _NAMES | {
    "flag": Fixed("B", allowed=frozenset((0, 1))),
    "code": Fixed("B", allowed=frozenset(map(int, StudyCode))),
    "program": text("Q"),
    "tickets": (Fixed("I", is_length=True), nested(_TICKET, many=True)),
}  # fmt: skip
_TABLES = {
    1: (messages.Propose, "hash 16 hash blob program"),
    2: (messages.StudyOpen, "hash u32 u32 u32 hash blob program"),
    3: (messages.StudyReady, "hash u32 u32 name hash signature"),
    4: (messages.StudyDeclined, "hash u32 name code text"),
    5: (messages.StudyStart, "hash u32 u32 tickets"),
    6: (messages.StudyEnd, "hash u32 code hash"),
    7: (messages.Progress, "hash u32 u32"),
    8: (messages.Result, "hash u32 blob"),
    9: (messages.Failed, "hash u32 16 flag code u32 u8 text text text text"),
    10: (messages.StudyInquiry, "hash 16"),
    11: (messages.StudyRefused, "hash code text"),
    12: (messages.StudyPaused, "hash u32 u32"),
    13: (messages.StudyResume, "hash u32 u32"),
    14: (messages.StudyGoesOn, "hash u32 u32"),
    15: (messages.Wish, "hash 16 flag"),
}
_CODEC = Codec(MAGIC, VERSION, "study", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()})


def encode(message: Message) -> bytes:
    """The canonical bytes of a message; texts are cut and cleaned, anything else that does not fit is our bug."""
    return b"".join(_CODEC.parts(message))


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest that is taken."""
    message: Message = _CODEC.decode(raw, limit)
    return message


def is_study_message(raw: bytes) -> bool:
    """Whether these bytes are for the study layer, by their magic alone."""
    return raw[:4] == MAGIC


def study_of(raw: bytes) -> bytes:
    """The hash of the study a message is about, for finding its machine; the rest is checked by ``decode``."""
    if len(raw) < HEADER_BYTES + 32 or not is_study_message(raw):
        refuse("this is not a study message")
    return raw[HEADER_BYTES : HEADER_BYTES + 32]
