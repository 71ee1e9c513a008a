"""What a relay passes on: it can drop and repeat, and neither write nor change."""

from __future__ import annotations

import pytest

from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.signing import SigningKey
from tallystick.transport.relayed import unwrap, wrap
from tallystick.transport.wire import HEADER_BYTES, RELAYED, SEALED, head, parse

KEY, OTHER = SigningKey(b"k" * 32), SigningKey(b"o" * 32)
MESSAGE = head(SEALED, b"s" * 32) + b"sealed bytes"


def test_a_message_comes_out_as_it_went_in_and_names_its_study() -> None:
    raw = wrap("north", "south", MESSAGE, KEY)
    kind, study, payload = parse(raw, "relay")
    assert (kind, study) == (RELAYED, b"s" * 32)
    found = unwrap(bytes(payload), "relay")
    assert (found.sender, found.to, found.raw) == ("north", "south", MESSAGE)
    found.verify(KEY.public)


def test_whatever_is_changed_on_the_way_does_not_verify() -> None:
    payload = wrap("north", "south", MESSAGE, KEY)[HEADER_BYTES:]
    for at in range(len(payload)):
        changed = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        with pytest.raises(RemoteProtocolError):
            unwrap(changed, "relay").verify(KEY.public)
    with pytest.raises(RemoteProtocolError):
        unwrap(payload, "relay").verify(OTHER.public)


@pytest.mark.parametrize("payload", [b"", b"\x05nor", b"\x00\x00" + bytes(200), b"\x01a\x01b" + bytes(64)])
def test_what_is_no_relayed_message_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unwrap(payload, "relay")


def test_nothing_is_relayed_twice_over() -> None:
    once = wrap("north", "south", MESSAGE, KEY)
    with pytest.raises(RemoteProtocolError):
        unwrap(wrap("north", "south", once, KEY)[HEADER_BYTES:], "relay")
