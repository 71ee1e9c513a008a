"""Random fault schedules around a study: one start, one end, no key left, or a typed failure in bounded time.

One seed again:  TALLYSTICK_SIM_SEED=1234 pytest tests/protocol/test_study_schedules.py
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from study_world import Broken, Op, Process, Schedule, World, schedule
from tests.transport.memory_network import Faults

from tallystick.protocol.study import AggregatorMachine, Send
from tallystick.protocol.study import participant as participant_module
from tallystick.protocol.study.messages import StudyStart, Ticket

COUNT = int(os.environ.get("TALLYSTICK_SIM_COUNT", "200"))
ONE = os.environ.get("TALLYSTICK_SIM_SEED")
BATCHES = 4


def shrink(plan: Schedule) -> Schedule:
    """Drop operations one by one while it still breaks."""
    for op in plan.ops:
        smaller = replace(plan, ops=tuple(o for o in plan.ops if o is not op))
        try:
            World(smaller).run()
        except Exception:
            return shrink(smaller)
    return plan


@pytest.mark.parametrize("batch", range(BATCHES))
def test_promises_hold_under_random_faults(batch: int) -> None:
    seeds = [int(ONE)] if ONE else range(batch, COUNT, BATCHES)
    seen: Counter[str] = Counter()
    for seed in seeds:
        plan = schedule(seed)
        try:
            world = World(plan).run()
        except Exception as error:
            again = f"TALLYSTICK_SIM_SEED={seed} pytest tests/protocol/test_study_schedules.py"
            pytest.fail(f"seed {seed}: {error!r}\n  shrunk to {shrink(plan)}\n  again: {again}")
        seen["results" if isinstance(world.answers["ana"], bytes) else "failures"] += 1
        seen.update(op.kind for op in plan.ops)
    if not ONE:
        assert seen["results"] > len(seeds) / 4, seen
        assert seen["failures"] >= 3, seen


def test_without_faults_everybody_takes_part() -> None:
    for seed in range(5):
        plan = replace(schedule(seed), faults=Faults(), ops=(), fails=False)
        world = World(plan).run()
        assert isinstance(world.answers["ana"], bytes)
        assert set(world.rosters) == {"hub", *world.members.parties}
        assert (3, 4) in world.told
        assert world.now < 120


def test_a_run_is_a_function_of_its_seed() -> None:
    assert World(schedule(7)).run().log == World(schedule(7)).run().log


@pytest.mark.parametrize("role", ["hub", "s0", "c0"])
def test_killed_after_every_instruction(role: str) -> None:
    """Restarts around the rounds: wherever a party dies, the study has its one start and its one result."""
    plan = replace(schedule(0), clients=4, servers=2, faults=Faults(), ops=(), fails=False)
    died = 0
    for after in range(60):
        world = World(plan)
        process = world.processes[role]
        process.crash_in, process.down_for = after, 3.0
        world.run()
        assert isinstance(world.answers["ana"], bytes), after
        died += process.starts > 1
        if process.starts == 1:
            break
    assert died >= 5


@pytest.mark.parametrize("at", [0.1, 45.0])
def test_a_client_that_took_its_approval_back_before_the_start_does_not_start(at: float) -> None:
    """Wherever it is killed on the way: the others go on without it, and no key of it is left."""
    plan = replace(schedule(0), clients=4, servers=2, faults=Faults(), ops=(Op("repent", "c3", at),), fails=False)
    for after in (None, *range(12)):
        world = World(plan)
        process = world.processes["c3"]
        process.crash_in, process.down_for = after, 3.0
        world.run()
        assert isinstance(world.answers["ana"], bytes), after
        assert ("c3" in world.rosters) == (at == 45.0), after


def breaks(plan: Schedule) -> bool:
    """Whether a promise is broken, or a result that should be there is not."""
    try:
        return not isinstance(World(plan).run().answers["ana"], bytes)
    except Broken:
        return True


# one client is cut off until after the start, at which the hub dies
LEFT_OUT = Schedule(0, 4, 2, False, Faults(), (Op("cut", "c3", 0.0, 0, 31.0), Op("crash", "hub", 31.0, 0, 1.0)))


def test_one_who_was_left_out_stays_out_after_a_crash_of_the_hub() -> None:
    world = World(LEFT_OUT).run()
    assert isinstance(world.answers["ana"], bytes)
    assert set(world.rosters) == {"hub", "s0", "s1", "c0", "c1", "c2"}
    assert world.processes["hub"].starts == 2


def test_planted_bugs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = Process.carry_out

    def forgetful(self: Process, out: list) -> None:
        carry_out(self, out)
        if self.name == "hub":
            self.records.pop("study/start", None)

    with monkeypatch.context() as patch:  # the start is forgotten in a crash and made anew
        patch.setattr(Process, "carry_out", forgetful)
        assert breaks(LEFT_OUT)
    with monkeypatch.context() as patch:  # a party that does not erase
        patch.setattr(participant_module, "Erase", lambda: participant_module.Ended(bytes(32), None))
        assert breaks(LEFT_OUT)
    with monkeypatch.context() as patch:  # parties that are believed to be there before they have said so
        patch.setattr(AggregatorMachine, "_too_few", lambda *_: None)
        patch.setattr(AggregatorMachine, "_try_start", start_at_once)
        assert breaks(LEFT_OUT)


def start_at_once(self: AggregatorMachine, now: float) -> list:
    """Start with whoever is there, were it one client."""
    if self.state.value != "gathering" or not set(self.cast.helpers) < set(self._ready):
        return []
    names = [name for name in self.cast.parties if name in self._ready]
    tickets = tuple(
        Ticket(party=name, public=self._ready[name].public, signature=self._ready[name].signature) for name in names
    )
    start = StudyStart(study_hash=self.study_hash, attempt=self.attempt, min_clients=3, tickets=tickets)
    return [Send(name, start) for name in names]
