"""Studies with a threshold between real processes: the simulation's bits, states that travel sparse, what is told."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from consortium_fixture import RECORDS, SCHEMA, Parties, bits

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.application.result_document import describe_result, result_document
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.messages import RoundOpen
from tallystick.study import Study

PROGRAM = """
import numpy as np
import tallystick as ts


class Cells(ts.Program):
    rounds = 3
    bound = 1.0

    def init(self, public):
        return np.zeros(10000)

    def map_in_client(self, record, state):
        out = np.zeros(10000)
        out[5000 if record[0] > 0.0 else 7] = 1.0
        return out

    def reduce_in_aggregator(self, total, state):
        return state + total / 3.0
"""
STUDY = f"""
[study]
name = "cells"
program = "cells.py"
[privacy]
epsilon = 10.0
delta = 1e-6
threshold = 4
[trust]
min_clients = 3
round_timeout_s = 120
[data]
records = {RECORDS}
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
"""


def fitted(fed: Any) -> tuple[Any, Study]:
    estimator, study = estimator_for(Study.parse(STUDY), lambda _: PROGRAM.lstrip())
    return estimator.fit_study(fed, study), study


def states(model: Any) -> bytes:
    return b"".join(pack_state(state) for state in model.history_)


def test_ten_thousand_coordinates_of_which_two_are_large(parties: Parties) -> None:
    """Nine tenths of the bytes and more stay at home; what is told is what the aggregator kept and sent."""
    _, study = estimator_for(Study.parse(STUDY), lambda _: PROGRAM.lstrip())
    for name in parties.clients:  # every steward has read the program and put its hash on the list
        config = parties.configs[name][1]
        allowed = f'[policy]\nprograms = ["{study.study.program_hash}"]'
        text = config.read_text().replace("max_epsilon = 1.0", "max_epsilon = 10.0")
        config.write_text(text.replace("[policy]", allowed))
    parties.accept(study)
    parties.start()
    real, study = fitted(parties.federation())
    simulated, _ = fitted(
        ts.Federation.simulate(parties.frames, names=parties.clients, schema=SCHEMA, seed=parties.seed)
    )
    assert states(real) == states(simulated), parties.logs()
    assert {7, 5000} <= set(np.flatnonzero(real.state_))
    sent, dense = (real.cost_[f"bytes_state{word}_per_client"] for word in ("", "_dense"))
    assert (sent, dense) == (simulated.cost_["bytes_state_per_client"], 240_000)
    assert sent < 0.01 * dense
    assert real.cost_["bytes_down_per_client"] == sent
    assert simulated.cost_["bytes_down_per_client"] < 0.02 * dense
    document = json.loads(json.dumps(result_document(real, 1.0, kind="study")))
    assert document["cost"]["bytes_state_per_client"] == sent
    assert "100% saved" in describe_result(document) or "99% saved" in describe_result(document)
    parties.kill("aggregator")
    with parties.stored("aggregator") as store:
        kept = store.records(study.hash)["open"]
    opened = sums.decode(kept)
    assert isinstance(opened, RoundOpen)
    assert opened.model == pack_state(real.history_[1])  # the third round's, dense again
    assert len(kept) < 0.01 * len(opened.model)


def test_a_built_in_algorithm_gives_the_bits_of_the_simulation(parties: Parties) -> None:
    parties.start()
    study = parties.study(rounds=3).replace("privacy", threshold=1.2)
    real, simulated = parties.fit(study), parties.simulated(study)
    assert bits(real) == bits(simulated), parties.logs()
    cost = {k: v for k, v in real.cost_.items() if k.startswith("bytes_state")}
    assert cost == {k: simulated.cost_[k] for k in cost}
    assert 0 < cost["bytes_state_per_client"] < cost["bytes_state_dense_per_client"]
    assert real.privacy_.as_dict() == simulated.privacy_.as_dict()
    assert any("costs no budget" in note for note in real.plan_.notes)
