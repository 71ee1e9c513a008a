"""1,000 clients, each with its own keys and lines, through a study of 100 rounds in which 1 % of them stay away.

Two servers and the aggregator are the shipped processes on 127.0.0.1. The clients are the shipped client, 250 to a
driver process (this file), with their state in memory-backed files, because 1,000 institutions do not share a disk.
Somebody is missing from every round, so every round lasts until its deadline: what is printed is the time per round and
what of it lies beyond the deadline. Resident size and open files of the servers and the aggregator, which must not
grow with the rounds, are compared between round 20 and the last.

``TALLYSTICK_LOAD_CLIENTS`` and ``TALLYSTICK_LOAD_ROUNDS`` make it smaller, for a look.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CLIENTS = int(os.environ.get("TALLYSTICK_LOAD_CLIENTS", "1000"))
ROUNDS = int(os.environ.get("TALLYSTICK_LOAD_ROUNDS", "100"))
PER_DRIVER = 250
DEADLINE = 6.0  # seconds of a round
SETTLED = min(20, ROUNDS // 2)
GROWTH = 32 << 20  # bytes between round 20 and the end; one round's shares kept would be 1 MB a round and server
DROPPED = 100  # one client of so many stays away, another one each round


def stays_away(name: str, round: int) -> bool:
    return int.from_bytes(hashlib.sha256(f"{name} {round}".encode()).digest()[:4], "little") % DROPPED == 0


def once(work: Any, key: Any) -> Any:
    """What the first caller makes, for all clients of this process: 250 institutions have 250 machines for it."""
    lock, known = threading.Lock(), {}  # type: ignore[var-annotated]

    def held(*arguments: Any, **options: Any) -> Any:
        name = key(*arguments, **options)
        with lock:
            if name not in known:
                known[name] = work(*arguments, **options)
            return known[name]

    return held


# -- the drivers ---------------------------------------------------------------------------------------------------


def turn(processes: dict[str, Any], inbox: Any, events: queue.Queue[Any]) -> None:
    """The loops of all clients of this process as one: what ``RoleProcess.run`` does, without 500 threads."""
    due = 0.0
    some = next(iter(processes.values()))
    while True:
        envelope = inbox.get(0.02)
        while envelope is not None:
            to = processes[envelope.to]
            to._guarded(functools.partial(to._message, envelope))
            envelope = inbox.get(0)
        while not events.empty():
            some._guarded(events.get())
        if time.monotonic() > due:
            due = time.monotonic() + 0.1
            for process in processes.values():
                process._guarded(process._due)


def drive(folder: Path, state: Path, names: list[str]) -> None:
    """Run these clients until stdin ends."""
    import logging

    from tallystick.crypto.prg import system_stream
    from tallystick.protocol import secure_sum as sums
    from tallystick.protocol.study import participant as study_layer
    from tallystick.roles import client, participant
    from tallystick.roles.client import ClientProcess, ClientSession
    from tallystick.roles.identity_files import load_identity, read_consortium, wall_clock
    from tallystick.roles.process import Parts
    from tallystick.roles.role_config import load_role_config
    from tallystick.roles.setup import Setup
    from tallystick.roles.start import SystemClock
    from tallystick.roles.stores import RoleStore
    from tallystick.transport.network.admission import Inbox
    from tallystick.transport.network.background import background_loop
    from tallystick.transport.network.options import Options

    logging.basicConfig(level=logging.ERROR)
    participant.set_up = once(participant.set_up, lambda *facts, **options: (facts, *options.values()))
    client.encode = once(client.encode, lambda source, *_schema, **_options: source)
    client.compile_map_of = once(client.compile_map_of, lambda *_program: None)
    study_layer.make_roster = once(study_layer.make_roster, lambda _members, start: start.attempt)
    Setup.parameters = once(Setup.parameters, lambda _setup, roster: roster.attempt)  # type: ignore[method-assign]

    class Client(ClientSession):
        def sum_step(self, step: Any) -> None:
            if isinstance(step, sums.Compute) and stays_away(self.process.name, step.round):
                self.sums(self.sum.withdraw(step.round))  # type: ignore[union-attr]
            else:
                super().sum_step(step)

    class Process(ClientProcess):
        session = Client

    consortium = read_consortium(folder / "consortium.toml")
    inbox = Inbox(replace(Options(), inbox_messages=1 << 16, peer_inbox_messages=1 << 16), background_loop())
    events: queue.Queue[Any] = queue.Queue()
    processes = {}
    for name in names:
        config = load_role_config(folder / name / "role.toml", role="client")
        config = replace(config, state=state / name)
        config.state.mkdir(parents=True)
        process = Process(
            Parts(
                config=config,
                consortium=consortium,
                identity=load_identity(config, consortium, wall_clock()),
                store=RoleStore(config.state / "role.sqlite", party=name),
                streams=lambda *_labels: system_stream(),
                clock=SystemClock(),
            )
        )
        process._events, process.node.inbox = events, inbox
        processes[name] = process
    threading.Thread(target=turn, args=(processes, inbox, events), daemon=True).start()
    for process in processes.values():
        process.node.start()
        if not process.node.wait_connected(("server-1", "server-2", "aggregator"), 120.0):
            raise SystemExit(f"{process.name} has no lines")
    print("ready", flush=True)
    canonical = sys.stdin.readline().strip().encode()
    for allowed in (False, True):
        participant.set_up(canonical, "", allow_not_private=allowed)
    print("warm", flush=True)
    sys.stdin.read()
    os._exit(0)


# -- the test ------------------------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def tell(driver: subprocess.Popen[Any], line: str | None, answer: str) -> None:
    assert driver.stdin is not None
    assert driver.stdout is not None
    if line is not None:
        driver.stdin.write(line + "\n")
        driver.stdin.flush()
    assert driver.stdout.readline() == answer + "\n", "a driver is gone"


@contextmanager
def deployment(folder: Path) -> Iterator[tuple[dict[str, subprocess.Popen[Any]], list[subprocess.Popen[Any]]]]:
    """Servers, aggregator and drivers; all are gone afterwards."""
    import polars as pl

    from tallystick.roles import enrolment
    from tallystick.roles.identity_files import wall_clock

    home, now = folder / "consortium", wall_clock()
    data = folder / "records.parquet"
    pl.DataFrame({"x": [0.25, -0.5], "y": ["no", "yes"]}).write_parquet(data)
    enrolment.create("load", home, now=now)
    configs = {}
    for name, port in zip(("server-1", "server-2", "aggregator"), free_ports(3)):
        role = "aggregator" if name == "aggregator" else "server"
        configs[name] = role, enrolment.enrol(name, role, home, now=now, address=f"127.0.0.1:{port}")[1]
    names = [f"client-{number}" for number in range(CLIENTS)]
    for name in names:
        enrolment.enrol(name, "client", home, now=now, data=str(data))
    enrolment.enrol("analyst", "analyst", home, now=now)
    shared = Path("/dev/shm")
    state = Path(tempfile.mkdtemp(prefix="tallystick-load-", dir=shared if shared.is_dir() else folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    roles: dict[str, subprocess.Popen[Any]] = {}
    drivers: list[subprocess.Popen[Any]] = []
    try:
        for name, (role, config) in configs.items():
            command = [sys.executable, "-m", "tallystick.cli.main", role, "start", "--config", str(config)]
            with (folder / f"{name}.log").open("w") as log:
                roles[name] = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        for at in range(0, CLIENTS, PER_DRIVER):
            command = [sys.executable, __file__, str(home), str(state), *names[at : at + PER_DRIVER]]
            drivers.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            )
        for driver in drivers:
            tell(driver, None, "ready")
        yield roles, drivers
    finally:
        for process in (*drivers, *roles.values()):
            process.send_signal(signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        shutil.rmtree(state, ignore_errors=True)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.audit
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident size is read from /proc")
def test_a_thousand_clients_and_a_hundred_rounds(tmp_path: Path) -> None:
    import tallystick as ts

    with deployment(tmp_path) as (roles, drivers):
        fed = ts.Federation.connect(
            tmp_path / "consortium" / "consortium.toml",
            schema=ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["no", "yes"])}),
            records=2 * CLIENTS,
            min_clients=3,  # in the first round most of a thousand clients on two cores are still setting up
            round_timeout_s=DEADLINE,
        )
        model = ts.LogisticRegression(epsilon=1.0, rounds=ROUNDS - 1)
        times: list[float] = [time.monotonic()]
        seen: dict[int, dict[str, tuple[int, int]]] = {}

        def progress(done: int, of: int) -> None:
            if done < len(times):
                return  # said again
            times.append(time.monotonic())
            if done in (SETTLED, of - 1):
                seen[done] = {n: (resident(p.pid), open_files(p.pid)) for n, p in roles.items()}

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = model.study_for(fed, target="y", features=None, name="load")
            study = study.replace("data", records=2 * CLIENTS)
            for driver in drivers:  # 250 institutions plan on a machine each, not all on one within the deadline
                tell(driver, study.canonical().decode(), "warm")
            model.fit_study(fed, study, progress=progress)
        print(report(times, seen, model))
        assert model.n_iter_ == ROUNDS
        early, late = (seen[number] for number in sorted(seen))
        for name in roles:
            assert late[name][0] - early[name][0] < GROWTH, (name, early[name], late[name])
            assert late[name][1] <= early[name][1] + 16, (name, early[name], late[name])
        missing = [len(dropped) for dropped in model.dropped_]
        assert np.median(missing) <= CLIENTS // 20  # 1 % by design; the rest was too slow for its deadline
        assert all(process.poll() is None for process in roles.values())


def report(times: list[float], seen: dict[int, dict[str, tuple[int, int]]], model: Any) -> str:
    spans = np.diff(times)[1:]  # the first holds the agreement on the study
    missing = [len(dropped) for dropped in model.dropped_]
    return json.dumps(
        {
            "clients": CLIENTS,
            "rounds": len(spans),
            "deadline_s": DEADLINE,
            "p50_s": round(float(np.quantile(spans, 0.5)), 3),
            "p99_s": round(float(np.quantile(spans, 0.99)), 3),
            "missing_median": float(np.median(missing)),
            "missing_most": max(missing),
            "rss_mb_and_files": {
                str(number): {n: (round(r / 2**20, 1), f) for n, (r, f) in found.items()}
                for number, found in seen.items()
            },
        },
        indent=1,
    )


if __name__ == "__main__":
    drive(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
