"""The frames on a stream, the states of a line, and the reasons for which it ends.

A gRPC message is one frame: a header of 10 bytes, little-endian, and a payload.

    type 1 byte | flags 1 byte | message id 8 bytes | payload, at most 2 MiB + 1 KiB

    HELLO    first frame each way; payload is the name and version of this format
    SMALL    a whole message of at most 64 KiB
    OPEN     announces a large message: its length (8 bytes) and its first bytes (at most 256), repeated in the data
    GRANT    the receiver has room for the announced message: stream it
    DECLINE  the receiver does not take the announced message; payload is a reason; data under way is ignored
    DATA     the next chunk of the granted message; LAST on its last one, ABANDON if it ends here unfinished
    BEAT     nothing to say
    CLOSE    the last frame: a reason and a text for the log

Message ids count up from 1 in each direction, over SMALL and OPEN. At most one
large message is announced or under way in each direction, so that what a peer
can make us hold is bounded; small messages overtake it. Order is kept among
the small and among the large messages of a sender.

The grant is what makes the memory of a server independent of the number of
its clients: a thousand may announce a vector at once, a few are streaming.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from tallystick.core.readable_text import one_line

CHUNK = 1 << 21
SMALL_BYTES = 1 << 16
HEAD_BYTES = 256
HEADER_BYTES = 10
MAX_FRAME = HEADER_BYTES + CHUNK + 1024  # the rest is for the tag of a sealed chunk
GREETING = b"tallystick network 1"
LAST = 1
ABANDON = 2
_HEADER = struct.Struct("<BBQ")
_LENGTH = struct.Struct("<Q")
_MAX_TEXT = 200


class Kind(IntEnum):
    """The types of frames."""

    HELLO = 1
    SMALL = 2
    OPEN = 3
    GRANT = 4
    DECLINE = 5
    DATA = 6
    BEAT = 7
    CLOSE = 8


class Reason(IntEnum):
    """Why a stream ended or a message was not taken."""

    STOPPED = 1  # the node stops
    LOST = 2  # the line broke
    REPLACED = 3  # a newer connection of the same party took its place
    MALFORMED = 4  # a frame that this format does not allow
    TOO_LARGE = 5  # more than was announced or allowed
    SLOW = 6  # below the lowest rate, or nothing taken for too long
    SILENT = 7  # no heartbeat
    VERSION = 8  # another version of this format
    REFUSED = 9  # not a pinned identity
    BUSY = 10  # too many connections
    STORAGE = 11  # the message could not be written where it goes
    UNREACHABLE = 12  # no connection to the address


class Refusal(Exception):  # noqa: N818 - it is the peer that is at fault
    """A stream that is not accepted, or does not go on; ``reason`` is told to the peer."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class FrameError(Refusal):
    """A frame that ends the stream."""


def frame(kind: Kind, ident: int = 0, payload: bytes | bytearray | memoryview = b"", flags: int = 0) -> bytes:
    """One frame; the payload is copied once."""
    return b"".join((_HEADER.pack(kind, flags, ident), payload))


def open_frame(ident: int, length: int, head: bytes) -> bytes:
    """Announce a message of this length that begins so."""
    return frame(Kind.OPEN, ident, _LENGTH.pack(length) + head)


def close_frame(reason: Reason, text: str) -> bytes:
    """The last frame."""
    return frame(Kind.CLOSE, 0, bytes([reason]) + text.encode("ascii", "replace")[:_MAX_TEXT])


def decline_frame(ident: int, reason: Reason) -> bytes:
    """Say no to an announced message."""
    return frame(Kind.DECLINE, ident, bytes([reason]))


# For each type: least and most payload, and the flags allowed.
_ALLOWED: dict[int, tuple[int, int, int]] = {
    Kind.HELLO: (1, 64, 0),
    Kind.SMALL: (0, SMALL_BYTES, 0),
    Kind.OPEN: (8, 8 + HEAD_BYTES, 0),
    Kind.GRANT: (0, 0, 0),
    Kind.DECLINE: (1, 1, 0),
    Kind.DATA: (0, MAX_FRAME - HEADER_BYTES, LAST | ABANDON),
    Kind.BEAT: (0, 0, 0),
    Kind.CLOSE: (1, 1 + _MAX_TEXT, 0),
}


def parse(raw: bytes) -> tuple[int, int, int]:
    """Type, flags and message id of a frame whose payload is ``raw[HEADER_BYTES:]``."""
    if len(raw) < HEADER_BYTES:
        raise FrameError(Reason.MALFORMED, "a frame is shorter than its header")
    kind, flags, ident = _HEADER.unpack_from(raw)
    allowed = _ALLOWED.get(kind)
    if allowed is None:
        raise FrameError(Reason.MALFORMED, f"frame type {kind} does not exist")
    least, most, mask = allowed
    if not least <= len(raw) - HEADER_BYTES <= most:
        raise FrameError(Reason.MALFORMED, f"a {Kind(kind).name} frame has a payload of the wrong length")
    if flags & ~mask:
        raise FrameError(Reason.MALFORMED, f"a {Kind(kind).name} frame has unknown flags")
    return kind, flags, ident


def parse_open(raw: bytes) -> tuple[int, bytes]:
    """Announced length and first bytes."""
    (length,) = _LENGTH.unpack_from(raw, HEADER_BYTES)
    head = raw[HEADER_BYTES + 8 :]
    if length <= SMALL_BYTES or len(head) != HEAD_BYTES:
        raise FrameError(Reason.MALFORMED, "a message was announced that is not large")
    return length, head


def _reason(code: int) -> Reason:
    try:
        return Reason(code)
    except ValueError:
        raise FrameError(Reason.MALFORMED, f"reason {code} does not exist") from None


def parse_close(raw: bytes) -> tuple[Reason, str]:
    """Reason and text; the text is kept printable."""
    text = raw[HEADER_BYTES + 1 :].decode("ascii", "replace")  # of at most _MAX_TEXT bytes: ``parse`` has looked
    return _reason(raw[HEADER_BYTES]), one_line(text, _MAX_TEXT)


def parse_decline(raw: bytes) -> Reason:
    """Why the announced message was not taken."""
    return _reason(raw[HEADER_BYTES])


class State(Enum):
    """Where a connection is in its life."""

    GREETING = "greeting"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class End:
    """Why a connection is over; ``theirs`` if it was the peer who said so."""

    reason: Reason
    text: str
    theirs: bool = False


class Stream(Protocol):
    """A gRPC stream of raw messages, either side's; reading returns None at its end or when it breaks."""

    async def read(self) -> bytes | None: ...

    async def write(self, raw: bytes) -> bool: ...
