"""What a lying reducer, or a client set back, cannot get out of a masked sum; each with a planted bug that lets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.protocol.masked_sum_world import (
    AGREEMENTS,
    CLIENTS,
    IDENTITIES,
    MODEL,
    Noise,
    World,
    masked_world,
    parameters,
    said,
    tell,
    without,
)

from tallystick.core.errors import PrivacyRefused, RemoteProtocolError, StudyError
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.protocol.instructions import Send
from tallystick.protocol.masked_sum.client import ClientMachine
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Dealing,
    Masked,
    Quorum,
    Relay,
    Revealed,
    RoundOpen,
    Signed,
    Survivors,
    model_digest,
)


def rules(world: World, *, of: str | None = None) -> set[str | None]:
    return {error.rule for name, error in world.aborts if of in (None, name)}


def stopped(world: World) -> None:
    """No result, no share was told, and what could open a mask is gone."""
    assert not world.results
    assert not any(isinstance(m, Revealed) for _, _, m in world.sent)
    assert world.secrets_left() == []


# -- models ------------------------------------------------------------------------------------------------------------


def test_clients_that_were_shown_different_models_stop_before_anything_of_their_data_leaves() -> None:
    """The reducer hides that it showed c another model; c's neighbours see it in its packets [Pasquini22]."""
    world, other = World(parameters()), np.ones(3, dtype="<f8").tobytes()
    crafted = model_digest(world.p.study_hash, 1, other)
    true = model_digest(world.p.study_hash, 1, MODEL)

    def lie(sender: str, to: str, message: Any) -> Any:
        if isinstance(message, RoundOpen) and to == "c":
            return replace(message, model=other, model_hash=crafted)
        if isinstance(message, Dealing) and sender == "c":
            return replace(message, model_hash=true)
        return message

    world.change = lie
    world.open(1)
    world.run()
    stopped(world)
    assert "bad-model" in rules(world)
    assert not [m for m in said(world, Masked) if m.client == 2]  # c itself saw that all others had another model


def test_a_second_model_in_a_round_is_refused() -> None:
    world = World(parameters())
    world.open(1)
    world.run(until=0)
    other = np.ones(3, dtype="<f8").tobytes()
    second = RoundOpen(study_hash=world.p.study_hash, round=1, deadline_ms=1000,
                       model_hash=model_digest(world.p.study_hash, 1, other), model=other)  # fmt: skip
    assert _codes(world.machines["a"].receive("reducer", second, 0.0)) == [] or world.results  # round 1 is over for a
    fresh = World(parameters())
    fresh.carry_out("a", fresh.machines["a"].receive("reducer", replace(second, model=MODEL,
                    model_hash=model_digest(world.p.study_hash, 1, MODEL)), 0.0))  # fmt: skip
    assert _codes(fresh.machines["a"].receive("reducer", second, 0.0)) == [Code.BAD_MODEL]


def _codes(instructions: list[Any]) -> list[int]:
    return [s.message.code for s in instructions if isinstance(s, Send) and isinstance(s.message, Abort)]


# -- survivor sets -----------------------------------------------------------------------------------------------------


def test_a_client_signs_one_survivor_set_a_round() -> None:
    world, whole = masked_world()
    (signed,) = tell(world, "a", whole)
    assert isinstance(signed, Signed)
    assert tell(world, "a", whole) == [signed]
    (abort,) = tell(world, "a", without(whole, "b"))
    assert isinstance(abort, Abort)
    assert abort.code == Code.SET_DISAGREEMENT
    assert "secrets" not in world.records["a"]
    answer = tell(world, "a", quorum(world, whole, CLIENTS))
    assert not any(isinstance(m, Revealed) for m in answer)


def quorum(world: World, survivors: Survivors, signers: tuple[str, ...]) -> Quorum:
    """As many real signatures as a lying reducer could have got, and its own inventions for the rest."""
    signatures = {}
    for name in signers:
        unsigned = Signed(study_hash=world.p.study_hash, round=survivors.round, client=CLIENTS.index(name),
                          agreement=survivors.digest())  # fmt: skip
        signatures[unsigned.client] = IDENTITIES[name].sign(unsigned.signed_part())
    order = tuple(sorted(signatures))
    return Quorum(study_hash=world.p.study_hash, round=survivors.round, agreement=survivors.digest(), signers=order,
                  signatures=tuple(signatures[i] for i in order))  # fmt: skip


def test_nothing_is_unmasked_before_enough_have_signed_the_same_set() -> None:
    for bad in ("few", "forged", "another set", "stranger"):
        world, whole = masked_world()
        tell(world, "a", whole)
        if bad == "few":
            told = quorum(world, whole, CLIENTS[: world.p.quorum - 1])
        elif bad == "forged":
            told = quorum(world, whole, CLIENTS)
            told = replace(told, signatures=(*told.signatures[:-1], told.signatures[0]))
        elif bad == "another set":
            told = quorum(world, without(whole, "b"), ("a", "c", "d", "e"))
        else:
            told = quorum(world, whole, CLIENTS)
            told = replace(told, signers=(*told.signers[:-1], 9))
        answers = tell(world, "a", told)
        assert [type(m) for m in answers] == [Abort], bad
        assert "secrets" not in world.records["a"], bad


@pytest.mark.parametrize("bad", ["without itself", "too few", "no dealer", "another start", "another model"])
def test_a_survivor_set_that_is_not_right_is_not_signed(bad: str) -> None:
    world, whole = masked_world()
    told = {
        "without itself": without(whole, "a"),
        "too few": without(without(whole, "d"), "e"),
        "no dealer": replace(whole, dealers=whole.dealers[:-1]),
        "another start": replace(whole, starts=(*whole.starts[:-1], replace(whole.starts[0], boot=7))),
        "another model": replace(whole, model_hash=bytes(32)),
    }[bad]
    answers = tell(world, "a", told)
    assert [m.code for m in answers if isinstance(m, Abort)] == [Code.SET_DISAGREEMENT]
    assert not any(isinstance(m, Signed) for m in answers)


def test_a_reducer_that_tells_two_sets_gets_no_quorum_for_either() -> None:
    world = World(parameters())

    def lie(_sender: str, to: str, message: Any) -> Any:
        return without(message, "e") if isinstance(message, Survivors) and to in "ab" else message

    world.change = lie
    world.open(1)
    world.run()
    stopped(world)
    assert rules(world, of="reducer") == {"set-disagreement"}


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [bytes(32), b"\1" + bytes(31), "own"])
def test_reflected_and_low_order_keys_are_refused(bad: bytes | str) -> None:
    p = parameters()
    public = p.keys["a"].public if bad == "own" else bad
    keys = {**p.keys, "b": replace(p.keys["b"], public=public)}
    world = World(parameters())
    machine = ClientMachine(
        parameters(keys=keys), "a", key=IDENTITIES["a"], agreement=AgreementKey(AGREEMENTS["a"]), noise=world.noise["a"]
    )
    with pytest.raises(RemoteProtocolError, match="key"):
        machine._pair("b")


def test_fewer_than_three_clients_and_too_many_colluders_are_refused() -> None:
    with pytest.raises(StudyError):
        parameters(("a", "b"))
    with pytest.raises(StudyError, match="colluding"):
        parameters(colluding=4)
    with pytest.raises(StudyError, match="min_clients"):
        parameters(min_clients=2)


def test_a_packet_that_was_changed_is_refused_by_who_opens_it() -> None:
    world = World(parameters())

    def bend(_sender: str, to: str, message: Any) -> Any:
        if to == "b" and isinstance(message, Relay):
            return replace(message, packets=bytes([message.packets[0] ^ 1]) + message.packets[1:])
        return message

    world.change = bend
    world.open(1)
    world.run()
    stopped(world)
    assert "bad-packet" in rules(world, of="b")


# -- clients set back --------------------------------------------------------------------------------------------------


def test_a_client_set_back_within_a_round_gets_no_second_draw_released() -> None:
    world = World(parameters())
    before = dict(world.records["b"])
    world.change = lambda _sender, _to, m: None if isinstance(m, Survivors) else m
    world.open(1)
    world.run(until=0)
    world.records["b"] = before
    world.start("b", boot=1)  # its disk of before the round, its boot counter too
    opened_again = said(world, RoundOpen)[0]
    world.carry_out("b", world.machines["b"].receive("reducer", opened_again, world.now))
    world.run()
    assert len(world.noise["b"].drawn[1]) == 2
    stopped(world)
    assert "stale-copy" in rules(world, of="reducer")


def test_a_client_that_speaks_as_of_an_earlier_start_is_named_by_its_neighbours() -> None:
    world = World(parameters())
    world.start("b")
    world.start("b")
    world.open(1)
    world.run()
    world.start("b", boot=2)
    world.open(2)
    world.run()
    assert [r.round for r in world.results] == [1]
    assert "stale-copy" in rules(world, of="a")


def test_a_round_that_ended_is_not_taken_part_in_again() -> None:
    world = World(parameters())
    world.open(1)
    world.run()
    again = said(world, RoundOpen)[0]
    for kind in (again, said(world, Survivors)[0]):
        assert not [m for m in tell(world, "a", kind) if isinstance(m, (Dealing, Masked, Signed, Revealed))]


def test_messages_of_others_and_of_other_studies_are_refused() -> None:
    world = World(parameters())
    world.open(1)
    world.run()
    for message in (said(world, RoundOpen)[0], said(world, Survivors)[0], said(world, Relay)[0]):
        strange = world.machines["a"].receive("b", replace(message, round=2), 0.0)
        assert [s.message.code for s in strange] == [Code.WRONG_PARTY]
        other = world.machines["a"].receive("reducer", replace(message, study_hash=bytes(32)), 0.0)
        assert [s.message.code for s in other] == [Code.WRONG_STUDY]
    for message in (said(world, Dealing)[0], said(world, Masked)[0], said(world, Signed)[0]):
        foreign = world.machines["reducer"].receive("d", replace(message, round=2), 0.0)
        assert not any(isinstance(s.message, Relay) for s in foreign if isinstance(s, Send))


# -- prices ------------------------------------------------------------------------------------------------------------


class Spent(Noise):
    """A client whose own filter has nothing left from round 2 on."""

    def admit(self, round: int, model: bytes) -> bytes | None:
        if round > 1:
            raise PrivacyRefused("round 2 would cost more than is left", rule="price-within-reservation")
        return b"admitted"


def test_a_round_beyond_what_a_client_has_reserved_is_stopped_before_it_draws() -> None:
    world = World(parameters())
    world.noise["d"] = Spent(7, world.p.size)
    world.start("d")
    for round in (1, 2):
        world.open(round)
        world.run()
    assert [r.round for r in world.results] == [1]
    assert world.records["d"]["prices"] == b"admitted"
    assert 2 not in world.noise["d"].drawn
    assert "bad-model" in rules(world, of="d")
