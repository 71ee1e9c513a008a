"""A trust model that does not sum shares ledger, governance, receipts and release with those that do.

The toy is registered from here, with no edit elsewhere: planned, refused where it does not fit, simulated, and run
between real processes with the chooser killed, charged and countersigned; its receipt verifies offline.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trust import chooser
from tests.trust.chooser.estimator import MostFrequent
from tests.trust.test_curator import CLIENTS, RECORDS, Deployment, frames, wait_for

import tallystick as ts
from tallystick.application import planning, studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.study import Study

TEXT = f"""
[study]
name = "the most frequent"
program = "most_frequent"
features = ["y"]
[privacy]
epsilon = 1.0
neighbours = "add-remove"
mechanism = "laplace"
[trust]
model = "chooser"
min_clients = 3
round_timeout_s = 40
[data]
records = {RECORDS}
[data.columns]
y = {{ type = "category", values = ["a", "b"] }}
"""


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    chooser.install()
    yield
    chooser.uninstall()


def simulated(seed: int = 5) -> Any:
    return ts.Federation.simulate(frames(), schema=Study.parse(TEXT).schema_of_data(), trust="chooser", seed=seed)


def estimator(**options: Any) -> Any:
    return MostFrequent(**{"epsilon": 1.0, "mechanism": "laplace", "neighbours": "add-remove", **options})


def test_it_is_planned_and_has_no_rounds_of_sums(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    made = planning.plan(file)
    assert made["rounds"] == []
    assert made["privacy"]["epsilon"] == 1.0
    assert "chooser" in planning.describe(made)


def test_a_sum_does_not_run_there_nor_a_choice_among_servers() -> None:
    with pytest.raises(ts.TrustModelError, match="servers"):
        ts.Summary(epsilon=1.0).fit(simulated())
    servers = ts.Federation.simulate(frames(), schema=Study.parse(TEXT).schema_of_data())
    with pytest.raises(ts.TrustModelError, match="chooser"):
        estimator().fit(servers)


def test_it_is_simulated_charged_and_released() -> None:
    fed = simulated()
    model = estimator().fit_study(fed, Study.parse(TEXT))
    assert model.mode_ == "y=a"  # 49 of 90
    assert model.privacy_.epsilon == 1.0
    assert "chooser" in model.privacy_.statement
    assert fed.spent.epsilon == 1.0
    assert not hasattr(model, "counts_")


def test_a_larger_epsilon_chooses_more_surely() -> None:
    """How much likelier the larger count is chosen, seeded: the toy's noise follows its plan. No audit of its claim."""

    def log_odds(epsilon: float) -> float:
        plan = chooser._design({}, _public(), None).plan(_claim(epsilon))  # type: ignore[arg-type]
        draws = np.array([plan.draw(_stream(i)) for i in range(2000)])
        first = [max(1, int((np.argmax(draws + np.array(c), axis=1) == 0).sum())) for c in ([3, 0], [0, 3])]
        return math.log(first[0] / first[1])

    assert 0 < log_odds(0.5) < log_odds(1.0) < log_odds(2.0)


def _stream(number: int) -> Any:
    from tallystick.crypto.prg import AesStream, derive

    return AesStream(derive(bytes(32), number.to_bytes(8, "little")))


def _public() -> Any:
    from tallystick.algorithms.program import Public

    return Public(features=("a", "b"))


def _claim(epsilon: float) -> Any:
    return Study.parse(TEXT, settings=(f"privacy.epsilon={epsilon}",)).claim(rounds=1)


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
    analyst.start()
    deployment.kill("curator")  # SIGKILL, wherever it is
    deployment.start("curator")
    analyst.join(150)
    assert made, deployment.log()
    # Real processes are not seeded, and 49 against 41 at epsilon = 1 is drawn the other way round once in forty times.
    assert made["model"] in ({"type": "MostFrequent", "mode": "y=a"}, {"type": "MostFrequent", "mode": "y=b"})
    assert made["privacy"]["trust"] == {"model": "chooser", "honest": 1}
    found = study_results.verify(write_canonical(made, tmp_path, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(study.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in CLIENTS))
