"""Thirty real peers on loopback: a fifth of what they say is lost, five are killed, one forges records and sends junk.

Every honest peer must end with the same records, learn the same model from them by itself, and be as accurate as the
simulation of the same study is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trust.gossip_deployment import SCHEMA, PeerDeployment, frame, text
from tests.trust.proxy_deployment import wait_for
from tests.trust.test_masks_processes import run

import tallystick as ts
from tallystick.application import published_records, study_results
from tallystick.application.result_document import write_canonical
from tallystick.protocol.gossip.codec import unpack_publication
from tallystick.protocol.gossip.member import FROM
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.storage.stores import records_of
from tallystick.study import Study

PEERS, EACH = 30, 40
POISONED = "peer-30"
KILLED = ("peer-03", "peer-09", "peer-14", "peer-21", "peer-28")
FRESH = frame(2000, 999)


def accuracy(model: dict[str, Any]) -> float:
    x, z = FRESH["x"], FRESH["z"]
    scores = (
        model["intercept"][0] + model["coef"][0][0] * x + model["coef"][0][1] * z
    )  # a sign: its length is no matter
    return float(np.mean((scores > 0) == (FRESH["y"] == "b")))


def simulated(deployment: PeerDeployment, study: Study) -> list[float]:
    found = []
    for seed in range(40):
        fed = ts.Federation.simulate(
            list(deployment.frames.values()), schema=SCHEMA, trust="gossip", names=list(deployment.peers), seed=seed
        )
        made = ts.GossipClassifier(epsilon=study.privacy.epsilon).fit(fed, target="y", features=["x", "z"])
        found.append(accuracy(made.model_document()))
    return found


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore")
def test_thirty_peers_learn_what_is_simulated(tmp_path: Path) -> None:
    deployment = PeerDeployment(tmp_path, peers=PEERS, each=EACH, reached=20)
    try:
        for name in deployment.configs:
            deployment.beside(name, "loss", "0.2")
        deployment.beside(POISONED, "poison", "")
        deployment.start()
        wait_for(lambda: all((config.parent / "pid").exists() for _, config in deployment.configs.values()))
        study = Study.parse(text("thirty", peers=PEERS, each=EACH, timeout=300))

        def own(name: str) -> bytes | None:
            return records_of(deployment.state(name), study.hash, FROM).get(name)

        drawn: dict[str, bytes] = {}

        def kill() -> None:
            for name in KILLED:  # as soon as it has drawn: what it comes back with must be that
                drawn[name] = wait_for(lambda name=name: own(name), 400)
                deployment.kill(name)

        made = run(deployment, study, kill, patience=500)  # type: ignore[arg-type]
        result = write_canonical(made, tmp_path, "result.json")
        found = study_results.verify(result, deployment.home / "consortium.toml")
        assert found["sound"]
        assert len(found["participants"]) == PEERS
        held = records_of(deployment.state("relay"), study.hash, FROM)
        for name in deployment.peers:
            others = records_of(deployment.state(name), study.hash, FROM)
            assert {n: unpack_publication(raw).body for n, raw in others.items()} == {
                n: unpack_publication(raw).body for n, raw in held.items()
            }, name
        for name in KILLED:
            assert unpack_publication(drawn[name]).body == unpack_publication(held[name]).body
        learnt = {}
        for name in deployment.peers:
            config = deployment.configs[name][1]
            wait_for(lambda name=name: ReceiptBook(deployment.state(name)).get(study.hash), 120)
            learnt[name] = published_records.publish(study.printed_hash, config, tmp_path / "published" / name)["model"]
        assert all(model == made["model"] for model in learnt.values())
        reference = simulated(deployment, study)
        told = {"accuracy": accuracy(made["model"]), "simulated": float(np.mean(reference)), "std": np.std(reference)}
        print(json.dumps(told, default=float))
        assert told["accuracy"] > told["simulated"] - 4 * max(0.01, told["std"])
    finally:
        deployment.close()
