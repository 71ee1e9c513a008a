"""Programs with a memory at the client, between real processes: killed in the middle, the same bits; gone, an end.

One consortium whose institutions allow exact studies, each in its own file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from consortium_fixture import RECORDS, SCHEMA, Parties, Running, wait_for

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import TallystickError
from tallystick.study import Study


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("local"))
    for name in made.clients:
        config = made.configs[name][1]
        text = config.read_text()
        assert "allow_not_private = false" in text
        text = text.replace("allow_not_private = false", "allow_not_private = true")
        config.write_text(text.replace("min_clients = 3", "min_clients = 2"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def study_of(parties: Parties, name: str, **settings: Any) -> Study:
    fed = parties.federation()
    model = ts.ConsensusSVC(C=2.0, **settings)
    study = model.study_for(fed, target="y", features=None, name=name).replace("data", records=RECORDS)
    parties.accept(study)
    return study


def fit(fed: Any, study: Study) -> ts.ConsensusSVC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ts.ConsensusSVC(**study.program).fit_study(fed, study)


def everything(model: ts.ConsensusSVC) -> bytes:
    return b"".join(pack_state(state) for state in model.history_)


def simulated(parties: Parties, study: Study) -> ts.ConsensusSVC:
    return fit(ts.Federation.simulate(parties.frames, names=parties.clients, schema=SCHEMA, seed=parties.seed), study)


@pytest.mark.parametrize(
    ("settings", "point", "visits"),
    [
        ({"solver": "admm", "max_iter": 8}, "client:memory-kept", 4),
        ({"reveal": True, "max_iter": 3}, "client:seed-kept", 5),
        ({"privacy": "consensus", "max_iter": 3, "epsilon": 1.0, "delta": 1e-6}, "client:memory-kept", 2),
    ],
    ids=["admm, memory kept and nothing sent", "interior point, seed kept", "private, memory kept"],
)
def test_a_killed_learner_goes_on_with_the_same_bits(
    consortium: Parties, settings: dict[str, Any], point: str, visits: int
) -> None:
    study = study_of(consortium, f"killed {point} {settings['max_iter']}", **settings)
    expected = simulated(consortium, study)
    consortium.die_at("client-2", point, visits)
    running = Running(lambda: fit(consortium.federation(), study))  # type: ignore[arg-type,return-value]
    assert consortium.wait_dead("client-2") == -9, consortium.logs()
    folder = consortium.state("client-2") / study.hash.hex()
    assert sorted(f.name for f in folder.glob("memory-*.secret")) == ["memory-even.secret", "memory-odd.secret"]
    consortium.start("client-2")
    model: Any = running.result()
    assert everything(model) == everything(expected), consortium.logs()
    assert model.privacy_.as_dict()["differentially_private"] == ("privacy" in settings)
    wait_for(lambda: not folder.exists())  # what was remembered of the records is gone with the study


def test_a_learner_that_stays_away_ends_the_study(consortium: Parties) -> None:
    """Two of three would be enough for a sum (min_clients = 2), and not for learners that remember."""
    study = study_of(consortium, "alone", solver="admm", max_iter=20).replace("trust", min_clients=2, round_timeout_s=3)
    consortium.accept(study)
    consortium.die_at("client-3", "client:memory-kept", 3)
    running = Running(lambda: fit(consortium.federation(), study))  # type: ignore[arg-type,return-value]
    assert consortium.wait_dead("client-3") == -9
    error = running.end()
    consortium.start("client-3")
    assert isinstance(error, TallystickError), consortium.logs()
    assert error.rule == "a-learner-dropped-out", error
    assert "2 of 3 learners" in str(error)
