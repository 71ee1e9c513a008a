"""Trust model ``masks`` between real processes: governed, charged, receipted; clients and reducer killed at every step.

One deployment for all of it. A role that has just done a step it is ordered to die at ends itself with SIGKILL and is
started again at once; the study must end as if nothing had happened.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trust.masks_deployment import CLIENTS, MaskedDeployment, text
from tests.trust.proxy_deployment import wait_for

from tallystick.application import studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.study import Study

ROUNDS = 4
AT_A_CLIENT = (
    "study-key-kept", "study/ready-kept", "study/start-kept", "noise-kept", "secrets-kept", "dealing-kept",
    "dealing-sent", "relay-kept", "masked-kept", "noise-erased", "masked-sum-sent", "agreed-kept", "survivors-signed",
    "shares-revealed", "secrets-erased", "masked-erased", "study/end-kept",
)  # fmt: skip
AT_THE_REDUCER = (
    "study/start-kept", "open-kept", "round-sent", "dealers-kept", "packets-relayed", "masked-sum-kept",
    "survivors-named", "quorum-told", "result-kept", "model-kept", "study/end-kept",
)  # fmt: skip


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaskedDeployment]:
    made = MaskedDeployment(tmp_path_factory.mktemp("masked"))
    made.start()
    wait_for(lambda: all((config.parent / "pid").exists() for _, config in made.configs.values()))
    yield made
    made.close()


def run(
    deployment: MaskedDeployment, study: Study, meanwhile: Callable[[], None] = lambda: None, patience: float = 150
) -> dict[str, Any]:
    """Propose, wait for the approvals, run."""
    studies.propose_study(study, deployment.analyst)
    wait_for(lambda: studies.show(study.printed_hash, deployment.analyst)["state"] == "approved", patience)
    made: list[dict[str, Any] | TallystickError] = []

    def wait() -> None:
        try:
            made.append(studies.run(study.printed_hash, deployment.analyst))
        except TallystickError as error:
            made.append(error)

    analyst = threading.Thread(target=wait)
    analyst.start()
    meanwhile()
    analyst.join(patience)
    assert made, deployment.log()
    if isinstance(made[0], TallystickError):
        raise made[0]
    return made[0]


def check(
    deployment: MaskedDeployment, study: Study, made: dict[str, Any], folder: Path, *, there: tuple[str, ...] = CLIENTS
) -> None:
    """The receipt verifies offline, everybody has paid, and no secret is left anywhere."""
    assert made["privacy"]["trust"]["model"] == "masks"
    assert "together with any 1 client" in made["privacy"]["statement"]
    found = study_results.verify(write_canonical(made, folder, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]
    assert tuple(sorted(found["participants"])) == CLIENTS

    def charged(name: str) -> bool:
        with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
            return ledger.standing(study.hash) == "committed"

    wait_for(lambda: all(charged(name) for name in there))
    for name in ("reducer", *there):
        left = deployment.state(name) / study.hash.hex()
        wait_for(lambda left=left: not left.exists() or not any(left.iterdir()))


def test_it_ends_as_if_nothing_had_happened_whenever_it_is_killed(deployment: MaskedDeployment, tmp_path: Path) -> None:
    study = Study.parse(text())
    deployment.order("north", *AT_A_CLIENT)
    deployment.order("reducer", *AT_THE_REDUCER)
    made = run(deployment, study)
    assert made["participants"]["clients"] == len(CLIENTS)
    assert deployment.released("reducer") == ROUNDS
    assert sum(deployment.released(name) for name in CLIENTS) > 2 * ROUNDS  # more than half have signed each round
    check(deployment, study, made, tmp_path)
    assert deployment.waiting("north") == []
    assert deployment.waiting("reducer") == []


def test_a_client_that_falls_silent_is_left_out_of_the_rounds_that_follow(
    deployment: MaskedDeployment, tmp_path: Path
) -> None:
    """Stopped where it stands, perhaps after it has dealt: its masks are recovered, and its noise is not counted."""
    study, before = Study.parse(text("without west", rounds=5, timeout=3)), deployment.released("reducer")
    pid = int((deployment.configs["west"][1].parent / "pid").read_text())

    def stop() -> None:
        wait_for(lambda: deployment.released("reducer") > before)
        os.kill(pid, signal.SIGSTOP)

    try:
        made = run(deployment, study, stop)
        check(deployment, study, made, tmp_path, there=("east", "north", "south"))
    finally:
        os.kill(pid, signal.SIGCONT)
    dropped = made["participants"]["dropped"]
    assert "west" in str(dropped)


def test_a_study_that_loses_too_many_is_paused_with_a_receipt_and_goes_on(
    deployment: MaskedDeployment, tmp_path: Path
) -> None:
    study, before = Study.parse(text("paused", rounds=8, timeout=3)), deployment.released("reducer")
    gone = [int((deployment.configs[name][1].parent / "pid").read_text()) for name in ("south", "west")]

    def stop() -> None:
        wait_for(lambda: deployment.released("reducer") > before)
        for pid in gone:
            os.kill(pid, signal.SIGSTOP)

    try:
        with pytest.raises(RoundAborted) as caught:
            run(deployment, study, stop)
    finally:
        for pid in gone:
            os.kill(pid, signal.SIGCONT)
    assert caught.value.rule in ("too-few-clients", "threshold")
    early = studies.result(study.printed_hash, deployment.analyst)
    assert early["ended_early"]["of"] == 8
    verdict = study_results.verify(write_canonical(early, tmp_path, "early.json"), deployment.home / "consortium.toml")
    assert (verdict["sound"], verdict["ended_early"]) == (True, True)
    for name in CLIENTS:
        config = deployment.configs[name][1]
        wait_for(lambda config=config: studies.show(study.printed_hash, config)["state"] == "paused")
    made = studies.run(study.printed_hash, deployment.analyst, wish="resume")
    assert "ended_early" not in made
    check(deployment, study, made, tmp_path)
