"""Three institutions with different columns of the same people, an analyst, and the roles of one trust model: each a
process of its own. One of them has the labels; some cells are of no use, and not everybody is everywhere."""

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

CLIENTS = ("bank", "clinic", "school")
LABELS = "clinic"
LISTENING: dict[str, dict[str, str]] = {
    "masks": {"reducer": "reducer"},
    "servers": {"aggregator": "aggregator", "server-1": "server", "server-2": "server", "dealer": "dealer"},
    "proxy": {"data-user": "data-user", "proxy": "proxy"},
}
"""The parties beside institutions and analyst, by their names; the first one coordinates, a dealer has no part."""
TRUST = {
    "masks": f'model = "masks"\nclients = 3\ncolluding = 0\nreducer = "{LABELS}"',
    "servers": 'model = "servers"\nservers = 2',
    "proxy": 'model = "proxy"\nscheme = "paillier"',
}
SHARED, PEOPLE, RECORDS = 40, 60, 44
"""At all three; in each list at most; stated: rows beyond those who are there are zeros."""


def text(name: str, trust: str, *, kernel: str = "linear", rounds: int = 4, timeout: float = 40) -> str:
    return f"""
[study]
name = "{name}"
program = "vertical_svc"
target = "ill"
[program]
kernel = "{kernel}"
max_iter = {rounds}
n_features = 6
[privacy]
mechanism = "none"
[trust]
{TRUST[trust]}
min_clients = 3
round_timeout_s = {timeout}
[data]
records = {RECORDS}
identifier = {{ column = "id", case = "fold", blanks = "skip" }}
[data.holders.bank]
columns = ["x"]
norm = 1.0
people = {PEOPLE}
[data.holders.clinic]
columns = ["dose", "ill"]
norm = 1.0
people = {PEOPLE}
[data.holders.school]
columns = ["marks"]
norm = 1.0
people = {PEOPLE}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
dose = {{ type = "number", lower = 0, upper = 4 }}
marks = {{ type = "number", lower = 0, upper = 10 }}
ill = {{ type = "category", values = ["no", "yes"] }}
"""


def study(name: str, trust: str = "masks", **options: object) -> Study:
    made = Study.parse(text(name, trust, **options))  # type: ignore[arg-type]
    return made if options.get("kernel", "linear") != "linear" else made.replace("program", n_features=None)


def frames() -> dict[str, pl.DataFrame]:
    """Neither sorted nor complete; one dose is no number, one person has no label."""
    rng = np.random.default_rng(11)
    x, dose, marks = rng.uniform(-1, 1, SHARED), rng.uniform(0, 4, SHARED), rng.uniform(0, 10, SHARED)
    ill = [["no", "yes"][int(a + b / 2 - c / 10 > 0.6)] for a, b, c in zip(x, dose, marks)]
    people = [f"Person-{i:03}" for i in range(SHARED)]
    doses: list[float | None] = [*dose.tolist(), *rng.uniform(0, 4, 9).tolist()]
    doses[3] = None
    labels: list[str | None] = [*ill, *["no"] * 9]
    labels[7] = None
    bank = {"id": [*people, *(f"bank-{i}" for i in range(9))], "x": [*x, *rng.uniform(-1, 1, 9)]}
    clinic = {
        "id": [*(p.lower() for p in people), *(f"clinic-{i}" for i in range(8)), ""],
        "dose": doses,
        "ill": labels,
    }
    school = {"id": [*people, *(f"school-{i}" for i in range(9))], "marks": [*marks, *rng.uniform(0, 10, 9)]}
    made = (pl.DataFrame(one) for one in (bank, clinic, school))
    return {n: one.sample(fraction=1.0, shuffle=True, seed=i) for i, (n, one) in enumerate(zip(CLIENTS, made))}


class LearnersDeployment(Deployment):
    """All parties of one trust model. Institutions allow exact studies, each in its own file."""

    def __init__(self, folder: Path, trust: str) -> None:
        self.home, self.logs, self.trust = folder / "consortium", folder, trust
        now = datetime.now(UTC)
        enrolment.create("learning-apart", self.home, now=now)
        self.configs: dict[str, tuple[str, Path]] = {}
        self.coordinator = next(iter(LISTENING[trust]))
        for (name, role), port in zip(LISTENING[trust].items(), free_ports(len(LISTENING[trust]))):
            address = f"127.0.0.1:{port}"
            self.configs[name] = (role, enrolment.enrol(name, role, self.home, now=now, address=address)[1])
        for name, frame in frames().items():
            source = folder / f"{name}.csv"
            frame.write_csv(source)
            made = enrolment.enrol(name, "client", self.home, now=now, data=str(source), decide="approve", budget=9.0)
            told = made[1].read_text()
            assert "allow_not_private = false" in told
            made[1].write_text(told.replace("allow_not_private = false", "allow_not_private = true"))
            self.configs[name] = ("client", made[1])
        self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)[1]
        for name in CLIENTS:
            accept_columns(study("columns", trust), self.configs[name][1], by="steward")
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.trust.learners_role"],
            stdin=subprocess.PIPE, cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
