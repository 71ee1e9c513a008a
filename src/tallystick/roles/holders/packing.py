"""What one institution says to another, as it is sealed: every message on the same lane of the network.

    length u32 ‖ message ‖ zeros

Long messages are overtaken by short ones on a line (``transport/network/frames``), and what is sealed later and comes
earlier makes what was sealed before it a repetition, which is not opened. So where any message of a study is long, all
are filled up to be: they come in the order in which they were sealed. A relay then cannot tell a question from a list.
"""

from __future__ import annotations

from struct import Struct

from tallystick.core.errors import RemoteProtocolError
from tallystick.transport.network.frames import SMALL_BYTES

_LENGTH = Struct("<I")


def least_size(longest: int) -> int:
    """What every message is filled up to, where the longest has so many bytes."""
    return SMALL_BYTES + 1 if longest > SMALL_BYTES // 2 else 0


def pack(message: bytes, least: int) -> bytes:
    """Ready to be sealed."""
    return b"".join((_LENGTH.pack(len(message)), message, bytes(max(0, least - _LENGTH.size - len(message)))))


def unpack(plain: bytes, party: str) -> bytes:
    """The message; whatever else was sealed is refused."""
    size = _LENGTH.unpack_from(plain)[0] if len(plain) >= _LENGTH.size else -1
    end = _LENGTH.size + size
    if size < 0 or end > len(plain) or any(plain[end:]):
        raise RemoteProtocolError("a message between institutions is not packed as one", rule="malformed", party=party)
    return plain[_LENGTH.size : end]
