"""What a lying reducer cannot get where clients mask with few neighbours; on a circle small enough to look at."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.protocol.masked_sum_world import IDENTITIES, MANY, World, parameters, said

from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto import masking
from tallystick.crypto.field import decode_signed, from_bytes
from tallystick.crypto.mask_bounds import GraphPlan
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.crypto.shamir import SHARE_BYTES, Share, rebuild
from tallystick.protocol.boots import Start
from tallystick.protocol.masked_sum import client, reducer_collecting
from tallystick.protocol.masked_sum.messages import (
    Dealing,
    Masked,
    Relay,
    Revealed,
    Survivors,
    dealers_digest,
    masked_part,
)

PLAN = GraphPlan(clients=16, colluding=0, dropping=4, degree=4, threshold=2, window=1,
                 secrecy_failure=Fraction(0), recovery_failure=Fraction(0))  # fmt: skip
VICTIM = "a"


def circle_world() -> World:
    return World(parameters(MANY, graph=MaskGraph(MANY, PLAN, bytes(32))))


def apart(world: World) -> tuple[int, ...]:
    """A set of dealers as large as it must be, and none of them a neighbour of the victim."""
    near = {world.p.client_index[name] for name in world.p.graph.neighbours(VICTIM)}
    return tuple(i for i in range(len(MANY)) if i not in near)


def set_apart(world: World, *, lie: Any = lambda message: message) -> None:
    """The victim is told that none of its neighbours has dealt, so that its sum has no mask but its own; everybody else
    that all have, the victim among them, and that its sum is one of theirs."""
    p, few = world.p, apart(world)

    def change(sender: str, to: str, message: Any) -> Any:
        if to == VICTIM and isinstance(message, Relay):
            return replace(message, dealers=few, packets=b"")
        if sender == VICTIM and isinstance(message, Masked):
            return lie(replace(message, dealers=dealers_digest(p.study_hash, 1, tuple(range(len(MANY))))))
        return None if to == VICTIM and isinstance(message, Survivors) else message

    world.change = change
    world.open(1)
    world.run()


def read(world: World) -> np.ndarray | None:
    """The victim's sum and noise as the reducer can make them out, or None."""
    p, shares = world.p, list[Share]()
    own = p.client_index[VICTIM]
    for revealed in said(world, Revealed):
        name = MANY[revealed.client]
        held = p.held_by(name, tuple(range(len(MANY))))
        if own in held:
            at = SHARE_BYTES * held.index(own)
            shares.append((p.point(VICTIM, name), revealed.shares[at : at + SHARE_BYTES]))
    try:
        seed = rebuild(shares, threshold=p.threshold)
    except RemoteProtocolError:
        return None
    vector = from_bytes(said(world, Masked, by=VICTIM)[0].vector, p.size).copy()
    masking.remove_self_mask(vector, seed, study_hash=p.study_hash, round=1, party=VICTIM)
    return decode_signed(vector)


def test_a_round_on_a_circle_ends_with_its_total() -> None:
    world = circle_world()
    world.absent = {"c", "k"}
    world.open(1)
    world.run()
    (result,) = world.results
    assert set(result.participants) == set(MANY) - world.absent
    assert (result.total == world.expected(result.participants, 1)).all()


@pytest.mark.parametrize("who", ["itself", "nobody", "a neighbour", "another round", "before it was set back"])
def test_a_client_that_was_told_other_dealers_than_its_neighbours_is_not_unmasked(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``itself``: with what it has signed, for the dealers that it was told of. The reducer takes everything."""
    _trusting(monkeypatch)
    world = circle_world()

    def forged(message: Masked) -> Masked:
        start = said(world, Dealing, by=VICTIM)[0].start
        signatures = {
            "nobody": bytes(64),
            "another round": _signed(VICTIM, world, start, round=2),
            "a neighbour": _signed("b", world, start),
            "before it was set back": _signed(VICTIM, world, replace(start, noise=bytes(32))),
        }
        return replace(message, signature=signatures.get(who, message.signature))

    set_apart(world, lie=forged)
    assert read(world) is None
    assert not said(world, Revealed)
    assert {error.rule for name, error in world.aborts if name in MANY} >= {"set-disagreement"}


def test_without_that_check_its_sum_would_have_the_noise_of_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug."""
    _trusting(monkeypatch)
    world = circle_world()
    monkeypatch.setattr(client.ClientMachine, "_masked_otherwise", lambda *_: None)
    set_apart(world)
    found = read(world)
    assert found is not None
    assert (found == world.expected((VICTIM,), 1)).all()


def _signed(name: str, world: World, start: Start, *, round: int = 1) -> bytes:
    dealers = dealers_digest(world.p.study_hash, round, tuple(range(len(MANY))))
    return IDENTITIES[name].sign(masked_part(dealers, MANY.index(name), start))


def _trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reducer that takes masked sums whatever is signed."""
    taken = reducer_collecting.CollectingReducer._on_masked

    def take(self: Any, sender: str, message: Masked, now: float) -> Any:
        known, believing = self.parameters, replace(self.parameters, identities=_Believed(self.parameters.identities))
        self.parameters = believing
        try:
            return taken(self, sender, message, now)
        finally:
            self.parameters = known

    monkeypatch.setattr(reducer_collecting.CollectingReducer, "_on_masked", take)


class _Believed(dict[str, Any]):
    """Identities under which every signature is one."""

    def __getitem__(self, name: str) -> Any:
        return self

    def verify(self, *_: bytes) -> None:
        """It is one."""
