"""The in-memory network: faults come from the seed, and only as told. The link passes the transport contract."""

from __future__ import annotations

from collections import deque

import pytest
from link_contract import LinkContract
from tests.transport.memory_network import Faults, MemoryLink, MemoryNetwork

from tallystick.core.errors import StudyError
from tallystick.crypto.prg import AesStream
from tallystick.transport.link import Envelope, Link


def drain(network: MemoryNetwork) -> list[tuple[float, bytes]]:
    out = []
    while (at := network.next_at()) is not None:
        envelope = network.deliver(at)
        if envelope is not None:
            out.append((at, envelope.raw))
    return out


def play(faults: Faults | None, seed: int = 1, count: int = 400) -> list[tuple[float, bytes]]:
    network = MemoryNetwork(faults, AesStream(bytes([seed]) * 32))
    for i in range(count):
        network.send("a", "b", i.to_bytes(2, "big"), 0.0)
    return drain(network)


def test_lossless_and_in_order_by_default() -> None:
    assert play(None) == [(0.0, i.to_bytes(2, "big")) for i in range(400)]
    assert play(Faults()) == play(None)


def test_faults_are_a_function_of_the_seed() -> None:
    bad = Faults(drop=0.2, duplicate=0.2, delay=0.5, longest_delay=3.0)
    assert play(bad) == play(bad)
    assert play(bad) != play(bad, seed=2)


def test_drop_duplicate_delay_reorder() -> None:
    dropped = play(Faults(drop=0.25))
    assert 240 < len(dropped) < 360
    assert play(Faults(drop=1.0)) == []
    doubled = play(Faults(duplicate=0.5))
    assert 540 < len(doubled) < 660
    assert len({raw for _, raw in doubled}) == 400
    late = play(Faults(delay=1.0, longest_delay=3.0))
    assert all(0.0 <= at <= 3.0 for at, _ in late)
    assert [raw for _, raw in late] != sorted(raw for _, raw in late)
    assert sorted(raw for _, raw in late) == [raw for _, raw in play(None)]


def test_a_partition_cuts_both_ways_until_healed() -> None:
    network = MemoryNetwork()
    network.send("a", "b", b"under way", 0.0)
    network.partition(["a"], ["b", "c"])
    network.send("a", "b", b"1", 0.0)
    network.send("c", "a", b"2", 0.0)
    network.send("b", "c", b"3", 0.0)
    assert [raw for _, raw in drain(network)] == [b"3"]
    network.heal()
    network.send("a", "b", b"4", 1.0)
    assert [raw for _, raw in drain(network)] == [b"4"]


def test_nothing_arrives_before_its_time() -> None:
    network = MemoryNetwork(Faults(delay=1.0, longest_delay=10.0), AesStream(bytes(32)))
    network.send("a", "b", b"x", 5.0)
    assert network.deliver(5.0) is None
    assert network.deliver(15.0) == Envelope("a", "b", b"x")
    assert len(network) == 0


@pytest.mark.parametrize("wrong", [{"drop": 1.5}, {"duplicate": -0.1}, {"delay": 2.0}, {"longest_delay": -1.0}])
def test_impossible_faults_are_refused(wrong: dict) -> None:
    with pytest.raises(StudyError):
        Faults(**wrong)


def test_faults_need_a_source() -> None:
    with pytest.raises(StudyError):
        MemoryNetwork(Faults(drop=0.5))


class TestMemoryLink(LinkContract):
    def links(self) -> tuple[Link, Link, Link]:
        inboxes: dict[str, deque[Envelope]] = {}
        return MemoryLink("a", inboxes), MemoryLink("b", inboxes), MemoryLink("c", inboxes)
