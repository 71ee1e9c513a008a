"""A round that ends in a draw, one machine at a time: begun once, said once, never begun again after a restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.protocol.secure_sum_examples import SIZE, SameBlind, ZeroNoise, keys, opening, parameters, shares

from tallystick.crypto.field import decode_signed, from_bytes, sum_vectors
from tallystick.protocol.secure_sum import (
    Aborted,
    Draw,
    Drop,
    Forget,
    MemoryShares,
    Persist,
    Send,
    ServerMachine,
)
from tallystick.protocol.secure_sum.messages import Abort, Agreement, Partial, ReceivedList
from tallystick.protocol.secure_sum.open_round import ServerState

WORD = np.array([3, 1, 4, 1, 5], dtype=np.int64)


class Drawing(ZeroNoise):
    def ends_in_a_draw(self, round: int) -> bool:
        return True

    def draw(self, round: int) -> np.ndarray:
        self.draws += 1
        return WORD.copy()


class Parties:
    """Three parties by hand; what each keeps is in ``records``."""

    def __init__(self) -> None:
        self.p = parameters(servers=3, honest=2, holds=True)
        self.noise = {name: Drawing(SIZE) for name in self.p.servers}
        self.stores = {name: MemoryShares() for name in self.p.servers}
        self.records: dict[str, dict[str, bytes]] = {name: {} for name in self.p.servers}
        self.begun: dict[str, list[Draw]] = {name: [] for name in self.p.servers}
        self.said: list[tuple[str, str, Any]] = []
        self.machines = {
            name: ServerMachine(
                self.p,
                name,
                key=keys(3)[i],
                noise=self.noise[name],
                blinds=SameBlind(),
                shares=self.stores[name],
                boot=1,
                boot_value=bytes(16),
            )
            for i, name in enumerate(self.p.servers)
        }

    def carry_out(self, name: str, steps: list[Any]) -> None:
        for step in steps:
            if isinstance(step, Persist):
                self.records[name][step.key] = step.record
            elif isinstance(step, Forget):
                self.records[name].pop(step.key, None)
            elif isinstance(step, Drop):
                self.stores[name].drop(step.round)
            elif isinstance(step, Draw):
                # What is asked for here was made durable before, and what it needs is on no disk any more.
                assert "drawing" in self.records[name]
                assert "noise" not in self.records[name]
                assert not list(self.stores[name].clients(step.round))
                self.begun[name].append(step)
            elif isinstance(step, Send):
                self.said.append((name, step.to, step.message))
                if step.to in self.machines and isinstance(step.message, (ReceivedList, Agreement, Abort)):
                    self.carry_out(step.to, self.machines[step.to].receive(name, step.message, 1.0))

    def agree(self) -> None:
        for name, machine in self.machines.items():
            self.carry_out(name, machine.receive("aggregator", opening(self.p), 0.0))
        for client in self.p.clients:
            for name, share in zip(self.p.servers, shares(self.p, client, [1, 0, 2, 0, 0])):
                self.carry_out(name, self.machines[name].receive(client, share, 0.5))

    def restored(self, name: str, **parts: Any) -> tuple[ServerMachine, list[Any]]:
        return ServerMachine.restore(
            self.p,
            name,
            dict(self.records[name]),
            now=9.0,
            key=keys(3)[self.p.servers.index(name)],
            noise=self.noise[name],
            blinds=SameBlind(),
            shares=self.stores[name],
            boot=2,
            boot_value=bytes(16),
            **parts,
        )


@pytest.fixture
def parties() -> Parties:
    made = Parties()
    made.agree()
    return made


def test_each_party_is_asked_once_and_holds_a_share_of_the_exact_total(parties: Parties) -> None:
    asked = [parties.begun[name] for name in parties.p.servers]
    assert [len(one) for one in asked] == [1, 1, 1]
    total = decode_signed(sum_vectors([one[0].share for one in asked]))
    assert total.tolist() == [3, 0, 6, 0, 0]
    assert all((one[0].noise == WORD).all() for one in asked)
    assert not [m for _, _, m in parties.said if isinstance(m, Partial)]  # nothing of the total was said
    assert all(machine.state is ServerState.DRAWING for machine in parties.machines.values())
    assert all(machine.tick(10.0**6) == [] for machine in parties.machines.values())  # a draw keeps its own time


def test_the_place_is_said_once_under_the_agreement(parties: Parties) -> None:
    for name, machine in parties.machines.items():
        parties.carry_out(name, machine.drawn(1, 4))
        assert machine.drawn(1, 3) == []  # no second one
        assert machine.state is ServerState.RELEASED
    said = [m for _, to, m in parties.said if isinstance(m, Partial) and to == "aggregator"]
    assert decode_signed(sum_vectors([from_bytes(m.vector, SIZE) for m in said])).tolist() == [5, 5, 5, 0, 0]


@pytest.mark.parametrize("held", [0, 1])
def test_a_party_that_was_stopped_in_a_draw_never_begins_again(parties: Parties, held: int) -> None:
    machine, first = parties.restored("s1", held=held)
    assert machine.state is ServerState.ABORTED
    assert not [step for step in first if isinstance(step, Draw)]
    assert parties.noise["s1"].draws == 1
    (ended,) = [step for step in first if isinstance(step, Aborted)]
    assert ended.error.rule == "draw-failed"
    parties.carry_out("s1", first)
    again, second = parties.restored("s1", held=held)  # and not after another restart either
    assert again.state is ServerState.ABORTED
    assert not [step for step in second if isinstance(step, Draw)]
    assert again.drawn(1, 2) == []
    assert parties.noise["s1"].draws == 1
    assert all(m.state is ServerState.ABORTED for name, m in parties.machines.items() if name != "s1")


def test_a_party_that_forgot_it_had_begun_would_be_caught_here(parties: Parties) -> None:
    """The planted bug: without its record the machine has lost its noise, and gives the round up all the same."""
    del parties.records["s1"]["drawing"]
    machine, first = parties.restored("s1")
    assert machine.state is ServerState.ABORTED
    assert not [step for step in first if isinstance(step, Draw)]


def test_one_that_is_killed_before_goes_on_where_it_was() -> None:
    parties = Parties()
    real = parties.machines["s2"]
    parties.machines["s2"] = real
    for name, machine in parties.machines.items():
        parties.carry_out(name, machine.receive("aggregator", opening(parties.p), 0.0))
    before = dict(parties.records["s2"])
    assert "noise" in before
    assert "drawing" not in before
    machine, _ = parties.restored("s2")
    assert machine.state is ServerState.COLLECTING
    assert parties.noise["s2"].draws == 1  # its word is read, not drawn again


def test_a_draw_that_fails_ends_the_round_for_everybody(parties: Parties) -> None:
    parties.carry_out("s0", parties.machines["s0"].not_drawn(1, "s1", "s1 has been silent"))
    assert all(machine.state is ServerState.ABORTED for machine in parties.machines.values())
    assert parties.machines["s1"].drawn(1, 2) == []
    told = [m for _, to, m in parties.said if isinstance(m, Abort) and to == "aggregator"]
    assert told
    assert {m.party for m in told} == {"s1"}
    assert not [m for _, _, m in parties.said if isinstance(m, Partial)]
