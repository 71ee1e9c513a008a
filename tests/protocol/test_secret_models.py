"""Models that tell of single people: who sums is told their hash, and the hash tells nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import encrypted_sum_world as encrypted
import masked_sum_world as masked
import numpy as np
import pytest
import secure_sum_examples as examples

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol import encrypted_sum, masked_sum, secure_sum
from tallystick.protocol.encrypted_sum import messages as encrypted_messages
from tallystick.protocol.instructions import Aborted, Compute, Send
from tallystick.protocol.masked_sum import messages as masked_messages
from tallystick.protocol.secure_sum import AggregatorMachine, ClientMachine
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Code,
    HashOpen,
    Inquiry,
    Refused,
    RoundOpen,
    SecretOpen,
    model_digest,
)

SECRET = examples.parameters(secret_models=True)
PUBLIC = examples.parameters()
BLIND = derive(examples.SEED, b"blind", b"\x01")
STREAM = AesStream(bytes(32), b"test")


def answers(out: list[Any], kind: type) -> list[Any]:
    return [step.message for step in out if isinstance(step, Send) and isinstance(step.message, kind)]


# -- servers ---------------------------------------------------------------------------------------------------------


def test_servers_are_told_the_hash_and_clients_the_model() -> None:
    out = AggregatorMachine(SECRET).open_round(1, examples.MODEL, 0.0, blind=BLIND)
    told = {step.to: step.message for step in out if isinstance(step, Send)}
    assert {type(told[name]) for name in SECRET.servers} == {HashOpen}
    assert {type(told[name]) for name in SECRET.clients} == {SecretOpen}
    for name in SECRET.servers:
        assert examples.MODEL not in secure_sum.encode(told[name])
        assert BLIND not in secure_sum.encode(told[name])
    assert len({message.model_hash for message in told.values()}) == 1
    (compute,) = ClientMachine(SECRET, "c0").receive("aggregator", told["c0"], 0.0)
    assert compute == Compute(1, examples.MODEL)


def test_whoever_asks_is_told_what_is_for_it() -> None:
    hub = AggregatorMachine(SECRET)
    hub.open_round(1, examples.MODEL, 0.0, blind=BLIND)
    question = Inquiry(study_hash=SECRET.study_hash, round=0)
    for name, kind in (("s0", HashOpen), ("s1", HashOpen), ("c1", SecretOpen)):
        (step,) = hub.receive(name, question, 1.0)
        assert type(step.message) is kind


def test_a_restarted_aggregator_says_the_same_of_the_round() -> None:
    out = AggregatorMachine(SECRET).open_round(1, examples.MODEL, 0.0, blind=BLIND)
    kept = {step.key: step.record for step in out if not isinstance(step, Send) and hasattr(step, "key")}
    again = AggregatorMachine.restore(SECRET, kept, 5.0)[1]

    def said(steps: list[Any]) -> set[tuple[str, bytes]]:
        return {(step.to, secure_sum.encode(step.message)) for step in steps if isinstance(step, Send)}

    assert said(out) <= said(again)


@pytest.mark.parametrize(
    ("p", "blind"), [(SECRET, b""), (PUBLIC, BLIND)], ids=["secret, without blind", "public, blinded"]
)
def test_an_aggregator_opens_no_round_as_another_study_would(p: Any, blind: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        AggregatorMachine(p).open_round(1, examples.MODEL, 0.0, blind=blind)


def test_a_server_takes_no_model_that_is_not_for_it() -> None:
    for p, said in ((SECRET, examples.opening(SECRET)), (PUBLIC, examples.secret_opening(PUBLIC).hashed())):
        machine = examples.server(p)
        (refused,) = answers(machine.receive("aggregator", said, 0.0), Refused)
        assert refused.code == Code.BAD_MODEL
        assert machine.round == 0
    (refused,) = answers(examples.server(SECRET).receive("aggregator", examples.secret_opening(SECRET), 0.0), Refused)
    assert refused.code == Code.NOT_EXPECTED


@pytest.mark.parametrize(
    "said",
    [
        examples.opening(SECRET),
        examples.secret_opening(SECRET, model_hash=bytes(32)),
        examples.secret_opening(SECRET, blind=bytes(32)),
        replace(examples.secret_opening(SECRET), model=np.array([0.5, -2.5]).tobytes()),
        examples.secret_opening(SECRET, model_hash=model_digest(SECRET.study_hash, 1, examples.MODEL)),
        examples.secret_opening(SECRET, model=examples.MODEL[:8]),
    ],
    ids=["not blinded", "another hash", "another blind", "another model", "a plain hash", "too short"],
)
def test_a_client_computes_on_nothing_that_does_not_have_the_hash(said: RoundOpen) -> None:
    out = ClientMachine(SECRET, "c0").receive("aggregator", said, 0.0)
    assert not [step for step in out if isinstance(step, Compute)]
    assert {abort.code for abort in answers(out, Abort)} == {Code.BAD_MODEL}
    assert [step for step in out if isinstance(step, Aborted)]
    assert {step.to for step in out if isinstance(step, Send)} == {*SECRET.servers, "aggregator"}


def test_a_hash_alone_is_nothing_to_a_client() -> None:
    out = ClientMachine(SECRET, "c0").receive("aggregator", examples.secret_opening(SECRET).hashed(), 0.0)
    assert [message.code for message in answers(out, Refused)] == [Code.NOT_EXPECTED]


def test_a_client_that_was_told_another_model_stops_the_round() -> None:
    """[Pasquini22]: an aggregator that shows one client another model than the servers' hash is of."""
    first, other = examples.secret_opening(SECRET), examples.secret_opening(SECRET, model=np.ones(2).tobytes())
    server, client = examples.server(SECRET), ClientMachine(SECRET, "c0")
    server.receive("aggregator", first.hashed(), 0.0)
    assert client.receive("aggregator", other, 0.0) == [Compute(1, other.model)]
    out = client.contribute(1, np.zeros(SECRET.size, dtype=np.uint64), STREAM, 0.0)
    share = next(step.message for step in out if isinstance(step, Send) and step.to == "s0")
    said = server.receive("c0", share, 0.0)
    assert {abort.code for abort in answers(said, Abort)} == {Code.TWO_MODELS}


def test_the_hash_of_a_model_hides_it_from_who_can_guess_it() -> None:
    """Two people's labels are four models: a plain hash would say which."""
    guesses = [np.array([a, b]).tobytes() for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    told = [examples.secret_opening(SECRET, model=model).hashed().model_hash for model in guesses]
    plain = {model_digest(SECRET.study_hash, 1, model) for model in guesses}
    assert not plain & set(told)
    assert model_digest(SECRET.study_hash, 1, guesses[0], bytes(32)) != told[0]  # another blind, another hash


# -- proxy -----------------------------------------------------------------------------------------------------------


class EncryptedWorld(encrypted.World):
    """Rounds are opened as studies do whose models tell of people."""

    def open(self, round: int) -> None:
        blind = bytes([round]) * 32
        self.carry_out(
            "data-user", self.machines["data-user"].open_round(round, encrypted.MODEL, self.now, blind=blind)
        )


def test_the_proxy_is_told_the_hash_and_owners_the_model() -> None:
    world = EncryptedWorld(encrypted.parameters("paillier", 20, secret_models=True))
    for round in (1, 2):
        world.open(round)
        world.run()
    assert [result.round for result in world.results] == [1, 2]
    to_proxy = [message for _, to, message in world.sent if to == "proxy"]
    assert [message for message in to_proxy if type(message) is encrypted_messages.HashOpen]
    raw = b"".join(encrypted_sum.encode(message) for message in to_proxy)
    assert encrypted.MODEL not in raw
    assert not any(bytes([round]) * 32 in raw for round in (1, 2))
    opened = [message for _, to, message in world.sent if to in encrypted.OWNERS and hasattr(message, "model")]
    assert {type(message) for message in opened} == {encrypted_messages.SecretOpen}
    for message in opened:
        assert encrypted_sum.decode(encrypted_sum.encode(message)) == message
    asked = world.machines["data-user"].receive(
        "proxy", encrypted_messages.Inquiry(study_hash=encrypted.STUDY, round=2), world.now
    )
    assert not [step for step in asked if hasattr(getattr(step, "message", None), "model")]


def test_a_proxy_or_owner_takes_no_other_opening() -> None:
    p = encrypted.parameters("paillier", 20, secret_models=True)
    world = EncryptedWorld(p)
    world.open(1)
    world.run()
    (secret,) = {m for _, to, m in world.sent if to == "north" and isinstance(m, encrypted_messages.SecretOpen)}
    plain = encrypted_messages.RoundOpen(
        study_hash=p.study_hash, round=2, deadline_ms=1000, key_hash=secret.key_hash, model=secret.model,
        model_hash=encrypted_messages.model_digest(p.study_hash, 2, secret.model),
    )  # fmt: skip
    refused = answers(world.machines["proxy"].receive("data-user", plain, 9.0), encrypted_messages.Refused)
    assert [message.code for message in refused] == [encrypted_messages.Code.BAD_MODEL]
    for wrong in (plain, replace(secret, round=2), replace(secret, blind=bytes(32))):
        out = world.machines["north"].receive("data-user", wrong, 9.0)
        assert not [step for step in out if isinstance(step, Compute)]
        assert {abort.code for abort in answers(out, encrypted_messages.Abort)} == {encrypted_messages.Code.BAD_MODEL}


def test_a_killed_data_user_asks_again_for_the_same_hash() -> None:
    """It dies after each of its first instructions in turn: no party ever sees two hashes for one round."""
    p = encrypted.parameters("paillier", 20, secret_models=True)
    for step in range(1, 9):
        world = EncryptedWorld(p, die=("data-user", step))
        world.open(1)
        if world.machines["data-user"].round < 1:  # it died before anybody had heard of the round
            world.open(1)
        world.run()
        assert [result.round for result in world.results][-1:] == [1]
        hashes = {m.model_hash for _, to, m in world.sent if isinstance(m, encrypted_messages.HashOpen)}
        assert len(hashes) == 1
        assert not world.aborts


# -- masks -----------------------------------------------------------------------------------------------------------


class MaskedWorld(masked.World):
    def open(self, round: int) -> None:
        self.carry_out(
            "reducer", self.machines["reducer"].open_round(round, masked.MODEL, self.now, blind=b"\x07" * 32)
        )


def test_clients_behind_masks_sign_a_hash_that_hides_the_model() -> None:
    world = MaskedWorld(masked.parameters(secret_models=True))
    world.open(1)
    world.run()
    assert [result.round for result in world.results] == [1]
    (signed,) = {message.model_hash for _, _, message in world.sent if isinstance(message, masked_messages.Survivors)}
    assert signed == masked_messages.model_digest(masked.STUDY, 1, masked.MODEL, b"\x07" * 32)
    assert signed != masked_messages.model_digest(masked.STUDY, 1, masked.MODEL)
    said = [message for _, _, message in world.sent if isinstance(message, masked_messages.RoundOpen)]
    assert {type(message) for message in said} == {masked_messages.SecretOpen}
    assert masked_sum.decode(masked_sum.encode(said[0])) == said[0]
    out = world.machines["a"].receive(
        "reducer",
        masked_messages.RoundOpen(
            study_hash=masked.STUDY, round=2, deadline_ms=1000, model=masked.MODEL,
            model_hash=masked_messages.model_digest(masked.STUDY, 2, masked.MODEL),
        ),
        world.now,
    )  # fmt: skip
    assert {abort.code for abort in answers(out, masked_messages.Abort)} == {masked_messages.Code.BAD_MODEL}


@pytest.mark.parametrize("codec", [secure_sum, encrypted_sum, masked_sum], ids=lambda codec: codec.__name__)
def test_a_blind_has_its_length(codec: Any) -> None:
    module = {secure_sum: None, encrypted_sum: encrypted_messages, masked_sum: masked_messages}[codec]
    kind = SecretOpen if module is None else module.SecretOpen
    facts: dict[str, Any] = {"study_hash": bytes(32), "round": 1, "deadline_ms": 1, "model_hash": bytes(32)}
    key = {"key_hash": bytes(32)} if codec is encrypted_sum else {}
    with pytest.raises(LocalProtocolError):
        codec.encode(kind(**facts, **key, model=bytes(8), blind=b"short"))
    whole = codec.encode(kind(**facts, **key, model=bytes(8), blind=bytes(32)))
    with pytest.raises(RemoteProtocolError):
        codec.decode(whole[:-1])


def test_a_server_that_is_told_two_hashes_stops_the_round() -> None:
    server, said = examples.server(SECRET), examples.secret_opening(SECRET)
    server.receive("aggregator", said.hashed(), 0.0)
    other = examples.secret_opening(SECRET, blind=bytes(32), model_hash=bytes(32)).hashed()
    again = server.receive("aggregator", other, 1.0)
    assert {abort.code for abort in answers(again, Abort)} == {Code.TWO_MODELS}
