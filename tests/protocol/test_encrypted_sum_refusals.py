"""What proxy, data user and owners refuse, by name: other keys, ciphertexts, studies and rounds; and the codec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.protocol.encrypted_sum_world import KEYS, MODEL, OWNERS, STUDY, World, decrypting, parameters, scheme

import tallystick.protocol.encrypted_sum
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.protocol.encrypted_sum import (
    DataUserMachine,
    OwnerMachine,
    ProxyMachine,
    decode,
    encode,
)
from tallystick.protocol.encrypted_sum.messages import Chunk, Code, KeyNotice, Message, Refused, RoundOpen, model_digest
from tallystick.protocol.instructions import Send
from tallystick.protocol.machine import transition_table

README = Path(tallystick.protocol.encrypted_sum.__file__).with_name("README.md")
MACHINES = {"owner": OwnerMachine, "proxy": ProxyMachine, "data user": DataUserMachine}


@pytest.mark.parametrize("name", MACHINES)
def test_the_readme_shows_the_very_tables(name: str) -> None:
    shown = README.read_text().split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0]
    assert shown == transition_table(MACHINES[name].TRANSITIONS)


def collecting() -> tuple[World, Chunk]:
    """A round in which the first chunk of an owner is on its way."""
    world = World(parameters())
    world.open(1)
    while not (chunks := [m for _, _, m in world.sent if isinstance(m, Chunk)]):
        sender, to, raw = world.queue.popleft()
        world.carry_out(to, world.machines[to].receive_bytes(sender, raw, world.now))
    return world, chunks[0]


def codes(steps: list) -> list[Code]:
    return [Code(step.message.code) for step in steps if isinstance(getattr(step, "message", None), Refused)]


def test_an_upload_of_something_else_is_refused_by_name() -> None:
    world, chunk = collecting()
    proxy, owner = world.machines["proxy"], OWNERS[chunk.client]
    high = np.frombuffer(chunk.payload, dtype="<u8").copy()
    high[-1] = 2**60  # above every prime
    wrong = {
        Code.WRONG_PUBLIC_KEY: replace(chunk, key_hash=bytes(32)),
        Code.CIPHERTEXT_RANGE: replace(chunk, payload=high.tobytes()),
        Code.WRONG_STUDY: replace(chunk, study_hash=bytes(32)),
        Code.TOO_EARLY: replace(chunk, round=2),
        Code.UNKNOWN_UPLOAD: replace(chunk, index=1),
        Code.WRONG_PARTY: replace(chunk, client=(chunk.client + 1) % 3),
    }
    for code, message in wrong.items():
        assert codes(proxy.receive(owner, message, 0.0)) == [code]
    short = replace(chunk, payload=chunk.payload[:-8])
    assert codes(proxy.receive(owner, short, 0.0)) == [Code.CIPHERTEXT_RANGE]
    world.run()
    world.open(2)
    world.run()
    assert codes(world.machines["proxy"].receive(owner, chunk, world.now)) == [Code.PAST_ROUND]


def test_a_truncated_upload_is_left_out() -> None:
    world = World(parameters())
    world.lose = lambda sender, message: sender == "south" and isinstance(message, Chunk) and message.index > 0
    world.open(1)
    world.run()
    (result,) = world.results
    assert result.participants == ("north", "west")
    assert world.uploads._uploads == {}


def test_a_round_under_another_key_is_objected_to_by_everybody() -> None:
    world = World(parameters())
    world.open(1)
    world.run()
    opened = next(m for _, _, m in world.sent if isinstance(m, RoundOpen))
    other = replace(opened, round=2, key_hash=bytes(32), model_hash=model_digest(STUDY, 2, MODEL))
    for name in OWNERS:
        steps = world.machines[name].receive("data-user", other, world.now)
        assert {step.message.code for step in steps if isinstance(step, Send)} == {Code.WRONG_PUBLIC_KEY}
    assert codes(world.machines["proxy"].receive("data-user", other, world.now)) == [Code.WRONG_PUBLIC_KEY]


@pytest.mark.parametrize("fault", ["signed by a stranger", "another key", "too small", "degenerate"])
def test_a_key_that_is_not_the_data_users_is_refused(fault: str) -> None:
    p = parameters()
    raw = decrypting().public.raw
    if fault == "too small":
        raw = raw[: len(raw) // 2]
    elif fault == "degenerate":
        raw = raw[: len(raw) // 2] + bytes(len(raw) // 2)
    unsigned = KeyNotice(study_hash=p.study_hash, round=0, key=raw)
    signer = "stranger" if fault == "signed by a stranger" else "data-user"
    notice = replace(unsigned, signature=KEYS[signer].sign(unsigned.signed_part()))
    owner = OwnerMachine(p, "north")
    with pytest.raises(RemoteProtocolError) as error:
        owner._read_key(notice, bytes(32) if fault == "another key" else None)
    rules = {"signed by a stranger": "bad-signature", "another key": "wrong-public-key", "too small": "key-too-small"}
    assert error.value.rule == rules.get(fault, "bad-public-key")
    assert error.value.party == "data-user" or fault == "another key"


def test_more_owners_than_planned_are_refused_before_anything_is_encrypted() -> None:
    with pytest.raises(StudyError, match="max_clients"):
        parameters(clients=tuple(f"c{i}" for i in range(11)))
    with pytest.raises(StudyError, match="alone"):
        parameters(min_clients=1)


def test_every_message_has_one_encoding_and_nothing_else_decodes() -> None:
    world = World(parameters())
    world.open(1)
    world.run()
    kinds: dict[type, Message] = {type(message): message for _, _, message in world.sent}
    assert len(kinds) >= 10
    for message in kinds.values():
        raw = encode(message)
        assert decode(raw) == message
        for broken in (raw[:-1], raw + b"\0", b"XXXX" + raw[4:], raw[:4] + b"\x09" + raw[5:]):
            with pytest.raises(RemoteProtocolError):
                decode(broken)
        with pytest.raises(RemoteProtocolError):
            decode(raw, limit=len(raw) - 1)


def test_an_owner_clamps_rather_than_stays_away() -> None:
    world = World(parameters())
    world.vector = lambda owner: np.full(world.p.size, 2**60, dtype=np.int64)  # type: ignore[method-assign]
    world.open(1)
    world.run()
    assert world.aborts[-1][1].rule == "out-of-range"  # by all of them together, after both noises


def test_paillier_goes_the_same_way() -> None:
    p = parameters("paillier", 150)
    world = World(p)
    world.open(1)
    world.run()
    assert (abs(world.results[0].total - sum(world.vector(o) for o in OWNERS)) <= 2**25).all()
    key = scheme("paillier", 150).public_key(decrypting("paillier", 150).public.raw)
    for bad in (bytes(768), b"\xff" * 768, bytes(700)):
        with pytest.raises(RemoteProtocolError) as error:
            key.check(bad, party="north")
        assert error.value.rule == "ciphertext-range"
    raw = bytearray(decrypting("paillier", 150).public.raw)
    raw[-1] ^= 1  # the proof
    with pytest.raises(RemoteProtocolError, match="proof"):
        scheme("paillier", 150)._public_key(bytes(raw), "data-user")
    with pytest.raises(RemoteProtocolError) as error:
        scheme("paillier", 150)._public_key(bytes(200) + bytes(raw[200:]), "data-user")
    assert error.value.rule == "key-too-small"
