"""Every party dies after every single instruction of a study and comes back: nobody is lost, nothing is said twice."""

from __future__ import annotations

import pytest
from secure_sum_world import Op, Schedule, World
from tests.transport.memory_network import Faults

CLIENTS, ROUNDS = 3, 2


def plan(*ops: Op) -> Schedule:
    return Schedule(5, CLIENTS, 2, 2, ROUNDS, True, Faults(), ops)


@pytest.mark.parametrize("party", ["s0", "s1", "aggregator", "c1"])
def test_a_study_survives_one_crash_anywhere(party: str) -> None:
    visited = 0
    for steps in range(60):
        world = World(plan(Op("crash", party, 0.0, steps, 1.0))).run()
        if world.processes[party].boot == 1:
            break  # the study is over before this instruction
        visited += 1
        assert sorted(world.results) == [1, 2], (steps, world.errors)
        if party != "c1":  # a client that dies while the others finish is simply not waited for
            assert all(result.dropped == () for result in world.results.values()), steps
    assert visited >= {"s0": 25, "s1": 25, "aggregator": 16, "c1": 6}[party]


def test_a_server_that_stays_away_is_named_in_bounded_time() -> None:
    world = World(plan(Op("crash", "s1", 0.0, 4, 10_000.0))).run()
    first = world.errors[1]
    assert (first.party, first.rule) == ("s1", "missing-server")
    assert world.now < 250


def test_two_servers_crash_in_the_same_round() -> None:
    for first in range(0, 24, 3):
        for second in range(0, 24, 3):
            world = World(plan(Op("crash", "s0", 0.0, first, 1.0), Op("crash", "s1", 0.0, second, 2.5))).run()
            assert sorted(world.results) == [1, 2], (first, second, world.errors)
