"""A draw's messages between parties: cut into small parts, and put together only as they were."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tallystick.crypto.sealing import sealed_size
from tallystick.transport.network.frames import SMALL_BYTES
from tallystick.transport.wire import HEADER_BYTES, SEALED
from tallystick.trust.parties.parts import PART_BYTES, Assembler, cut
from tallystick.trust.parties.party import PartyPart

LIMIT = 5 * PART_BYTES


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 4 * PART_BYTES + 7])
def test_a_message_comes_out_as_it_went_in(size: int) -> None:
    raw = bytes(i * 7 % 251 for i in range(size))
    parts = list(cut(raw[: size // 2], raw[size // 2 :]))
    assert all(HEADER_BYTES + sealed_size(len(part)) <= SMALL_BYTES for part in parts)
    assembler = Assembler(LIMIT)
    *before, last = [assembler.take("a", part) for part in parts]
    assert before == [None] * (len(parts) - 1)
    assert last == raw


def test_peers_do_not_mix() -> None:
    assembler = Assembler(LIMIT)
    of_a, of_b = list(cut(b"a" * 2 * PART_BYTES)), list(cut(b"b" * 2 * PART_BYTES))
    assert [assembler.take("a", of_a[0]), assembler.take("b", of_b[0])] == [None, None]
    assert assembler.take("b", of_b[1]) == b"b" * 2 * PART_BYTES
    assert assembler.take("a", of_a[1]) == b"a" * 2 * PART_BYTES


def test_what_does_not_follow_is_dropped_and_the_next_message_is_whole() -> None:
    first, second, third = cut(bytes(3 * PART_BYTES))
    for parts in ([first, third], [second], [third], [first, first, third], [b"", b"\0\0"], [first, second, second]):
        assembler = Assembler(LIMIT)
        assert [assembler.take("a", part) for part in parts] == [None] * len(parts)
        assert assembler.take("a", next(cut(b"next"))) == b"next"


def test_no_more_is_kept_than_the_longest_message() -> None:
    assembler = Assembler(2 * PART_BYTES)
    assert [assembler.take("a", part) for part in cut(bytes(3 * PART_BYTES))] == [None] * 3
    assert assembler._under_way == {}


def test_parts_that_are_too_short_to_be_parts_are_dropped() -> None:
    """So that nobody makes a party count through tens of thousands of empty ones [hostile review]."""
    assembler = Assembler(LIMIT)
    for number in range(3):
        assert assembler.take("mallory", number.to_bytes(2, "little") + b"\0") is None
    assert assembler._under_way == {}


class _Open:
    def open(self, sender: str, payload: bytes) -> bytes:
        return bytes(payload)


def _part() -> PartyPart:
    """As much of a party's part as takes messages of a draw that has not begun here."""
    part = PartyPart.__new__(PartyPart)
    part.drawing, part._early, part._assembler = None, [], Assembler(LIMIT)
    part.message_limit = LIMIT
    part.session = SimpleNamespace(seals=_Open())
    part.roster = SimpleNamespace(helpers=("p1", "p2", "p3"))  # type: ignore[assignment]
    return part


def test_few_messages_wait_for_a_draw_that_has_not_begun() -> None:
    """A peer may be one layer ahead; whoever sends a thousand fills nobody's memory [hostile review]."""
    part = _part()
    for number in range(1000):
        for raw in cut(number.to_bytes(4, "little")):
            part.receive("p2", SEALED, memoryview(raw))
    for raw in cut(b"of another peer"):
        part.receive("p3", SEALED, memoryview(raw))
    assert [name for name, _ in part._early] == ["p2"] * 4 + ["p3"]
    part._forget()
    assert part._early == []


def test_an_early_message_is_no_longer_than_the_longest_of_the_study() -> None:
    part = _part()
    part._assembler = Assembler(2 * PART_BYTES)
    for raw in cut(bytes(3 * PART_BYTES)):
        part.receive("p2", SEALED, memoryview(raw))
    assert part._early == []
