"""Proxy and data user die after every single instruction of a round: one noise, one set, one sum, one result."""

from __future__ import annotations

import numpy as np
import pytest
from tests.protocol.encrypted_sum_world import MODEL, OWNERS, World, parameters

from tallystick.protocol.encrypted_sum.messages import Code, Countersigned, Participants, SumChunk, Summed, Wanted
from tallystick.protocol.encrypted_sum.records import NoiseRecord
from tallystick.protocol.instructions import Send


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


def test_a_data_user_set_back_gets_no_second_decryption() -> None:
    world = World(parameters())
    early = dict(world.records["data-user"])  # before the first round
    world.open(1)
    world.run()
    (result,) = world.results
    world.start("data-user", records=dict(early), boot=1)  # an old copy: it knows of no round, and draws noise anew
    world.carry_out("data-user", world.machines["data-user"].open_round(1, MODEL, world.now))
    world.run()
    assert world.results == [result]
    assert world.noise["data-user"].draws == 2
    assert len(world.said(Countersigned)) == 1  # the proxy has nothing for it to sign


def test_a_second_countersignature_is_that_of_a_copy() -> None:
    world = World(parameters())
    early = dict(world.records["data-user"])
    world.open(1)
    while not world.said(Participants):
        sender, to, raw = world.queue.popleft()
        world.carry_out(to, world.machines[to].receive_bytes(sender, raw, world.now))
    (signed,) = world.said(Participants)
    answers = []
    for _ in range(2):  # the data user, and a copy of it from before the round
        world.start("data-user", records=dict(early), boot=1)
        user = world.machines["data-user"]
        user.open_round(1, MODEL, world.now)
        answers.append(next(s.message for s in user.receive_bytes("proxy", signed, 1.0) if isinstance(s, Send)))
    assert answers[0] != answers[1]
    proxy = world.machines["proxy"]
    world.carry_out("proxy", proxy.receive("data-user", answers[0], 1.0))
    assert len(world.said(Summed)) == 1
    refused = proxy.receive("data-user", answers[1], 1.0)
    assert [step.message.code for step in refused] == [Code.STALE_COPY]
    wanted = Wanted(study_hash=world.p.study_hash, round=1, index=0, agreement=answers[1].digest())
    assert [step.message.code for step in proxy.receive("data-user", wanted, 1.0)] == [Code.STALE_COPY]


def test_a_proxy_set_back_is_refused_by_what_the_data_user_has_signed() -> None:
    world = World(parameters())
    world.open(1)
    world.run()
    world.open(2)
    while not world.said(Countersigned) - {b""} or len(world.said(Participants)) < 2:
        sender, to, raw = world.queue.popleft()
        world.carry_out(to, world.machines[to].receive_bytes(sender, raw, world.now))
    user = world.machines["data-user"]
    world.run()
    world.open(3)
    world.start("proxy", records={}, boot=1)  # an old copy of the proxy: start number 1 with another value
    world.run()
    assert world.aborts[-1][1].rule in ("stale-copy", "missing-proxy", "too-few-clients")
    assert {result.round for result in world.results} == {1, 2}
    assert user.round == 3
