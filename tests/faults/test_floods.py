"""One member floods the others: they stay up, an honest study beside it finishes, and the member is named.

What each limit is, without processes: ``tests/core/test_allowance.py``, ``tests/roles/test_limits_of_members.py``,
``tests/transport/test_network_floods.py``. Here all of them meet real roles at once. The audits below measure what
cannot be asserted in a hurry: an honest study takes at most twice its quiet time while one flood of full size runs, and
memory afterwards is within a fifth of what it was.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consortium_fixture import Parties, health, wait_for

from tallystick.roles.identity.identity_files import read_consortium

WATCHED = ("aggregator", "server-1", "client-1")


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[Parties]:
    """Four clients; ``places`` says where each watched role tells its health."""
    made = Parties(tmp_path, clients=4)
    made.places = {name: made.monitor(name) for name in WATCHED}  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        made.close()


def limits(parties: Parties, at: str, member: str) -> dict[str, int]:
    """What a role says it has refused a member."""
    return dict(health(parties.places[at])["limited"].get(member, {}))  # type: ignore[attr-defined]


def statements(parties: Parties, name: str) -> int:
    with contextlib.closing(sqlite3.connect(parties.state(name) / "governance.sqlite")) as db:
        return int(db.execute("SELECT count(*) FROM statements").fetchone()[0])


def on_disk(parties: Parties, name: str) -> int:
    return sum(file.stat().st_size for file in parties.state(name).rglob("*") if file.is_file())


def hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def half_open(parties: Parties, count: int) -> Iterator[list[socket.socket]]:
    """So many sockets held open to each listening role, of every kind that says nobody's name."""
    first = hello()
    said = (b"", first[:20], first, os.urandom(1000), b"\x16\x03\x01\xff\xff" + bytes(16000))
    known = read_consortium(parties.home / "consortium.toml")
    held = []
    try:
        for party in (*known.by_role("server"), *known.by_role("aggregator")):
            host, _, port = str(party.address).rpartition(":")
            for i in range(count):
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection((host, int(port)), 10))
                    held[-1].setblocking(False)
                    held[-1].send(said[i % len(said)])
        yield held
    finally:
        for one in held:
            one.close()


def test_one_deployment_under_every_flood_at_once(flooded: Parties) -> None:
    """Shorter than the audits, but all of it together, in one deployment, and nothing is timed."""
    flooded.start("server-1", "client-1", "client-2", "client-3")
    flooded.start("aggregator", hostile="made_up_studies", pause=0.02)
    flooded.start("client-4", hostile="made_up_decisions")
    flooded.start("server-2", hostile="babbles")
    with half_open(flooded, 200):
        model = flooded.fit(flooded.study())
        assert {"client-1", "client-2", "client-3"} <= set(model.contributors_)
        wait_for(lambda: limits(flooded, "aggregator", "client-4").get("statements", 0) > 1000)
        wait_for(lambda: limits(flooded, "client-1", "aggregator").get("unknown-study", 0) > 20)
        wait_for(lambda: limits(flooded, "server-1", "aggregator").get("unknown-study", 0) > 20)
        wait_for(lambda: sum(limits(flooded, "client-1", "server-2").values()) > 20)
        wait_for(lambda: sum(limits(flooded, "aggregator", "server-2").values()) > 20)
    assert all(health(place)["green"] for place in flooded.places.values())  # type: ignore[attr-defined]
    kept = {name: statements(flooded, name) for name in WATCHED}
    assert max(kept.values()) < 40, kept  # those of the one study, and nothing made up
    assert max(on_disk(flooded, name) for name in WATCHED) < 2 << 20
    assert "client-4 is limited" in flooded.log("aggregator")
    assert flooded.log("aggregator").count("client-4 is limited") < 200  # lines, too, are limited
    flooded.kill("client-4")
    flooded.start("client-4")
    again = flooded.fit(flooded.study())
    assert set(again.contributors_) == {"client-1", "client-2", "client-3", "client-4"}


# -- at full size ------------------------------------------------------------------------------------------------------

FLOODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no grants": ("client-4", "grants_nothing", {}),
    "19,000 statements": ("client-4", "made_up_decisions", {"count": 190}),
    "random-hash studies": ("aggregator", "made_up_studies", {"size": 15 << 20, "pause": 0.02}),
    "garbage from a client": ("client-4", "babbles", {}),
    "malformed messages from a server": ("server-2", "babbles", {}),
}


def memory(parties: Parties) -> dict[str, int]:
    """Resident megabytes of the watched roles."""
    found = {}
    for name in WATCHED:
        status = Path(f"/proc/{parties.pids[name]}/status").read_text()
        found[name] = int(status.split("VmRSS:")[1].split()[0]) // 1024
    return found


def seconds_of_a_study(parties: Parties, times: int = 3) -> float:
    """The shortest of a few: what the rest of the machine does meanwhile is not the flood's doing."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        model = parties.fit(parties.study(rounds=3))
        took.append(time.monotonic() - began)
        assert {"client-1", "client-2", "client-3"} <= set(model.contributors_)
    return min(took)


def told(what: str, quiet: float, loud: float, before: dict[str, int], after: dict[str, int]) -> None:
    grown = ", ".join(f"{name} {before[name]} -> {after[name]} MB" for name in WATCHED)
    sys.stderr.write(f"\n{what}: a study takes {loud:.1f} s, quiet {quiet:.1f} s ({loud / quiet:.2f}x); {grown}\n")


def check_figures(parties: Parties, what: str, quiet: float, loud: float, before: dict[str, int]) -> None:
    within = {name: 1.2 * before[name] for name in WATCHED}
    with contextlib.suppress(AssertionError):  # memory is given back within half a minute
        wait_for(lambda: all(memory(parties)[name] <= within[name] for name in WATCHED), 90)
    after = memory(parties)
    told(what, quiet, loud, before, after)
    assert loud <= 2.0 * quiet
    assert all(after[name] <= within[name] for name in WATCHED), (before, after)


@pytest.mark.audit
@pytest.mark.parametrize("what", FLOODS)
def test_a_study_beside_a_flood_of_full_size(flooded: Parties, what: str) -> None:
    who, behaviour, spec = FLOODS[what]
    flooded.start()
    seconds_of_a_study(flooded, 1)  # compiled, connected
    quiet = seconds_of_a_study(flooded)
    if who == "aggregator":
        flooded.kill(who)
        flooded.start(who)
        quiet = min(quiet, seconds_of_a_study(flooded))
    before = memory(flooded)
    flooded.kill(who)
    flooded.start(who, hostile=behaviour, **spec)
    flooded.wait_up(who, times=2 if who != "aggregator" else 3)
    loud = seconds_of_a_study(flooded)
    at = "client-1" if who == "aggregator" else "aggregator"
    wait_for(lambda: sum(limits(flooded, at, who).values()) > 0)
    if "count" in spec:
        wait_for(lambda: flooded.noted("flooded", who))
        assert sum(limits(flooded, at, who).values()) > 15_000
    named = limits(flooded, at, who)
    flooded.kill(who)
    flooded.start(who)
    seconds_of_a_study(flooded, 1)  # and after it
    sys.stderr.write(f"\n{what}: {at} names {who}: {named}\n")
    assert max(statements(flooded, name) for name in WATCHED) < 600
    assert max(on_disk(flooded, name) for name in WATCHED) < 8 << 20
    check_figures(flooded, what, quiet, loud, before)


@pytest.mark.audit
def test_a_study_beside_a_thousand_half_open_sockets(flooded: Parties) -> None:
    flooded.start()
    seconds_of_a_study(flooded, 1)
    quiet = seconds_of_a_study(flooded)
    before = memory(flooded)
    with half_open(flooded, 1000):
        flooded.kill("client-4")
        flooded.start("client-4")  # comes in while they stand at the door
        loud = seconds_of_a_study(flooded)
        assert health(flooded.places["server-1"])["callers_sent_away"] > 0  # type: ignore[attr-defined]
    check_figures(flooded, "1,000 half-open sockets to each", quiet, loud, before)
