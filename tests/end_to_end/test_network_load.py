"""1,000 clients, each with its own keys and lines, through a study of 100 rounds in which 1 % of them drop out.

Two servers and the aggregator are the shipped processes on 127.0.0.1, their state on a disk. The clients are the
shipped client, 250 to a driver process (this file), with their state in memory-backed files, because 1,000 institutions
do not share a disk; what all of them derive from the study, equally, is derived once a driver. Another 1 % of the
clients drops out of each round: it says so (unreadable data), or, in every 50th round, falls silent, so that the round
lasts until its deadline. Printed are the time per round, the processor time of each role and round, and resident
size and open files of the servers and the aggregator, which must not grow with the rounds.

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

from tallystick.application.demo.free_ports import free_ports

CLIENTS = int(os.environ.get("TALLYSTICK_LOAD_CLIENTS", "1000"))
ROUNDS = int(os.environ.get("TALLYSTICK_LOAD_ROUNDS", "100"))
PER_DRIVER = 250
DEADLINE = 90.0  # seconds of a round in which somebody falls silent
READ_AT_ONCE = 64  # messages of a driver's clients between two looks at what else is to be done
SILENT = 50  # every so many rounds
SETTLED = min(20, ROUNDS // 2)
SPARE_FILES = 16  # a line that was lost and dialled again, a checkpoint under way
GROWTH = 32 << 20  # bytes between round 20 and the end; one round's shares kept would be 1 MB a round and server
DROPPED = 100  # one client of so many stays away, another one each round


def drops_out(name: str, round: int) -> bool:
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
    """The loops of all clients of this process as one: what ``RoleProcess.run`` does, without 500 threads.

    As there, events and times get their turn however many messages wait: a countersigned client goes on by an event.
    """
    due = 0.0
    some = next(iter(processes.values()))
    while True:
        for taken in range(READ_AT_ONCE):
            if (envelope := inbox.get(0 if taken else 0.02)) is None:
                break
            to = processes[envelope.to]
            to._guarded(functools.partial(to._message, envelope))
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
    from tallystick.engines import client_map
    from tallystick.protocol import secure_sum as sums
    from tallystick.protocol.study import participant as study_layer
    from tallystick.roles.governance import review
    from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
    from tallystick.roles.identity.role_config import load_role_config
    from tallystick.roles.ledger import registration
    from tallystick.roles.processes import participant
    from tallystick.roles.processes.client import ClientProcess
    from tallystick.roles.processes.client_session import ClientSession
    from tallystick.roles.processes.process import RECEIPT_LIMIT
    from tallystick.roles.processes.session import Parts
    from tallystick.roles.processes.start import SystemClock
    from tallystick.roles.steward.acceptances import Acceptances
    from tallystick.roles.storage.stores import RoleStore
    from tallystick.transport.network.admission import Inbox
    from tallystick.transport.network.background import background_loop
    from tallystick.transport.network.options import Options
    from tallystick.trust.servers import parts as part

    logging.basicConfig(level=logging.ERROR)
    made = once(participant.set_up, lambda *facts, **options: (facts, *options.values()))
    participant.set_up = review.set_up = made
    registration.make_dataset = once(registration.make_dataset, lambda name, source, **_options: (name, source))
    Acceptances.lacking = lambda *_arguments: []  # type: ignore[method-assign]  # every steward has accepted them
    ClientProcess.open_records = once(ClientProcess.open_records, lambda own, _study: own.source())  # type: ignore[method-assign]
    client_map.compile_map_of = once(client_map.compile_map_of, lambda *_program: None)
    study_layer.make_roster = once(study_layer.make_roster, lambda _members, start: start.attempt)
    part.parameters_of = once(part.parameters_of, lambda _setup, roster: roster.attempt)

    class Client(ClientSession):
        def compute(self, step: Any) -> None:
            if drops_out(self.process.name, step.round):
                silent = step.round % SILENT == 0
                out = self.part.machine.withdraw(step.round)  # type: ignore[union-attr]
                self.part.drive(  # type: ignore[union-attr]
                    [s for s in out if not (silent and isinstance(s, sums.Send)) and not isinstance(s, sums.Aborted)]
                )
            else:
                super().compute(step)

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
        process.post(process._register)
        process.node.start()
        process.node.allow(max(RECEIPT_LIMIT, process.node.options.message_limit), "aggregator")
        process.post(process.exchange.poll)
        if not process.node.wait_connected(("server-1", "server-2", "aggregator"), 120.0):
            raise SystemExit(f"{process.name} has no lines")
    print("ready", flush=True)
    canonical = sys.stdin.readline().strip().encode()
    for allowed in (False, True):
        setup = participant.set_up(canonical, "", allow_not_private=allowed)
    warm_up(next(iter(processes.values())), setup)
    print("warm", flush=True)
    sys.stdin.read()
    os._exit(0)


def warm_up(process: Any, setup: Any) -> None:
    """Compile what a round needs before the clock runs: every institution has done so on its first day."""
    from tallystick.algorithms.program import pack_state
    from tallystick.crypto.additive import split
    from tallystick.crypto.field import encode_signed
    from tallystick.crypto.prg import system_stream
    from tallystick.data.encoding import study_records
    from tallystick.engines.client_map import ClientMaps, padded

    records = study_records(setup.study, process.source(), party=process.name, lenient=True)
    maps = ClientMaps(setup.study, setup.design.program, setup.template).whole(records)
    model = pack_state(setup.design.program.query(setup.template))
    for plan in (setup.plan.rounds[0], setup.plan.rounds[-1]):
        vector = encode_signed(padded(maps.contribute(model, plan), setup.size))
    split(vector, servers=2, vector_server=0, source=system_stream(), context=b"")


# -- the test ------------------------------------------------------------------------------------------------------


def tell(driver: subprocess.Popen[Any], line: str | None, answer: str) -> None:
    assert driver.stdin is not None
    assert driver.stdout is not None
    if line is not None:
        driver.stdin.write(line + "\n")
        driver.stdin.flush()
    assert driver.stdout.readline() == answer + "\n", "a driver is gone"


def enrol_everybody(folder: Path, home: Path, names: list[str]) -> dict[str, tuple[str, Path]]:
    """The consortium, its file written once; the configs of the servers and the aggregator."""
    import polars as pl

    from tallystick.core.randomness import SystemSource
    from tallystick.crypto.certificates import CertificateAuthority, TlsKey, fingerprint
    from tallystick.roles.identity import enrolment
    from tallystick.roles.identity.consortium import Party
    from tallystick.roles.identity.identity_files import read_private, wall_clock, write_public

    now, data = wall_clock(), folder / "records.parquet"
    pl.DataFrame({"x": [0.25, -0.5], "y": ["no", "yes"]}).write_parquet(data)
    enrolment.create("load", home, now=now)
    configs = {}
    for name, port in zip(("server-1", "server-2", "aggregator"), free_ports(3)):
        role = "aggregator" if name == "aggregator" else "server"
        config = enrolment.enrol(name, role, home, now=now, address=f"127.0.0.1:{port}")[1]
        config.write_text(config.read_text().replace('state = "state"', f'state = "{folder / name}"'))
        configs[name] = role, config
    consortium = enrolment.enrol("analyst", "analyst", home, now=now)[0]
    authority = CertificateAuthority(TlsKey.from_pem(read_private(home / "ca.key")), consortium.ca_certificate)
    parties = list(consortium.parties)
    for name in names:
        asked, _ = enrolment.request(
            name,
            "client",
            home / name,
            data=str(data),
            decide="approve",
            budget=1000.0,
            consortium="../consortium.toml",
        )
        certificate = authority.issue(asked.csr, party=name, source=SystemSource(), now=now)
        write_public(home / name / enrolment.CERTIFICATE, certificate)
        parties.append(
            Party(
                name=name,
                role="client",
                address=None,
                fingerprints=(fingerprint(certificate),),
                identity=asked.identity,
            )
        )
    grown = replace(consortium, parties=tuple(parties), version=consortium.version + 1)
    write_public(home / "consortium.toml", grown.to_toml().encode())
    return configs


@contextmanager
def deployment(
    folder: Path,
) -> Iterator[tuple[Path, dict[str, subprocess.Popen[Any]], list[subprocess.Popen[Any]]]]:
    """Servers, aggregator and drivers; all are gone afterwards."""
    shared = Path("/dev/shm")
    state = Path(tempfile.mkdtemp(prefix="tallystick-load-", dir=shared if shared.is_dir() else folder))
    home, names = state / "consortium", [f"client-{number}" for number in range(CLIENTS)]
    configs = enrol_everybody(folder, home, names)
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
        yield home, roles, drivers
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


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


Look = tuple[int, int, float]
"""Resident bytes, open files and processor seconds of a process."""


@pytest.mark.audit
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident size is read from /proc")
def test_a_thousand_clients_and_a_hundred_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tallystick as ts
    from tallystick.roles.analyst import connection as analyst_connection

    began = time.monotonic()
    monkeypatch.setattr(analyst_connection, "SETTLE_SECONDS", 120.0)  # everybody is to be in it, not just a quorum
    with deployment(tmp_path) as (home, roles, drivers):
        ready = time.monotonic()
        fed = ts.Federation.connect(
            home / "consortium.toml",
            schema=ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["no", "yes"])}),
            records=2 * CLIENTS,
            min_clients=3,  # in the first round most of a thousand clients on two cores are still being charged
            round_timeout_s=DEADLINE,
        )
        model = ts.LogisticRegression(epsilon=1.0, rounds=ROUNDS - 1)
        times: list[float] = []
        seen: dict[int, dict[str, Look]] = {}

        def look() -> dict[str, Look]:
            pids = {**{n: p.pid for n, p in roles.items()}, **{f"driver-{i}": d.pid for i, d in enumerate(drivers)}}
            return {n: (resident(pid), open_files(pid), processor_seconds(pid)) for n, pid in pids.items()}

        def progress(done: int, of: int) -> None:
            assert done > len(times), "a round is told once"
            times.extend([time.monotonic()] * (done - len(times)))
            if done in (1, SETTLED, of - 1):
                seen[done] = look()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = model.study_for(fed, target="y", features=None, name="load")
            study = study.replace("data", records=2 * CLIENTS)
            for driver in drivers:  # 250 institutions plan on a machine each, not all on one within the deadline
                tell(driver, study.canonical().decode(), "warm")
            model.fit_study(fed, study, progress=progress)
        print(report(times, seen, model, ready - began, times[0] - ready))
        assert model.n_iter_ == ROUNDS
        assert in_study(model) >= 0.9 * CLIENTS  # whoever is not ready in time is left out
        early, late = seen[SETTLED], seen[max(seen)]
        for name in roles:
            assert late[name][0] - early[name][0] < GROWTH, (name, early[name], late[name])
            assert late[name][1] <= early[name][1] + SPARE_FILES, (name, early[name], late[name])
        missing = [len(dropped) for dropped in model.dropped_[SETTLED:]]
        assert np.median(missing) <= CLIENTS // 20  # 1 % by design; the rest was too slow for its deadline
        assert all(process.poll() is None for process in roles.values())


def in_study(model: Any) -> int:
    return len(set(model.contributors_).union(*model.dropped_))


def report(times: list[float], seen: dict[int, dict[str, Look]], model: Any, enrolled: float, agreed: float) -> str:
    spans = np.diff(times)  # without the first, which holds the agreement on the study
    quick = [span for round, span in enumerate(spans, start=2) if round % SILENT]
    missing = [len(dropped) for dropped in model.dropped_]
    first, last = min(seen), max(seen)

    def quantile(of: Any, q: float) -> float:
        return round_to(float(np.quantile(of, q)))

    def round_to(value: float, digits: int = 3) -> float:
        return float(f"{value:.{digits}f}")

    return json.dumps(
        {
            "lines_of_clients": CLIENTS,
            "clients_in_the_study": in_study(model),
            "rounds": len(times),
            "deadline_s": DEADLINE,
            "setting_up_s": round_to(enrolled, 1),
            "agreeing_and_first_round_s": round_to(agreed, 1),
            "all_rounds_s": round_to(times[-1] - times[0], 1),
            "p50_s": quantile(spans, 0.5),
            "p99_s": quantile(spans, 0.99),
            "p50_s_when_drop_outs_say_so": quantile(quick, 0.5),
            "p99_s_when_drop_outs_say_so": quantile(quick, 0.99),
            "missing_median": float(np.median(missing)),
            "missing_most_after_settling": max(missing[SETTLED:]),
            "processor_ms_a_round": {
                name: round_to(1000 * (seen[last][name][2] - seen[first][name][2]) / max(1, last - first), 1)
                for name in seen[first]
            },
            "rss_mb_and_files": {
                str(number): {n: (round_to(r / 2**20, 1), f) for n, (r, f, _) in found.items()}
                for number, found in seen.items()
            },
        },
        indent=1,
    )


if __name__ == "__main__":
    drive(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
