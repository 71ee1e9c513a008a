"""Beyond 100 clients masks run along a random circle: so many, each a process of its own, governed, with a receipt.

Some are killed outright before the study's last round, one is killed and comes back within a round.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.trust.masks_deployment import MaskedDeployment, text
from tests.trust.proxy_deployment import wait_for
from tests.trust.test_masks_processes import run

from tallystick.application import study_results
from tallystick.application.result_document import write_canonical
from tallystick.study import Study

CLIENTS = tuple(f"clinic-{number:03}" for number in range(104))
ROUNDS, LEAST = 2, 80
STOPPED = CLIENTS[::26]


class ManyDeployment(MaskedDeployment):
    """A reducer and 104 institutions."""

    CLIENTS: ClassVar[tuple[str, ...]] = CLIENTS


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyDeployment]:
    made = ManyDeployment(tmp_path_factory.mktemp("many"))
    made.start("reducer")
    made.start(*CLIENTS)
    wait_for(lambda: all((config.parent / "pid").exists() for _, config in made.configs.values()), 300)
    yield made
    made.close()


@pytest.mark.audit
def test_a_circle_of_real_processes(deployment: ManyDeployment, tmp_path: Path) -> None:
    written = text("a circle", rounds=ROUNDS, timeout=150).replace("clients = 4", f"clients = {len(CLIENTS)}")
    study = Study.parse(written.replace("min_clients = 3", f"min_clients = {LEAST}\ncolluding = 10"))
    before = deployment.released("reducer")
    pids = [int((deployment.configs[name][1].parent / "pid").read_text()) for name in STOPPED]

    def lose_some() -> None:
        wait_for(lambda: deployment.released("reducer") > before, 900)
        deployment.kill(CLIENTS[1])
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    try:
        made = run(deployment, study, lose_some, patience=1500)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert made["participants"]["clients"] >= LEAST
    assert deployment.released("reducer") - before == ROUNDS
    assert set(made["participants"]["dropped"][-1]["names"]) >= set(STOPPED)
    assert CLIENTS[1] not in made["participants"]["dropped"][-1]["names"]
    found = study_results.verify(write_canonical(made, tmp_path, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]
    assert len(found["participants"]) >= LEAST
