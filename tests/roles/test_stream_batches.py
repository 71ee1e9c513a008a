"""A client's batches: no record in two of them, the same batch after a crash, whatever is appended when."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallystick as ts
from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError, VerificationError
from tallystick.data.appended import appended
from tallystick.engines.setup import Setup, set_up
from tallystick.roles.storage.stores import RoleStore
from tallystick.roles.streams import batches as stream_batches
from tallystick.roles.streams.batches import StreamMap
from tallystick.roles.streams.clock import StreamClock
from tallystick.roles.streams.ticks import SeenTicks, pack_tick, unpack_tick
from tallystick.study import Study

COLUMNS = ts.Schema({"x": ts.Number(0, 1000), "y": ts.Category(["no", "yes"])}).to_dict()


def setup_of(**stream: Any) -> Setup:
    raw = {
        "study": {"name": "s", "program": "logistic_regression", "target": "y", "accept_noise": True},
        "privacy": {"neighbours": "add-remove"},
        "data": {"columns": COLUMNS},
        "stream": {"ticks": 20, "tick_seconds": 10.0, "records_per_tick": 5, **stream},
    }
    return set_up(Study.from_dict(raw).canonical(), "")


class Client:
    """A client's state and source; ``tick`` is what a round does, ``crash`` is kill -9."""

    def __init__(self, folder: Path, *, timed: bool = False) -> None:
        self.file = folder / "records.csv"
        self.file.write_text("when,x,y\n")
        self.setup = setup_of(**({"time": "when", "start": 0.0} if timed else {}))
        self.hash = self.setup.study.hash
        self.store = RoleStore(folder / "role.sqlite", party="a")
        self.store.add_study(self.hash, self.setup.study.canonical(), "")
        self.crash()

    def crash(self) -> None:
        self.map = StreamMap(self.setup, self.file, self.store, self.hash, party="a")

    def append(self, *rows: tuple[float, int], torn: str = "") -> None:
        with self.file.open("a") as file:
            file.write("".join(f"{when},{x},yes\n" for when, x in rows) + torn)

    def tick(self, number: int) -> list[int]:
        return [round((f + 1) * 500) for r in self.map.batch(number) for f in r.features[:, 0]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path, timed=True)
    yield made
    made.store.close()


def test_a_batch_is_what_came_since_the_last_tick(client: Client) -> None:
    assert client.tick(1) == []
    client.append((0, 1), (0, 2))
    assert client.tick(2) == [1, 2]
    client.append((0, 3))
    assert client.tick(2) == [1, 2]  # asked again
    client.crash()
    client.append((0, 4))
    assert client.tick(2) == [1, 2]  # and after a crash
    assert client.tick(5) == [3, 4]  # down in ticks 3 and 4
    with pytest.raises(LocalProtocolError, match="a tick that is over"):
        client.tick(4)


def test_a_line_that_is_being_written_waits_for_the_next_tick(client: Client) -> None:
    client.append((0, 1), torn="0,12")
    assert client.tick(1) == [1]
    client.append(torn="3,yes\n")
    assert client.tick(2) == [123]


def test_a_record_that_cannot_be_used_costs_itself_and_no_other(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.append((0, 1), torn="0,what,yes\n0,,yes\n")
    with caplog.at_level("WARNING", logger="tallystick.roles"):
        assert client.tick(1) == [1]
    assert "tick 1: 2 of 3 records add nothing: 'x' unusable in 1, 'x' missing in 1" in caplog.text
    client.append((0, 2))
    assert client.tick(2) == [2]


def test_a_source_that_shrinks_is_refused(client: Client) -> None:
    client.append((0, 1), (0, 2))
    assert client.tick(1) == [1, 2]
    client.file.write_text("when,x,y\n")
    with pytest.raises(DataError, match="has become shorter"):
        client.tick(2)


def test_the_watermark_is_durable_before_the_batch_is_known(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed right after the watermark: what comes later is not in that tick."""

    class Killed(Exception):  # noqa: N818
        pass

    def die(_point: object) -> None:
        raise Killed

    client.append((0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(stream_batches, "crashpoint", die)
        with pytest.raises(Killed):
            client.tick(1)
    client.append((0, 2))
    client.crash()
    assert client.tick(1) == [1]
    assert client.tick(2) == [2]


def test_a_watermark_that_is_not_kept_is_caught(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: after a crash another batch has the same tick, and a record would be used twice."""
    monkeypatch.setattr(RoleStore, "persist", lambda *_: None)
    client.append((0, 1))
    first = client.tick(1)
    client.append((0, 2))
    client.crash()
    assert client.tick(1) != first


def test_by_time_a_record_is_in_the_tick_of_its_time_or_late(timed: Client, caplog: pytest.LogCaptureFixture) -> None:
    timed.append((5, 1), (15, 2), (25, 3), (-1, 4), (500, 5))
    assert timed.tick(1) == [1]
    timed.append((7, 6), (16, 7))
    with caplog.at_level(logging.WARNING):
        assert timed.tick(2) == [2, 7]
    assert "1 record(s) came after the tick of their time" in caplog.text
    timed.append((18, 8))
    assert timed.tick(2) == [2, 7]
    timed.crash()
    assert timed.tick(2) == [2, 7]
    assert timed.tick(3) == [3]
    assert timed.tick(4) == []


@settings(deadline=None, max_examples=25)
@given(events=st.lists(st.sampled_from(["append", "tick", "again", "crash", "miss"]), max_size=25), timed=st.booleans())
def test_whatever_happens_no_record_is_in_two_batches(
    tmp_path_factory: pytest.TempPathFactory, events: list[str], timed: bool
) -> None:
    client = Client(tmp_path_factory.mktemp("stream"), timed=timed)
    try:
        used: dict[int, list[int]] = {}
        tick, made = 1, 0
        for event in events:
            if event == "append":
                made += 1
                client.append((10.0 * tick - 5, made))
            elif event == "crash":
                client.crash()
            elif event == "miss" and tick < 18:
                tick += 1
            elif event == "tick" and tick < 18:
                tick += 1
                used[tick] = client.tick(tick)
            elif event == "again" and tick in used:
                assert client.tick(tick) == used[tick]
        everything = [x for batch in used.values() for x in batch]
        assert len(everything) == len(set(everything))
        if not timed and tick in used:
            client.crash()
            assert sorted(everything + client.tick(tick + 1)) == list(range(1, made + 1))  # and none is lost
    finally:
        client.store.close()


def test_parquet_is_told_by_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"

    def save(n: int) -> None:
        pq.write_table(pa.table({"x": np.arange(n)}), path)

    save(3)
    source = appended(path)
    assert source.end() == 3
    save(5)
    assert source.piece(3, source.end()).read(["x"])["x"].to_pylist() == [3, 4]
    save(2)
    with pytest.raises(DataError, match="has become shorter"):
        source.piece(3, 5).read(["x"])


def test_the_clock_is_the_same_after_a_restart(client: Client) -> None:
    """Without a stated start it begins when the study does; what was missed meanwhile is due at once."""
    stream = client.setup.study.stream
    assert stream is not None
    first = StreamClock(stream, client.store, client.hash, wall=1000.0, now=50.0)
    assert (first.due(1), first.due(3)) == (60.0, 80.0)
    again = StreamClock(stream, client.store, client.hash, wall=1025.0, now=7.0)
    assert (again.due(1), again.due(2), again.due(3)) == (-8.0, 2.0, 12.0)


def test_a_stated_start_is_the_clocks(timed: Client) -> None:
    stream = timed.setup.study.stream
    assert stream is not None
    assert StreamClock(stream, timed.store, timed.hash, wall=5.0, now=100.0).due(1) == 105.0


# -- a client restored from an old copy ------------------------------------------------------------------------------


class Servers:
    """Two servers that answer at once; ``seen`` is what each has seen of the client."""

    def __init__(self, **seen: int) -> None:
        self.seen, self.woken = seen, 0
        self.ticks = SeenTicks(["s1", "s2"], party="a", ask=self._ask, again=self._again)
        self.silent: set[str] = set()

    def _ask(self, server: str, body: bytes) -> None:
        asked, _ = unpack_tick(body, "a")
        if server not in self.silent:
            self.ticks.hear(server, pack_tick(asked, self.seen[server]))

    def _again(self) -> None:
        self.woken += 1

    def allow(self, tick: int, own: int) -> bool:
        self.ticks.given(tick, own)  # asks
        return self.ticks.given(tick, own)


@pytest.mark.parametrize("restored", [True, False], ids=["old copy", "newest"])
def test_an_old_copy_of_a_client_makes_no_batch(tmp_path: Path, restored: bool) -> None:
    """The old watermark alone would put records of tick 2 into tick 3 as well: the last lines show that it would."""
    client = Client(tmp_path)
    client.append((0, 1))
    assert client.tick(1) == [1]
    client.store.close()
    shutil.copy(tmp_path / "role.sqlite", tmp_path / "backup")
    client.store = RoleStore(tmp_path / "role.sqlite", party="a")
    client.crash()
    client.append((0, 2), (0, 3))
    assert client.tick(2) == [2, 3]
    servers = Servers(s1=2, s2=1)  # the share reached one server before the disk was lost
    client.store.close()
    if restored:
        shutil.copy(tmp_path / "backup", tmp_path / "role.sqlite")
    client.store = RoleStore(tmp_path / "role.sqlite", party="a")
    client.crash()
    try:
        if restored:
            with pytest.raises(VerificationError, match="s1 has this client's shares of tick 2") as refused:
                servers.allow(3, client.map.tick)
            assert refused.value.rule == "watermark-rolled-back"
            assert client.tick(3) == [2, 3]
        else:
            assert servers.allow(3, client.map.tick)
            assert client.tick(3) == []
    finally:
        client.store.close()


def test_every_server_is_asked_at_every_tick_and_nothing_is_made_before_all_have_answered() -> None:
    servers = Servers(s1=4, s2=4)
    servers.silent = {"s2"}
    assert not servers.allow(5, 4)
    assert servers.woken == 2
    assert not servers.ticks.hear("s2", pack_tick(4, 4))  # an answer about another tick
    assert not servers.ticks.hear("eve", pack_tick(5, 4))
    assert servers.ticks.hear("s2", pack_tick(5, 4))
    assert servers.allow(5, 4)
    servers.seen["s2"] = 6  # two copies run: the other one was quicker
    servers.silent = set()
    with pytest.raises(VerificationError):
        servers.allow(6, 5)
    assert servers.allow(6, 6)  # made before, killed, asked for again
    with pytest.raises(RemoteProtocolError):
        servers.ticks.hear("s1", b"short")


# -- what is wrong with one record stays with it ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoilt", ['"5,1', "5,1", "5,1,yes,more", "\xff", "never,1,yes", ",1,yes", '5,"1,yes\n5,"2', "5\r5,1,yes"]
)
def test_a_spoilt_line_is_left_out_and_spoils_no_other_record(tmp_path: Path, spoilt: str) -> None:
    for timed in (False, True):
        folder = tmp_path / str(timed)
        folder.mkdir()
        client = Client(folder, timed=timed)
        try:
            client.append((5, 10), (15, 20))
            with client.file.open("ab") as file:
                file.write(spoilt.encode("latin-1") + b"\n")
            client.append((5, 30), (25, 40))
            usable = timed or spoilt[0] not in "n,"  # without a column of times nobody looks at the time
            assert client.tick(1) == ([10, 30] if timed else [10, 20, *([] if usable else [1]), 30, 40])
            client.crash()
            assert client.tick(2) == ([20] if timed else [])
            assert client.tick(3) == ([40] if timed else [])
        finally:
            client.store.close()


def test_by_time_a_record_that_cannot_be_encoded_costs_itself_only(timed: Client) -> None:
    timed.append((5, 1), (15, 2), (25, 3), torn="15,what,yes\n")
    assert timed.tick(1) == [1]
    assert timed.tick(2) == [2]
    timed.crash()
    assert timed.tick(2) == [2]
    assert timed.tick(3) == [3]
