"""A trust model that lives here only, registered with no edit elsewhere: planned, simulated, and run for real.

What is shown: a study file of it parses and is hashed, planned and refused like any other; the simulation runs its
machines; real processes propose, approve, run (the curator and an institution killed with SIGKILL on the way), charge,
countersign, attest, seal and receipt it; and the receipt verifies offline.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trust.curator import CURATOR

import tallystick as ts
from tallystick.application import planning, studies, study_results
from tallystick.application.data_check import accept_columns
from tallystick.application.demo.free_ports import free_ports
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.cli.main import main
from tallystick.core.errors import PrivacyRefused
from tallystick.roles.identity import enrolment
from tallystick.study import Study, trust

ROOT = Path(__file__).parents[2]
CLIENTS = ("north", "south", "west")
ROUNDS, RECORDS = 4, 90
TEXT = f"""
[study]
name = "with a curator"
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
model = "curator"
min_clients = 3
round_timeout_s = 40
[data]
records = {RECORDS}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
y = {{ type = "category", values = ["a", "b"] }}
"""


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The one registration, for as long as a test here runs: other tests see only what is in the wheel."""
    trust.register(CURATOR)
    yield
    del trust._REGISTERED[CURATOR.name]


def frames() -> list[dict[str, Any]]:
    x = np.linspace(-1, 1, RECORDS)
    y = np.where(x > 0.1, "b", "a")
    return [{"x": x[i::3], "y": y[i::3]} for i in range(3)]


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.05)
    return found


def test_its_study_is_a_study_like_any_other(tmp_path: Path) -> None:
    study = Study.parse(TEXT)
    assert Study.from_canonical(study.canonical()).hash == study.hash
    assert study.trust_model is CURATOR
    assert Study.parse(TEXT, settings=("trust.round_timeout_s=41",)).hash != study.hash
    with pytest.raises(ts.StudyError, match=r"trust\.servers"):  # a key of another trust model
        Study.parse(TEXT, settings=("trust.servers=2",))
    with pytest.raises(PrivacyRefused, match="min_clients"):
        estimator().fit_study(simulated(), Study.parse(TEXT, settings=("trust.min_clients=1",)))
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    made = planning.plan(file)
    assert made["privacy"]["trust"] == {"model": "curator", "honest": 1}
    assert made["price_of_trust"] == 1.0
    assert "curator" in planning.describe(made)


def estimator() -> ts.LogisticRegression:
    return ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=ROUNDS)


def simulated() -> ts.Federation:
    return ts.Federation.simulate(frames(), schema=Study.parse(TEXT).schema_of_data(), trust="curator", seed=5)


@pytest.mark.filterwarnings("ignore")
def test_it_is_simulated_and_charged() -> None:
    fed = simulated()
    model = estimator().fit_study(fed, Study.parse(TEXT))
    again = estimator().fit_study(simulated(), Study.parse(TEXT))
    assert (model.coef_ == again.coef_).all()
    assert model.privacy_.noise_std["per_curator"] == model.privacy_.noise_std["total"]
    assert "curator" in model.privacy_.statement
    assert fed.spent.epsilon <= 1.0
    servers = ts.Federation.simulate(frames(), schema=Study.parse(TEXT).schema_of_data(), seed=5)
    other = ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=ROUNDS).fit(servers, target="y")
    assert other.privacy_.noise_std["total"] > model.privacy_.noise_std["total"]  # nobody trusted has its price


def test_its_role_is_a_command_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        with pytest.raises(SystemExit) as left:
            main([*words])
        assert left.value.code == 0
        return capsys.readouterr().out

    assert "curator" in said("--help")
    assert CURATOR.roles[0].words in said("curator", "--help")
    assert "--config" in said("curator", "start", "--help")


def test_a_trust_model_nobody_registered_is_refused() -> None:
    with pytest.raises(ts.StudyError, match="curator"):  # the remedy names those there are
        Study.parse(TEXT.replace('"curator"', '"oracle"'))


class Deployment:
    """A consortium of a curator, three institutions and an analyst, each a process."""

    def __init__(self, folder: Path) -> None:
        self.home, self.logs = folder / "consortium", folder
        now = datetime.now(UTC)
        enrolment.create("curated", self.home, now=now)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self.configs = {
            "curator": ("curator", enrolment.enrol("curator", "curator", self.home, now=now, address=address)[1])
        }
        for name, frame in zip(CLIENTS, frames()):
            source = folder / f"{name}.csv"
            rows = ["x,y", *(f"{x!r},{y}" for x, y in zip(frame["x"].tolist(), frame["y"].tolist()))]
            source.write_text("\n".join(rows) + "\n")
            made = enrolment.enrol(name, "client", self.home, now=now, data=str(source), decide="approve", budget=10.0)
            self.configs[name] = ("client", made[1])
        self.analyst = enrolment.enrol("analyst", "analyst", self.home, now=now)[1]
        declared = {"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])}  # under whichever trust model is registered
        told = {"name": "columns", "program": "summary"}
        columns = Study.from_dict({"study": told, "data": {"columns": ts.Schema(declared).to_dict()}})
        for name in CLIENTS:  # rules approve only what a person has accepted
            accept_columns(columns, self.configs[name][1], by="steward")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str, mortal: bool = False) -> None:
        for name in names or tuple(self.configs):
            role, config = self.configs[name]
            with (self.logs / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.trust.curator", role, str(config), *["mortal"] * mortal],
                    stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE"},
                )  # fmt: skip

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()

    def log(self) -> str:
        return "\n".join((self.logs / f"{n}.log").read_text()[-2000:] for n in self.configs)

    def released(self) -> int:
        """Totals the curator has kept."""
        file = self.configs["curator"][1].parent / "state" / "role.sqlite"
        try:
            with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
                return int(db.execute("SELECT count(*) FROM releases").fetchone()[0])
        except sqlite3.Error:
            return 0

    def close(self) -> None:
        for name in tuple(self.processes):
            self.kill(name)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.close()


def test_it_runs_between_real_processes_governed_charged_and_receipted(deployment: Deployment, tmp_path: Path) -> None:
    deployment.start()
    study = Study.parse(TEXT)
    studies.propose_study(study, deployment.analyst)
    wait_for(lambda: studies.show(study.printed_hash, deployment.analyst)["state"] == "approved")
    made: dict[str, Any] = {}
    analyst = threading.Thread(target=lambda: made.update(studies.run(study.printed_hash, deployment.analyst)))
    deployment.processes["west"].send_signal(signal.SIGSTOP)  # so that a round stays open
    analyst.start()
    # West answers the opening of the study only when it may go on: let it, and stop it again within the rounds.
    deployment.processes["west"].send_signal(signal.SIGCONT)
    wait_for(lambda: deployment.released() >= 1)
    deployment.processes["west"].send_signal(signal.SIGSTOP)
    kept = deployment.released()
    deployment.kill("curator")  # SIGKILL, most likely with a round open
    deployment.kill("north")
    deployment.start("north")
    deployment.start("curator", mortal=True)
    deployment.processes["west"].send_signal(signal.SIGCONT)
    assert deployment.processes["curator"].wait(150) == -signal.SIGKILL  # it has the result, and has not vouched
    deployment.start("curator")
    analyst.join(150)
    assert made, deployment.log()
    assert deployment.released() == ROUNDS >= kept
    assert made["privacy"]["trust"] == {"model": "curator", "honest": 1}
    assert made["receipt"] is not None
    assert made["participants"]["clients"] == len(CLIENTS)

    file = write_canonical(made, tmp_path, "result.json")
    found = study_results.verify(file, deployment.home / "consortium.toml")
    assert found["sound"]
    assert tuple(sorted(found["participants"])) == CLIENTS

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(study.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in CLIENTS))
