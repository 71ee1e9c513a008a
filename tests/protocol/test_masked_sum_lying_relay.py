"""What a relay could make peers do before it was tried: each test is named after what was found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.protocol.masked_sum_world import CLIENTS, IDENTITIES, MODEL, said
from tests.protocol.test_masked_sum_peers import Peers, evidence_of, peers, told

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.redaction import Secret
from tallystick.crypto.field import HALF
from tallystick.crypto.masking import RoundKey, wrap_round_keys
from tallystick.crypto.prg import AesStream
from tallystick.crypto.shamir import SHARE_BYTES, rebuild, split
from tallystick.protocol.instructions import Compute
from tallystick.protocol.masked_sum import decode, encode
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Evidence,
    Masked,
    Quorum,
    Revealed,
    RoundClosed,
    RoundOpen,
    Signed,
    Survivors,
    TiedSurvivors,
    key_commitment,
    model_digest,
)
from tallystick.protocol.masked_sum.opening import open_evidence, set_problem
from tallystick.protocol.masked_sum.records import ResultRecord


def opened(world: Peers, round: int, model: bytes) -> RoundOpen:
    h = world.p.study_hash
    return RoundOpen(study_hash=h, round=round, deadline_ms=1000, model=model, model_hash=model_digest(h, round, model))


def given_up(world: Peers, round: int) -> Abort:
    return Abort(
        study_hash=world.p.study_hash,
        round=round,
        code=Code.REPLACED,
        party="reducer",
        cause="no reason",
        remedy="none",
    )


def test_a_round_that_was_said_to_be_given_up_is_not_opened_after_all_with_a_model_of_the_relay() -> None:
    """Given up before it was opened, its number is free at every peer: a model of the relay's choice was taken."""
    world = peers()
    world.open(1)
    world.run()
    other = np.ones(3, dtype="<f8").tobytes()
    for name in CLIENTS:
        told(world, name, given_up(world, 2))
        steps = world.machines[name].receive("reducer", opened(world, 2, other), world.now)
        assert not [step for step in steps if isinstance(step, Compute)]
        assert world.machines[name].state.value == "idle"


def test_a_round_whose_total_an_absent_peer_was_told_is_not_opened_for_it_once_more() -> None:
    world = peers()
    world.absent.add("e")
    world.open(1)
    world.run()
    world.absent.clear()
    assert told(world, "e", evidence_of(world)) == []
    assert 1 in world.totals("e")
    for model in (MODEL, np.ones(3, dtype="<f8").tobytes()):
        steps = world.machines["e"].receive("reducer", opened(world, 1, model), world.now)
        assert not [step for step in steps if isinstance(step, Compute)]


# -- two stories -------------------------------------------------------------------------------------------------------


def in_round_two(until: type) -> Peers:
    """Round 1 is over; in round 2 nobody has been told what comes as ``until``."""
    world = peers()
    world.open(1)
    world.run()
    world.change = lambda _sender, _to, m: None if isinstance(m, until) and m.round == 2 else m
    world.open(2)
    world.run(until=world.now)
    return world


def other_total(world: Peers) -> ResultRecord:
    first = open_evidence(world.p, evidence_of(world))
    return replace(first, agreement=bytes(32), total=first.total + 1, clients=first.clients[:4])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_peer_that_has_stopped_signs_and_tells_nothing_in_the_round_it_is_in(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second set of round 1 is met in the middle of round 2."""
    world = in_round_two(Survivors)
    (whole, *_) = said(world, TiedSurvivors, round=2)
    lie = other_total(world)
    for name in CLIENTS:
        monkeypatch.setattr(world.machines[name], "_open", lambda _p, _e: lie)
        assert told(world, name, evidence_of(world))[0].code == Code.SET_DISAGREEMENT
        if restarted:
            before = len(world.sent)
            world.start(name)
            assert not [m for _, _, m in world.sent[before:] if isinstance(m, Masked | Signed)]
        assert not [m for m in told(world, name, whole) if isinstance(m, Signed)]
    assert world.secrets_left() == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_peer_remembers_which_set_it_signed_when_the_round_is_closed_before_the_evidence(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = peers()
    world.change = lambda _sender, _to, m: None if isinstance(m, Evidence | RoundClosed) else m
    world.open(1)
    world.run()
    lie = other_total(world)
    told(world, "a", RoundClosed(study_hash=world.p.study_hash, round=1, agreement=bytes(32)))
    if restarted:
        world.start("a")
    monkeypatch.setattr(world.machines["a"], "_open", lambda _p, _e: lie)
    assert told(world, "a", evidence_of(world))[0].code == Code.SET_DISAGREEMENT
    assert not world.totals("a")
    assert b"another survivor set" in world.records["a"]["stopped"]


# -- a client that dropped out -----------------------------------------------------------------------------------------


def with_a_drop_out() -> Peers:
    """e deals and sends no sum."""
    world = peers()
    world.change = lambda sender, _to, m: None if isinstance(m, Masked) and sender == "e" else m
    world.open(1)
    world.run()
    assert world.results[0].participants == CLIENTS[:4]
    return world


def other_keys(world: Peers, whole: Evidence, seed: int) -> Evidence:
    """The keys under which e's masks come off, made up by the relay: shares are not signed."""
    p, source = world.p, AesStream(bytes([seed]) * 32, b"relay")
    near = p.graph.neighbours("e")
    keys = [RoundKey(p.study_hash, 1, *sorted(("e", other)), source.bytes(32)) for other in near]
    wrapping = Secret(source.bytes(32))
    wrapped = wrap_round_keys(keys, wrapping, study_hash=p.study_hash, round=1, party="e")
    (shares,) = split([wrapping], threshold=p.threshold, shares=p.holders("e"), source=source)
    survivors = decode(whole.survivors)
    assert isinstance(survivors, Survivors)
    reveals = []
    for raw in whole.reveals:
        said_by = decode(raw)
        assert isinstance(said_by, Revealed)
        name = p.clients[said_by.client]
        at = SHARE_BYTES * p.held_by(name, survivors.dealers).index(4)
        made = shares[p.point("e", name) - 1]
        reveals.append(encode(replace(said_by, shares=said_by.shares[:at] + made + said_by.shares[at + SHARE_BYTES :])))
    return replace(whole, wrapped=(wrapped,), reveals=tuple(reveals))


def test_the_keys_of_a_client_that_dropped_out_are_its_own_and_no_others_of_the_relay() -> None:
    """One signed set gave a total for each key that a relay made up: uniform in the field, and to be chosen among."""
    world = with_a_drop_out()
    whole = evidence_of(world)
    p = replace(world.p, result_limit=HALF)  # as where the number of records is not declared
    first = open_evidence(p, whole)
    assert (first.total == world.results[0].total).all()
    for seed in range(3):
        with pytest.raises(RemoteProtocolError, match=r"keys|dealt"):
            open_evidence(p, other_keys(world, whole, seed))


def test_a_set_that_names_keys_which_a_drop_out_has_not_signed_is_no_evidence() -> None:
    """Also where everybody has signed it: peers sign what the relay names, and look whose it is when it is opened."""
    world = with_a_drop_out()
    whole = evidence_of(world)
    survivors, quorum = decode(whole.survivors), decode(whole.quorum)
    assert isinstance(survivors, TiedSurvivors)
    assert isinstance(quorum, Quorum)
    assert len(survivors.keys) == 1
    made = other_keys(world, whole, 1)
    key = rebuilt(world, made, survivors)
    named = key_commitment(world.p.study_hash, 1, 4, key, made.wrapped[0])
    lie = replace(survivors, keys=(named,))
    signed = [
        IDENTITIES[CLIENTS[i]].sign(
            Signed(study_hash=world.p.study_hash, round=1, client=i, agreement=lie.digest()).signed_part()
        )
        for i in quorum.signers
    ]
    reveals = [replace(decode(raw), agreement=lie.digest()) for raw in made.reveals]  # type: ignore[type-var]
    shown = replace(
        made,
        survivors=encode(lie),
        quorum=encode(replace(quorum, agreement=lie.digest(), signatures=tuple(signed))),
        reveals=tuple(encode(one) for one in reveals),
    )
    with pytest.raises(RemoteProtocolError, match="not its own"):
        open_evidence(replace(world.p, result_limit=HALF), shown)
    short = replace(survivors, keys=())
    assert set_problem(world.p, short) is not None
    assert lie.digest() != survivors.digest() != short.digest()


def rebuilt(world: Peers, made: Evidence, survivors: TiedSurvivors) -> bytes:
    shares = []
    for raw in made.reveals:
        said_by = decode(raw)
        assert isinstance(said_by, Revealed)
        name = world.p.clients[said_by.client]
        at = SHARE_BYTES * world.p.held_by(name, survivors.dealers).index(4)
        shares.append((world.p.point("e", name), said_by.shares[at : at + SHARE_BYTES]))
    return rebuild(shares, threshold=world.p.threshold).reveal()
