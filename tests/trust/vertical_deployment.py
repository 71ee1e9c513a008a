"""A bank and a hospital with different columns of the same people, two servers, an aggregator, a dealer, an analyst:
each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from tests.trust.proxy_deployment import ROOT, Deployment

from tallystick.application.data_check import accept_columns
from tallystick.application.demo.free_ports import free_ports
from tallystick.roles.identity import enrolment
from tallystick.study import Study

CLIENTS = ("bank", "hospital")
LISTENING = {"server-1": "server", "server-2": "server", "aggregator": "aggregator", "dealer": "dealer"}
SHARED, AT_BANK, AT_HOSPITAL = 60, 80, 70


def text(name: str = "columns apart", *, program: str = "vertical_ridge", target: str | None = "y", more: str = "",
         timeout: float = 40, people: int = AT_BANK, epsilon: float = 50.0) -> str:  # fmt: skip
    wanted = f'target = "{target}"' if target else 'features = ["x", "c", "z"]'
    return f"""
[study]
name = "{name}"
program = "{program}"
{wanted}
accept_noise = true
{more}
[privacy]
epsilon = {epsilon}
delta = 1e-6
[trust]
model = "servers"
servers = 2
dealer = "dealer"
min_clients = 2
round_timeout_s = {timeout}
[data]
records = {SHARED}
identifier = {{ column = "id", case = "fold", blanks = "skip" }}
[data.holders.bank]
columns = ["x", "y", "c", "label"]
norm = 1.2
people = {people}
[data.holders.hospital]
columns = ["z"]
norm = 1.0
people = {AT_HOSPITAL}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
z = {{ type = "number", lower = 0, upper = 4 }}
c = {{ type = "category", values = ["a", "b", "d"] }}
y = {{ type = "number", lower = -2, upper = 2 }}
label = {{ type = "category", values = ["no", "yes"] }}
"""


def study(name: str = "columns apart", **options: object) -> Study:
    """Without the target it does not use."""
    made = text(name, **options)  # type: ignore[arg-type]
    if options.get("target", "y") == "y":
        made = made.replace(', "label"]', "]").replace('label = { type = "category", values = ["no", "yes"] }\n', "")
    else:
        made = made.replace('"y", ', "").replace('y = { type = "number", lower = -2, upper = 2 }\n', "")
    if options.get("target", "y") is None:
        made = made.replace(', "label"]', "]").replace('label = { type = "category", values = ["no", "yes"] }\n', "")
    return Study.parse(made)


def exactly_written() -> Study:
    """With identifiers that count as they are written, nobody is at both."""
    return study("nobody", timeout=20).replace("data", identifier={"column": "id", "blanks": "skip"})


def frames() -> dict[str, pl.DataFrame]:
    """Neither sorted nor complete: each has people of its own; one cell is of no use, one name is blank."""
    rng = np.random.default_rng(5)
    x, z = rng.uniform(-1, 1, SHARED), rng.uniform(0, 4, SHARED)
    y = np.clip(0.7 * x + 0.3 * (z - 2) + 0.1 * rng.normal(size=SHARED), -2, 2)
    people = [f"P-{i:03}" for i in range(SHARED)]
    bank = pl.DataFrame(
        {
            "id": [*people, *(f"bank-{i}" for i in range(AT_BANK - SHARED))],
            "x": [*x, *rng.uniform(-1, 1, AT_BANK - SHARED)],
            "y": [*y, *np.zeros(AT_BANK - SHARED)],
            "c": ["abd"[i % 3] for i in range(AT_BANK)],
            "label": [["no", "yes"][int(i < SHARED and y[i] > 0)] for i in range(AT_BANK)],
        }
    ).sample(fraction=1.0, shuffle=True, seed=3)
    hospital = pl.DataFrame(
        {
            "id": [*(p.lower() for p in people), *(f"hospital-{i}" for i in range(AT_HOSPITAL - SHARED - 1)), ""],
            "z": [*z, *rng.uniform(0, 4, AT_HOSPITAL - SHARED)],
        }
    ).sample(fraction=1.0, shuffle=True, seed=4)
    return {"bank": bank, "hospital": hospital}


class VerticalDeployment(Deployment):
    """All roles of trust model ``servers``, and its dealer."""

    def __init__(self, folder: Path, sources: dict[str, pl.DataFrame] | None = None) -> None:
        self.home, self.logs = folder / "consortium", folder
        now = datetime.now(UTC)
        enrolment.create("apart", self.home, now=now)
        self.configs: dict[str, tuple[str, Path]] = {}
        for (name, role), port in zip(LISTENING.items(), free_ports(len(LISTENING))):
            address = f"127.0.0.1:{port}"
            self.configs[name] = (role, enrolment.enrol(name, role, self.home, now=now, address=address)[1])
        for name, frame in (sources or frames()).items():
            source = folder / f"{name}.csv"
            frame.write_csv(source)
            made = enrolment.enrol(name, "client", self.home, now=now, data=str(source), decide="approve", budget=900.0)
            told = made[1].read_text().replace("max_epsilon = 1.0", "max_epsilon = 100.0")
            made[1].write_text(told.replace("min_clients = 3", "min_clients = 2"))
            self.configs[name] = ("client", made[1])
        self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)[1]
        for name in CLIENTS:
            for target in ("y", "label"):
                accept_columns(study(target=target), self.configs[name][1], by="steward")
            accept_columns(exactly_written(), self.configs[name][1], by="steward")
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.trust.vertical_role"],
            stdin=subprocess.PIPE, cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
