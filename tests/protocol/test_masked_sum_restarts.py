"""Masked sums through deaths: any party after any instruction, once or for good, under drawn schedules."""

from __future__ import annotations

import numpy as np
import pytest
from tests.protocol.masked_sum_world import CLIENTS, World, parameters

from tallystick.protocol.masked_sum.client import ClientMachine
from tallystick.protocol.masked_sum.messages import Dealing, Masked, Relay, Revealed, Signed
from tallystick.protocol.masked_sum.reducer import ReducerMachine


def finished(world: World, rounds: int = 1) -> None:
    """Every round had its one result, over whoever it says, with one draw of noise of each."""
    assert [result.round for result in world.results] == list(range(1, rounds + 1)), world.aborts
    for result in world.results:
        assert result.makers == len(result.participants)
        assert (result.total == world.expected(result.participants, result.round)).all()


def said_once(world: World) -> None:
    """Nobody has ever said two different things of one kind in one round."""
    seen: dict[tuple[str, int, type], object] = {}
    for name, _, message in world.sent:
        if isinstance(message, (Dealing, Masked, Signed, Revealed)):
            assert seen.setdefault((name, message.round, type(message)), message) == message


@pytest.mark.parametrize("seed", range(8))
def test_two_rounds_under_any_schedule(seed: int) -> None:
    world = World(parameters(), seed=seed)
    for round in (1, 2):
        world.open(round)
        world.run()
    finished(world, 2)
    assert world.results[0].participants == CLIENTS
    assert world.secrets_left() == []


def test_sums_are_what_they_would_be_without_masks() -> None:
    world = World(parameters())
    world.open(1)
    world.run()
    noise = np.sum([world.noise[name].drawn[1][0] for name in CLIENTS], axis=0)
    assert (world.results[0].total - noise == np.sum([world.vector(name) for name in CLIENTS], axis=0)).all()


def deaths(party: str) -> int:
    """How many instructions a party carries out in two rounds nobody disturbs."""
    world = World(parameters())
    for round in (1, 2):
        world.open(round)
        world.run()
    return world.steps[party]


@pytest.mark.parametrize("party", ["b", "reducer"])
def test_a_party_that_comes_back_after_any_instruction_changes_nothing(party: str) -> None:
    for step in range(1, deaths(party) + 1):
        world = World(parameters(), die=(party, step), seed=step)
        for round in (1, 2):
            world.open(round)
            world.run()
        finished(world, 2)
        said_once(world)
        assert all(result.participants == CLIENTS for result in world.results), step
        assert world.secrets_left() == []


def test_a_client_that_stays_away_after_any_instruction_is_left_out_or_in_and_the_round_ends() -> None:
    left_out, left_in = 0, 0
    for step in range(1, deaths("b") + 1):
        world = World(parameters(), die=("b", step), seed=step, away=True)
        for round in (1, 2):
            world.open(round)
            world.run()
        finished(world, 2)
        said_once(world)
        dropped = [result.dropped for result in world.results]
        assert set(dropped) <= {(), ("b",)}
        left_out, left_in = left_out + (dropped[0] == ("b",)), left_in + (dropped[0] == ())
    assert left_out >= 4  # before its vector was there
    assert left_in >= 4  # and after


def test_two_at_a_time() -> None:
    """One client for good, another or the reducer once."""
    for step in range(1, deaths("b") + 1, 2):
        for other in ("c", "reducer"):
            world = World(parameters(), die=("b", step), seed=step, away=True)
            world.open(1)
            while any(world.lines.values()) and "b" not in world.absent:
                world.run(until=world.now)
            world.die = (other, world.steps[other] + 3) if world.machines["reducer"].state.value != "finished" else None
            world.away = False
            world.run()
            finished(world)
            said_once(world)


def test_too_many_missing_end_a_round_unrevealed_and_the_next_one_works() -> None:
    for kind in (Dealing, Masked, Signed):
        world = World(parameters())
        gone = {"a", "b"}

        def lose(sender: str, _to: str, message: object, kind: type = kind, gone: set[str] = gone) -> object:
            return None if sender in gone and isinstance(message, kind) and message.round == 1 else message

        world.change = lose
        world.open(1)
        world.run()
        rule = "threshold" if kind is Signed else "too-few-clients"
        assert [error.rule for name, error in world.aborts if name == "reducer"] == [rule]
        assert not any(isinstance(message, Revealed) for _, _, message in world.sent), "unrevealed"
        assert world.secrets_left() == []
        world.open(2)
        world.run()
        assert [result.round for result in world.results] == [2]
        assert (world.results[0].total == world.expected(CLIENTS, 2)).all()


def test_shares_that_do_not_reach_the_threshold_end_the_round() -> None:
    world = World(parameters())
    world.change = lambda sender, _to, m: None if sender in "ab" and isinstance(m, Revealed) else m
    world.open(1)
    world.run()
    assert [error.rule for name, error in world.aborts if name == "reducer"] == ["threshold"]
    assert not world.results


@pytest.mark.parametrize(("machine", "name"), [(ClientMachine, "client"), (ReducerMachine, "reducer")])
def test_the_readme_shows_the_transitions(machine: type, name: str) -> None:
    from pathlib import Path

    import tallystick.protocol.masked_sum as package
    from tallystick.protocol.machine import transition_table

    readme = (Path(package.__file__).parent / "README.md").read_text(encoding="utf-8")
    shown = readme.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0]
    assert shown == transition_table(machine.TRANSITIONS)


def test_a_client_that_died_between_packets_and_masked_sum_keeps_no_packets_of_a_round_it_missed() -> None:
    for step in range(1, deaths("b") // 2 + 1):
        world = World(parameters(), die=("b", step), seed=step)

        def cut_off(_sender: str, to: str, message: object, world: World = world) -> object:
            return None if to == "b" and isinstance(message, Relay) and world.die is None else message

        world.change = cut_off
        world.open(1)
        world.run()
        finished(world)
        assert world.secrets_left() == [], step
