"""One peer that sends too much, takes nothing, calls too often, or does not say who it is: it costs its own line.

The limits by themselves are in ``core.allowance`` and ``doorkeeper.to_send_away``; here they meet real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest
from network_parties import PATIENCE, QUICK, dialler, listener, party, until
from test_network_hostile import HELLO, Rogue, honest_still_works

from tallystick.transport.link import Envelope
from tallystick.transport.network.admission import Inbox
from tallystick.transport.network.doorkeeper import caller_of, to_send_away
from tallystick.transport.network.frames import CHUNK, SMALL_BYTES, Kind, Reason, frame
from tallystick.transport.network.node import Node
from tallystick.transport.network.outbound import FIRST_STEP, Outbound, message_of

# Taking turns


def test_senders_take_turns_and_each_keeps_its_order() -> None:
    async def scene() -> list[tuple[str, bytes]]:
        inbox = Inbox(QUICK, asyncio.get_running_loop())
        for i in range(100):
            inbox.put_now(Envelope("rogue", "me", b"%d" % i))
        for name in ("a", "b"):
            for i in range(2):
                await inbox.put(Envelope(name, "me", b"%d" % i))
        got = [inbox.get(0.0) for _ in range(104)]
        assert inbox.get(0.0) is None
        return [(e.sender, e.raw) for e in got if e is not None]

    got = asyncio.run(scene())
    assert got[:6] == [("rogue", b"0"), ("a", b"0"), ("b", b"0"), ("rogue", b"1"), ("a", b"1"), ("b", b"1")]
    assert [raw for sender, raw in got if sender == "rogue"] == [b"%d" % i for i in range(100)]


def test_a_peer_that_sends_without_end_is_read_at_its_rate_and_nothing_is_lost() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, peer_burst=20, peer_rate=200.0))
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO, *(frame(Kind.SMALL, i + 1, b"%d" % i) for i in range(60)))
    got = [target.receive(PATIENCE) for _ in range(60)]
    assert [int(e.raw) for e in got if e is not None] == list(range(60))
    assert 0 < target.counters.peers()["a"].paced <= 60
    honest_still_works(target)
    assert target.counters.peers()["c"].paced == 0
    rogue.close()
    target.stop()


# Large messages that nobody grants


def test_a_message_that_is_never_granted_is_given_up_and_then_the_line() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, grant_after=0.3))
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO)
    assert target.wait_connected(["a"], PATIENCE)
    for _ in range(5):
        assert target.offer("a", bytes(CHUNK))
    assert rogue.hear(Kind.OPEN)
    honest_still_works(target)
    assert rogue.end() == (Reason.SLOW, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert target.counters.peers()["a"].ungranted == 3
    assert "c" not in target.counters.peers() or target.counters.peers()["c"].ungranted == 0
    rogue.close()
    target.stop()


def test_one_message_that_is_not_granted_in_time_does_not_hold_up_the_next() -> None:
    target = listener("b", "a", options=replace(QUICK, grant_after=0.3))
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO)
    assert target.wait_connected(["a"], PATIENCE)
    target.send("a", bytes(CHUNK))
    target.send("a", b"2" * CHUNK)
    assert rogue.hear(Kind.OPEN)[2:10] == (1).to_bytes(8, "little")
    assert rogue.hear(Kind.OPEN)[2:10] == (2).to_bytes(8, "little")
    rogue.say(frame(Kind.GRANT, 2))
    assert rogue.hear(Kind.DATA)[-1:] == b"2"
    assert target.counters.peers()["a"].ungranted == 1
    rogue.close()
    target.stop()


def test_the_lane_of_large_messages_is_bounded_in_bytes_and_comes_back() -> None:
    async def scene() -> None:
        options = replace(QUICK, queue_large_bytes=5 * SMALL_BYTES)
        outbound = Outbound(options, asyncio.get_running_loop(), FIRST_STEP)
        large = bytes(2 * SMALL_BYTES)
        offered = [outbound.offer(message_of(large, None), 0.0) for _ in range(4)]
        assert offered == [True, True, False, False]
        made = message_of(iter([large] * 50), 50 * len(large))  # is not in memory until it is sent
        assert outbound.offer(made, 0.0)
        assert outbound.offer(message_of(b"small", None), 0.0)
        assert outbound.draw() is not None  # the small one
        assert outbound.draw() is not None  # the first large one is announced, and no longer in the lane
        assert outbound.offer(message_of(large, None), 0.0)
        assert outbound.abandon() is not None
        assert outbound.waits_for_grant(1e12) == 0.0
        other = Outbound(options, asyncio.get_running_loop(), FIRST_STEP)
        assert other.offer(message_of(bytes(100 * SMALL_BYTES), None), 0.0)  # one always fits

    asyncio.run(scene())


# Calling


def test_a_peer_that_calls_without_end_is_told_to_wait() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, call_burst=3, call_rate=0.001))
    ends = []
    for _ in range(5):
        rogue = Rogue(target, party("a"))
        rogue.say(HELLO, b"")
        ends.append(rogue.end()[1])
        rogue.close()
    assert ends == [grpc.StatusCode.INVALID_ARGUMENT] * 3 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
    assert target.counters.peers()["a"].busy == 2
    honest_still_works(target)
    target.stop()


# At the door


def test_who_has_to_go_is_the_oldest_of_the_address_with_most() -> None:
    waiting = {("10.0.0.1", port): float(port) for port in range(10)} | {("10.0.0.2", 1): -1.0}
    assert to_send_away(waiting, 11) == []
    assert to_send_away(waiting, 8) == [("10.0.0.1", 0), ("10.0.0.1", 1), ("10.0.0.1", 2)]
    gone = to_send_away(waiting, 1)
    assert len(gone) == 10
    assert gone[-1] in (("10.0.0.2", 1), ("10.0.0.1", 9))
    assert to_send_away(waiting, 0) == [*to_send_away(waiting, 1), *(set(waiting) - set(gone))]


@pytest.mark.parametrize(
    "peer, caller",
    [
        ("ipv4:192.0.2.1:5000", ("192.0.2.1", 5000)),
        ("ipv6:%5B2001:db8::1%5D:5000", ("2001:db8::1", 5000)),
        ("ipv6:%5B::ffff:192.0.2.1%5D:5000", ("192.0.2.1", 5000)),
        ("ipv6:[fe80::1%25eth0]:77", ("fe80::1", 77)),
        ("unix:/tmp/socket", None),
        ("", None),
    ],
)
def test_where_a_caller_calls_from(peer: str, caller: tuple[str, int] | None) -> None:
    assert caller_of(peer) == caller


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def half_open(target: Node, count: int) -> Iterator[socket.socket]:
    """Callers of every kind that never say who they are."""
    hello = client_hello()
    said = (b"", hello[:20], hello, os.urandom(1000), b"\x16\x03\x01\xff\xff" + bytes(16000))
    for i in range(count):
        one = socket.create_connection(("127.0.0.1", target.port or 0), PATIENCE)
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.send(said[i % len(said)])
        yield one


def still_open(sockets: list[socket.socket]) -> int:
    count = 0
    for one in sockets:
        try:
            while one.recv(65536):
                pass
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def test_callers_that_do_not_say_who_they_are_are_limited_and_honest_ones_get_in_and_stay() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, half_open=16, handshake_timeout=600.0))
    a = dialler("a", target)
    assert a.wait_connected(["b"], PATIENCE)
    held = list(half_open(target, 400))  # more than the sockets there are
    until(lambda: still_open(held) <= 16)
    until(lambda: target.counters.sent_away > 0)
    honest_still_works(target)
    a.send("b", b"was there before")
    got = target.receive(PATIENCE)
    assert got is not None
    assert got.raw == b"was there before"
    assert target.connected() >= {"a"}
    assert target.counters.peers()["a"].connections == 1  # its line was never touched
    for one in held:
        one.close()
    a.stop()
    target.stop()
