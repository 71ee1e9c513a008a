"""A consortium of real processes on 127.0.0.1 in a temporary folder, for the fault suite.

``Nursery`` keeps one process that has imported everything and forks roles (see ``seeded_role``): a restart costs tens
of milliseconds instead of seconds. ``Parties`` is one consortium: start, kill, restart its roles, wait, read what they
noted, and run studies through the shipped ``Federation.connect``.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.application.data_check import accept_columns
from tallystick.application.demo.free_ports import free_ports
from tallystick.core.errors import TallystickError
from tallystick.roles.analyst import connected
from tallystick.roles.identity import enrolment
from tallystick.roles.storage.stores import RoleStore
from tallystick.study import Study
from tallystick.study.read_columns import columns_read
from tallystick.trust.servers.simulation import SimulatedServers

HERE = Path(__file__).parent
SEED = 20261115
RECORDS = 60
SCHEMA = ts.Schema({"x": ts.Number(-1, 1), "z": ts.Number(0, 2), "y": ts.Category(["no", "yes"])})
PATIENCE = 120.0  # of a test for something that must happen; never part of an assertion on speed


class Nursery:
    """The forking process, and what it says."""

    def __init__(self) -> None:
        paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "GRPC_VERBOSITY": "NONE"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "seeded_role.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment,
        )  # fmt: skip
        self._changed = threading.Condition()
        self._ready = False
        self._number = 0
        self._started: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._process.poll() is not None, 300)
            if not self._ready:
                raise RuntimeError("the nursery did not come up")

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            said = json.loads(line)
            with self._changed:
                self._ready |= "ready" in said
                if "started" in said:
                    self._started[said["number"]] = said["started"]
                elif "ended" in said:
                    self._ended[said["ended"]] = said["code"]
                self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._changed.notify_all()

    def start(self, role: str, config: Path, log: Path, spec: dict[str, Any]) -> int:
        """A new process; its pid."""
        with self._changed:
            self._number += 1
            number = self._number
            order = {"number": number, "role": role, "config": str(config), "log": str(log), "spec": spec}
            self._process.stdin.write(json.dumps(order) + "\n")  # type: ignore[union-attr]
            if not self._changed.wait_for(lambda: number in self._started, PATIENCE):
                raise RuntimeError(f"{config} was not started")
            return self._started[number]

    def exit_code(self, pid: int, timeout: float = PATIENCE) -> int | None:
        """How it ended, waiting for it; None if it has not."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._ended, timeout)
            return self._ended.get(pid)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.stdin.close()  # type: ignore[union-attr]
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


_nursery: Nursery | None = None


def nursery() -> Nursery:
    """One for the whole test process."""
    global _nursery
    if _nursery is None:
        _nursery = Nursery()
    return _nursery


def free_port() -> int:
    return free_ports(1)[0]


def frames(clients: int) -> list[dict[str, Any]]:
    """Every client's few records."""
    rng = np.random.default_rng(7)
    x, z = rng.uniform(-1, 1, RECORDS), rng.uniform(0, 2, RECORDS)
    y = np.where(x + 0.3 * rng.normal(size=RECORDS) > 0, "yes", "no")
    return [{"x": x[i::clients], "z": z[i::clients], "y": y[i::clients]} for i in range(clients)]


class Parties:
    """A consortium and its processes."""

    def __init__(
        self, folder: Path, *, clients: int = 3, servers: int = 2, seed: int | None = SEED, files: Sequence[Path] = ()
    ) -> None:
        """The clients' records are a few of our own, or those in ``files``, one each."""
        self.folder, self.seed = folder, seed
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        self.home = folder / "consortium"
        self.frames = frames(clients)
        now = datetime.now(UTC)
        enrolment.create("faults", self.home, now=now)
        self.configs: dict[str, tuple[str, Path]] = {}
        for i in range(1, servers + 1):
            self._enrol(f"server-{i}", "server", now, address=f"127.0.0.1:{free_port()}")
        self._enrol("aggregator", "aggregator", now, address=f"127.0.0.1:{free_port()}")
        self.clients = [f"client-{i}" for i in range(1, clients + 1)]
        for name, source in zip(self.clients, files or self._written(folder), strict=True):
            self._enrol(name, "client", now, data=str(source), decide="approve", budget=1000.0)
        _, self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)
        self.pids: dict[str, int] = {}
        self._studies = 0
        self._accepted: set[bytes] = set()

    def _written(self, folder: Path) -> Iterator[Path]:
        for name, frame in zip(self.clients, self.frames):
            source = folder / f"{name}.csv"
            rows = [",".join(frame), *(f"{x!r},{z!r},{y}" for x, z, y in zip(*(c.tolist() for c in frame.values())))]
            source.write_text("\n".join(rows) + "\n")
            yield source

    def _enrol(self, name: str, role: str, now: datetime, **where: Any) -> None:
        self.configs[name] = (role, enrolment.enrol(name, role, self.home, now=now, **where)[1])

    # -- processes -------------------------------------------------------------------------------------------------

    def start(self, *names: str, **spec: Any) -> None:
        for name in names or tuple(self.configs):
            role, config = self.configs[name]
            spec = {"seed": self.seed, "notes": str(self.notes), **spec}
            self.pids[name] = nursery().start(role, config, self.log_file(name), spec)

    def kill(self, name: str, number: int = signal.SIGKILL) -> int | None:
        """End a process we started; how it ended."""
        pid = self.pids.pop(name)
        if nursery().exit_code(pid, 0) is None:
            os.kill(pid, number)
        return nursery().exit_code(pid)

    def wait_dead(self, name: str, timeout: float = PATIENCE) -> int | None:
        """Wait until a process has ended by itself."""
        code = nursery().exit_code(self.pids[name], timeout)
        if code is not None:
            del self.pids[name]
        return code

    def alive(self, name: str) -> bool:
        return name in self.pids and nursery().exit_code(self.pids[name], 0) is None

    def close(self) -> None:
        for name in list(self.pids):
            self.kill(name)

    # -- what is known of them -------------------------------------------------------------------------------------

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        file = self.log_file(name)
        return file.read_text() if file.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"---- {name}\n{self.log(name)[-3000:]}" for name in self.configs)

    def noted(self, kind: str, name: str) -> list[str]:
        file = self.notes / f"{name}.{kind}"
        return file.read_text().splitlines() if file.exists() else []

    def state(self, name: str) -> Path:
        return self.configs[name][1].parent / "state"

    def die_at(self, name: str, point: str, visits: int = 1) -> None:
        """Have a running role kill itself at this point, the n-th time it gets there."""
        waiting = self.notes / f"{name}.order"
        waiting.write_text(f"{point} {visits}")
        waiting.rename(self.notes / f"{name}.die")

    def hold_at(self, name: str, point: str) -> None:
        """Have a running role wait at this point until :meth:`let_go`; one that waits elsewhere goes on to there."""
        (self.notes / f"{name}.held").unlink(missing_ok=True)
        waiting = self.notes / f"{name}.order"
        waiting.write_text(f"{point} hold")
        waiting.rename(self.notes / f"{name}.die")

    def wait_held(self, name: str) -> None:
        wait_for(lambda: self.noted("held", name))

    def let_go(self, name: str) -> None:
        (self.notes / f"{name}.held").unlink()
        (self.notes / f"{name}.die").unlink()

    def wait_up(self, *names: str, times: int = 1) -> None:
        """Until these roles have started so often."""
        wait_for(lambda: all(self.log(n).count(f" {n} is up") >= times for n in names or tuple(self.pids)))

    def monitor(self, name: str) -> str:
        """Have a role serve its health, from its next start on; the address."""
        address = f"127.0.0.1:{free_port()}"
        config = self.configs[name][1]
        config.write_text(config.read_text() + f'\n[metrics]\nlisten = "{address}"\n')
        return address

    @contextmanager
    def stored(self, name: str) -> Iterator[RoleStore]:
        """The state of a role that is not running (opening it counts as a boot)."""
        with RoleStore(self.state(name) / "role.sqlite", party=name) as store:
            yield store

    # -- studies ---------------------------------------------------------------------------------------------------

    def federation(self, **options: Any) -> connected.ConnectedFederation:
        settings: dict[str, Any] = {"schema": SCHEMA, "records": RECORDS, "round_timeout_s": 20, **options}
        return ts.Federation.connect(self.home / "consortium.toml", **settings)

    def study(self, *, rounds: int = 2, name: str | None = None, epsilon: float = 1.0, **options: Any) -> Study:
        """A small study nobody has run yet."""
        self._studies += 1
        model = ts.LogisticRegression(epsilon=epsilon, rounds=rounds)
        name = name or f"study {self._studies}"
        fed = self.federation(**options)
        study = model.study_for(fed, target="y", features=None, name=name).replace("data", records=RECORDS)
        self.accept(study)
        return study

    def accept(self, study: Study) -> None:
        """Every client's steward lets its rules approve studies that read these columns so, and no others."""
        readings = {reading for _, reading in columns_read(study)}
        if not readings <= self._accepted:
            for name in self.clients:
                accept_columns(study, self.configs[name][1], by="steward")
            self._accepted |= readings

    def fit(self, study: Study, **options: Any) -> ts.LogisticRegression:
        self.accept(study)
        return fit(self.federation(**options), study)

    def simulated(self, study: Study, dropped: tuple[tuple[str, ...], ...] | None = None) -> ts.LogisticRegression:
        """The same study in one process: same seed, same records, and the same clients missing from each round."""
        fed = ts.Federation.simulate(self.frames, names=self.clients, schema=SCHEMA, seed=self.seed)
        with pytest.MonkeyPatch.context() as patch:
            if dropped is not None:
                patch.setattr(SimulatedServers, "_absent", lambda _, round: frozenset(dropped[round - 1]))
            return fit(fed, study)

    def fit_in_background(self, study: Study, **options: Any) -> Running:
        return Running(lambda: self.fit(study, **options))


def fit(fed: Any, study: Study) -> ts.LogisticRegression:
    settings = dict(study.program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ts.LogisticRegression(epsilon=study.privacy.epsilon, **settings).fit_study(fed, study)


class Running:
    """A fit in a thread of its own: ``result()`` is the model, or raises what the fit raised."""

    def __init__(self, work: Callable[[], ts.LogisticRegression]) -> None:
        self._work, self._model, self._error = work, None, None  # type: ignore[var-annotated]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._model = self._work()
        except TallystickError as error:
            self._error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def result(self, timeout: float = PATIENCE) -> ts.LogisticRegression:
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        if self._model is None:
            raise AssertionError("the study neither ended nor failed")
        return self._model

    def end(self, timeout: float = PATIENCE) -> ts.LogisticRegression | TallystickError:
        """Whichever it was: the model or the typed failure."""
        self._thread.join(timeout)
        if self.over and (self._model or self._error) is not None:
            return self._model if self._model is not None else self._error
        raise AssertionError("the study neither ended nor failed")

    def error(self, timeout: float = PATIENCE) -> TallystickError:
        """The typed failure it must end with."""
        self._thread.join(timeout)
        if self._error is None:
            raise AssertionError("the study did not fail" if self._model is not None else "the study did not end")
        return self._error


def bits(model: ts.LogisticRegression) -> bytes:
    """Everything that was released, as bytes."""
    states = b"".join(pack_state(state) for state in model.history_)
    return model.coef_.tobytes() + model.intercept_.tobytes() + states


def health(address: str) -> dict[str, Any]:
    """What a role says of itself, with the HTTP status."""
    try:
        with urllib.request.urlopen(f"http://{address}/health", timeout=10) as answer:
            return {"status": answer.status, **json.load(answer)}
    except urllib.error.HTTPError as refused:
        with refused:
            return {"status": refused.code, **json.load(refused)}
    except OSError:
        return {"status": 0, "green": None}


def wait_for(condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The condition's value once it is true; an assertion if it never is."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.05)


__all__ = [
    "PATIENCE",
    "RECORDS",
    "SCHEMA",
    "SEED",
    "Parties",
    "Running",
    "bits",
    "fit",
    "free_port",
    "health",
    "wait_for",
]
