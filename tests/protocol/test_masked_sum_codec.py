"""The masked sum's messages: one encoding each, strict; what is bound to what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.protocol.masked_sum_world import World, parameters

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.protocol.masked_sum import decode, encode
from tallystick.protocol.masked_sum.messages import (
    Dealing,
    Masked,
    Quorum,
    Relay,
    Revealed,
    RoundClosed,
    RoundOpen,
    Signed,
    Stored,
    Survivors,
    agreement_digest,
)
from tallystick.protocol.masked_sum.records import DealersRecord, SecretsRecord, SumRecord


@pytest.fixture(scope="module")
def spoken() -> dict[type, Any]:
    """One of each message that an undisturbed round has."""
    world = World(parameters())
    world.open(1)
    world.run()
    return {type(message): message for _, _, message in world.sent}


KINDS = (RoundOpen, Dealing, Relay, Masked, Stored, Survivors, Signed, Quorum, Revealed, RoundClosed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_comes_back_and_nothing_else_decodes(spoken: dict[type, Any], kind: type) -> None:
    raw = encode(spoken[kind])
    assert decode(raw) == spoken[kind]
    assert encode(decode(raw)) == raw
    for bad in (raw[:-1], raw + b"\0", b"TSUM" + raw[4:], raw[:6] + b"\xff" + raw[7:], raw[:20], b""):
        with pytest.raises(RemoteProtocolError):
            decode(bad)
    with pytest.raises(RemoteProtocolError, match="limit"):
        decode(raw, limit=len(raw) - 1)


def test_elements_are_below_the_modulus_and_lists_ascend(spoken: dict[type, Any]) -> None:
    masked, survivors = spoken[Masked], spoken[Survivors]
    with pytest.raises(RemoteProtocolError):
        decode(encode(replace(masked, vector=b"\xff" * len(masked.vector))))
    raw = encode(replace(survivors, clients=survivors.clients[::-1]))
    with pytest.raises(RemoteProtocolError, match="ascending"):
        decode(raw)


def test_an_agreement_binds_model_round_both_sets_and_all_starts(spoken: dict[type, Any]) -> None:
    told = spoken[Survivors]
    others = (
        replace(told, round=2),
        replace(told, model_hash=bytes(32)),
        replace(told, study_hash=bytes(32)),
        replace(told, dealers=told.dealers[:-1]),
        replace(told, clients=told.clients[:-1]),
        replace(told, starts=(replace(told.starts[0], boot=9), *told.starts[1:])),
        replace(told, dealers=told.dealers[:-2], clients=told.clients[:-1]),
    )
    assert len({message.digest() for message in (told, *others)}) == 1 + len(others)
    facts = (told.study_hash, told.round, told.model_hash, told.dealers, told.clients, told.starts)
    assert told.digest() == agreement_digest(*facts)


def test_records_come_back_and_damage_is_seen() -> None:
    records = (
        SecretsRecord(round=3, seed=bytes(range(32)), share=b"s" * 40),
        DealersRecord(round=3, dealings=(b"one", b"", b"three")),
        SumRecord(round=3, survivors=b"set", total=b"\0" * 16),
    )
    for record in records:
        raw = record.to_bytes()
        assert type(record).from_bytes(raw) == record
        for bad in (raw[:-1], raw + b"\0", b"XXXX" + raw[4:]):
            with pytest.raises(VerificationError):
                type(record).from_bytes(bad)
