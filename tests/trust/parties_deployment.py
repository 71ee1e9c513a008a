"""A consortium of three computing parties, an aggregator, three institutions and an analyst, each a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tallystick as ts
from tallystick.application import studies
from tallystick.application.data_check import accept_columns
from tallystick.application.demo.free_ports import free_ports
from tallystick.application.party_files import PartyFiles
from tallystick.core.errors import TallystickError
from tallystick.roles.identity import enrolment
from tallystick.study import Study

ROOT = Path(__file__).parents[2]
PARTIES, CLIENTS = ("party-1", "party-2", "party-3"), ("north", "south", "west")
RECORDS = 90
COLUMNS = {"age": ts.Integer(0, 120), "blood": ts.Category(["0", "A", "B", "AB"])}


def frames() -> list[dict[str, Any]]:
    ages = np.arange(RECORDS) + 10
    blood = np.array(["0"] * 45 + ["A"] * 30 + ["B"] * 10 + ["AB"] * 5)
    return [{"age": ages[i::3], "blood": blood[i::3]} for i in range(3)]


def study(name: str, program: str, section: str, *, epsilon: float = 1.0, timeout: float = 20) -> Study:
    return Study.parse(
        f"""
[study]
name = "{name}"
program = "{program}"
[program]
{section}
[privacy]
epsilon = {epsilon}
mechanism = "exponential"
[trust]
model = "parties"
parties = 3
min_clients = 3
round_timeout_s = {timeout}
[data]
records = {RECORDS}
[data.columns]
age = {{ type = "integer", lower = 0, upper = 120 }}
blood = {{ type = "category", values = ["0", "A", "B", "AB"] }}
"""
    )


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.05)
    return found


class Deployment:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.home, self.logs = folder / "consortium", folder
        now = datetime.now(UTC)
        enrolment.create("computed", self.home, now=now)
        self.configs: dict[str, tuple[str, Path]] = {}
        for port, name in zip(free_ports(4), (*PARTIES, "aggregator")):
            role = "aggregator" if name == "aggregator" else "party"
            address = f"127.0.0.1:{port}"
            self.configs[name] = (role, enrolment.enrol(name, role, self.home, now=now, address=address)[1])
        for name, frame in zip(CLIENTS, frames()):
            source = folder / f"{name}.csv"
            rows = ["age,blood", *(f"{a},{b}" for a, b in zip(frame["age"].tolist(), frame["blood"].tolist()))]
            source.write_text("\n".join(rows) + "\n")
            made = enrolment.enrol(name, "client", self.home, now=now, data=str(source), decide="approve", budget=50.0)
            self.configs[name] = ("client", made[1])
        self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)[1]
        told = {"name": "columns", "program": "summary"}
        columns = Study.from_dict({"study": told, "data": {"columns": ts.Schema(COLUMNS).to_dict()}})
        for name in CLIENTS:
            accept_columns(columns, self.configs[name][1], by="steward")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str, point: str | None = None) -> None:
        for name in names or tuple(self.configs):
            role, config = self.configs[name]
            with (self.logs / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.trust.parties_role", role, str(config), *([point] if point else [])],
                    stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE"},
                )  # fmt: skip

    def connected(self) -> None:
        """Wait until the aggregator has lines to everybody: on a busy machine that takes its time."""
        file, others = self.logs / "aggregator.log", [name for name in self.configs if name != "aggregator"]
        wait_for(lambda: all(f"connected with {other}\n" in file.read_text() for other in others), 120)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()

    def restart(self, name: str, point: str | None = None) -> None:
        """Kill it and start it; back when everybody is connected again, who retries ever more slowly."""
        if name in self.processes:
            self.kill(name)
        file = self.logs / f"{name}.log"
        before = file.stat().st_size
        self.start(name, point=point)
        others = [other for other in self.configs if other != name]
        wait_for(lambda: all(f"connected with {o}\n" in file.read_text()[before:] for o in others))

    def died(self, name: str, seconds: float = 60) -> None:
        """Wait until it has killed itself."""
        assert self.processes.pop(name).wait(seconds) == -signal.SIGKILL

    def state(self, name: str) -> Path:
        return self.configs[name][1].parent / "state"

    def log(self) -> str:
        return "\n".join(f"== {n}\n" + (self.logs / f"{n}.log").read_text()[-3000:] for n in self.configs)

    def approve(self, asked: Study) -> None:
        studies.propose_study(asked, self.analyst)
        wait_for(lambda: studies.show(asked.printed_hash, self.analyst)["state"] == "approved")

    def run(self, asked: Study) -> tuple[threading.Thread, dict[str, Any]]:
        """Ask for the study in a thread; ``result`` or ``error`` is there when it has ended."""
        made: dict[str, Any] = {}

        def ask() -> None:
            try:
                made["result"] = studies.run(asked.printed_hash, self.analyst)
            except TallystickError as error:
                made["error"] = error

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread, made

    def charged(self, asked: Study) -> list[str]:
        """How each institution's ledger stands with the study."""
        found = []
        for name in CLIENTS:
            with PartyFiles.of(self.configs[name][1]) as files, files.ledger() as ledger:
                found.append(ledger.standing(asked.hash))
        return found

    def close(self) -> None:
        for name in tuple(self.processes):
            self.kill(name)
