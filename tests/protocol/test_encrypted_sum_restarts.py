"""Proxy and data user die after every single instruction of a round: one noise, one set, one sum, one result."""

from __future__ import annotations

import numpy as np
import pytest
from tests.protocol.encrypted_sum_world import OWNERS, World, parameters

from tallystick.protocol.encrypted_sum.messages import Countersigned, Participants, SumChunk, Summed
from tallystick.protocol.encrypted_sum.records import NoiseRecord


def honest() -> World:
    world = World(parameters())
    world.open(1)
    world.run()
    return world


def check(world: World, drawn: dict[str, np.ndarray]) -> None:
    assert {result.round for result in world.results} == {1}
    total = sum(world.vector(owner) for owner in OWNERS)
    noise = drawn["proxy"] + drawn["data-user"]
    for result in world.results:  # said again after a restart: the same
        assert (result.total == total + noise).all()
        assert result.participants == OWNERS
    assert len(world.said(Participants)) == len(world.said(Countersigned)) == len(world.said(Summed)) == 1
    assert len(world.said(SumChunk)) == world.p.chunks == 2  # whoever asks again gets the same bytes
    assert "noise" not in world.records["proxy"]
    assert "noise" not in world.records["data-user"]


class Watched(World):
    """Notes the noise that was kept last: what was kept before and not used in an opened round never left."""

    def _one(self, name: str, step: object) -> None:
        if getattr(step, "key", "") == "noise" and hasattr(step, "record"):
            self.drawn = getattr(self, "drawn", {}) | {name: NoiseRecord.from_bytes(step.record).noise}
        super()._one(name, step)


@pytest.mark.parametrize("party", ["proxy", "data-user", "south"])
def test_it_ends_the_same_whenever_a_party_dies(party: str) -> None:
    steps = honest().steps[party]
    assert steps > 5
    for step in range(1, steps + 1):
        world = Watched(parameters(), die=(party, step))
        if world.machines["data-user"].round == 0:
            world.open(1)
        world.run()
        check(world, world.drawn)
        assert world.noise["proxy"].draws <= 2


def test_an_absent_owner_is_left_out_and_too_few_end_the_round() -> None:
    world = World(parameters())
    world.absent = {"south"}
    world.open(1)
    world.run()
    (result,) = world.results
    assert result.participants == ("north", "west")
    assert result.dropped == ("south",)
    world.absent = {"south", "west"}
    world.open(2)
    world.run()
    assert world.aborts[-1][1].rule == "too-few-clients"
    world.absent = set()
    world.open(3)
    world.run()
    assert world.results[-1].round == 3
    assert world.results[-1].participants == OWNERS


def test_a_copy_set_back_is_refused_and_releases_nothing_more() -> None:
    for party in ("proxy", "data-user"):
        world = World(parameters())
        world.open(1)
        before = dict(world.records[party])  # in the midst of the first round, or before it
        world.run()
        assert len(world.results) == 1
        world.open(2)
        copy = dict(world.records[party])
        world.run()
        summed = len(world.said(Summed))
        # It forgets the end of round 2 and goes on from its opening, with noise of its own.
        copy.pop("noise", None)
        old = {key: value for key, value in before.items() if key not in ("noise",)}
        for records in (copy, old):
            try:
                world.start(party, records=dict(records), boot=1)
            except Exception as error:
                assert "damaged" in str(error)  # noqa: PT017
                continue
            world.run()
        assert len(world.said(Summed)) == summed
        assert len(world.results) <= 3
