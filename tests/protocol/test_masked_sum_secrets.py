"""What a reducer may learn of a client's secrets in a round, and what that opens; each with a planted bug."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from tests.protocol.masked_sum_world import CLIENTS, World, masked_world, parameters, said, tell, without

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.redaction import Secret
from tallystick.crypto import masking, prg
from tallystick.crypto.field import add_into, decode_signed, from_bytes
from tallystick.crypto.mask_keys import PairSecret, RoundKey
from tallystick.crypto.shamir import SHARE_BYTES, rebuild
from tallystick.protocol.instructions import Send
from tallystick.protocol.masked_sum import client_masking
from tallystick.protocol.masked_sum.client import ClientMachine
from tallystick.protocol.masked_sum.messages import Dealing, Masked, Quorum, Revealed, Signed, Survivors


def looks_uniform(vector: np.ndarray) -> bool:
    """Chi-square of the top byte and of the lowest, at 1e-6."""
    limit = chi2.isf(5e-7, 255)
    for shift in (56, 0):
        counts = np.bincount(((vector >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        if float(((counts - vector.size / 256) ** 2).sum()) * 256 / vector.size > limit:
            return False
    return True


# -- both secrets of a client ------------------------------------------------------------------------------------------


class SignsAnything(ClientMachine):
    """Planted bug: it answers for whatever set it was told last."""

    def _on_survivors(self, sender: str, message: Survivors, now: float) -> list[Any]:
        self._survivors = message
        return [Send(sender, self._signature())]


def open_both_secrets(world: World, whole: Survivors, victim: str) -> np.ndarray | None:
    """What a reducer makes of a client's masked vector that survives and drops in one round; None if nothing."""
    p, index = world.p, CLIENTS.index(victim)
    dealing, masked = said(world, Dealing, by=victim)[0], said(world, Masked, by=victim)[0]
    gathered: dict[str, list[tuple[int, bytes]]] = {"seed": [], "key": []}
    others = tuple(name for name in CLIENTS if name != victim)
    for kind, told in (("seed", whole), ("key", without(whole, victim))):
        for name in others:
            tell(world, name, told)
        signatures = {m.client: m for n in others for m in said(world, Signed, by=n) if m.agreement == told.digest()}
        order = tuple(sorted(signatures))
        proof = Quorum(study_hash=p.study_hash, round=1, agreement=told.digest(), signers=order,
                       signatures=tuple(signatures[i].signature for i in order))  # fmt: skip
        for name in others:
            for answer in tell(world, name, proof):
                if isinstance(answer, Revealed):
                    at = p.held_by(name, told.dealers).index(index)
                    share = answer.shares[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]
                    gathered[kind].append((p.point(victim, name), share))
    try:
        seed, key = (rebuild(gathered[kind], threshold=p.threshold) for kind in ("seed", "key"))
    except RemoteProtocolError:
        return None
    keys = masking.unwrap_round_keys(dealing.wrapped, key, study_hash=p.study_hash, round=1, party=victim,
                                     neighbours=p.graph.neighbours(victim))  # fmt: skip
    return opened(masked, seed, list(keys.values()), world, victim)


def opened(masked: Masked, seed: Secret, keys: list[RoundKey], world: World, victim: str) -> np.ndarray:
    vector = from_bytes(masked.vector, world.p.size).copy()
    masking.remove_self_mask(vector, seed, study_hash=world.p.study_hash, round=masked.round, party=victim)
    for key in keys:
        key.remove(vector, victim)
    return decode_signed(vector)


def test_both_secrets_of_a_client_are_never_told_in_a_round() -> None:
    world, whole = masked_world()
    assert open_both_secrets(world, whole, "c") is None


def test_clients_that_sign_any_set_would_give_a_sum_away() -> None:
    world, whole = masked_world()
    for name in CLIENTS:
        world.machines[name].__class__ = SignsAnything
        world.machines[name]._handlers[Survivors] = world.machines[name]._on_survivors
    found = open_both_secrets(world, whole, "c")
    assert found is not None
    assert (found == world.vector("c") + world.noise["c"].drawn[1][0]).all()


# -- rounds open nothing of each other ---------------------------------------------------------------------------------


def everything_about(world: World, victim: str) -> tuple[Secret, list[RoundKey]]:
    """The victim survives round 1 and drops in round 2: its seed of round 1 and its round keys of round 2 are open."""
    p = world.p
    world.open(1)
    world.run()
    world.change = lambda sender, _to, m: None if sender == victim and isinstance(m, Masked) else m
    world.open(2)
    world.run()
    assert [r.dropped for r in world.results] == [(), (victim,)]
    index, shares = CLIENTS.index(victim), {1: [], 2: []}
    for round in (1, 2):
        dealers = said(world, Survivors, round=round)[0].dealers
        for message in said(world, Revealed, round=round):
            name = CLIENTS[message.client]
            at = p.held_by(name, dealers).index(index)
            shares[round].append((p.point(victim, name), message.shares[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]))
    seed = rebuild(list(dict(shares[1]).items()), threshold=p.threshold)
    key = rebuild(list(dict(shares[2]).items()), threshold=p.threshold)
    wrapped = said(world, Dealing, by=victim, round=2)[0].wrapped
    keys = masking.unwrap_round_keys(wrapped, key, study_hash=p.study_hash, round=2, party=victim,
                                     neighbours=p.graph.neighbours(victim))  # fmt: skip
    return seed, list(keys.values())


def round_one(world: World, victim: str, seed: Secret, keys: list[RoundKey]) -> np.ndarray:
    """Round 1's vector with what is known of it taken off; the keys of round 2 stand in for those of round 1."""
    as_if = [RoundKey(k.study_hash, 1, k.first, k.second, k.reveal()) for k in keys]
    return opened(said(world, Masked, by=victim)[0], seed, as_if, world, victim)


def test_to_survive_round_1_and_drop_in_round_2_opens_nothing_of_round_1() -> None:
    world = World(parameters(size=512))
    seed, keys = everything_about(world, "c")
    found = round_one(world, "c", seed, keys)
    assert (np.abs(found) > 2**50).mean() > 0.99  # sums and noise are below 2^25
    assert not (found == world.vector("c") + world.noise["c"].drawn[1][0]).any()


def test_a_round_key_that_is_used_again_would_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def reused(self: PairSecret, round: int) -> RoundKey:
        return RoundKey(self.study_hash, round, self.first, self.second, self._expand(b"always the same"))

    monkeypatch.setattr(PairSecret, "round_key", reused)
    monkeypatch.setattr(RoundKey, "_change", _without_round)
    world = World(parameters())
    seed, keys = everything_about(world, "c")
    found = round_one(world, "c", seed, keys)
    assert (found == world.vector("c") + world.noise["c"].drawn[1][0]).all()


def _without_round(self: RoundKey, acc: np.ndarray, *, negate: bool) -> None:
    (prg.subtract_expanded if negate else prg.add_expanded)(acc, self.reveal(), b"no round in it")


# -- transcripts -------------------------------------------------------------------------------------------------------


def test_masked_vectors_are_uniform_and_so_are_sums_of_less_than_all_of_them() -> None:
    world = World(parameters(size=4096))
    world.open(1)
    world.run()
    vectors = [from_bytes(m.vector, 4096) for m in said(world, Masked)]
    assert all(looks_uniform(v) for v in vectors)
    partial = np.array(vectors[0])
    for vector in vectors[1:4]:
        add_into(partial, vector)
    assert looks_uniform(partial)
    with pytest.MonkeyPatch.context() as patch:  # negative control
        patch.setattr(client_masking, "mask", lambda *_a, **_k: None)
        bare = World(parameters(size=4096))
        bare.open(1)
        bare.run()
    assert not any(looks_uniform(from_bytes(m.vector, 4096)) for m in said(bare, Masked))
