"""Tables of fields: what a table cannot say, what does not fit a field, and what bytes claim to hold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.protocol.fields import KINDS, Fixed, Layout, nested


@dataclass(frozen=True)
class Point:
    x: int
    label: bytes


@dataclass(frozen=True)
class Path:
    name: str
    points: tuple[Point, ...]
    note: bytes


POINT = Layout(Point, "u16 16")
PATH = Layout(
    Path,
    "points:length16 note:blob name:text points:points",
    KINDS | {"points": nested(POINT, many=True)},
)
EXAMPLE = Path("a", (Point(1, b"p" * 16), Point(65535, b"q" * 16)), b"note")


def test_a_length_may_stand_far_ahead() -> None:
    raw = b"".join(PATH.parts(EXAMPLE))
    assert raw == b"\2\0" + b"\4" + bytes(7) + b"note" + b"\1\0a" + b"\1\0" + b"p" * 16 + b"\xff\xff" + b"q" * 16
    assert PATH.read(raw, 0) == EXAMPLE
    for cut in range(len(raw)):
        with pytest.raises(RemoteProtocolError):
            PATH.read(raw[:cut], 0)
    with pytest.raises(RemoteProtocolError, match="wrong length"):
        PATH.read(raw + b"\0", 0)
    with pytest.raises(RemoteProtocolError, match="more than it holds"):
        PATH.read(b"\xff\xff" + raw[2:], 0)


@pytest.mark.parametrize("point", [Point(65536, bytes(16)), Point(-1, bytes(16)), Point(1, b"short")])
def test_what_does_not_fit_is_our_bug(point: Point) -> None:
    with pytest.raises(LocalProtocolError):
        POINT.parts(point)


def test_only_allowed_numbers_are_written_and_read() -> None:
    layout = Layout(Point, "odd 16", KINDS | {"odd": Fixed("B", allowed=frozenset((1, 3)))})
    assert layout.read(b"\3" + bytes(16), 0) == Point(3, bytes(16))
    with pytest.raises(RemoteProtocolError, match="unknown"):
        layout.read(b"\2" + bytes(16), 0)
    with pytest.raises(LocalProtocolError):
        layout.parts(Point(2, bytes(16)))


@pytest.mark.parametrize(("table", "error"), [("u16", ValueError), ("u16 16 u8", ValueError), ("u16 u128", KeyError)])
def test_a_table_that_does_not_fit_its_type_is_no_table(table: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Layout(Point, table)
