"""Servers whose disk, or whole memory, is set back to a copy. No second draw of noise ever leaves; they are named.

A server that was set back may say other lists and agreements than before: it has forgotten. What it must never do is
send two different partial sums of one round, even if everybody says again to it what was said in that round.
"""

from __future__ import annotations

import pytest
from secure_sum_world import Broken, Op, Schedule, World
from tests.transport.memory_network import Faults

from tallystick.protocol.secure_sum import ServerMachine
from tallystick.protocol.secure_sum.messages import Partial, Start


def run(
    after: dict[int, tuple[Op, ...]], *ops: Op, rounds: int = 4, servers: int = 2, kind: type | None = None
) -> World:
    plan = Schedule(7, 3, servers, 2, rounds, True, Faults(), ops)
    world = World(plan, dict.fromkeys(("s0", "s1", "s2"), kind) if kind else None)
    world.after = after
    return world.run()


def op(what: str, server: str = "s1", amount: int = 0) -> Op:
    return Op(what, server, 0.0, amount, 0.01)


def at_step(what: str, steps: int) -> Op:
    return Op(what, "s1", 0.0, steps, -1.0)


def partials(world: World, server: str) -> set[int]:
    return {round for kind, name, round in world.said if kind == Partial.__name__ and name == server}


class Unbound(ServerMachine):
    """As it would be if starts were not part of what servers sign."""

    def _start(self, record):
        return Start(boot=1, value=bytes(16), noise=bytes(32))


@pytest.mark.parametrize("servers", [2, 3])
def test_a_disk_one_boot_old_is_refused_and_named(servers: int) -> None:
    """Copied in boot 1, restarted, seen in boot 2; the copy's boot 2 has another value."""
    world = run({1: (op("copy"), op("crash")), 2: (), 3: (op("set_back"),)}, rounds=5, servers=servers)
    assert world.processes["s1"].starts == 3
    assert sorted(world.results) == [1, 2, 3]
    assert sorted(world.errors) == [4, 5]
    for error in world.errors.values():
        assert (error.rule, error.party) == ("stale-server", "s1"), error
        assert "number 2 has happened twice" in error.cause
        assert "enrol" in error.remedy
    assert partials(world, "s1") == {1, 2, 3}
    for name in ("s0", "aggregator"):
        assert world.processes[name].boots.last(world.keys[1].public)[0] == 2


def test_a_counter_that_goes_back_is_refused() -> None:
    world = run({1: (op("copy"), op("crash")), 2: (op("crash"),), 4: (op("set_back"),)}, rounds=5)
    assert sorted(world.results) == [1, 2, 3, 4]
    error = world.errors[5]
    assert (error.rule, error.party) == ("stale-server", "s1")
    assert "number 3" in error.cause
    assert "number 2" in error.cause


@pytest.mark.parametrize("watcher", ["s0", "aggregator"])
def test_what_was_seen_survives_the_watchers_restart(watcher: str) -> None:
    world = run({1: (op("copy"), op("crash")), 3: (op("crash", watcher), op("set_back"))}, rounds=5)
    assert world.processes[watcher].starts == 2
    assert {error.rule for error in world.errors.values()} == {"stale-server"}
    assert partials(world, "s1") == {1, 2, 3}


def test_a_restart_is_no_offence() -> None:
    world = run({1: (op("crash"),), 2: (op("crash", amount=5),), 3: (op("crash", amount=9),)})
    assert sorted(world.results) == [1, 2, 3, 4]
    assert world.processes["s1"].boot == 4


@pytest.mark.parametrize("how", ["set_back", "resume"])
def test_a_round_that_was_answered_is_not_answered_again(how: str) -> None:
    """Set back to before round 2, and everything of round 2 is said to it again: its noise would be another."""
    after = {1: (op("copy"),), 2: (op(how), op("hear_again", amount=2))}
    world = run(after)
    assert world.results.keys() >= {1, 2, 4}
    with pytest.raises(Broken, match="two different things as Partial of round 2"):
        run(after, kind=Unbound)


@pytest.mark.parametrize("how", ["set_back", "resume"])
@pytest.mark.parametrize("hear", [False, True])
def test_set_back_from_any_step_to_any_step(how: str, hear: bool) -> None:
    after = {round: (op("hear_again", amount=1), op("hear_again", amount=2)) for round in (1, 2)} if hear else {}
    for copied in range(0, 36, 3):
        for back in range(0, 24, 5):
            world = run(after, at_step("copy", copied), at_step(how, copied + back), rounds=3)
            assert len(world.results) + len(world.errors) == 3  # and no two partials of one round differ


def test_of_two_copies_the_second_to_speak_is_refused() -> None:
    """Two copies under one boot number, by turns: whichever was not seen first ends the round."""
    after = {1: (op("copy", "s0"), op("crash", "s0")), 3: (op("copy", "s0"), op("swap", "s0")), 4: (op("swap", "s0"),)}
    world = run(after, rounds=5, servers=3)
    assert sorted(world.results) == [1, 2, 3, 5]
    assert (world.errors[4].rule, world.errors[4].party) == ("stale-server", "s0")
