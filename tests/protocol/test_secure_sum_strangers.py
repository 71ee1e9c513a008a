"""Anything from anyone: machines refuse, they never raise, and a hostile minority gets no second partial out."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sum_examples import (
    MODEL,
    SIZE,
    STUDY,
    SameBlind,
    ZeroNoise,
    every_message,
    keys,
    opening,
    parameters,
    shares,
)

from tallystick.crypto.prg import AesStream
from tallystick.protocol.secure_sum import (
    AggregatorMachine,
    ClientMachine,
    Compute,
    MemoryShares,
    Send,
    ServerMachine,
    decode,
    encode,
)
from tallystick.protocol.secure_sum.messages import Abort, Agreement, Partial, ReceivedList, Start

P = parameters()
SENDERS = (*P.servers, *P.clients, P.aggregator, "stranger")
BASE = [
    *every_message().values(),
    opening(P),
    opening(P, 2),
    opening(P, model=np.array([1.0, 1.0]).tobytes()),
    *shares(P, "c0", [1] * SIZE),
    *shares(P, "c0", [1] * SIZE, label=b"other"),
    *shares(P, "c1", [2] * SIZE, round=2),
]
START = (
    Start(boot=0, value=bytes(16), noise=bytes(32)),
    Start(boot=2**32 - 1, value=b"\xff" * 16, noise=b"\xff" * 32),
)
SWAPS = {
    "round": (0, 1, 2, 2**32 - 1),
    "client": (0, 1, 2, 99),
    "server": (0, 1, 7),
    "clients": ((), (0,), (0, 1), (5, 6)),
    "equivocators": ((), (0,), (77,)),
    "study_hash": (STUDY, bytes(32)),
    "start": START,
    "starts": ((), START, (*START, *START)),
    "honest": (0, 1, 5),
    "size": (SIZE, 1),
    "deadline_ms": (0, 1, 2**32 - 1),
    "code": (1, 5, 6, 12, 21),
}


@st.composite
def talk(draw: st.DrawFn) -> tuple[str, bytes, float]:
    message = draw(st.sampled_from(BASE))
    for name in [field.name for field in fields(message) if field.name in SWAPS]:
        if draw(st.booleans()):
            message = replace(message, **{name: draw(st.sampled_from(SWAPS[name]))})
    if isinstance(message, ReceivedList):
        message = replace(message, digests=(bytes(32),) * len(message.clients))
    if isinstance(message, (ReceivedList, Agreement, Partial)) and draw(st.booleans()):
        key = keys(2)[message.server % 2]
        message = replace(message, signature=key.sign(message.signed_part()))
    return draw(st.sampled_from(SENDERS)), encode(message), draw(st.sampled_from((0.0, 1.0, 61.0, 500.0)))


@settings(deadline=None, max_examples=250)
@given(st.lists(talk(), max_size=25))
def test_machines_survive_any_conversation(conversation: list[tuple[str, bytes, float]]) -> None:
    server = ServerMachine(P, "s0", key=keys(2)[0], noise=ZeroNoise(), blinds=SameBlind(), shares=MemoryShares())
    aggregator = AggregatorMachine(P)
    aggregator.open_round(1, MODEL, 0.0)
    client = ClientMachine(P, "c0")
    now = 0.0
    partials: dict[int, bytes] = {}
    for sender, raw, later in conversation:
        now = max(now, later)
        out = client.receive_bytes(sender, raw, now)
        if any(isinstance(step, Compute) for step in out):
            client.contribute(client.round, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), now)
        aggregator.receive_bytes(sender, raw, now)
        for step in server.receive_bytes(sender, raw, now) + server.tick(now):
            if isinstance(step, Send) and isinstance(step.message, Partial):
                said = encode(step.message)
                assert partials.setdefault(step.message.round, said) == said
        assert isinstance(server.blamed, tuple)
        client.tick(now)
        aggregator.tick(now)


def test_a_server_that_tells_two_peers_different_lists_gets_nothing() -> None:
    p = parameters(clients=4, servers=3)
    ring = keys(3)
    honest = [
        ServerMachine(p, f"s{j}", key=ring[j], noise=ZeroNoise(), blinds=SameBlind(), shares=MemoryShares())
        for j in (0, 1)
    ]
    for machine in honest:
        machine.receive("aggregator", opening(p), 0.0)
        for client in p.clients:
            machine.receive(client, shares(p, client, [1] * SIZE)[machine.index], 1.0)
    lists = [machine._now.lists[machine.index] for machine in honest]

    def lie(clients: tuple[int, ...]) -> ReceivedList:
        mine = replace(lists[0], server=2, clients=clients, digests=tuple(lists[0].digests[c] for c in clients))
        return replace(mine, signature=ring[2].sign(mine.signed_part()))

    out = {0: [], 1: []}
    for machine, told, other in zip(honest, ((0, 1, 2, 3), (0, 1, 2)), (1, 0)):
        out[machine.index] += machine.receive(f"s{other}", lists[other], 2.0)
        out[machine.index] += machine.receive("s2", lie(told), 2.0)
    agreements = [
        next(s.message for s in steps if isinstance(getattr(s, "message", None), Agreement)) for steps in out.values()
    ]
    for machine, agreement in zip(honest, agreements):  # the liar signs for each what that one wants to hear
        mine = replace(agreement, server=2)
        out[machine.index] += machine.receive("s2", replace(mine, signature=ring[2].sign(mine.signed_part())), 3.0)
    for machine, other in zip(honest, (1, 0)):
        out[machine.index] += machine.receive(f"s{other}", agreements[other], 3.0)
    for steps in out.values():
        said = [step.message for step in steps if isinstance(step, Send)]
        assert not any(isinstance(message, Partial) for message in said)
        assert any(isinstance(message, Abort) for message in said)
    assert decode(encode(lie((0, 1)))) == lie((0, 1))
