"""Random fault schedules against the unique-bucket oracle.

One seed again:      TALLYSTICK_SIM_SEED=1234 pytest tests/simulation
More of them:        TALLYSTICK_SIM_COUNT=10000 pytest tests/simulation
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from secure_sum_world import Schedule, World, schedule, shrink
from tests.transport.memory_network import Faults

COUNT = int(os.environ.get("TALLYSTICK_SIM_COUNT", "240"))
ONE = os.environ.get("TALLYSTICK_SIM_SEED")
BATCHES = 8


def explain(plan: Schedule, error: Exception) -> str:
    small = shrink(plan)
    again = f"TALLYSTICK_SIM_SEED={plan.seed} pytest tests/simulation"
    return f"seed {plan.seed}: {error}\n  shrunk to {small}\n  again: {again}"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_promises_hold_under_random_faults(batch: int) -> None:
    seeds = [int(ONE)] if ONE else range(batch, COUNT, BATCHES)
    seen: Counter[str] = Counter()
    for seed in seeds:
        plan = schedule(seed)
        try:
            world = World(plan).run()
        except Exception as error:
            pytest.fail(explain(plan, error))
        seen["finished"] += len(world.results)
        seen["aborted"] += len(world.errors)
        seen.update(op.kind for op in plan.ops)
    if not ONE:  # the schedules themselves can fail and can succeed
        assert seen["finished"] > len(seeds) / 2, seen
        assert seen["aborted"] >= 1, seen
        assert (
            min(seen[kind] for kind in ("crash", "absent", "equivocate", "deceive", "hostile", "replay", "cut")) >= 1
        ), seen


def test_without_faults_everybody_is_counted() -> None:
    for seed in range(5):
        plan = schedule(seed)
        calm = Schedule(seed, plan.clients, plan.servers, plan.min_clients, plan.rounds, plan.noisy, Faults(), ())
        world = World(calm).run()
        assert sorted(world.results) == list(range(1, plan.rounds + 1))
        assert all(result.dropped == () for result in world.results.values())


def test_a_run_is_a_function_of_its_seed() -> None:
    first, second = World(schedule(11)).run(), World(schedule(11)).run()
    assert first.log == second.log
