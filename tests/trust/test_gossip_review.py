"""Found by attacking gossip: each test is named after what went wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.trust.gossip_deployment import frame, text
from tests.trust.test_gossip_publishing import members, source

from tallystick.core.errors import StudyError
from tallystick.data.encoding import study_records
from tallystick.data.record_blocks import open_records
from tallystick.engines.setup import Setup, set_up
from tallystick.study import Study
from tallystick.trust.gossip.parts import PeerPart
from tallystick.trust.gossip.publishing import BODY_BYTES, Publishing
from tallystick.trust.gossip.simulation import SimulatedGossip

PERSONS = text(peers=3, each=10).replace(
    "epsilon = 4.0", 'epsilon = 4.0\nunit = "person"\nperson = "id"\nmax_records = 2'
)
GOOD = ["0.1,0.2,a,ann", "0.3,0.2,b,bob", "0.1,-0.2,a,bob", "0.7,0.2,b,cyd"]


def of_program(program: str) -> tuple[Study, Setup]:
    study = Study.parse(text(peers=3, each=10) + f"[program]\n{program}\n")
    return study, set_up(study.canonical(), "", allow_not_private=True)


# -- persons: whether the only record of a person can be read is not seen ----------------------------------------------


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("bad", ["oops,0.2,b,cyd", "0.7,,b,cyd", "0.7,0.2,nobody,cyd", "0.7,0.2,b,", "0.7,0.2,b,cyd,x"])
def test_a_person_whose_only_record_cannot_be_read_is_still_published(
    tmp_path: Path, bad: str, rows: int | None
) -> None:
    study = Study.parse(PERSONS)
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    counts = []
    for lines in (GOOD, [bad, *GOOD[:3]], [*GOOD[:3], bad], [*GOOD[:2], bad, GOOD[2]]):
        file = tmp_path / "lines.csv"
        file.write_text("\n".join(["x,z,y,id", *lines]) + "\n")
        records = open_records(study, file, lenient=True, rows=rows).whole()
        counts.append(len(publishing.unpack(publishing.perturbed(records, "peer-01", source()))))
    assert counts == [6, 6, 6, 6]  # two of each of three persons


def test_a_bad_record_of_a_person_who_has_others_is_no_further_person() -> None:
    study = Study.parse(PERSONS)
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    data = {k: v[:4] for k, v in frame(4, 1).items()} | {"id": np.array(["a", "b", "b", "c"])}
    data["x"][2] = np.nan
    records = study_records(study, data, lenient=True)
    assert len(publishing.unpack(publishing.perturbed(records, "peer-01", source()))) == 6


def test_in_a_simulation_an_unread_person_does_not_move_the_others_to_known_places() -> None:
    """Persons are numbered as their first usable records come: without a random order, one that cannot be read would
    give all who follow it other public ids."""
    study = Study.parse(PERSONS)
    data = frame(20, 1) | {"id": np.arange(20).astype(str)}
    data["x"][3] = np.nan
    setup, records = set_up(study.canonical(), ""), study_records(study, data, lenient=True)
    orders = set()
    for seed in range(4):
        made: Any = object.__new__(SimulatedGossip)
        made.program, made.plan = setup.design.program, setup.plan
        made.simulated = SimpleNamespace(keyed=lambda *_, seed=seed: source(seed))
        vectors, _ = made._rows("peer-01", records)
        assert len(vectors) == 40
        orders.add(vectors.tobytes())
    assert len(orders) == 4


# -- what peers learn is what the study says ---------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["pegasos", "logistic"])
def test_peers_learn_with_the_learner_that_the_study_names(learner: str) -> None:
    _, plain = of_program('learner = "moments"')
    study, setup = of_program(f'learner = "{learner}"\ncycles = 20')
    publishing = Publishing.of(setup, study.hash)
    names = ("peer-01", "peer-02", "peer-03")
    bodies = {
        name: publishing.perturbed(study_records(study, frame(10, i), lenient=True), name, source(i))
        for i, name in enumerate(names)
    }
    model = publishing.learn(bodies)
    again = publishing.learn(dict(reversed(bodies.items())))
    assert np.array_equal(model.weights, again.weights)
    assert not np.allclose(model.weights, Publishing.of(plain, study.hash).learn(bodies).weights)


@pytest.mark.parametrize("program", ['perturb = "none"', 'perturb = "gradient"\nlearner = "pegasos"'])
def test_what_only_a_simulation_does_is_refused_before_anything_is_charged(program: str) -> None:
    study, setup = of_program(program)
    with pytest.raises(StudyError) as caught:
        setup.check_cast(members("a", "b", "c").cast(study.trust_model, study.trust.model_dump()))
    assert caught.value.rule == "records-are-published"


def test_records_that_are_read_in_blocks_are_published_too(tmp_path: Path) -> None:
    study = Study.parse(text(peers=3, each=10))
    file = tmp_path / "lines.csv"
    file.write_text("x,z,y\n" + "0.1,0.2,a\n" * 10)
    blocks = open_records(study, file, lenient=True, rows=4, memory=1)
    made: Any = object.__new__(PeerPart)
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    body = publishing.perturbed(made.prepare(blocks), "peer-01", source())
    assert len(publishing.unpack(body)) == 10


def test_a_person_of_many_records_does_not_let_messages_grow_without_bound() -> None:
    many = PERSONS.replace("max_records = 2", "max_records = 1000000").replace("records = 30\n", "")
    study = Study.parse(many)
    publishing = Publishing.of(set_up(study.canonical(), "", allow_not_private=True), study.hash)
    assert publishing.body_limit <= BODY_BYTES
