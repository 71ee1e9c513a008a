"""What of a walk follows from public facts: how long it lasts, and how long an honest model can be."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from tests.trust.gossip_deployment import frame, text

from tallystick.crypto.prg import AesStream, derive
from tallystick.data.encoding import study_records
from tallystick.engines.setup import Setup, set_up
from tallystick.protocol.gossip import Model
from tallystick.study import Study
from tallystick.trust.gossip.parts import parameters_of
from tallystick.trust.gossip.publishing import Publishing
from tallystick.trust.gossip.walking import LEAST_CYCLES, MOST_EXAMPLES, Walking


def made(program: str, each: int = 10) -> tuple[Setup, Walking]:
    study = Study.parse(text(peers=3, each=each).replace("[privacy]", f"[program]\n{program}\n[privacy]"))
    setup = set_up(study.canonical(), "")
    walking = Walking.of(Publishing.of(setup, study.hash))
    assert walking is not None
    return setup, walking


def test_a_study_of_moments_has_no_walks() -> None:
    study = Study.parse(text(peers=3, each=10))
    assert Walking.of(Publishing.of(set_up(study.canonical(), ""), study.hash)) is None


@pytest.mark.parametrize(
    "peers, records, cycles", [(30, 30, 300), (30, 90, 100), (30, 3000, LEAST_CYCLES), (30, None, 300)]
)
def test_cycles_follow_from_how_many_records_a_visit_trains_on(peers: int, records: int | None, cycles: int) -> None:
    _, walking = made('learner = "pegasos"')
    assert walking.cycles(peers, records) == cycles
    assert made('learner = "pegasos"\ncycles = 7')[1].cycles(peers, records) == 7


@pytest.mark.parametrize("cycles, seconds", [(30, 1.0), (100, 0.3), (1000, 0.1)])
def test_cycles_are_as_long_as_the_round_has_room_for(cycles: int, seconds: float) -> None:
    setup, walking = made(f'learner = "pegasos"\ncycles = {cycles}')
    roster = SimpleNamespace(clients=("a", "b", "c"), session=bytes(32), coordinator="relay", min_clients=3)
    session = SimpleNamespace(study_hash=bytes(32), cast=SimpleNamespace(identities=dict.fromkeys("abc")))
    found = parameters_of(session, setup, roster, walking.publishing, walking)  # type: ignore[arg-type]
    assert found.cycle_seconds == seconds
    assert found.cycles == cycles
    assert found.models == walking.ball


@pytest.mark.parametrize("learner", ["pegasos", "logistic"])
@pytest.mark.parametrize("lambda_", [1e-4, 0.1, 3.0])
def test_the_best_model_of_any_records_is_in_the_ball(learner: str, lambda_: float) -> None:
    """Along one direction, by brute force over the length of the record; for the hinge the ball is not too large."""
    _, walking = made(f'learner = "{learner}"\nlambda_ = {lambda_}')

    def best(length: float) -> float:
        def risk(w: float) -> float:
            m = w * length
            loss = max(0.0, 1 - m) if learner == "pegasos" else float(np.logaddexp(0, -m))
            return lambda_ / 2 * w * w + loss

        return float(minimize_scalar(risk, bounds=(0, 10 * walking.ball.radius), method="bounded").x)

    longest = max(best(length) for length in math.sqrt(lambda_) * np.geomspace(0.05, 20, 201))
    assert longest <= walking.ball.radius * (1 + 1e-4)
    assert longest > walking.ball.radius * (0.99 if learner == "pegasos" else 0.4)


def test_a_visit_is_a_function_of_what_was_published_the_model_that_came_and_words_of_ones_own() -> None:
    """The same publication of other rows trains alike: nothing of the rows but it is in what leaves."""
    setup, walking = made('learner = "pegasos"')
    publishing = walking.publishing
    body = publishing.perturbed(study_records(setup.study, frame(10, 1), lenient=True), "a", AesStream(bytes(32)))

    def visited(seed: int) -> Model:
        books = SimpleNamespace(names=("a", "b"), held=frozenset({0}), get=lambda i: SimpleNamespace(body=body))
        own = walking.walks("a", lambda: books, AesStream(derive(bytes(32), bytes([seed]))))  # type: ignore[arg-type,return-value]
        own.train_alone()
        return own.model

    assert visited(1).age == 10
    assert np.array_equal(visited(1).weights, visited(1).weights)
    assert not np.array_equal(visited(1).weights, visited(2).weights)


@pytest.mark.parametrize("each", [0, 1, 2])
def test_peers_with_hardly_any_records_take_part(each: int) -> None:
    setup, walking = made('learner = "logistic"')
    records = study_records(setup.study, frame(each, 1), lenient=True)
    body = walking.publishing.perturbed(records, "a", AesStream(bytes(32)))
    found = walking.examples("a", body)
    assert (found is None) == (each == 0)
    assert found is None or found.peers == 2


def test_of_very_many_records_some_are_decoded_spread_over_all() -> None:
    setup, walking = made('learner = "pegasos"', each=MOST_EXAMPLES)
    records = study_records(setup.study, frame(30, 1), lenient=True)
    body = walking.publishing.perturbed(records, "a", AesStream(bytes(32)))
    whole = walking.publishing.decode("a", body).z
    few = walking.examples("a", body, 4)
    assert few is not None
    assert np.array_equal(few.rows[0], whole[[0, 9, 19, 29], 0])
