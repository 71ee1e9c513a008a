"""A consortium of a proxy, a data user, institutions and an analyst, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tallystick as ts
from tallystick.application.data_check import accept_columns
from tallystick.application.demo.free_ports import free_ports
from tallystick.roles.identity import enrolment
from tallystick.study import Study

ROOT = Path(__file__).parents[2]
CLIENTS = ("north", "south", "west")
ROUNDS, RECORDS = 4, 90


def text(name: str = "through a proxy", *, scheme: str = "bfv") -> str:
    return f"""
[study]
name = "{name}"
program = "logistic_regression"
target = "y"
accept_noise = true
[program]
rounds = {ROUNDS}
standardise = false
[privacy]
epsilon = 1.0
delta = 1e-6
[trust]
model = "proxy"
scheme = "{scheme}"
min_clients = 3
round_timeout_s = 40
[data]
records = {RECORDS}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
y = {{ type = "category", values = ["a", "b"] }}
"""


def histogram() -> str:
    """A study of one round and a thousand entries."""
    logistic = text("packed", scheme="paillier")
    summary = logistic.replace('program = "logistic_regression"\ntarget = "y"', 'program = "summary"')
    return summary.replace(f"rounds = {ROUNDS}\nstandardise = false", "bins = 1000")


def pipeline() -> str:
    """Components and a classifier of them, in one study: the components travel to the institutions as public state."""
    steps = 'steps = [{ program = "pca", n_components = 1 }, { program = "logistic_regression", rounds = 2 }]'
    logistic = text("components first").replace('"logistic_regression"', '"pipeline"')
    joined = logistic.replace(f"rounds = {ROUNDS}\nstandardise = false", steps)
    return joined.replace("x = {", 'z = { type = "number", lower = -1, upper = 1 }\nx = {')


def frames(clients: int = 3) -> list[dict[str, Any]]:
    x = np.linspace(-1, 1, RECORDS)
    y = np.where(x > 0.1, "b", "a")
    return [{"x": x[i::clients], "y": y[i::clients], "z": np.sin(3 * x[i::clients])} for i in range(clients)]


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.05)
    return found


class Deployment:
    """The parties' files and processes; ``LISTENING`` are the roles beside clients and analyst, one party each."""

    LISTENING: ClassVar[tuple[str, ...]] = ("proxy", "data-user")
    CLIENTS: ClassVar[tuple[str, ...]] = CLIENTS

    def __init__(self, folder: Path) -> None:
        self.home, self.logs = folder / "consortium", folder
        now = datetime.now(UTC)
        enrolment.create("proxied", self.home, now=now)
        self.configs: dict[str, tuple[str, Path]] = {}
        for role, port in zip(self.LISTENING, free_ports(len(self.LISTENING))):
            address = f"127.0.0.1:{port}"
            self.configs[role] = (role, enrolment.enrol(role, role, self.home, now=now, address=address)[1])
        for name, frame in zip(self.CLIENTS, frames(len(self.CLIENTS))):
            source = folder / f"{name}.csv"
            cells = zip(*(frame[column].tolist() for column in ("x", "y", "z")))
            rows = ["x,y,z", *(f"{x!r},{y},{z!r}" for x, y, z in cells)]
            source.write_text("\n".join(rows) + "\n")
            made = enrolment.enrol(name, "client", self.home, now=now, data=str(source), decide="approve", budget=50.0)
            self.configs[name] = ("client", made[1])
        self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)[1]
        numbers = {"x": ts.Number(-1, 1), "z": ts.Number(-1, 1)}
        declared = ts.Schema({**numbers, "y": ts.Category(["a", "b"])}).to_dict()
        told = {"name": "columns", "program": "summary"}
        columns = Study.from_dict({"study": told, "data": {"columns": declared}})
        for name in self.CLIENTS:  # rules approve only what a person has accepted
            accept_columns(columns, self.configs[name][1], by="steward")
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.trust.proxy_role"],
            stdin=subprocess.PIPE, cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        )  # fmt: skip

    def start(self, *names: str) -> None:
        pipe = self._nursery.stdin
        assert pipe is not None
        for name in names or tuple(self.configs):
            role, config = self.configs[name]
            pipe.write((json.dumps([role, str(config), str(self.logs / f"{name}.log")]) + "\n").encode())
        pipe.flush()

    def order(self, name: str, *steps: str) -> None:
        """Have a role die right after each of these steps, once."""
        (self.configs[name][1].parent / "orders").write_text("\n".join(steps))

    def waiting(self, name: str) -> list[str]:
        """Steps at which it has not died yet."""
        return (self.configs[name][1].parent / "orders").read_text().split()

    def kill(self, name: str) -> None:
        """SIGKILL; the nursery starts it again."""
        os.kill(int((self.configs[name][1].parent / "pid").read_text()), signal.SIGKILL)

    def log(self) -> str:
        return "\n".join((self.logs / f"{n}.log").read_text()[-3000:] for n in self.configs)

    def state(self, name: str) -> Path:
        return self.configs[name][1].parent / "state"

    def released(self, name: str = "data-user") -> int:
        """Totals that a noise maker has kept, over all studies."""
        try:
            with sqlite3.connect(f"file:{self.state(name) / 'role.sqlite'}?mode=ro", uri=True) as db:
                return int(db.execute("SELECT count(*) FROM releases").fetchone()[0])
        except sqlite3.Error:
            return 0

    def close(self) -> None:
        self._nursery.kill()
        self._nursery.communicate()
