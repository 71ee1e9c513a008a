"""What a round leaves on the disks of its parties: no secret, and enough to repeat what was said."""

from __future__ import annotations

import numpy as np
import pytest
from secure_sum_examples import MODEL, SIZE, STUDY, SameBlind, ZeroNoise, keys, opening, parameters, server, shares

from tallystick.core.errors import VerificationError
from tallystick.crypto.prg import AesStream
from tallystick.protocol.secure_sum import (
    ClientMachine,
    Compute,
    Drop,
    Forget,
    MemoryShares,
    Persist,
    Send,
    ServerMachine,
    decode,
)
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Agreement,
    Code,
    Inquiry,
    Partial,
    Refused,
    RoundClosed,
    Share,
)
from tallystick.protocol.secure_sum.records import NoiseRecord

ABORT = Abort(study_hash=STUDY, round=1, code=Code.REPLACED, party="aggregator", cause="given up", remedy="none")


def sent(steps, kinds) -> list:
    return [step.message for step in steps if isinstance(step, Send) and isinstance(step.message, kinds)]


def full(p, name: str):
    """A server that has a share of every client, and what it has said so far."""
    machine = server(p, name)
    out = machine.receive("aggregator", opening(p), 0.0)
    for client in p.clients:
        out += machine.receive(client, shares(p, client, [1] * SIZE)[machine.index], 1.0)
    return machine, out


@pytest.mark.parametrize("how", ["accepted", "closed", "aborted", "refused", "withdrawn", "later", "given up"])
def test_client_erases_its_seed_when_nobody_can_ask_for_its_shares_again(how: str) -> None:
    """And what is left of the round on its disk is enough never to share a second time in it."""
    p = parameters()
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    out = client.contribute(1, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), 0.0)
    disk = {step.key: step.record for step in out if isinstance(step, Persist)}
    first, last = (Accepted(study_hash=STUDY, round=1, digest=digest) for digest in sent(out, Share)[0].commitments)
    assert client.receive("s0", first, 1.0) == []  # one server still lacks its share
    out = {
        "accepted": lambda: client.receive("s1", last, 1.0),
        "closed": lambda: client.receive(
            "aggregator", RoundClosed(study_hash=STUDY, round=1, agreement=bytes(32)), 1.0
        ),
        "aborted": lambda: client.receive("aggregator", ABORT, 1.0),
        "refused": lambda: client.receive(
            "s1", Refused(study_hash=STUDY, round=1, code=Code.LATE, cause="too late"), 1.0
        ),
        "withdrawn": lambda: client.withdraw(1),
        "later": lambda: client.receive("aggregator", opening(p, 2), 1.0),
        "given up": lambda: client.tick(1e6),
    }[how]()
    assert out[0] == Forget("seed")
    assert not any(isinstance(step, Forget) for step in client._end())  # once
    del disk["seed"]
    again, ask = ClientMachine.restore(p, "c0", disk)
    assert ask == [Send("aggregator", Inquiry(study_hash=STUDY, round=1))]
    assert again.receive("aggregator", opening(p), 2.0) == []  # not even with the same model
    assert again.receive("aggregator", opening(p, 2), 2.0) == [Compute(2, MODEL)]


def test_a_seed_without_its_round_is_erased_at_the_start() -> None:
    """Killed between the two records: nothing has left, so another seed does no harm."""
    p = parameters()
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    out = client.contribute(1, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), 0.0)
    again, ask = ClientMachine.restore(p, "c0", {"seed": out[0].record})
    assert ask[0] == Forget("seed")
    assert again.receive("aggregator", opening(p), 2.0) == [Compute(1, MODEL)]


def test_a_server_restarted_after_the_end_erases_what_a_crash_left_and_says_the_same() -> None:
    p = parameters()
    drawn = NoiseRecord(round=1, noise=np.arange(SIZE)).to_bytes()
    for end in ("partial", "aborted"):
        (machine, out), (other, _) = full(p, "s0"), full(p, "s1")
        out += machine.receive("s1", other._now.lists[1], 2.0)
        if end == "partial":
            agreed = other.receive("s0", machine._now.lists[0], 2.0)
            out += machine.receive("s1", sent(agreed, Agreement)[0], 2.0)
        else:
            out += machine.receive("aggregator", ABORT, 2.0)
        disk = {step.key: step.record for step in out if isinstance(step, Persist)}
        given = {"key": keys(2)[0], "noise": ZeroNoise(), "blinds": SameBlind(), "shares": MemoryShares()}
        del disk["noise"]
        for left in ({"noise": drawn}, {}):
            again, first = ServerMachine.restore(p, "s0", {**disk, **left}, boot=1, now=5.0, **given)
            assert first[:2] == [Forget("noise"), Drop(1)]
            asked = again.receive("aggregator", Inquiry(study_hash=STUDY, round=1), 6.0)
            assert sent(asked, (Partial, Abort)) == [decode(disk[end])]
        # a draw that was kept for the next round, which this server did not come to open, is not of this one
        later = {"noise": NoiseRecord(round=2, noise=np.arange(SIZE)).to_bytes()}
        again, first = ServerMachine.restore(p, "s0", {**disk, **later}, boot=1, now=5.0, **given)
        assert not any(isinstance(step, Forget) for step in first)
        out = again.receive("aggregator", opening(p, 2), 6.0)
        assert [step.key for step in out if isinstance(step, Persist)] == ["round"]
        assert again._now.noise.tolist() == list(range(SIZE))


def test_a_server_whose_noise_is_gone_in_mid_round_stops() -> None:
    """It may have been used: it is never drawn again."""
    p = parameters()
    disk = {
        step.key: step.record for step in server(p).receive("aggregator", opening(p), 0.0) if isinstance(step, Persist)
    }
    assert set(disk) == {"noise", "round"}
    given = {"key": keys(2)[0], "noise": ZeroNoise(), "blinds": SameBlind(), "shares": MemoryShares(), "boot": 1}
    ServerMachine.restore(p, "s0", disk, now=1.0, **given)
    del disk["noise"]
    with pytest.raises(VerificationError):
        ServerMachine.restore(p, "s0", disk, now=1.0, **given)
