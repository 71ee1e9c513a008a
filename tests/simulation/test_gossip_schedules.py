"""Gossip under random faults: everybody who is there ends with the same records, and no peer has ever drawn two."""

from __future__ import annotations

import numpy as np
import pytest
from gossip_world import BOARD, Crash, Faults, World
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tallystick.core.errors import TooFewParties
from tallystick.protocol.gossip.messages import Code

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a schedule is small as it is
crashes = st.builds(
    Crash, tick=st.integers(1, 12), member=st.integers(0, 8), after=st.integers(0, 6), back=st.integers(1, 9)
)
schedules = st.builds(
    Faults,
    seed=st.integers(0, 1 << 30),
    peers=st.integers(4, 9),
    loss=st.sampled_from([0.0, 0.2, 0.5]),
    doubled=st.sampled_from([0.0, 0.3]),
    delay=st.integers(0, 4),
    crashes=st.lists(crashes, max_size=5).map(tuple),
    equivocators=st.sampled_from([frozenset(), frozenset({0})]),
    poisoners=st.sampled_from([frozenset(), frozenset({1})]),
)


def bodies(world: World, name: str) -> dict[int, bytes]:
    books = world.member(name).machine.publications
    return {i: books.get(i).body for i in books.held}


@settings(max_examples=40, deadline=None, phases=PHASES)
@given(schedules)
def test_everybody_ends_with_the_same_records_and_nobody_has_drawn_two(faults: Faults) -> None:
    world = World(faults).run()
    assert len(world.finished) == 1, "it did not come to an end"
    (result,) = world.finished
    kept = {i for i in range(faults.peers) if i not in world.member(BOARD).machine.publications.convicted}
    assert set(result.participants) == {world.names[i] for i in kept}
    assert kept >= set(range(faults.peers)) - faults.equivocators
    own = bodies(world, BOARD)
    for member in world.honest:
        assert len(member.sent) <= 1, "a second draw has left"
        if member.machine is not None:
            assert bodies(world, member.name) == own
        assert not member.sent or member.sent == {own[world.names.index(member.name)]}


@settings(max_examples=10, deadline=None, phases=PHASES)
@given(schedules.map(lambda f: Faults(**{**vars(f), "equivocators": frozenset({0})})))
def test_who_publishes_two_is_left_out_and_the_proof_is_kept(faults: Faults) -> None:
    world = World(Faults(**{**vars(faults), "crashes": ()})).run(60)
    for _ in range(60):
        world.step()
    convicted = [m for m in world.honest if 0 in m.machine.publications.convicted]
    if not convicted:
        return  # it has told everybody the same one, by chance
    assert len(convicted) == len(world.honest)
    for member in convicted:
        proof = member.machine.publications.proof(0)
        assert proof.first != proof.second
        assert "gossip/proof/peer-0" in member.records
    assert any(n.code is Code.EQUIVOCATION and n.party == "peer-0" for n in world.noticed)


def test_a_run_is_a_function_of_its_schedule() -> None:
    faults = Faults(seed=5, peers=7, loss=0.3, doubled=0.2, delay=3, crashes=(Crash(3, 2, 1), Crash(4, 8, 2)))
    first, second = World(faults).run(), World(faults).run()
    assert (first.now, bodies(first, BOARD)) == (second.now, bodies(second, BOARD))


def test_a_crash_at_every_instruction_of_the_first_ticks_leaves_one_draw() -> None:
    for tick in (1, 2, 3):
        for after in range(6):
            world = World(Faults(seed=tick, crashes=(Crash(tick, 1, after, back=2),))).run()
            member = world.member("peer-1")
            assert len(member.sent) == 1, (tick, after)
            assert bodies(world, BOARD)[1] in member.sent


def test_forged_records_and_huge_models_change_nothing_and_their_sender_is_named() -> None:
    world = World(Faults(seed=3, poisoners=frozenset({1})), walks=True).run()
    for _ in range(40):
        world.step()
    named = {n.party for n in world.noticed if n.code in (Code.BAD_SIGNATURE, Code.BAD_MODEL)}
    assert named == {"peer-1"}
    assert {n.code for n in world.noticed if n.party == "peer-1"} >= {Code.BAD_MODEL, Code.BAD_SIGNATURE}
    for member in world.honest:
        weights = member.machine.walks.model.weights
        assert np.isfinite(weights).all()
        assert np.linalg.norm(weights) <= 10.0
        assert member.machine.walks.model.age < 10_000


def test_models_of_honest_peers_come_to_the_same_one() -> None:
    world = World(Faults(seed=8, peers=8, loss=0.2), walks=True)
    for _ in range(120):
        world.step()
    found = [m.machine.walks.model.weights for m in world.honest]
    assert np.allclose(found, 1.0, atol=0.02)


def test_an_isolated_peer_is_tolerated_and_says_so() -> None:
    world = World(Faults(seed=2, cut=frozenset({4})), deadline=60.0).run()
    assert world.isolated == {"peer-4"}
    (result,) = world.finished
    assert result.dropped == ("peer-4",)
    assert len(result.participants) == 5


def test_too_few_peers_end_without_a_result() -> None:
    world = World(Faults(seed=2, peers=4, cut=frozenset({0, 1})), deadline=30.0).run()
    assert isinstance(world.finished[0], TooFewParties)


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_forty_peers_hold_everything_within_a_few_dozen_cycles(loss: float) -> None:
    world = World(Faults(seed=1, peers=40, loss=loss)).run(60)
    assert len(world.finished) == 1
