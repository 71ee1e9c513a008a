"""A draw's messages on their way between parties: in parts that keep their order.

The network lets what is small overtake what is large, and sealed messages open in the order they were sealed, each
once. A long layer that the next, short one overtakes would be lost, and asked for again seconds later. So a message
goes in parts that are small, one after the other:

    number of the part u16 | 1 if it is the last, else 0 u8 | bytes

A part that does not follow the one before is dropped with all of its message: the machine asks for it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tallystick.transport.network.frames import SMALL_BYTES

__all__ = ["Assembler", "cut"]

_HEAD = Struct("<HB")
PART_BYTES = SMALL_BYTES - 1024
"""With a seal and a header it is still small."""


def cut(*raw: bytes) -> Iterator[bytes]:
    """The parts of a message."""
    whole = b"".join(raw)
    count = max(1, -(-len(whole) // PART_BYTES))
    for number in range(count):
        piece = whole[number * PART_BYTES : (number + 1) * PART_BYTES]
        yield _HEAD.pack(number, number == count - 1) + piece


class Assembler:
    """Messages of all peers, put together again; of each peer at most one is under way, no longer than ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._under_way: dict[str, list[bytes]] = {}
        """Parts of one length, but for the last: so their number says how long they are together."""

    def take(self, sender: str, part: bytes) -> bytes | None:
        """The message, if this is the last of its parts; None if more are to come, or if it is dropped."""
        if len(part) < _HEAD.size:
            return None
        number, last = _HEAD.unpack_from(part)
        pieces = self._under_way.pop(sender, []) if number else []
        size = len(part) - _HEAD.size
        whole = size == PART_BYTES or last == 1
        if number != len(pieces) or last > 1 or not whole or number * PART_BYTES + size > self.limit:
            return None
        pieces.append(part[_HEAD.size :])
        if last:
            return b"".join(pieces)
        self._under_way[sender] = pieces
        return None
