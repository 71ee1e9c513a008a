"""Messages over real lines: the transport contract, sizes, sinks, back-pressure, reconnecting, stopping."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from link_contract import LinkContract
from network_parties import CA, PATIENCE, QUICK, credentials, dialler, issue, listener, party, peer, until

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.transport.link import Envelope, Link
from tallystick.transport.network.admission import Grants, Unwanted
from tallystick.transport.network.frames import CHUNK, HEADER_BYTES, SMALL_BYTES, Reason
from tallystick.transport.network.node import Node
from tallystick.transport.network.options import Options
from tallystick.transport.network.outbound import FIRST_STEP, Outbound, Pace, message_of


@pytest.fixture
def pair() -> Iterator[tuple[Node, Node]]:
    b = listener("b", "a")
    a = dialler("a", b)
    assert a.wait_connected(["b"], PATIENCE)
    assert b.wait_connected(["a"], PATIENCE)
    yield a, b
    a.stop()
    b.stop()


class KnowingLink:
    """Waits for what was sent to it by others in this test, and only then."""

    def __init__(self, node: Node, owed: dict[str, int]) -> None:
        self.name, self._node, self._owed = node.name, node, owed

    def send(self, to: str, raw: bytes) -> None:
        if to in self._owed:
            self._owed[to] += 1
        self._node.send(to, raw)

    def receive(self) -> Envelope | None:
        if not self._owed[self.name]:
            return self._node.receive()
        self._owed[self.name] -= 1
        return self._node.receive(PATIENCE)


class TestNetworkLink(LinkContract):
    @pytest.fixture(autouse=True)
    def _nodes(self) -> Iterator[None]:
        b = listener("b", "a", "c")
        self.nodes = (dialler("a", b), b, dialler("c", b))
        assert b.wait_connected(["a", "c"], PATIENCE)
        until(lambda: self.nodes[0].connected() and self.nodes[2].connected())
        yield
        for node in self.nodes:
            node.stop()

    def links(self) -> tuple[Link, Link, Link]:
        for node in self.nodes:
            node.allow(1 << 20)
        owed = dict.fromkeys("abc", 0)
        return tuple(KnowingLink(node, owed) for node in self.nodes)  # type: ignore[return-value]


SIZES = [0, 1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, CHUNK, CHUNK + 1024, CHUNK + 1025, 3 * CHUNK + 7]


@pytest.mark.parametrize("back", [False, True])
def test_every_size_arrives_whole_both_ways(pair: tuple[Node, Node], back: bool) -> None:
    one, other = reversed(pair) if back else pair
    other.allow(8 << 20)
    for size in SIZES:
        raw = bytes(itertools.islice(itertools.cycle(range(251)), size))
        one.send(other.name, raw)
        assert other.receive(PATIENCE) == Envelope(one.name, other.name, raw)
    assert other.receive() is None


def test_small_and_large_messages_keep_their_order_among_themselves(pair: tuple[Node, Node]) -> None:
    a, b = pair
    b.allow(1 << 20)
    for i in range(40):
        a.send("b", bytes([i]) * (100_000 if i % 2 else 10))
    got = [b.receive(PATIENCE) for _ in range(40)]
    first = [(len(e.raw), e.raw[0]) for e in got if e]
    assert [i for size, i in first if size == 10] == list(range(0, 40, 2))
    assert [i for size, i in first if size == 100_000] == list(range(1, 40, 2))


def test_a_study_that_begins_takes_nothing_from_one_that_runs(pair: tuple[Node, Node]) -> None:
    """The later one has short messages, and once made the earlier one's too long for their receiver."""
    a, b = pair
    b.allow(300_000, "a", study=b"long")
    b.allow(2_000, "a", study=b"short")
    for size in (200_000, 1_000):
        a.send("b", bytes(size))
        assert len(b.receive(PATIENCE).raw) == size  # type: ignore[union-attr]
    b.allow_no_more(b"long")
    assert b.limit_of("a") == 2_000
    b.allow_no_more(b"short")
    assert b.limit_of("a") == b.options.message_limit
    b.allow(5_000)
    assert b.limit_of("a") == 5_000  # from each


def test_pieces_are_sent_as_they_are_made(pair: tuple[Node, Node]) -> None:
    a, b = pair
    b.allow(8 << 20)
    pieces = [bytes([i]) * size for i, size in enumerate((300, CHUNK, 1, CHUNK + 1024, CHUNK + 1025, 5))]
    a.send("b", iter(pieces), length=sum(map(len, pieces)))
    a.send("b", iter([b"ab", b"c"]), length=3)
    got = [b.receive(PATIENCE), b.receive(PATIENCE)]
    assert {e.raw for e in got if e} == {b"".join(pieces), b"abc"}


def broken(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield bytes(100_000)
    raise ValueError("no more")


@pytest.mark.parametrize(
    "pieces",
    [
        lambda: iter([bytes(100_000)]),  # too few
        lambda: iter([bytes(100_000), bytes(200_001)]),  # too many
        lambda: iter([bytes(10), bytes(299_990)]),  # cannot be announced
        lambda: iter([bytes(300_001)]),
        lambda: broken(0),
        lambda: broken(2),
    ],
)
def test_pieces_that_do_not_add_up_leave_nothing_and_the_line_stays(pair: tuple[Node, Node], pieces) -> None:
    a, b = pair
    b.allow(1 << 20)
    a.send("b", pieces(), length=300_000)
    a.send("b", bytes(100_000))
    got = b.receive(PATIENCE)
    assert got is not None
    assert len(got.raw) == 100_000
    assert b.receive() is None
    assert b.counters.peers()["a"].connections == 1


def test_a_length_is_needed_and_checked(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    with pytest.raises(LocalProtocolError):
        a.send("b", iter([b"x"]))
    with pytest.raises(LocalProtocolError):
        a.send("b", b"xy", length=3)
    with pytest.raises(LocalProtocolError):
        a.send("b", iter([b"x"]), length=2)


class FileLike:
    """A sink that counts, and records how it ended."""

    def __init__(self, *, fail: bool = False, deliver: bytes | None = None) -> None:
        self.size = 0
        self.ended = ""
        self.sum = 0
        self._fail = fail
        self._deliver = deliver

    def write(self, chunk: memoryview) -> None:
        if self._fail:
            raise OSError(28, "No space left on device")
        assert len(chunk) <= CHUNK + 1024
        self.size += len(chunk)
        self.sum += chunk[0]

    def close(self) -> bytes | None:
        self.ended += "closed"
        return self._deliver

    def abort(self) -> None:
        self.ended += "aborted"


def test_ten_million_entries_stream_to_a_sink_without_any_setting() -> None:
    seen: list[tuple[str, int, bytes]] = []
    sink = FileLike(deliver=b"share 1 is in the spool")

    def factory(sender: str, length: int, head: bytes) -> FileLike:
        seen.append((sender, length, head))
        return sink

    b = listener("b", "a", sinks=factory)
    a = dialler("a", b)
    assert a.wait_connected(["b"], PATIENCE)
    raw = b"vector" + bytes(80_000_000 - 6)
    a.send("b", raw)
    assert b.receive(PATIENCE) == Envelope("a", "b", b"share 1 is in the spool")
    assert (sink.size, sink.ended) == (80_000_000, "closed")
    assert seen == [("a", 80_000_000, raw[:256])]
    a.stop()
    b.stop()


def test_a_full_disk_declines_the_message_and_the_line_stays() -> None:
    sinks = [FileLike(fail=True), FileLike(deliver=b"stored")]
    b = listener("b", "a", sinks=lambda sender, length, head: sinks[head[0]])
    a = dialler("a", b)
    assert a.wait_connected(["b"], PATIENCE)
    a.send("b", bytes(9_000_000))
    a.send("b", b"\x01" * 9_000_000)
    got = b.receive(PATIENCE)
    assert got is not None
    assert got.raw == b"stored"
    until(lambda: sinks[0].ended)
    assert [s.ended for s in sinks] == ["aborted", "closed"]
    assert b.counters.peers()["a"].declined == 1
    assert b.counters.peers()["a"].connections == 1
    a.stop()
    b.stop()


def test_an_unwanted_message_is_not_streamed_at_all() -> None:
    def factory(sender: str, length: int, head: bytes) -> None:
        if length > 1_000_000:
            raise Unwanted

    b = listener("b", "a", sinks=factory)
    a = dialler("a", b)
    assert a.wait_connected(["b"], PATIENCE)
    a.send("b", bytes(50_000_000))
    until(lambda: a.counters.peers()["b"].dropped == 1)
    a.send("b", bytes(100_000))
    assert b.receive(PATIENCE)
    assert b.counters.peers()["a"].bytes_received < 1_000_000
    a.stop()
    b.stop()


def test_a_line_that_ends_aborts_the_sink() -> None:
    sink = FileLike()
    b = listener("b", "a", sinks=lambda *_: sink)
    a = dialler("a", b)
    assert a.wait_connected(["b"], PATIENCE)
    more = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield bytes(CHUNK)
        more.wait(PATIENCE)
        yield bytes(CHUNK)

    a.send("b", pieces(), length=3 * CHUNK)
    until(lambda: sink.size)
    b.stop(grace=0.01)
    assert sink.ended == "aborted"
    more.set()
    a.stop(grace=0.01)


def test_a_party_that_does_not_receive_holds_its_senders_back() -> None:
    options = replace(QUICK, inbox_messages=4, peer_inbox_messages=4, queue_messages=4, queue_bytes=200_000)
    b = listener("b", "a", "c", options=options)
    a, c = dialler("a", b, options), dialler("c", b, options)
    assert a.wait_connected(["b"], PATIENCE)
    assert c.wait_connected(["b"], PATIENCE)
    sent = 0
    misses = 0
    while misses < 20:  # full: inbox, one more that waits, gRPC's windows and the queue
        if a.offer("b", sent.to_bytes(4, "big") + bytes(50_000), timeout=0.05):
            sent, misses = sent + 1, 0
        else:
            misses += 1
    assert 4 < sent < 1000
    for i in range(sent):
        got = b.receive(PATIENCE)
        assert got is not None
        assert int.from_bytes(got.raw[:4], "big") == i
    c.send("b", b"the other one")
    last = b.receive(PATIENCE)
    assert last is not None
    assert last.raw == b"the other one"
    for node in (a, b, c):
        node.stop()


def test_only_so_many_large_messages_are_under_way_at_once() -> None:
    options = replace(QUICK, max_streams=2)
    at_once, most, lock = 0, 0, threading.Lock()

    class Gauge(FileLike):
        def write(self, chunk: memoryview) -> None:
            nonlocal at_once, most
            with lock:
                if not self.size:
                    at_once += 1
                    most = max(most, at_once)
                self.size += len(chunk)

        def close(self) -> bytes:
            nonlocal at_once
            with lock:
                at_once -= 1
            return b"done"

    names = [f"client-{i}" for i in range(8)]
    b = listener("b", *names, options=options, sinks=lambda *_: Gauge())
    clients = [dialler(name, b) for name in names]
    assert b.wait_connected(names, PATIENCE)
    until(lambda: all(node.connected() for node in clients))
    raw = bytes(4 * CHUNK)
    for node in clients:
        node.send("b", raw)
    assert all(b.receive(PATIENCE) for _ in names)
    assert 1 <= most <= 2
    for node in clients:
        node.stop()
    b.stop()


def test_frames_are_as_long_as_the_line_carries_in_a_second() -> None:
    """A line at the lowest rate was cut: a chunk on it took longer than a line may be silent."""

    async def scene() -> None:
        outbound = Outbound(QUICK, asyncio.get_running_loop(), FIRST_STEP)
        assert outbound.offer(message_of(bytes(6 * CHUNK), None), 0.0)
        assert outbound.draw() is not None  # announced
        assert outbound.granted(1)

        def size(seconds_per_byte: float) -> int:
            raw = outbound.draw()
            assert raw is not None
            outbound.paced(len(raw), len(raw) * seconds_per_byte)
            return len(raw) - HEADER_BYTES

        lowest = 1 / Options().lowest_rate
        assert size(lowest) * lowest < Options().slow_grace  # the first, whatever the line
        for _ in range(5):
            assert size(lowest) == 1 << 16
        assert size(1e-9) == 1 << 16
        assert size(1e-9) >= CHUNK  # fast again
        assert size(1e-6) >= CHUNK
        assert 900_000 < size(1e-9) < 1_100_000

    asyncio.run(scene())


def test_a_new_line_begins_with_what_the_last_one_carried_unless_it_broke() -> None:
    pace = Pace()
    short = pace.begin("b")
    assert short / Options().lowest_rate < Options().slow_grace
    pace.learned("b", CHUNK)
    assert pace.begin("b") == pace.begin("c") == CHUNK
    pace.broke("b")
    assert (pace.begin("b"), pace.begin("c")) == (short, CHUNK)
    pace.learned("b", CHUNK)  # the next line to it is fast again
    assert pace.begin("b") == CHUNK
    pace.learned("c", 1 << 16)
    assert pace.begin("d") == 1 << 16


def test_only_the_one_who_dials_learns_a_pace_and_forgets_it_when_the_line_ends(pair: tuple[Node, Node]) -> None:
    a, b = pair
    for node, to in ((a, b), (b, a)):
        to.allow(4 * CHUNK)
        node.send(to.name, bytes(3 * CHUNK))
        assert to.receive(PATIENCE) is not None
    short = FIRST_STEP
    until(lambda: a.pace.begin("b") > short)
    assert b.pace.begin("a") == short
    b.stop()
    until(lambda: a.pace.begin("b") == short)


def test_slow_streams_make_room_for_others_one_by_one() -> None:
    async def scene() -> None:
        grants = Grants(replace(QUICK, fast_streams=2, max_streams=4, slow_after=0.02))
        turns = [asyncio.create_task(grants.acquire(0)) for _ in range(6)]
        await asyncio.sleep(0)
        assert [turn.done() for turn in turns] == [True, True] + 4 * [False]
        await asyncio.wait_for(turns[2], PATIENCE)  # nobody ends: the first two are slow
        await asyncio.wait_for(turns[3], PATIENCE)
        await asyncio.sleep(0.1)
        assert not turns[4].done()  # four are all there are
        grants.finish()
        await asyncio.wait_for(turns[4], PATIENCE)
        turns[5].cancel()
        for _ in range(4):
            grants.finish()
        again = [asyncio.create_task(grants.acquire(0)) for _ in range(3)]
        await asyncio.sleep(0)
        assert [turn.done() for turn in again] == [True, True, False]  # as at first
        again[2].cancel()

    asyncio.run(scene())


def test_memory_for_large_messages_is_shared_and_comes_back() -> None:
    b = listener("b", "a", "c", options=replace(QUICK, memory_bytes=300_000))
    b.allow(1_000_000)
    a, c = dialler("a", b), dialler("c", b)
    assert b.wait_connected("ac", PATIENCE)
    until(lambda: a.connected() and c.connected())
    for _ in range(5):
        a.send("b", bytes(200_000))
        c.send("b", bytes(900_000))  # larger than all of it: alone
    got = [b.receive(PATIENCE) for _ in range(10)]
    assert sorted(len(e.raw) for e in got if e) == [200_000] * 5 + [900_000] * 5
    for node in (a, b, c):
        node.stop()


def test_diallers_come_back_and_say_so() -> None:
    events: list[tuple[str, str, str]] = []

    def connect(name: str) -> None:
        events.append(("a", "connected", name))
        a.send("b", b"inquiry")  # must not block, though it is the network's thread

    b = listener("b", "a")
    port = b.port
    a = Node(
        credentials("a"),
        [peer("b", f"127.0.0.1:{b.port}")],
        dial=["b"],
        options=QUICK,
        on_connect=connect,
        on_disconnect=lambda name, reason: events.append(("a", reason.name, name)),
    ).start()
    got = b.receive(PATIENCE)
    assert got is not None
    assert got.raw == b"inquiry"
    b.stop()
    until(lambda: not a.connected())
    assert a.offer("b", b"nobody there") is False
    b = Node(credentials("b"), [peer("a")], listen=f"127.0.0.1:{port}", options=QUICK).start()
    got = b.receive(PATIENCE)
    assert got is not None
    assert got.raw == b"inquiry"
    assert events == [("a", "connected", "b"), ("a", "STOPPED", "b"), ("a", "connected", "b")]
    a.stop()
    b.stop()


def test_what_was_queued_is_sent_before_stopping(pair: tuple[Node, Node]) -> None:
    a, b = pair
    b.allow(50 << 20)
    for i in range(100):
        a.send("b", bytes([i]))
    a.send("b", bytes(40_000_000))
    a.stop(grace=PATIENCE)
    assert sorted(len(e.raw) for _ in range(101) if (e := b.receive(PATIENCE))) == [1] * 100 + [40_000_000]
    assert a.offer("b", b"too late") is False
    until(lambda: not b.connected())
    assert b.counters.ends() == {Reason.STOPPED: 1}
    a.stop()  # again is nothing


def test_a_second_connection_of_a_party_replaces_the_first() -> None:
    b = listener("b", "a")
    first = dialler("a", b, replace(QUICK, first_backoff=60.0, longest_backoff=60.0))
    assert first.wait_connected(["b"], PATIENCE)
    second = dialler("a", b)
    assert second.wait_connected(["b"], PATIENCE)
    until(lambda: not first.connected())
    assert first.counters.ends() == {Reason.REPLACED: 1}
    second.send("b", b"it is me now")
    got = b.receive(PATIENCE)
    assert got is not None
    assert got.raw == b"it is me now"
    assert b.connected() == {"a"}
    for node in (first, second, b):
        node.stop()


def test_two_that_dial_each_other_keep_the_same_line() -> None:
    slow = replace(QUICK, first_backoff=60.0, longest_backoff=60.0)
    a = Node(credentials("a"), [peer("b")], listen="127.0.0.1:0", options=slow).start()
    b = Node(
        credentials("b"), [peer("a", f"127.0.0.1:{a.port}")], dial=["a"], listen="127.0.0.1:0", options=slow
    ).start()
    assert a.wait_connected(["b"], PATIENCE)
    a.stop()
    until(lambda: not b.connected())
    a = Node(
        credentials("a"), [peer("b", f"127.0.0.1:{b.port}")], listen="127.0.0.1:0", dial=["b"], options=slow
    ).start()
    assert a.wait_connected(["b"], PATIENCE)
    again = Node(credentials("b"), [peer("a", f"127.0.0.1:{a.port}")], dial=["a"], options=slow).start()
    until(lambda: again.counters.ends())  # a keeps the line that it dialled: "a" sorts first
    assert again.counters.ends() == {Reason.REPLACED: 1}
    assert a.connected() == {"b"}
    assert b.connected() == {"a"}
    for node in (a, b, again):
        node.stop()


def test_rotation_accepts_both_certificates_and_revocation_cuts_the_line() -> None:
    new = issue("a", CA)
    b = listener("b", "a")
    b.set_peers([peer("a", None, party("a"), new)])
    old_a = dialler("a", b)
    assert old_a.wait_connected(["b"], PATIENCE)
    old_a.stop()
    new_a = Node(credentials("a", new), [peer("b", f"127.0.0.1:{b.port}")], dial=["b"], options=QUICK).start()
    assert new_a.wait_connected(["b"], PATIENCE)
    until(lambda: b.connected())
    b.set_peers([peer("a")])
    until(lambda: not b.connected())
    assert b.counters.ends()[Reason.REFUSED] >= 1
    new_a.stop()
    b.stop()


def test_receive_waits_and_a_stop_ends_the_wait() -> None:
    b = listener("b", "a")
    waiting = threading.Thread(target=lambda: got.append(b.receive(None)))
    got: list[Envelope | None] = []
    waiting.start()
    b.stop()
    waiting.join(PATIENCE)
    assert got == [None]


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(StudyError, match="has no address"):
        Node(credentials("a"), [peer("b")], dial=["b"])
    with pytest.raises(StudyError, match="not an address"):
        Node(credentials("a"), [], listen="localhost")
    with pytest.raises(StudyError, match="same certificate"):
        Node(credentials("a"), [peer("b"), peer("c", None, party("b"))])
    with pytest.raises(StudyError, match="dead between"):
        Options(heartbeat=10, dead_after=20)
    with pytest.raises(StudyError, match="max_streams"):
        Options(max_streams=0)
    b = listener("b")
    with pytest.raises(StudyError, match="cannot listen"):
        Node(credentials("a"), [], listen=f"127.0.0.1:{b.port}").start()
    b.stop()
    assert "PRIVATE" not in repr(credentials("a"))
