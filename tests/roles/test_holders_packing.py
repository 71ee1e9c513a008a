"""What institutions with different columns say to each other, before it is sealed: one lane, one reading."""

from __future__ import annotations

import pytest
from tests.trust.vertical_deployment import study

from tallystick.core.errors import RemoteProtocolError
from tallystick.engines.setup import set_up
from tallystick.roles.holders.facts import holders_limit, longest_said
from tallystick.roles.holders.packing import least_size, pack, unpack
from tallystick.transport.network.frames import SMALL_BYTES


def test_where_one_message_is_long_all_are() -> None:
    """A short one would overtake it on the line, and the long one would not be opened any more."""
    short, long = (set_up(study(people=people).canonical(), "") for people in (80, 5_000))
    assert least_size(longest_said(short)) == 0
    assert least_size(longest_said(long)) > SMALL_BYTES
    for size in (0, 40, 5_000 * 32):
        assert len(pack(bytes(size), least_size(longest_said(long)))) > SMALL_BYTES
    assert holders_limit(long) > 5_000 * 32


def test_a_packed_message_has_one_reading() -> None:
    for message in (b"", b"a", b"abc" * 1_000):
        for least in (0, 500):
            assert unpack(pack(message, least), "bank") == message
    for wrong in (b"", b"\1\0\0", b"\2\0\0\0a", b"\1\0\0\0ab", b"\xff\xff\xff\xff" + bytes(9)):
        with pytest.raises(RemoteProtocolError) as caught:
            unpack(wrong, "bank")
        assert caught.value.party == "bank"
