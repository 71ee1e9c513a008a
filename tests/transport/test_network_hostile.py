"""Hostile peers against the real listener and dialler: bad certificates, too much, malformed, other versions, too slow.

``Rogue`` speaks gRPC with a party's own certificate and sends whatever frames it likes.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from network_parties import CA, PATIENCE, QUICK, Issued, credentials, dialler, issue, listener, party, peer, until

from tallystick.transport.network.credentials import fingerprint
from tallystick.transport.network.dialler import peer_certificate
from tallystick.transport.network.frames import (
    ABANDON,
    CHUNK,
    GREETING,
    HEAD_BYTES,
    LAST,
    MAX_FRAME,
    SMALL_BYTES,
    Kind,
    Reason,
    Refusal,
    frame,
    open_frame,
    parse,
    parse_close,
)
from tallystick.transport.network.node import Node
from tallystick.transport.network.options import Options

HELLO = frame(Kind.HELLO, 0, GREETING)


class Rogue:
    """A caller with its own idea of the format."""

    def __init__(self, to: Node, issued: Issued | None, *, ca: Issued = CA, name: str = "b") -> None:
        shown = (issued.key_pem, issued.pem) if issued else (None, None)
        self.channel = grpc.secure_channel(
            f"127.0.0.1:{to.port}",
            grpc.ssl_channel_credentials(ca.pem, *shown),
            options=[
                ("grpc.ssl_target_name_override", name),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", -1),
            ],
        )
        self._out: queue.Queue[bytes | None] = queue.Queue()
        self.call = self.channel.stream_stream("/tallystick.Network/Exchange")(iter(self._out.get, None))

    def say(self, *frames: bytes) -> None:
        for one in frames:
            self._out.put(one)

    def hear(self, kind: Kind) -> bytes:
        """The next frame of this type."""
        for raw in self.call:
            if parse(raw)[0] == kind:
                return bytes(raw)
        raise AssertionError("the stream ended")

    def end(self) -> tuple[Reason | None, grpc.StatusCode]:
        """How the other side ended the stream: what it said last, and the status."""
        said = None
        try:
            for raw in self.call:
                if parse(raw)[0] == Kind.CLOSE:
                    said = parse_close(raw)[0]
        except grpc.RpcError:
            pass
        return said, self.call.code()

    def close(self) -> None:
        self._out.put(None)
        self.channel.close()


@pytest.fixture
def target() -> Iterator[Node]:
    node = listener("b", "a", "c")
    yield node
    node.stop()


def honest_still_works(target: Node) -> None:
    c = dialler("c", target)
    assert c.wait_connected(["b"], PATIENCE)
    c.send("b", b"honest")
    got = target.receive(PATIENCE)
    assert got is not None
    assert (got.sender, got.raw) == ("c", b"honest")
    c.stop()


# Identities


def stranger(kind: str) -> tuple[Issued | None, Issued]:
    foreign = issue("foreign", None, is_ca=True)
    alike = issue("test consortium", None, is_ca=True)  # the CA's name with another key
    return {
        "foreign CA": (issue("a", foreign), CA),
        "CA of the same name": (issue("a", alike), CA),
        "self-signed": (issue("a", None), CA),
        "expired": (issue("a", CA, first_day=-20, last_day=-1), CA),
        "not yet valid": (issue("a", CA, first_day=1), CA),
        "no certificate": (None, CA),
    }[kind]


STRANGERS = ["foreign CA", "CA of the same name", "self-signed", "no certificate"]


def refused_by_tls(target: Node, kind: str) -> None:
    issued, _ = stranger(kind)
    if issued is not None:  # even a fingerprint that is pinned does not help
        target.set_peers([peer("a", None, issued), peer("c")])
    rogue = Rogue(target, issued)
    rogue.say(HELLO)
    assert rogue.end() == (None, grpc.StatusCode.UNAVAILABLE)
    rogue.close()
    assert target.connected() == set()
    honest_still_works(target)


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_forged_certificate_is_refused_by_tls(target: Node, kind: str) -> None:
    refused_by_tls(target, kind)


@pytest.mark.parametrize("kind", ["expired", "not yet valid"])
def test_a_certificate_out_of_date_is_refused_by_tls(target: Node, kind: str) -> None:
    refused_by_tls(target, kind)


def test_the_right_ca_but_not_pinned_is_refused_and_logged(target: Node, caplog: pytest.LogCaptureFixture) -> None:
    issued = issue("a", CA)  # the name of a party, signed by the CA, never pinned
    rogue = Rogue(target, issued)
    rogue.say(HELLO)
    assert rogue.end() == (None, grpc.StatusCode.UNAUTHENTICATED)
    rogue.close()
    assert target.counters.strangers == 1
    assert fingerprint(issued.pem) in caplog.text
    honest_still_works(target)


def test_a_party_is_who_its_certificate_says(target: Node) -> None:
    rogue = Rogue(target, party("c"))
    rogue.say(HELLO, frame(Kind.SMALL, 1, b"I am a"))
    got = target.receive(PATIENCE)
    assert got is not None
    assert got.sender == "c"
    rogue.close()


@pytest.mark.parametrize("kind", ["foreign CA", "self-signed", "expired", "not yet valid", "not pinned"])
def test_a_dialler_refuses_a_false_listener(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    issued = issue("b", CA) if kind == "not pinned" else stranger(kind)[0]
    assert issued is not None
    false = Node(credentials("b", issued), [peer("a")], listen="127.0.0.1:0", options=QUICK).start()
    pinned = (
        peer("b", f"127.0.0.1:{false.port}") if kind == "not pinned" else peer("b", f"127.0.0.1:{false.port}", issued)
    )
    a = Node(credentials("a"), [pinned], dial=["b"], options=QUICK).start()
    until(lambda: a.counters.ends().get(Reason.REFUSED, 0) >= 2)  # and it does not give in
    assert a.connected() == false.connected() == set()
    assert set(a.counters.ends()) == {Reason.REFUSED}
    a.stop()
    false.stop()


def test_a_dialler_trusts_the_pinned_certificate_only_not_the_ca_once_more() -> None:
    """A listener that shows the pinned certificate first and is exchanged for another of the same CA after it."""
    b = listener("b", "a")
    a = dialler("a", b, replace(QUICK, first_backoff=0.02, longest_backoff=0.05))
    assert a.wait_connected(["b"], PATIENCE)
    port = b.port
    b.stop()
    other = Node(credentials("b", issue("b", CA)), [peer("a")], listen=f"127.0.0.1:{port}", options=QUICK).start()
    until(lambda: a.counters.ends().get(Reason.REFUSED, 0) >= 1)
    assert a.connected() == other.connected() == set()
    a.stop()
    other.stop()


def tls_socket(target: Node, folder: Path, version: ssl.TLSVersion) -> ssl.SSLSocket:
    (folder / "pem").write_bytes(party("a").key_pem + party("a").pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=CA.pem.decode())
    context.load_cert_chain(folder / "pem")
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    assert target.port
    return context.wrap_socket(socket.create_connection(("127.0.0.1", target.port), PATIENCE), server_hostname="b")


def test_lines_are_tls_1_3_and_nothing_else(target: Node, tmp_path: Path) -> None:
    with tls_socket(target, tmp_path, ssl.TLSVersion.TLSv1_3) as good:
        assert good.version() == "TLSv1.3"
    # gRPC may finish a TLS 1.2 handshake; a stream over it is refused. Speak HTTP/2 by hand to see it.
    try:
        old = tls_socket(target, tmp_path, ssl.TLSVersion.TLSv1_2)
    except OSError:
        return
    with old:
        text = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/tallystick.Network/Exchange")]
        text += [(b":authority", b"b"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
        block = b"".join(b"\x00" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in text)
        headers = struct.pack(">I", len(block))[1:] + b"\x01\x04" + struct.pack(">I", 1) + block
        old.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + headers)
        until(lambda: target.counters.strangers == 1)
    assert target.connected() == set()


def test_a_dialler_speaks_tls_1_3_only(tmp_path: Path) -> None:
    (tmp_path / "pem").write_bytes(party("b").key_pem + party("b").pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def serve() -> None:
            accepted, _ = plain.accept()
            with accepted, pytest.raises(OSError):
                context.wrap_socket(accepted, server_side=True)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(Refusal, match="TLS failed"):
            peer_certificate(CA.pem, peer("b", f"127.0.0.1:{plain.getsockname()[1]}"), PATIENCE)
        serving.join(PATIENCE)


# Too much


class Sunk:
    """A sink that remembers how much it was made to take."""

    def __init__(self) -> None:
        self.size = 0
        self.ended = ""

    def write(self, chunk: memoryview) -> None:
        self.size += len(chunk)

    def close(self) -> bytes:
        self.ended += "closed"
        return b"stored"

    def abort(self) -> None:
        self.ended += "aborted"


def announced(rogue: Rogue, length: int, ident: int = 1) -> None:
    rogue.say(HELLO, open_frame(ident, length, bytes(HEAD_BYTES)))
    rogue.hear(Kind.GRANT)


@pytest.mark.parametrize("sunk", [True, False])
def test_more_than_announced_is_cut_while_streaming(sunk: bool) -> None:
    sink = Sunk()
    target = listener("b", "a", "c", sinks=(lambda *_: sink) if sunk else None)
    target.allow(3 * CHUNK)
    rogue = Rogue(target, party("a"))
    announced(rogue, 2 * CHUNK + 1)
    rogue.say(*[frame(Kind.DATA, 1, bytes(CHUNK))] * 50)
    assert rogue.end() == (Reason.TOO_LARGE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    rogue.close()
    until(lambda: not target.connected())
    assert target.counters.peers()["a"].bytes_received < 4 * CHUNK
    if sunk:
        until(lambda: sink.ended)
        assert sink.ended == "aborted"
        assert sink.size <= 2 * CHUNK
    assert target.receive() is None
    honest_still_works(target)
    target.stop()


def test_a_frame_above_the_limit_is_not_even_read(target: Node) -> None:
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO, frame(Kind.SMALL, 1, bytes(64 << 20)))
    assert rogue.end()[1] is grpc.StatusCode.RESOURCE_EXHAUSTED
    rogue.close()
    assert target.counters.total().bytes_received < MAX_FRAME
    honest_still_works(target)


def test_a_length_above_the_limit_is_declined_before_anything_is_allocated(target: Node) -> None:
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO, open_frame(1, 2**64 - 1, bytes(HEAD_BYTES)))
    assert rogue.hear(Kind.DECLINE)[-1] == Reason.TOO_LARGE
    rogue.say(frame(Kind.SMALL, 2, b"still there"))
    got = target.receive(PATIENCE)
    assert got is not None
    assert got.raw == b"still there"
    rogue.close()


# What the format does not allow

BIG = open_frame(1, 2 * CHUNK, bytes(HEAD_BYTES))
MALFORMED = {
    "empty frame": [HELLO, b""],
    "cut in its header": [HELLO, b"\x02\x00\x01"],
    "unknown type": [HELLO, b"\x63" + bytes(9)],
    "type zero": [HELLO, bytes(10)],
    "unknown flags": [HELLO, b"\x02\x80" + struct.pack("<Q", 1) + b"x"],
    "flags on a small message": [HELLO, frame(Kind.SMALL, 1, b"x", LAST)],
    "no greeting": [frame(Kind.SMALL, 1, b"x")],
    "two greetings": [HELLO, HELLO],
    "message id repeated": [HELLO, frame(Kind.SMALL, 1, b"x"), frame(Kind.SMALL, 1, b"x")],
    "message id skipped": [HELLO, frame(Kind.SMALL, 2, b"x")],
    "small message too large": [HELLO, frame(Kind.SMALL, 1, bytes(SMALL_BYTES + 1))],
    "announced too small": [HELLO, open_frame(1, SMALL_BYTES, bytes(HEAD_BYTES))],
    "announced without its beginning": [HELLO, open_frame(1, CHUNK, b"short")],
    "announced without a length": [HELLO, frame(Kind.OPEN, 1, b"1234567")],
    "two announced": [HELLO, BIG, open_frame(2, 2 * CHUNK, bytes(HEAD_BYTES))],
    "data never announced": [HELLO, frame(Kind.DATA, 1, b"x", LAST)],
    "data with id zero": [HELLO, frame(Kind.DATA, 0, b"x")],
    "trailing bytes on a heartbeat": [HELLO, frame(Kind.BEAT, 0, b"x")],
    "grant for nothing": [HELLO, frame(Kind.GRANT, 0)],
    "decline of nothing": [HELLO, frame(Kind.DECLINE, 7, b"\x05")],
    "unknown reason": [HELLO, frame(Kind.CLOSE, 0, b"\xff")],
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_frame_closes_the_stream_with_a_reason(target: Node, kind: str) -> None:
    target.allow(4 * CHUNK)
    rogue = Rogue(target, party("a"))
    rogue.say(*MALFORMED[kind])
    assert rogue.end() == (Reason.MALFORMED, grpc.StatusCode.INVALID_ARGUMENT)
    rogue.close()
    until(lambda: target.counters.ends() == {Reason.MALFORMED: 1})
    assert target.connected() == set()


ENDS = {
    "ends too early": [frame(Kind.DATA, 1, bytes(10), LAST)],
    "does not end": [frame(Kind.DATA, 1, bytes(CHUNK)), frame(Kind.DATA, 1, bytes(CHUNK))],
    "empty chunk": [frame(Kind.DATA, 1)],
    "another id": [frame(Kind.DATA, 2, bytes(CHUNK))],
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_large_message_that_does_not_add_up_is_erased(kind: str) -> None:
    sink = Sunk()
    target = listener("b", "a", sinks=lambda *_: sink)
    rogue = Rogue(target, party("a"))
    announced(rogue, 2 * CHUNK)
    rogue.say(*ENDS[kind])
    assert rogue.end() == (Reason.MALFORMED, grpc.StatusCode.INVALID_ARGUMENT)
    rogue.close()
    until(lambda: sink.ended)
    assert sink.ended == "aborted"
    assert target.receive() is None
    target.stop()


def test_data_before_the_grant_closes_the_stream() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, max_streams=1))
    target.allow(4 * CHUNK)
    first = Rogue(target, party("c"))
    announced(first, 2 * CHUNK)  # holds the only grant
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO, BIG, frame(Kind.DATA, 1, bytes(CHUNK)))
    assert rogue.end() == (Reason.MALFORMED, grpc.StatusCode.INVALID_ARGUMENT)
    first.say(frame(Kind.DATA, 1, bytes(CHUNK)), frame(Kind.DATA, 1, bytes(CHUNK), LAST))
    got = target.receive(PATIENCE)
    assert got is not None
    assert (got.sender, len(got.raw)) == ("c", 2 * CHUNK)
    for one in (first, rogue):
        one.close()
    target.stop()


@pytest.mark.parametrize("how", ["hangs up", "abandons"])
def test_a_truncated_stream_erases_what_there_was_and_frees_the_grant(how: str) -> None:
    sink = Sunk()
    target = listener("b", "a", options=replace(QUICK, max_streams=1), sinks=lambda *_: sink)
    rogue = Rogue(target, party("a"))
    announced(rogue, 2 * CHUNK)
    rogue.say(frame(Kind.DATA, 1, bytes(CHUNK)))
    until(lambda: sink.size == CHUNK)
    if how == "hangs up":
        rogue.close()
    else:
        rogue.say(frame(Kind.DATA, 1, b"", LAST | ABANDON))
    until(lambda: sink.ended)
    assert sink.ended == "aborted"
    again = Rogue(target, party("a"))
    announced(again, 2 * CHUNK)
    for one in (again, rogue):
        one.close()
    assert target.receive() is None
    target.stop()


def test_another_version_is_refused_naming_both(target: Node) -> None:
    rogue = Rogue(target, party("a"))
    rogue.say(frame(Kind.HELLO, 0, b"tallystick network 9"))
    assert rogue.end() == (Reason.VERSION, grpc.StatusCode.FAILED_PRECONDITION)
    assert "network 9" in rogue.call.details()
    assert "network 1" in rogue.call.details()
    rogue.close()


# Too slow, too idle, too many

HASTY = Options(
    heartbeat=0.1, dead_after=0.6, stall_after=0.6, slow_grace=0.4, lowest_rate=1e6, handshake_timeout=0.5, linger=0.2
)


def test_no_greeting_is_cut() -> None:
    target = listener("b", "a", options=HASTY)
    rogue = Rogue(target, party("a"))
    assert rogue.end() == (Reason.SLOW, grpc.StatusCode.DEADLINE_EXCEEDED)
    rogue.close()
    target.stop()


def test_silence_is_cut() -> None:
    target = listener("b", "a", options=HASTY)
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO)
    assert rogue.end() == (Reason.SILENT, grpc.StatusCode.DEADLINE_EXCEEDED)
    rogue.close()
    target.stop()


def test_a_message_dripping_in_is_cut_though_heartbeats_come() -> None:
    sink = Sunk()
    target = listener("b", "a", options=HASTY, sinks=lambda *_: sink)
    rogue = Rogue(target, party("a"))
    announced(rogue, 2 * CHUNK)
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.05):
            rogue.say(frame(Kind.DATA, 1, b"x"), frame(Kind.BEAT))

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert rogue.end() == (Reason.SLOW, grpc.StatusCode.DEADLINE_EXCEEDED)
    stop.set()
    dripping.join()
    rogue.close()
    until(lambda: sink.ended)
    assert sink.ended == "aborted"
    target.stop()


def test_a_peer_that_takes_nothing_is_cut() -> None:
    target = listener("b", "a", options=replace(HASTY, dead_after=60.0, queue_messages=10_000, queue_bytes=1 << 30))
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO)
    assert target.wait_connected(["a"], PATIENCE)
    for _ in range(400):  # beyond what the kernel and gRPC hold for an unread stream
        target.offer("a", bytes(SMALL_BYTES))
    until(lambda: target.counters.ends().get(Reason.SLOW))
    rogue.close()
    target.stop()


def test_idle_sockets_are_closed_and_honest_parties_are_served_meanwhile() -> None:
    target = listener("b", "a", "c", options=replace(HASTY, dead_after=10.0))
    assert target.port
    idle = [socket.create_connection(("127.0.0.1", target.port), PATIENCE) for _ in range(200)]
    for one in idle[::2]:
        one.sendall(b"\x16\x03\x01")  # the beginning of a handshake, and no more
    honest_still_works(target)
    for one in idle:
        one.settimeout(PATIENCE)
        with one, contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""
    target.stop()


def test_sockets_above_the_cap_are_closed_at_once() -> None:
    target = listener("b", "a", options=replace(QUICK, max_sockets=5, handshake_timeout=600.0))
    assert target.port
    idle = [socket.create_connection(("127.0.0.1", target.port), PATIENCE) for _ in range(20)]
    closed: set[int] = set()

    def most_are_closed() -> bool:
        for i, one in enumerate(idle):
            one.setblocking(False)
            try:
                closed.update([i] if one.recv(1) == b"" else [])
            except BlockingIOError:
                pass
            except ConnectionResetError:
                closed.add(i)
        return len(closed) >= 15

    until(most_are_closed)
    assert len(closed) == 15
    for one in idle:
        one.close()
    a = dialler("a", target)
    assert a.wait_connected(["b"], PATIENCE)
    a.stop()
    target.stop()


def test_connections_above_the_cap_are_refused() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, max_connections=1))
    first = dialler("a", target)
    assert first.wait_connected(["b"], PATIENCE)
    rogue = Rogue(target, party("c"))
    rogue.say(HELLO)
    assert rogue.end() == (None, grpc.StatusCode.RESOURCE_EXHAUSTED)
    rogue.close()
    assert target.connected() == {"a"}
    first.stop()
    target.stop()


def test_one_flooding_party_does_not_fill_the_inbox() -> None:
    target = listener("b", "a", "c", options=replace(QUICK, peer_inbox_messages=10))
    rogue = Rogue(target, party("a"))
    rogue.say(HELLO, *(frame(Kind.SMALL, i + 1, bytes(1000)) for i in range(5000)))
    until(lambda: target.counters.peers().get("a") and target.counters.peers()["a"].messages_received == 10)
    c = dialler("c", target)
    assert c.wait_connected(["b"], PATIENCE)
    c.send("b", b"honest")
    until(lambda: target.counters.peers().get("c") and target.counters.peers()["c"].messages_received == 1)
    got = [target.receive(PATIENCE) for _ in range(11)]
    assert [e.sender for e in got if e].index("c") <= 10
    rogue.close()
    c.stop()
    target.stop()
