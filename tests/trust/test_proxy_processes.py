"""Trust model ``proxy`` between real processes: governed, charged, receipted; proxy and data user killed at every step.

One deployment for all of it. A role that has just done a step it is ordered to die at ends itself with SIGKILL and is
started again at once; the study must end as if nothing had happened.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trust.proxy_deployment import (
    CLIENTS,
    RECORDS,
    ROUNDS,
    Deployment,
    frames,
    histogram,
    pipeline,
    text,
    wait_for,
)

import tallystick as ts
from tallystick.application import studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.study import Study

AT_THE_PROXY = (
    "study-key-kept", "study/ready-kept", "study/start-kept", "public-key-kept", "noise-kept", "round-kept",
    "participants-kept", "countersigned-kept", "summed-kept", "noise-erased", "study/end-kept",
)  # fmt: skip
AT_THE_DATA_USER = (
    "study/start-kept", "decrypting-key-kept", "noise-kept", "round-kept", "open-kept", "round-sent",
    "participants-kept", "countersigned-kept", "result-kept", "noise-erased", "model-kept", "study/end-kept",
)  # fmt: skip


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("proxied"))
    made.start()
    yield made
    made.close()


def run(deployment: Deployment, study: Study) -> dict[str, Any]:
    """Propose, wait for the approvals, run."""
    studies.propose_study(study, deployment.analyst)
    wait_for(lambda: studies.show(study.printed_hash, deployment.analyst)["state"] == "approved")
    made: dict[str, Any] = {}
    analyst = threading.Thread(target=lambda: made.update(studies.run(study.printed_hash, deployment.analyst)))
    analyst.start()
    analyst.join(150)
    assert made, deployment.log()
    return made


def check(deployment: Deployment, study: Study, made: dict[str, Any], folder: Path) -> None:
    """The receipt verifies offline, everybody has paid, and no secret is left at proxy and data user."""
    assert made["privacy"]["trust"]["model"] == "proxy"
    assert "do not collude" in made["privacy"]["statement"]
    found = study_results.verify(write_canonical(made, folder, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]
    assert tuple(sorted(found["participants"])) == CLIENTS

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(study.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in CLIENTS))
    for name in ("proxy", "data-user"):
        left = deployment.state(name) / study.hash.hex()
        wait_for(lambda left=left: not left.exists() or not any(left.iterdir()))


def test_it_ends_as_if_nothing_had_happened_whenever_it_is_killed(deployment: Deployment, tmp_path: Path) -> None:
    study = Study.parse(text())
    deployment.order("proxy", *AT_THE_PROXY)
    deployment.order("data-user", *AT_THE_DATA_USER)
    made = run(deployment, study)
    assert made["participants"]["clients"] == len(CLIENTS)
    assert deployment.released("data-user") == ROUNDS
    assert deployment.released("proxy") == ROUNDS
    check(deployment, study, made, tmp_path)
    assert deployment.waiting("proxy") == []
    assert deployment.waiting("data-user") == []


def test_packed_paillier_runs_there_too_in_several_chunks(deployment: Deployment, tmp_path: Path) -> None:
    study = Study.parse(histogram())
    made = run(deployment, study)
    assert made["privacy"]["trust"]["scheme"] == "paillier"
    assert made["cost"]["bytes_up_per_client"] >= 3 * 4096
    check(deployment, study, made, tmp_path)


def test_a_pipeline_runs_there_and_its_result_loads(deployment: Deployment, tmp_path: Path) -> None:
    """Two rounds of components, then three of a classifier on projected records, one charge, one receipt."""
    study = Study.parse(pipeline())
    made = run(deployment, study)
    assert made["cost"]["rounds"] == 5
    assert made["privacy"]["epsilon"] == 1.0
    check(deployment, study, made, tmp_path)
    model: Any = ts.load(tmp_path / "result.json", consortium=deployment.home / "consortium.toml")
    assert model.model_document() == made["model"]
    whole = {name: np.concatenate([frame[name] for frame in frames()]) for name in ("x", "z")}
    assert len(model.predict(whole)) == RECORDS
