"""What the rounds of a vertical support vector machine are about, a number for every person: whoever only sums is told
a hash of it, in a transcript of everything that the deployed machines receive."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.algorithms.vertical_svm.program import VerticalLocalDesign, VerticalSvmProgram
from tallystick.core.identifiers import digest
from tallystick.protocol.machine import Machine

PEOPLE, CLIENTS = 12, ("bank", "clinic", "school")
TRUST: dict[str, dict[str, Any]] = {
    "servers": {"trust": "servers", "servers": 2},
    "proxy": {"trust": "proxy"},
    "masks": {"trust": "masks"},
}


def traces(models: Iterable[bytes]) -> set[bytes]:
    """What would show that somebody was told of a model: each entry that is no short number, each two side by side."""
    found = set()
    for model in models:
        entries = [model[i : i + 8] for i in range(0, len(model), 8)]
        found |= {entry for entry in entries if any(entry[:4])}
        found |= {a + b for a, b in pairwise(entries) if any(a) and any(b)}
    return found


class Transcript:
    """All that each machine received in a fit, and the models of its rounds."""

    def __init__(self, trust: str, monkeypatch: pytest.MonkeyPatch, *, scale: float = 1.0) -> None:
        self.heard: dict[str, bytes] = defaultdict(bytes)
        self.models: list[bytes] = []
        receive, query = Machine.receive_bytes, VerticalSvmProgram.query

        def receiving(machine: Any, sender: str, raw: bytes, now: float, **options: Any) -> Any:
            self.heard[machine.name] += bytes(raw)
            return receive(machine, sender, raw, now, **options)

        def querying(program: Any, state: Any) -> Any:
            asked = query(program, state)
            self.models.append(pack_state(asked))
            return asked

        monkeypatch.setattr(Machine, "receive_bytes", receiving)
        monkeypatch.setattr(VerticalSvmProgram, "query", querying)
        rng = np.random.default_rng(5)
        x = rng.uniform(-1, 1, (PEOPLE, 3))
        frames = [pl.DataFrame({"id": [f"{i:03}" for i in range(PEOPLE)], f"x{m}": scale * x[:, m]}) for m in range(3)]
        frames[1] = frames[1].with_columns(ill=pl.Series(["no" if a + b < 0 else "yes" for a, b, _ in x]))
        schema = ts.Schema({**{f"x{m}": ts.Number(-1, 1) for m in range(3)}, "ill": ts.Category(["no", "yes"])})
        fed = ts.Federation.simulate(
            frames, schema=schema, names=list(CLIENTS), vertical=True, identifier="id", seed=3, **TRUST[trust]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.fitted = ts.VerticalSVC(max_iter=6).fit(fed, target="ill")

    def plain_hashes(self, trust: str) -> set[bytes]:
        """Of all models, by all rounds they may be of: as they would be without a blind."""
        kinds = {"servers": "secure-sum", "proxy": "encrypted-sum", "masks": "masked-sum"}
        label, study = f"tallystick/{kinds[trust]}/model".encode(), self.fitted.study_.hash
        return {digest(label, study, r.to_bytes(4, "little"), model) for model in self.models for r in range(1, 8)}

    def told(self) -> set[str]:
        """Who has received anything of a round's model."""
        found = traces(self.models)
        return {name for name, raw in self.heard.items() if any(trace in raw for trace in found)}


@pytest.mark.parametrize("trust", list(TRUST))
def test_institutions_alone_are_told_a_number_for_each_person(trust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript(trust, monkeypatch)
    assert len(traces(transcript.models)) > 4 * PEOPLE
    assert transcript.told() == set(CLIENTS)
    assert {"servers": {"aggregator"}, "proxy": {"data-user"}, "masks": {"reducer"}}[trust] < set(transcript.heard)
    helpers = set(transcript.heard) - {*CLIENTS, "aggregator", "data-user", "reducer"}
    assert len(helpers) == {"servers": 2, "proxy": 1, "masks": 0}[trust]


@pytest.mark.parametrize("trust", ["servers", "proxy"])
def test_planted_states_are_sent_to_all(trust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transcript is able to show it."""
    exact = Transcript(trust, monkeypatch).fitted
    monkeypatch.undo()
    monkeypatch.setattr(VerticalLocalDesign, "tells_of_people", False)
    planted = Transcript(trust, monkeypatch)
    assert planted.told() > set(CLIENTS)
    assert any(plain in raw for raw in planted.heard.values() for plain in planted.plain_hashes(trust))
    assert planted.fitted.coef_.tolist() == exact.coef_.tolist()  # how it is told changes nothing of what is learned


def test_the_second_model_is_a_function_of_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is why its hash has to be blinded: other columns, the same labels, the same model."""
    first = list(dict.fromkeys(Transcript("servers", monkeypatch).models))
    monkeypatch.undo()
    other = list(dict.fromkeys(Transcript("servers", monkeypatch, scale=0.5).models))
    assert first[:2] == other[:2]
    assert any(first[1])
    assert first[2] != other[2]


@pytest.mark.parametrize("trust", list(TRUST))
def test_no_hash_of_a_model_alone_is_told(trust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither open nor, as servers sign it, in what they say."""
    transcript = Transcript(trust, monkeypatch)
    plain = transcript.plain_hashes(trust)
    for name, raw in transcript.heard.items():
        assert not [one for one in plain if one in raw], name
