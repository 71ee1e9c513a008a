"""Institutions with different columns as real processes: the bits of the simulation, governed, charged, receipted."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trust.proxy_deployment import wait_for
from tests.trust.vertical_deployment import CLIENTS, VerticalDeployment, frames, study
from tests.trust.vertical_role import SEED

import tallystick as ts
from tallystick.application import studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.core.errors import TallystickError
from tallystick.estimators.from_study import estimator_for
from tallystick.study import Study


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerticalDeployment]:
    made = VerticalDeployment(tmp_path_factory.mktemp("apart"))
    made.start()
    wait_for(lambda: all((config.parent / "pid").exists() for _, config in made.configs.values()))
    yield made
    made.close()


def run(deployment: VerticalDeployment, wanted: Study, patience: float = 100) -> dict[str, Any]:
    """Propose, wait for the approvals, run."""
    studies.propose_study(wanted, deployment.analyst)
    wait_for(lambda: studies.show(wanted.printed_hash, deployment.analyst)["state"] == "approved", patience)
    made: list[dict[str, Any] | TallystickError] = []

    def wait() -> None:
        try:
            made.append(studies.run(wanted.printed_hash, deployment.analyst))
        except TallystickError as error:
            made.append(error)

    analyst = threading.Thread(target=wait)
    analyst.start()
    analyst.join(patience)
    assert made, deployment.log()
    if isinstance(made[0], TallystickError):
        raise made[0]
    return made[0]


def check(deployment: VerticalDeployment, wanted: Study, made: dict[str, Any], folder: Path) -> None:
    """The receipt verifies offline, both have paid, and no secret is left anywhere."""
    assert made["privacy"]["trust"]["dealer"] == "dealer"
    found = study_results.verify(write_canonical(made, folder, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"], found
    assert tuple(sorted(found["participants"])) == CLIENTS

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(wanted.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in CLIENTS))
    for name in deployment.configs:
        left = deployment.state(name) / wanted.hash.hex()
        wait_for(lambda left=left: not left.exists() or not any(left.iterdir()))


def simulated(wanted: Study) -> Any:
    fed = ts.Federation.simulate(
        list(frames().values()), schema=wanted.schema_of_data(), names=list(CLIENTS), vertical=True, seed=SEED
    )
    estimator, complete = estimator_for(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit_study(fed, complete)


def test_thin(deployment: VerticalDeployment, tmp_path: Path) -> None:
    wanted = study()
    made = run(deployment, wanted)
    check(deployment, wanted, made, tmp_path)
    print(made["model"])
