"""A consortium of peers, the relay that one of them runs, and an analyst, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from tests.trust.proxy_deployment import ROOT, Deployment

import tallystick as ts
from tallystick.application.data_check import accept_columns
from tallystick.application.demo.free_ports import free_ports
from tallystick.roles.identity import enrolment
from tallystick.study import Study

SCHEMA = ts.Schema({"x": ts.Number(-1, 1), "z": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})


def text(name: str = "among peers", *, peers: int, each: int, timeout: float = 60, more: str = "") -> str:
    return f"""
[study]
name = "{name}"
program = "gossip_classifier"
target = "y"
accept_noise = true
[privacy]
epsilon = 4.0
[trust]
model = "gossip"
board = "peer-01"
min_clients = 3
round_timeout_s = {timeout}
{more}
[data]
records = {peers * each}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
z = {{ type = "number", lower = -1, upper = 1 }}
y = {{ type = "category", values = ["a", "b"] }}
"""


def frame(rows: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-1, 1, rows), rng.uniform(-1, 1, rows)
    return {"x": x, "z": z, "y": np.where(x + 0.5 * z > 0, "b", "a")}


class PeerDeployment(Deployment):
    """``reached`` of the peers listen; the others are reached through the relay and by the lines they open."""

    def __init__(self, folder: Path, *, peers: int = 5, each: int = 40, reached: int = 3) -> None:
        self.home, self.logs = folder / "consortium", folder
        self.peers = tuple(f"peer-{i:02}" for i in range(1, peers + 1))
        self.frames = {name: frame(each, i) for i, name in enumerate(self.peers)}
        now = datetime.now(UTC)
        enrolment.create("peers", self.home, now=now)
        places = [f"127.0.0.1:{port}" for port in free_ports(reached + 1)]
        self.configs: dict[str, tuple[str, Path]] = {
            "relay": ("relay", enrolment.enrol("relay", "relay", self.home, now=now, address=places[0])[1])
        }
        for i, (name, own) in enumerate(self.frames.items()):
            source = folder / f"{name}.csv"
            rows = ["x,z,y", *(f"{x!r},{z!r},{y}" for x, z, y in zip(*(own[c].tolist() for c in ("x", "z", "y"))))]
            source.write_text("\n".join(rows) + "\n")
            address = places[i + 1] if i < reached else None
            made = enrolment.enrol(
                name, "peer", self.home, now=now, data=str(source), decide="approve", budget=50.0, address=address
            )
            made[1].write_text(made[1].read_text().replace("max_epsilon = 1.0", "max_epsilon = 10.0"))
            self.configs[name] = ("peer", made[1])
        self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)[1]
        told = {"name": "columns", "program": "summary"}
        columns = Study.from_dict({"study": told, "data": {"columns": SCHEMA.to_dict()}})
        for name in self.peers:
            accept_columns(columns, self.configs[name][1], by="steward")
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.trust.gossip_role"],
            stdin=subprocess.PIPE, cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def beside(self, name: str, file: str, content: str) -> None:
        """A file beside a party's config, for the test's entry point."""
        (self.configs[name][1].parent / file).write_text(content)
