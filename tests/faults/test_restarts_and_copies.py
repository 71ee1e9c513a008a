"""Restarts, workers, clocks, copies and words, against real roles."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import sqlite3
import threading
from pathlib import Path

import pytest
from consortium_fixture import Parties, bits, free_port, wait_for
from crash_point_list import CrashPoint
from test_crash_points_of_roles import check_said_once

import tallystick
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.messages import Partial, RoundOpen
from tallystick.roles.shares.spool import SpoolShares
from tallystick.study import Study
from tallystick.transport.wire import SUM, head

ROLES = Path(tallystick.__file__).parent / "roles"


def record(parties: Parties, name: str, study: Study, key: str) -> bytes:
    """What a role (running or not) has on disk."""
    with sqlite3.connect(parties.state(name) / "role.sqlite") as db:
        found = db.execute("SELECT value FROM records WHERE study = ? AND key = ?", (study.hash, key)).fetchone()
    db.close()
    return bytes(found[0])


def test_jumps_of_the_wall_clock_change_nothing(parties: Parties) -> None:
    parties.start(clock_jumps=True)
    study = parties.study()
    model = parties.fit(study)
    assert bits(model) == bits(parties.simulated(study)), parties.logs()
    assert all(names == () for names in model.dropped_)


def test_roles_ask_for_the_time_of_day_in_one_place() -> None:
    for path in ROLES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            asked = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if asked in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow"):
                assert path.name == "identity_files.py", f"{path.name} asks for {asked}"


def test_a_restarted_aggregator_has_the_same_round_and_the_same_model_bytes(parties: Parties) -> None:
    parties.start()
    study = parties.study()
    parties.die_at("aggregator", CrashPoint.AGGREGATOR_ROUND_SENT.value, 2)
    running = parties.fit_in_background(study)
    parties.wait_dead("aggregator")
    before = sums.decode(record(parties, "aggregator", study, "open"))
    parties.hold_at("aggregator", CrashPoint.AGGREGATOR_SUM_KEPT.value)
    parties.start("aggregator")
    parties.wait_held("aggregator")
    after = sums.decode(record(parties, "aggregator", study, "open"))
    assert isinstance(before, RoundOpen)
    assert before.round == 2
    assert before == after
    parties.let_go("aggregator")
    assert bits(running.result()) == bits(parties.simulated(study))
    check_said_once(parties, study, rounds=3)


def test_acknowledged_shares_are_there_after_a_kill(parties: Parties) -> None:
    parties.start()
    study = parties.study()
    parties.die_at("server-1", CrashPoint.SERVER_SHARE_ACCEPTED.value, 2)
    running = parties.fit_in_background(study)
    parties.wait_dead("server-1")
    copy = parties.folder / "spool"
    shutil.copytree(parties.state("server-1") / study.hash.hex(), copy)
    spool = SpoolShares(copy, party="server-1")
    assert len(tuple(spool.clients(1))) >= 2  # two were told so
    spool.close()
    parties.start("server-1")
    model = running.result()
    assert bits(model) == bits(parties.simulated(study)), parties.logs()
    assert all(names == () for names in model.dropped_)  # the third was sent again


@pytest.mark.parametrize("point", [CrashPoint.SERVER_PARTIAL_KEPT, CrashPoint.SERVER_PARTIAL_SENT], ids=str)
def test_a_partial_is_sent_again_in_the_very_bytes_kept(parties: Parties, point: CrashPoint) -> None:
    parties.start()
    study = parties.study()
    parties.die_at("server-1", point.value, 2)
    running = parties.fit_in_background(study)
    parties.wait_dead("server-1")
    kept = record(parties, "server-1", study, "partial")
    assert isinstance(sums.decode(kept), Partial)
    body = hashlib.sha256(head(SUM, study.hash) + kept).hexdigest()
    before = len(parties.noted("partials", "server-1"))
    parties.start("server-1")
    assert bits(running.result()) == bits(parties.simulated(study))
    again = [line.split() for line in parties.noted("partials", "server-1")[before:]]
    assert any(line[1] == "2" for line in again)
    assert {line[3] for line in again if line[1] == "2"} == {body}
    check_said_once(parties, study, rounds=3)


def test_two_workers_give_the_bits_of_one(parties: Parties) -> None:
    """Coordinates summed by two worker processes, one at a time; and a signed partial carries the boot counter."""
    config = parties.configs["server-1"][1]
    config.write_text(config.read_text().replace('state = "state"', 'state = "state"\nworkers = 2'))
    parties.start("server-2", "aggregator", *parties.clients)
    parties.start("server-1", least_piece=1)
    parties.wait_up("server-1")
    parties.kill("server-1")
    parties.start("server-1", least_piece=1)
    parties.wait_up("server-1", times=2)
    tasks = Path(f"/proc/{parties.pids['server-1']}/task")
    assert sum(len((task / "children").read_text().split()) for task in tasks.iterdir()) >= 2
    study = parties.study()
    assert bits(parties.fit(study)) == bits(parties.simulated(study)), parties.logs()
    assert {line.split()[2] for line in parties.noted("partials", "server-1")} == {"2"}  # its second boot
    assert {line.split()[2] for line in parties.noted("partials", "server-2")} == {"1"}


def test_a_second_copy_of_a_server_is_refused(parties: Parties) -> None:
    parties.start()
    first = parties.pids["server-1"]
    parties.start("server-1")
    assert parties.wait_dead("server-1") == 1
    parties.pids["server-1"] = first
    assert "another process holds its state" in parties.log("server-1")
    study = parties.study()
    assert bits(parties.fit(study)) == bits(parties.simulated(study))


def test_a_server_set_back_by_one_boot_is_refused_and_welcome_with_its_own_state(parties: Parties) -> None:
    """Stopped, copied, started, seen; then the copy is started in its place: the same boot number, another value."""
    parties.start()
    parties.wait_up()
    parties.kill("server-1")
    state, snapshot, kept = parties.state("server-1"), parties.folder / "snapshot", parties.folder / "kept"
    shutil.copytree(state, snapshot)  # boot 1
    parties.start("server-1")  # boot 2
    first = parties.study()
    assert bits(parties.fit(first)) == bits(parties.simulated(first)), parties.logs()
    parties.kill("server-1")
    state.rename(kept)
    shutil.copytree(snapshot, state)
    parties.start("server-1")  # boot 2 once more
    second = parties.study()
    error = parties.fit_in_background(second).error()
    assert isinstance(error, RoundAborted)
    assert (error.party, error.rule, error.round) == ("server-1", "stale-server", 1), error
    assert "start number 2 has happened twice" in error.cause
    assert "stale-server" in parties.log("server-2")  # not the aggregator alone
    assert not [line for line in parties.noted("partials", "server-1") if line.startswith(second.hash.hex())]
    parties.kill("server-1")
    shutil.rmtree(state)
    kept.rename(state)
    parties.start("server-1")  # boot 3, of the state it had last
    third = parties.study()
    assert bits(parties.fit(third)) == bits(parties.simulated(third)), parties.logs()


def test_a_server_set_back_within_a_study_is_refused(parties: Parties) -> None:
    """Its boot counter goes back between two rounds: the round ends, it is named, and nothing of it is added up."""
    parties.start()
    study = parties.study()
    parties.hold_at("aggregator", CrashPoint.AGGREGATOR_ROUND_KEPT.value)
    running = parties.fit_in_background(study)
    parties.wait_held("aggregator")
    wait_for(lambda: CrashPoint.SERVER_START_KEPT.value in parties.noted("reached", "server-1"))
    parties.kill("server-1")
    snapshot = parties.folder / "snapshot"
    shutil.copytree(parties.state("server-1"), snapshot)  # boot 1
    for boot in (2, 3, 4):
        parties.start("server-1")
        parties.wait_up("server-1", times=boot)
        if boot < 4:
            parties.kill("server-1")
    parties.hold_at("aggregator", CrashPoint.AGGREGATOR_MODEL_KEPT.value)
    parties.wait_held("aggregator")
    parties.kill("server-1")
    shutil.rmtree(parties.state("server-1"))
    shutil.copytree(snapshot, parties.state("server-1"))
    parties.start("server-1")  # boot 2, after boot 4 was seen
    parties.let_go("aggregator")
    error = running.error()
    assert isinstance(error, RoundAborted)
    assert (error.party, error.rule, error.round) == ("server-1", "stale-server", 2), error
    assert "number 4" in error.cause
    assert len(parties.noted("partials", "server-1")) == 1


class Front:
    """An address that leads to one of several ports: whoever is behind it can be exchanged."""

    def __init__(self, port: int, behind: int) -> None:
        self.behind, self._lines = behind, list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.behind))
                except OSError:
                    near.close()
                    continue
                self._lines += (near, far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(65536):
                other.sendall(piece)
        for line in (one, other):
            line.close()

    def exchange(self, behind: int) -> None:
        self.behind = behind
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.exchange(0)


def set_listen(config: Path) -> tuple[int, int]:
    """Have a role listen on a port of its own; (where it was to listen, where it does)."""
    text, port = config.read_text(), free_port()
    config.write_text(re.sub('listen = ".*"', f'listen = "127.0.0.1:{port}"', text))
    return int(re.findall('listen = ".*:([0-9]+)"', text)[0]), port


def test_of_two_copies_at_once_the_second_to_speak_is_refused(parties: Parties) -> None:
    """A clone of a server's folder takes its address while the original hangs: one name, one key, one boot number."""
    home = parties.configs["server-1"][1].parent
    address, original = set_listen(home / "role.toml")
    front = Front(address, original)
    try:
        parties.start()
        study = parties.study()
        parties.hold_at("aggregator", CrashPoint.AGGREGATOR_ROUND_KEPT.value)
        running = parties.fit_in_background(study)
        parties.wait_held("aggregator")
        wait_for(lambda: CrashPoint.SERVER_START_KEPT.value in parties.noted("reached", "server-1"))
        parties.kill("server-1")
        clone = home.with_name("clone")
        shutil.copytree(home, clone)  # boot 1
        parties.start("server-1")  # boot 2
        parties.hold_at("aggregator", CrashPoint.AGGREGATOR_MODEL_KEPT.value)
        parties.wait_held("aggregator")
        os.kill(parties.pids["server-1"], signal.SIGSTOP)
        front.exchange(set_listen(clone / "role.toml")[1])
        parties.configs["clone"] = ("server", clone / "role.toml")
        parties.start("clone")  # boot 2 as well
        for peer in ("aggregator", "server-2", *parties.clients):
            wait_for(lambda peer=peer: f"connected with {peer}" in parties.log("clone"))
        parties.let_go("aggregator")
        error = running.error()
        os.kill(parties.pids["server-1"], signal.SIGCONT)
        assert isinstance(error, RoundAborted)
        assert (error.party, error.rule, error.round) == ("server-1", "stale-server", 2), (error, parties.logs())
        partials = [line.split() for line in parties.noted("partials", "server-1")]  # of both: they have one name
        assert {(line[1], line[2]) for line in partials} == {("1", "2")}
        assert len({line[3] for line in partials}) == 1
    finally:
        front.close()


def test_forged_words_do_not_forge_log_lines(parties: Parties) -> None:
    """Line breaks and terminal codes in what a party says are refused or escaped; every log line is the role's own."""
    config = parties.configs["client-3"][1]
    config.write_text(config.read_text().replace("max_epsilon = 1.0", "max_epsilon = 0.5"))
    parties.start("server-1", "server-2", "aggregator", "client-1", "client-2")
    parties.start("client-3", hostile="forged_words")
    ended = parties.fit_in_background(parties.study(round_timeout_s=3), approval_timeout_s=8).end()
    assert isinstance(ended, TallystickError)
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (info|warning|error) ")
    for name in parties.configs:
        for line in parties.log(name).split("\n"):
            assert not line or stamp.match(line), (name, line)
            assert line.isprintable(), (name, line)
            assert not line.startswith("2026-01-01"), (name, line)
        folders = [entry.name for entry in parties.state(name).iterdir() if entry.is_dir()]
        assert all(re.fullmatch("[0-9a-f]{64}|receipts|results", folder) for folder in folders)
