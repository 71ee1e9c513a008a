"""Models walk between peers that lose messages, die and lie: honest ones become as accurate as the simulation.

The schedules differ, so models do not agree to the bit. Accuracies are of 3,000 fresh records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gossip_world import BOARD, SESSION, Crash, Faults
from walking_world import WalkingWorld

from tallystick.core.errors import TooFewParties
from tallystick.protocol.gossip.collector import WALKED
from tallystick.protocol.gossip.messages import Code, Walk
from tallystick.protocol.gossip.peer import MODEL, unpack_model
from tallystick.protocol.gossip.walks import AGE_STEP, ModelWalks

LIAR = 5
FAULTS = Faults(
    seed=1, peers=30, loss=0.2, doubled=0.1, delay=1, poisoners=frozenset({LIAR}),
    crashes=(Crash(7, 2, 1), Crash(25, 8, 3, back=6), Crash(30, 14, 0, back=12)),
)  # fmt: skip
NEAR = 0.03
PROGRAM = 'lambda_ = 0.1\norigin = "centre"\n'


def walked(world: WalkingWorld) -> np.ndarray:
    return unpack_model(world.member(BOARD).records[WALKED]).weights


def accuracies(world: WalkingWorld) -> list[float]:
    return [world.accuracy(member.machine.walks.model.weights) for member in world.honest]


@pytest.mark.parametrize(
    "own",
    [
        {"learner": "pegasos"},
        {"learner": "logistic"},
        {"learner": "pegasos", "classes": 3},
        {"learner": "pegasos", "more": 'merging = "merge-update"'},
    ],
    ids=str,
)
def test_honest_peers_become_as_accurate_as_the_simulation(own: dict[str, Any]) -> None:
    world = WalkingWorld(FAULTS, **{**own, "more": PROGRAM + own.get("more", "")}).run()
    (result,) = world.finished
    assert len(result.participants) == FAULTS.peers
    simulated, found = world.simulated(), accuracies(world)
    assert min(np.mean(found), world.accuracy(walked(world))) > simulated - NEAR
    assert min(found) > simulated - 2 * NEAR
    drawn = {member.name: len(member.sent) for member in world.honest}
    assert max(drawn.values()) == 1, "a second draw has left"


def test_the_ball_alone_does_not_stop_a_liar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the one above: without the measure the same lies win."""
    monkeypatch.setattr(ModelWalks, "_is_worse", lambda *_: False)
    world = WalkingWorld(FAULTS, more=PROGRAM).run()
    assert np.mean(accuracies(world)) < world.simulated() - 0.15


class NoModelAtAll(WalkingWorld):
    """Its liar sends zeros of a great age: not worse than none, so they are merged."""

    def lies(self) -> Walk:
        return Walk(study_hash=SESSION, age=(1 << 32) - 1, weights=np.zeros(self.walking.ball.size))


def test_a_liar_that_sends_zeros_of_a_great_age_ends_nobodys_learning() -> None:
    world = NoModelAtAll(FAULTS, more=PROGRAM).run()
    assert np.mean(accuracies(world)) > world.simulated() - NEAR
    assert max(m.machine.walks.model.age for m in world.honest) < 100 * AGE_STEP


def test_walks_last_as_many_cycles_as_the_study_says() -> None:
    ends = [WalkingWorld(Faults(seed=4, peers=6), cycles=c, more=PROGRAM).run().now for c in (20, 60)]
    assert ends[0] >= 15
    assert ends[1] >= ends[0] + 30


def test_a_restarted_peer_goes_on_with_the_model_that_it_has_kept() -> None:
    world = WalkingWorld(Faults(seed=3, peers=8), cycles=60, more=PROGRAM)
    for _ in range(30):
        world.step()
    member = world.member("peer-3")
    kept = unpack_model(member.records[MODEL])
    assert kept.age > 0
    world._start(member)
    assert member.machine.walks.model.age == kept.age
    assert np.array_equal(member.machine.walks.model.weights, kept.weights)
    assert member.draws == 1


def test_nothing_is_said_of_a_model_before_the_records_are_out() -> None:
    """A model is made of what was published: a peer that has not published has none, and takes none."""
    world = WalkingWorld(Faults(seed=6, peers=5), more=PROGRAM)
    silent = world.member("peer-2").machine
    said: list[Any] = []
    withdrawn = type(silent)(silent.parameters, "peer-2", {}, key=world.keys["peer-2"], source=silent._source,
                             walks=world.walks_of("peer-2"))  # fmt: skip
    withdrawn.begin(0.0)
    withdrawn.withdraw()
    said += withdrawn.cycle_with("peer-1", 1.0)
    said += withdrawn.receive("peer-1", Walk(study_hash=SESSION, age=9, weights=np.ones(3)), 1.0)
    offer = world.member(BOARD).machine._offer(answer=False)
    said += withdrawn.receive(BOARD, offer, 1.0)
    assert not [s for s in said if isinstance(getattr(s, "message", None), Walk)]
    assert withdrawn.walks.model.age == 0


def test_the_board_keeps_the_median_and_refuses_what_cannot_be_a_model() -> None:
    world = WalkingWorld(Faults(seed=2, peers=5, poisoners=frozenset({1})), more=PROGRAM)
    board, ball = world.member(BOARD).machine, world.walking.ball
    for weights in (np.full(3, np.nan), np.ones(2), np.full(3, 1e300)):
        said = board.receive("peer-1", Walk(study_hash=SESSION, age=1, weights=weights), 1.0)
        assert Code.BAD_MODEL in [getattr(s, "code", None) for s in said]
    other = board.receive("peer-1", Walk(study_hash=bytes(32), age=1, weights=np.ones(3)), 1.0)
    assert Code.WRONG_STUDY in [getattr(s, "code", None) for s in other]
    for peer in range(4):
        assert board.gathered.take(peer, unpack_model(_kept(np.full(3, 0.1 * peer)))) is None
    board.gathered.take(4, unpack_model(_kept(np.full(3, 500 * ball.radius))))
    assert np.allclose(board.gathered.median(range(5)), 0.2)


def _kept(weights: np.ndarray) -> bytes:
    from tallystick.protocol.gossip import encode

    return encode(Walk(study_hash=SESSION, age=1, weights=weights))


def test_without_models_of_enough_peers_there_is_no_result() -> None:
    world = WalkingWorld(Faults(seed=2, peers=4), deadline=30.0, more=PROGRAM)
    for member in world.members[:-1]:
        member.machine._sends_model = lambda _to: []
    world.run()
    (error,) = world.finished
    assert isinstance(error, TooFewParties)
    assert WALKED not in world.member(BOARD).records
