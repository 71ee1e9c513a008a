"""What every transport must do; a test class per transport inherits it."""

from __future__ import annotations

from tallystick.transport.link import Link


class LinkContract:
    """Three ends named a, b and c, fresh for every test."""

    def links(self) -> tuple[Link, Link, Link]:
        raise NotImplementedError

    def test_messages_keep_their_bounds_sender_and_order(self) -> None:
        a, b, c = self.links()
        a.send(b.name, b"one")
        a.send(b.name, b"")
        c.send(b.name, b"x" * 100_000)
        got = [b.receive() for _ in range(3)]
        assert sorted((e.sender, e.to, len(e.raw)) for e in got if e) == [
            ("a", "b", 0),
            ("a", "b", 3),
            ("c", "b", 100_000),
        ]
        assert [e.raw for e in got if e and e.sender == "a"] == [b"one", b""]

    def test_nothing_there_is_none_and_strangers_are_not_an_error(self) -> None:
        a, b, _ = self.links()
        assert a.receive() is None
        a.send("nobody", b"lost")
        assert b.receive() is None
