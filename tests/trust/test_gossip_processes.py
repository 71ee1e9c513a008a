"""Trust model ``gossip`` between real processes: governed, charged, receipted.

A fifth of what is said in studies is lost, one peer forges records and sends junk, a peer and the relay are killed at
every step. A restarted peer publishes what it has drawn before.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.trust.gossip_deployment import PeerDeployment, text
from tests.trust.proxy_deployment import wait_for
from tests.trust.test_masks_processes import run
from typer.testing import CliRunner

from tallystick.application import doctor, published_records, studies, study_results
from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.cli.main import app
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.core.redaction import Secret
from tallystick.crypto.prg import AesStream
from tallystick.crypto.puncturable import PuncturableKey
from tallystick.data.encoding import study_records
from tallystick.engines.setup import set_up
from tallystick.protocol.gossip.codec import unpack_publication
from tallystick.protocol.gossip.member import FROM
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.storage.stores import records_of
from tallystick.study import Study
from tallystick.trust.gossip.draw_key import FOLDER
from tallystick.trust.gossip.publishing import Publishing

PEERS, EACH = 5, 60
POISONED = "peer-05"
AT_A_PEER = (
    "study-key-kept", "study/ready-kept", "study/start-kept", "records-drawn", "gossip/from/peer-04-kept",
    "publication-noted", "publication-attested", "study/end-kept",
)  # fmt: skip
AT_THE_RELAY = ("study/start-kept", "gossip/opened-kept", "model-kept", "study/end-kept")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerDeployment]:
    made = PeerDeployment(tmp_path_factory.mktemp("peers"), peers=PEERS, each=EACH, reached=2)
    for name in made.configs:
        made.beside(name, "loss", "0.2")
    made.beside(POISONED, "poison", "")
    made.start()
    wait_for(lambda: all((config.parent / "pid").exists() for _, config in made.configs.values()))
    yield made
    made.close()


def bodies(deployment: PeerDeployment, name: str, study: Study) -> dict[str, bytes]:
    kept = records_of(deployment.state(name), study.hash, FROM)
    return {party: unpack_publication(raw).body for party, raw in kept.items()}


def charged(deployment: PeerDeployment, name: str, study: Study) -> bool:
    with PartyFiles.of(deployment.configs[name][1]) as files, files.ledger() as ledger:
        return ledger.standing(study.hash) == "committed"


def study_of(name: str, **options: Any) -> Study:
    return Study.parse(text(name, peers=PEERS, each=EACH, **options))


@pytest.fixture(scope="module")
def ended(deployment: PeerDeployment) -> tuple[Study, dict[str, Any]]:
    """A study through which a peer and the relay are killed at every step."""
    study = study_of("killed at every step")
    wait_for(lambda: list((deployment.state("peer-04") / FOLDER).glob("*.key")))
    shutil.copytree(deployment.state("peer-04") / FOLDER, deployment.home / "old copy" / FOLDER)
    deployment.order("peer-04", *AT_A_PEER)
    deployment.order("relay", *AT_THE_RELAY)
    return study, run(deployment, study)  # type: ignore[arg-type]


def test_it_ends_as_if_nothing_had_happened_whenever_it_is_killed(
    deployment: PeerDeployment, ended: tuple[Study, dict[str, Any]], tmp_path: Path
) -> None:
    study, made = ended
    assert made["participants"]["clients"] == PEERS
    assert made["privacy"]["trust"]["model"] == "gossip"
    assert made["privacy"]["mechanism"] == "subset"
    assert deployment.waiting("relay") == []
    wait_for(lambda: deployment.waiting("peer-04") == [])
    found = study_results.verify(write_canonical(made, tmp_path, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]
    assert tuple(sorted(found["participants"])) == deployment.peers
    wait_for(lambda: all(charged(deployment, name, study) for name in deployment.peers))


def test_every_peer_holds_the_same_records_and_nobody_has_drawn_two(
    deployment: PeerDeployment, ended: tuple[Study, dict[str, Any]]
) -> None:
    study, _ = ended
    held = bodies(deployment, "relay", study)
    assert sorted(held) == list(deployment.peers)
    for name in deployment.peers:
        assert bodies(deployment, name, study) == held
    assert not records_of(deployment.state("relay"), study.hash, "gossip/proof/")


def test_an_old_copy_of_a_peers_secret_draws_what_it_has_published_and_the_new_one_nothing(
    deployment: PeerDeployment, ended: tuple[Study, dict[str, Any]]
) -> None:
    study, _ = ended
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    records = study_records(study, deployment.frames["peer-04"], lenient=True)

    def drawn(folder: Path) -> bytes | None:
        key = PuncturableKey.from_secret(Secret(max((folder / FOLDER).iterdir()).read_bytes()))
        value = key.value(study.hash)
        return None if value is None else publishing.drawn(records, "peer-04", lambda _, told: AesStream(value, told))

    assert drawn(deployment.home / "old copy") == bodies(deployment, "relay", study)["peer-04"]
    assert drawn(deployment.state("peer-04")) is None
    assert len(list((deployment.state("peer-04") / FOLDER).iterdir())) == 1


def test_who_forges_is_named_where_it_was_seen(deployment: PeerDeployment, ended: tuple[Study, dict[str, Any]]) -> None:
    logs = "\n".join((deployment.logs / f"{n}.log").read_text() for n in deployment.peers if n != POISONED)
    told = [line for line in logs.splitlines() if "refused:" in line and "has not signed for this study" in line]
    assert told
    assert all(f"({POISONED})" in line for line in told)
    assert "no models travel in this study" in logs


def test_what_a_peer_publishes_is_a_data_set_for_any_learner(
    deployment: PeerDeployment, ended: tuple[Study, dict[str, Any]], tmp_path: Path
) -> None:
    study, result = ended
    made = {}
    for name in ("peer-02", "peer-04"):
        wait_for(lambda name=name: ReceiptBook(deployment.state(name)).get(study.hash))
        config = str(deployment.configs[name][1])
        done = CliRunner().invoke(app, ["peer", "publish", "killed", "--config", config, "--out", str(tmp_path / name)])
        assert done.exit_code != 0  # no study is called that
        made[name] = published_records.publish(study.printed_hash, Path(config), tmp_path / name)
        assert str(PEERS * EACH) in published_records.describe(made[name])
    assert made["peer-02"]["model"] == made["peer-04"]["model"] == result["model"]
    table = pl.read_parquet(tmp_path / "peer-02" / "records.parquet")
    assert len(table) == PEERS * EACH
    assert '"epsilon": 4' in (tmp_path / "peer-02" / "privacy.json").read_text()
    # Somebody else's learner, on these files alone: the noise is taken out of the second moments, then ridge.
    stated = json.loads((tmp_path / "peer-02" / "privacy.json").read_text())
    a, b = stated["second_moments"]["a"], stated["second_moments"]["b"]
    z = table.select([c for c in table.columns if c.startswith("z_")]).to_numpy()
    t = table["t_b"].to_numpy() - table["t_a"].to_numpy()
    n, d = z.shape
    values, vectors = np.linalg.eigh((z.T @ z / n - b * np.eye(d)) / a)
    weights = vectors @ np.diag(1 / (np.maximum(values, 0) + b * np.sqrt(d / n))) @ vectors.T @ (z.T @ t / n)
    assert np.allclose(weights[:2] / 2, result["model"]["coef"][0])  # columns from -1 to 1 have coordinates from 0 to 1


def test_a_study_above_a_peers_limit_is_refused_and_nothing_is_charged(deployment: PeerDeployment) -> None:
    wide = text("too much", peers=PEERS, each=EACH).replace("epsilon = 4.0", "epsilon = 12.0")
    study = Study.parse(wide.replace("[privacy]", "[program]\nweak_epsilon = true\n[privacy]"))
    studies.propose_study(study, deployment.analyst)
    wait_for(lambda: studies.show(study.printed_hash, deployment.analyst)["state"] == "refused")
    with PartyFiles.of(deployment.configs["peer-01"][1]) as files, files.ledger() as ledger:
        assert ledger.standing(study.hash) is None


def test_a_peer_that_falls_silent_is_left_out_at_the_deadline(deployment: PeerDeployment) -> None:
    study = study_of("without one", timeout=6)
    pid = int((deployment.configs["peer-03"][1].parent / "pid").read_text())
    studies.propose_study(study, deployment.analyst)
    approved = lambda: len(studies.show(study.printed_hash, deployment.analyst)["approved"])  # noqa: E731
    wait_for(lambda: approved() == PEERS)
    os.kill(pid, signal.SIGSTOP)
    try:
        made = studies.run(study.printed_hash, deployment.analyst)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert made["participants"]["clients"] == PEERS - 1  # it was not there when the study began, and nobody waited


def test_peers_that_fail_after_the_start_pause_the_study_and_it_goes_on_with_the_same_records(
    deployment: PeerDeployment, tmp_path: Path
) -> None:
    study = Study.parse(text("paused", peers=PEERS, each=EACH, timeout=8).replace("min_clients = 3", "min_clients = 5"))
    file = deployment.configs["peer-02"][1].parent / "pid"
    first = file.read_text()

    def stop() -> None:
        wait_for(lambda: file.read_text() not in ("", first))
        os.kill(int(file.read_text()), signal.SIGSTOP)  # as soon as it was started again

    deployment.order("peer-02", "records-drawn")  # it dies with its draw in hand, which nobody has seen
    try:
        with pytest.raises(RoundAborted) as caught:
            run(deployment, study, stop)  # type: ignore[arg-type]
        assert caught.value.rule == "too-few-clients"
        before = bodies(deployment, "relay", study)
        deployment.kill("relay")
    finally:
        os.kill(int(file.read_text()), signal.SIGCONT)
    made = studies.run(study.printed_hash, deployment.analyst, wish="resume")
    after = bodies(deployment, "relay", study)
    assert {name: after[name] for name in before} == before
    assert sorted(after) == list(deployment.peers)
    found = study_results.verify(write_canonical(made, tmp_path, "result.json"), deployment.home / "consortium.toml")
    assert found["sound"]


def test_the_doctor_finds_a_running_peer_well(deployment: PeerDeployment) -> None:
    found = doctor.examine(deployment.configs["peer-01"][1])
    assert found["ok"], found


def test_only_studies_among_peers_have_records_to_publish(deployment: PeerDeployment, tmp_path: Path) -> None:
    with pytest.raises(TallystickError, match="no study known here"):
        published_records.publish("nothing", deployment.configs["peer-01"][1], tmp_path)
