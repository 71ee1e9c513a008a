"""What a stranger's model can do to ours, number by number; and how a model is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import digest
from tallystick.protocol.gossip import Ball, Model, ModelWalks, encode
from tallystick.protocol.gossip.messages import Code, Refused, Walk
from tallystick.protocol.gossip.peer import unpack_model
from tallystick.protocol.gossip.walks import AGE_STEP, MOST_AGE, Gathered

SESSION = digest(b"the session")
AWAY = np.array([3.0, -1.0])


def distance(weights: np.ndarray) -> float:
    """Convex, as what walks minimise is."""
    return float(np.square(weights - AWAY).sum())


def older(model: Model) -> Model:
    return Model(model.age + 1, model.weights)


def test_blocks_are_shortened_each_by_itself() -> None:
    ball = Ball(4, 2.0, 2)
    assert ball.into(np.array([3.0, 4.0, 1.0, 1.0])).tolist() == pytest.approx([1.2, 1.6, 1.0, 1.0])
    assert ball.into(np.array([1.0, 1.0, -1.0, 1.0])).tolist() == [1.0, 1.0, -1.0, 1.0]
    assert ball.fault(np.array([0.0, 0.0, 0.0, 2001.0])) is not None
    assert ball.fault(np.zeros(4)) is None


def test_ages_stay_below_what_a_message_has_room_for() -> None:
    own = ModelWalks(2, 1.0, lambda model: Model(model.age + (1 << 30), model.weights))
    for cycle in range(6):
        own.new_cycle()
        assert own.take("b", Model((1 << 32) - 1, np.zeros(2))) is None, cycle
    assert own.model.age == MOST_AGE
    assert unpack_model(encode(Walk(study_hash=SESSION, age=own.model.age, weights=own.model.weights))).age == MOST_AGE


@pytest.mark.parametrize("update_first", [False, True])
def test_a_younger_model_is_trained_as_one_of_our_age(update_first: bool) -> None:
    """At age 0 a step of 1/λt goes to the rim: a stranger that begins anew must not take us there."""
    seen = []

    def train(model: Model) -> Model:
        seen.append(model.age)
        return older(model)

    own = ModelWalks(2, 1.0, train, update_first=update_first)
    own.restore(Model(70, np.zeros(2)))
    own.take("b", Model(0, np.zeros(2)))
    own.take("c", Model(1000, np.zeros(2)))
    assert seen == [70, 71 + AGE_STEP]


def test_the_papers_order_trains_what_comes_in_and_then_averages() -> None:
    first, last = (
        ModelWalks(1, 10.0, lambda m: Model(m.age + 1, m.weights + 1.0), update_first=u) for u in (True, False)
    )
    for own in (first, last):
        own.take("b", Model(3, np.array([4.0])))
    assert first.model.weights.tolist() == [2.5]
    assert last.model.weights.tolist() == [3.0]
    assert first.model.age == last.model.age == 4


def test_a_model_that_is_worse_than_ours_and_than_none_is_not_merged_and_ours_is_trained() -> None:
    own = ModelWalks(2, 10.0, older, objective=distance)
    own.restore(Model(5, np.array([2.0, 0.0])))
    assert own.take("b", Model(9, -AWAY)) is None
    assert own.model.weights.tolist() == [2.0, 0.0]
    assert own.model.age == 6
    own.take("b", Model(9, AWAY))  # its one model of this cycle has been
    assert own.model.weights.tolist() == [2.0, 0.0]
    own.take("c", Model(9, AWAY))
    assert own.model.weights.tolist() == [2.5, -0.5]


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=20))
def test_whatever_liars_send_ours_is_never_worse_than_it_was_and_than_none(sent: list[tuple[float, float]]) -> None:
    own = ModelWalks(2, 20.0, older, objective=distance)
    own.restore(Model(5, np.array([3.5, -1.0])))
    for i, weights in enumerate(sent):
        before = distance(own.model.weights)
        own.take(f"liar-{i}", Model(1 << 31, np.array(weights)))
        assert distance(own.model.weights) <= max(before, distance(np.zeros(2))) * (1 + 1e-12)


@pytest.mark.parametrize("kept", [np.array([np.nan, 0.0]), np.ones(3), np.full(2, 1e9)], ids=str)
def test_a_kept_model_that_cannot_be_ours_is_left_and_the_walk_begins_anew(kept: np.ndarray) -> None:
    own = ModelWalks(2, 1.0, older)
    own.restore(Model(5, kept))
    assert own.model.age == 0
    assert not own.model.weights.any()


def test_what_is_kept_as_a_model_and_is_none_is_found_out() -> None:
    with pytest.raises(VerificationError):
        unpack_model(encode(Refused(study_hash=SESSION, code=Code.BAD_MODEL, cause="x")))
    with pytest.raises(RemoteProtocolError):
        unpack_model(b"TGOS")


def test_the_median_lies_between_honest_models_as_long_as_they_are_more() -> None:
    gathered = Gathered(Ball(2, 10.0))
    for peer, weights in enumerate([[1.0, 2.0], [1.2, 1.8], [0.9, 2.1], [-500.0, 1e3], [9.0, -9.0]]):
        assert gathered.take(peer, Model(1, np.array(weights))) is None
    assert gathered.take(5, Model(1, np.array([np.inf, 0.0]))) is not None
    assert gathered.of({0, 5, 7}) == {0}
    found = gathered.median(range(6))
    assert ((found >= [0.9, 1.8]) & (found <= [1.2, 2.1])).all()
