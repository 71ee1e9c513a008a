"""One rule after the other, a single machine at a time. The faults are those of docs/faults.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from secure_sum_examples import (
    MODEL,
    SIZE,
    STUDY,
    SameBlind,
    ZeroNoise,
    aggregator,
    keys,
    opening,
    parameters,
    server,
    shares,
)

from tallystick.core.errors import LocalProtocolError, RoundAborted, StudyError, TooFewParties, VerificationError
from tallystick.crypto.prg import AesStream
from tallystick.protocol.secure_sum import (
    Aborted,
    AggregatorMachine,
    Blame,
    ClientMachine,
    Compute,
    Drop,
    Finished,
    Forget,
    MemoryShares,
    Persist,
    Send,
    ServerMachine,
    Sync,
    decode,
    encode,
)
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Agreement,
    Code,
    Inquiry,
    Partial,
    ReceivedList,
    Refused,
    RoundClosed,
    Share,
    StillIn,
    model_digest,
)
from tallystick.protocol.secure_sum.open_round import NoiseSource

OTHER = np.array([9.0, 9.0]).tobytes()


def codes(steps) -> list[int]:
    return [step.message.code for step in steps if isinstance(step, Send) and isinstance(step.message, Refused)]


def sent(steps, kind) -> list:
    return [step.message for step in steps if isinstance(step, Send) and isinstance(step.message, kind)]


def errors(steps) -> list:
    return [step.error for step in steps if isinstance(step, Aborted)]


def opened(p, name="s0", noise=None) -> ServerMachine:
    machine = server(p, name, noise)
    machine.receive("aggregator", opening(p), 0.0)
    return machine


def give(machine: ServerMachine, p, client: str, values=(1,) * SIZE, now: float = 1.0, **how):
    return machine.receive(client, shares(p, client, values, **how)[machine.index], now)


# -- client ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model": np.array([np.nan, 0.0]).tobytes()}, "NaN"),
        ({"model": np.array([np.inf, 0.0]).tobytes()}, "NaN"),
        ({"model": np.array([1.0]).tobytes()}, "bytes"),
        ({"model": MODEL[:-1]}, "bytes"),
        ({"model_hash": bytes(32)}, "hash"),
    ],
)
def test_client_refuses_and_reports_a_bad_model(change: dict, word: str) -> None:
    p = parameters()
    bad = opening(p, **change)
    if "model" in change:
        bad = replace(bad, model_hash=model_digest(STUDY, 1, change["model"]))
    out = ClientMachine(p, "c0").receive("aggregator", bad, 0.0)
    assert not any(isinstance(step, Compute) for step in out)
    aborts = sent(out, Abort)
    assert len(aborts) == 3
    assert {abort.code for abort in aborts} == {Code.BAD_MODEL}
    assert word in aborts[0].cause
    assert errors(out)[0].party == "aggregator"


def test_client_computes_one_model_per_round() -> None:
    p = parameters()
    client = ClientMachine(p, "c0")
    assert client.receive("aggregator", opening(p), 0.0) == [Compute(1, MODEL)]
    assert client.receive("aggregator", opening(p), 0.0) == []  # a repetition
    out = client.receive("aggregator", opening(p, model=OTHER), 0.0)
    assert sent(out, Abort)[0].cause == "two different models were sent for one round"
    assert client.contribute(1, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), 0.0) == []
    assert client.receive("aggregator", opening(p, 3), 0.0) == [Compute(3, MODEL)]
    assert codes(client.receive("aggregator", opening(p, 2), 0.0)) == [Code.PAST_ROUND]
    assert codes(client.receive("s0", opening(p, 4), 0.0)) == [Code.WRONG_PARTY]


def test_client_persists_before_it_sends_and_repeats_itself_after_a_crash() -> None:
    p = parameters(servers=3)
    vector = np.arange(SIZE, dtype=np.uint64)
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    out = client.contribute(1, vector, AesStream(bytes(32)), 0.0)
    assert [(step.key, step.secret) for step in out[:2]] == [("seed", True), ("contribution", False)]
    kept = {step.key: step.record for step in out[:2]}
    first = [encode(message) for message in sent(out, Share)]
    again, ask = ClientMachine.restore(p, "c0", kept)
    assert ask == [Send("aggregator", Inquiry(study_hash=STUDY, round=1))]
    again, _ = ClientMachine.restore(p, "c0", kept)
    assert sent(again.receive("aggregator", opening(p, model=OTHER), 0.0), Abort)  # still one model per round
    assert again.receive("aggregator", opening(p), 5.0) == []  # and with the objection its part in it is over
    again, _ = ClientMachine.restore(p, "c0", kept)
    assert again.receive("aggregator", opening(p), 5.0) == [Compute(1, MODEL)]
    out = again.contribute(1, vector, AesStream(b"x" * 32), 5.0)
    assert [encode(message) for message in sent(out, Share)] == first
    other, _ = ClientMachine.restore(p, "c0", kept)
    other.receive("aggregator", opening(p), 5.0)
    out = other.contribute(1, vector + np.uint64(1), AesStream(b"x" * 32), 5.0)
    assert not sent(out, Share)  # another sum under the same round would be a second sharing
    assert errors(out)


def test_client_resends_until_every_server_accepted() -> None:
    p = parameters()
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    first = sent(client.contribute(1, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), 0.0), Share)
    yes = Accepted(study_hash=STUDY, round=1, digest=first[0].commitments[0])
    client.receive("s0", yes, 1.0)
    client.receive("s1", Refused(study_hash=STUDY, round=1, code=Code.TOO_EARLY, cause="later"), 1.0)
    assert sent(client.tick(5.0), Share) == [first[1]]
    client.receive("s1", replace(yes, digest=first[0].commitments[0]), 6.0)  # not what was sent to it
    assert client.state.value == "sending"
    client.receive("s1", replace(yes, digest=first[0].commitments[1]), 6.0)
    assert client.state.value == "waiting"
    assert client.tick(10.0) == []


def test_a_late_client_is_told_and_takes_part_in_the_next_round() -> None:
    p = parameters()
    machine = opened(p)
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    share = sent(client.contribute(1, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), 61.0), Share)[0]
    refusal = [
        step.message
        for step in machine.receive("c0", share, 61.0)
        if isinstance(step.message if isinstance(step, Send) else None, Refused)
    ]
    assert [message.code for message in refusal] == [Code.LATE]
    (error,) = errors(client.receive("s0", refusal[0], 62.0))
    assert isinstance(error, RoundAborted)
    assert (error.party, error.round, error.rule) == ("c0", 1, "late")
    assert client.receive("aggregator", opening(p, 2), 70.0) == [Compute(2, MODEL)]


def test_a_contribution_of_the_wrong_shape_never_leaves() -> None:
    p = parameters()
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    for wrong in (np.zeros(SIZE + 1, np.uint64), np.zeros(SIZE, np.int64)):
        with pytest.raises(LocalProtocolError):
            client.contribute(1, wrong, AesStream(bytes(32)), 0.0)


# -- server ----------------------------------------------------------------------------------------------------------


def test_server_keeps_a_share_before_it_says_so() -> None:
    p = parameters()
    out = give(opened(p), p, "c0")
    assert isinstance(out[0], Sync)
    assert isinstance(out[1].message, Accepted)


def test_noise_is_drawn_once_and_kept_before_anything_leaves() -> None:
    p, noise = parameters(), ZeroNoise()
    machine = server(p, noise=noise)
    out = machine.receive("aggregator", opening(p), 0.0)
    assert isinstance(out[0], Persist)
    assert noise.draws == 1
    machine.receive("aggregator", opening(p), 1.0)
    assert noise.draws == 1


def test_another_study_is_refused() -> None:
    p = parameters()
    machine = opened(p)
    share = replace(shares(p, "c0", [1] * SIZE)[0], study_hash=bytes(32))
    assert codes(machine.receive("c0", share, 1.0)) == [Code.WRONG_STUDY]
    assert codes(ClientMachine(p, "c0").receive("aggregator", opening(p, study_hash=bytes(32)), 0.0)) == [
        Code.WRONG_STUDY
    ]


def test_bytes_that_do_not_decode_are_refused() -> None:
    p = parameters()
    machine = opened(p)
    raw = encode(shares(p, "c0", [1] * SIZE)[0])
    assert codes(machine.receive_bytes("c0", raw[:-1], 1.0)) == [Code.MALFORMED]
    assert codes(machine.receive_bytes("c0", raw + b"x", 1.0)) == [Code.MALFORMED]
    assert codes(machine.receive_bytes("c0", raw[:4] + b"\x09\x00" + raw[6:], 1.0)) == [Code.OTHER_VERSION]
    assert codes(machine.receive_bytes("c0", bytes(p.message_limit + 1), 1.0)) == [Code.MALFORMED]
    assert machine._now.received == {}


def test_past_and_future_rounds() -> None:
    p = parameters()
    machine = opened(p)
    assert codes(give(machine, p, "c0", round=2)) == [Code.TOO_EARLY]
    give(machine, p, "c0")
    machine.receive("aggregator", opening(p, 2), 2.0)
    assert sent(give(machine, p, "c0"), Accepted)  # same bytes: as before
    assert codes(give(machine, p, "c0", label=b"other")) == [Code.EQUIVOCATION]
    assert codes(give(machine, p, "c1")) == [Code.PAST_ROUND]
    assert codes(give(machine, p, "c1")) == [Code.PAST_ROUND]
    assert codes(machine.receive("aggregator", opening(p, 1), 3.0)) == [Code.PAST_ROUND]


def test_same_bytes_again_are_fine_other_bytes_count_for_nothing() -> None:
    p = parameters()
    machine = opened(p)
    give(machine, p, "c0")
    assert sent(give(machine, p, "c0"), Accepted)
    out = give(machine, p, "c0", label=b"other")
    assert codes(out) == [Code.EQUIVOCATION]
    assert isinstance(out[0], Persist)
    assert codes(give(machine, p, "c0")) == [Code.EQUIVOCATION]  # the first one neither
    give(machine, p, "c1")
    out = give(machine, p, "c2")
    (received,) = sent(out, ReceivedList)
    assert received.clients == (1, 2)
    assert received.equivocators == (0,)
    assert machine.blamed == ("c0",)


def test_a_crash_does_not_forget_an_equivocator() -> None:
    p = parameters()
    records: dict[str, bytes] = {}
    store = MemoryShares()
    machine = ServerMachine(p, "s0", key=keys(2)[0], noise=ZeroNoise(), blinds=SameBlind(), shares=store)
    for steps in (
        machine.receive("aggregator", opening(p), 0.0),
        give(machine, p, "c0"),
        give(machine, p, "c0", label=b"other"),
    ):
        records.update({step.key: step.record for step in steps if isinstance(step, Persist)})
    machine, _ = ServerMachine.restore(
        p, "s0", records, key=keys(2)[0], noise=ZeroNoise(), blinds=SameBlind(), shares=store, boot=1, now=0.0
    )
    assert codes(give(machine, p, "c0")) == [Code.EQUIVOCATION]


def blamed(steps) -> list[tuple[str, int]]:
    return [(step.party, step.round) for step in steps if isinstance(step, Blame)]


@pytest.mark.parametrize("state", ["collecting", "listed", "agreed", "released", "over"])
def test_an_equivocator_is_named_however_late_it_is_caught(state: str) -> None:
    p = parameters()
    machine, other = opened(p), opened(p, "s1")
    for client in p.clients[: None if state != "collecting" else 1]:
        for each in (machine, other):
            give(each, p, client)
    if state != "collecting":
        assert machine.state.value == "listed"
    if state in ("agreed", "released", "over"):
        machine.receive("s1", other._now.lists[1], 2.0)
    if state in ("released", "over"):
        (agreement, *_) = sent(other.receive("s0", machine._now.lists[0], 2.0), Agreement)
        machine.receive("s1", agreement, 2.0)
    if state == "over":
        machine.receive("aggregator", opening(p, 2), 3.0)
    else:
        assert machine.state.value == state
    before = (machine._now.lists.get(0), machine._now.agreements.get(0), machine._now.partial)
    out = give(machine, p, "c0", label=b"other")
    assert codes(out) == [Code.EQUIVOCATION]
    assert blamed(out) == [("c0", 1)]
    assert (machine._now.lists.get(0), machine._now.agreements.get(0), machine._now.partial) == before
    if state in ("listed", "agreed"):  # the set is as it was signed, and the sum can still be made
        assert sorted(machine._shares.clients(1)) == [0, 1, 2]
    again = give(machine, p, "c0", label=b"other")
    assert codes(again) == [Code.EQUIVOCATION]
    if state != "over":
        assert machine.blamed == ("c0",)
    if state in ("listed", "agreed", "released"):
        assert blamed(again) == []  # once is enough
        assert sent(give(machine, p, "c0"), Accepted)  # the one that counts
        (kept,) = [step for step in out if isinstance(step, Persist)]
        assert kept.key == "equivocators"


def test_different_sharings_at_different_servers_are_named_when_the_lists_meet() -> None:
    p = parameters(clients=4)
    machine, other = opened(p), opened(p, "s1")
    for client in p.clients:
        give(machine, p, client)
        give(other, p, client, label=b"other" if client == "c2" else b"")
    out = machine.receive("s1", other._now.lists[1], 2.0)
    assert blamed(out) == [("c2", 1)]
    assert sent(out, Agreement)[0].clients == (0, 1, 3)


def test_nobody_waits_for_a_client_that_says_it_is_absent() -> None:
    p = parameters()
    client = ClientMachine(p, "c2")
    client.receive("aggregator", opening(p), 0.0)
    out = client.withdraw(1)
    assert [step.to for step in out if isinstance(step, Send)] == list(p.servers)
    (absent, _) = sent(out, Refused)
    machine = opened(p)
    give(machine, p, "c0")
    assert machine.receive("c2", absent, 1.0) == []
    assert machine.receive("c1", replace(absent, round=2), 1.0) == []  # of another round
    assert machine.receive("c1", replace(absent, code=Code.LATE), 1.0) == []
    assert machine.receive("c0", absent, 1.0) == []  # its share is here and counts
    assert machine.receive("s1", absent, 1.0) == []
    assert machine.state.value == "collecting"
    (received,) = sent(give(machine, p, "c1"), ReceivedList)
    assert received.clients == (0, 1)
    assert received.equivocators == ()
    assert codes(give(machine, p, "c2")) == [Code.LATE]


def test_an_absence_may_be_told_before_the_round_has_come_here() -> None:
    p = parameters()
    machine = server(p)
    absent = Refused(study_hash=STUDY, round=1, code=Code.ABSENT, cause="unavailable")
    assert machine.receive("c0", absent, 0.0) == []
    assert machine.receive("c1", replace(absent, round=2), 0.0) == []
    machine.receive("aggregator", opening(p), 0.0)
    give(machine, p, "c1")
    assert sent(give(machine, p, "c2"), ReceivedList)[0].clients == (1, 2)
    machine.receive("aggregator", opening(p, 2), 1.0)
    assert machine._now.absent == {1}
    out = machine.receive("c0", replace(absent, round=2), 1.0) + machine.receive("c2", replace(absent, round=2), 1.0)
    assert sent(out, ReceivedList)[0].clients == ()  # nobody is left to wait for
    assert machine._absences == {}


def test_an_absent_client_may_think_better_of_it() -> None:
    p = parameters()
    machine = opened(p)
    absent = Refused(study_hash=STUDY, round=1, code=Code.ABSENT, cause="unavailable")
    for client in ("c1", "c2"):
        machine.receive(client, absent, 1.0)
    assert sent(give(machine, p, "c2"), Accepted)
    give(machine, p, "c2", label=b"other")  # and an equivocator is counted once
    (received,) = sent(give(machine, p, "c0"), ReceivedList)
    assert (received.clients, received.equivocators) == ((0,), (2,))


def test_a_client_that_has_sent_a_share_does_not_call_itself_absent() -> None:
    p = parameters()
    client = ClientMachine(p, "c0")
    client.receive("aggregator", opening(p), 0.0)
    client.contribute(1, np.zeros(SIZE, np.uint64), AesStream(bytes(32)), 0.0)
    assert not sent(client.withdraw(1), Refused)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"client": 1}, Code.WRONG_PARTY),
        ({"server": 1}, Code.WRONG_SHAPE),
        ({"size": SIZE + 1}, Code.WRONG_SHAPE),
        ({"commitments": (bytes(32),) * 3}, Code.WRONG_SHAPE),
        ({"proof": b"p"}, Code.WRONG_SHAPE),
        ({"blind": bytes(32)}, Code.BAD_COMMITMENT),
        ({"payload": bytes(32)}, Code.BAD_COMMITMENT),
        ({"model_hash": bytes(32)}, Code.BAD_COMMITMENT),
        ({"kind": 3}, Code.WRONG_SHAPE),
    ],
)
def test_a_share_that_is_not_for_here_is_refused(change: dict, code: Code) -> None:
    p = parameters()
    machine = opened(p)
    share = replace(shares(p, "c0", [1] * SIZE)[0], **change)
    assert codes(machine.receive("c0", share, 1.0)) == [code]
    assert machine._now.received == {}


def test_a_share_on_another_model_ends_the_round() -> None:
    p = parameters()
    machine = opened(p)
    give(machine, p, "c0")
    out = give(machine, p, "c1", model=OTHER)
    assert [abort.code for abort in sent(out, Abort)] == [Code.TWO_MODELS] * 2
    assert errors(out)[0].party == "c1"
    assert codes(give(machine, p, "c2")) == [Code.LATE]


def test_two_models_for_one_round_end_it_and_released_rounds_stay_released() -> None:
    p = parameters()
    out = opened(p).receive("aggregator", opening(p, model=OTHER), 1.0)
    assert {abort.code for abort in sent(out, Abort)} == {Code.TWO_MODELS}
    machines, _ = whole_round(p)
    assert codes(machines[0].receive("aggregator", opening(p, model=OTHER), 1.0)) == [Code.TWO_MODELS]


def whole_round(p, values=None):
    """Two servers by hand, up to their partials."""
    machines = [opened(p, name) for name in p.servers]
    inbox = []
    for i, client in enumerate(p.clients):
        for machine in machines:
            given = values[i] if values else [i + 1] * SIZE
            inbox += [(machine.name, step) for step in give(machine, p, client, given)]
    said = []
    while inbox:
        name, step = inbox.pop(0)
        if isinstance(step, Send):
            if step.to == "aggregator":
                said.append((name, step.message))
            elif step.to in p.servers:
                target = machines[p.server_index[step.to]]
                inbox += [(target.name, more) for more in target.receive(name, step.message, 2.0)]
    return machines, said


def test_one_release_per_round_and_the_same_bytes_for_whoever_asks() -> None:
    p = parameters()
    machines, said = whole_round(p)
    partials = [(name, message) for name, message in said if isinstance(message, Partial)]
    assert [name for name, _ in partials] == ["s0", "s1"] or [name for name, _ in partials] == ["s1", "s0"]
    for name, message in partials:
        machine = machines[p.server_index[name]]
        again = machine.receive("aggregator", Inquiry(study_hash=STUDY, round=1), 3.0)
        assert sent(again, Partial) == [message]
        again = machine.receive("aggregator", opening(p), 3.0)
        assert sent(again, Partial) == [message]
        assert not sent(machine.receive("c0", Inquiry(study_hash=STUDY, round=1), 3.0), Partial)
    subset = replace(next(m for _, m in said if isinstance(m, Agreement)), clients=(0, 1))
    assert codes(machines[0].receive("aggregator", subset, 4.0)) == [Code.WRONG_PARTY]
    assert codes(machines[0].receive("s1", replace(subset, server=1), 4.0)) == [Code.BAD_SIGNATURE]
    assert len(machines[0]._shares) == 3  # until the driver carries out Drop


def test_servers_erase_noise_and_shares_after_the_partial_is_kept_and_before_it_leaves() -> None:
    p = parameters()
    machine, other = opened(p), opened(p, "s1")
    out = []
    for client in p.clients:
        give(other, p, client)
        out = give(machine, p, client)
    theirs = other._now.lists[1]
    out += machine.receive("s1", theirs, 2.0)
    agreed = other.receive("s0", machine._now.lists[0], 2.0)
    out = machine.receive("s1", sent(agreed, Agreement)[0], 2.0)
    assert [type(step) for step in out] == [Persist, Forget, Drop, Send]
    assert (out[0].key, out[1].key) == ("partial", "noise")
    assert machine._now.noise is None
    assert machine._drawn is None


def test_too_few_clients_release_nothing() -> None:
    p = parameters()
    machines = [opened(p, name) for name in p.servers]
    for machine in machines:
        give(machine, p, "c0")
    lists = [sent(machine.tick(60.0), ReceivedList)[0] for machine in machines]
    out = machines[0].receive("s1", lists[1], 60.0)
    (error,) = errors(out)
    assert isinstance(error, TooFewParties)
    assert error.rule == "too-few-clients"
    assert not sent(out, Partial)
    assert not sent(out, Agreement)


def test_only_clients_with_one_digest_everywhere_are_in_the_set() -> None:
    p = parameters(clients=5)
    machines = [opened(p, name) for name in p.servers]
    for client in ("c0", "c1", "c2"):
        for machine in machines:
            give(machine, p, client)
    give(machines[0], p, "c3")  # died before it reached the other
    give(machines[0], p, "c4")
    give(machines[1], p, "c4", label=b"another sharing")
    machines[1].tick(60.0)
    (agreement, *_) = sent(machines[0].receive("s1", machines[1]._now.lists[1], 60.0), Agreement)
    assert agreement.clients == (0, 1, 2)
    assert machines[0].blamed == ("c4",)


def test_disagreeing_or_lying_servers_end_the_round() -> None:
    p = parameters()
    machine, other = opened(p), opened(p, "s1")
    for client in p.clients:
        give(machine, p, client)
        give(other, p, client)
    theirs = other._now.lists[1]
    machine.receive("s1", theirs, 2.0)
    key = keys(2)[1]
    lie = replace(machine._now.agreements[0], server=1, clients=(0, 1))
    lie = replace(lie, signature=key.sign(lie.signed_part()))
    (error,) = errors(machine.receive("s1", lie, 2.0))
    assert (error.rule, error.party) == ("set-disagreement", "s1")
    machine = opened(p)
    machine.receive("s1", theirs, 2.0)
    second = replace(theirs, equivocators=(0,), clients=(1, 2), digests=theirs.digests[1:])
    second = replace(second, signature=key.sign(second.signed_part()))
    (error,) = errors(machine.receive("s1", second, 2.0))
    assert (error.rule, error.party) == ("equivocation", "s1")


def test_a_missing_server_is_named_in_bounded_time() -> None:
    p = parameters()
    machine = opened(p)
    give(machine, p, "c0")
    give(machine, p, "c1")
    now, found = 0.0, []
    while not found and now < 1000:
        now += 1.0
        found = errors(machine.tick(now))
    assert now == 80.0
    assert (found[0].party, found[0].round, found[0].rule) == ("s1", 1, "missing-server")
    assert found[0].remedy


def test_server_resumes_from_every_persisted_step_with_the_same_bytes() -> None:
    p = parameters()
    values = np.arange(1, SIZE + 1, dtype=np.int64)

    class Fixed(NoiseSource):
        def __init__(self) -> None:
            self.draws = 0

        def draw(self, round: int) -> np.ndarray:
            self.draws += 1
            return values * self.draws

    def play(crash_after: int) -> tuple[bytes, int]:
        noise, store, records, steps = Fixed(), MemoryShares(), {}, 0
        given = {"key": keys(2)[0], "noise": noise, "blinds": SameBlind(), "shares": store}
        machine, other = ServerMachine(p, "s0", **given), opened(p, "s1")
        inputs = [("aggregator", opening(p))]
        for client in p.clients:
            give(other, p, client)
            inputs.append((client, shares(p, client, [1] * SIZE)[0]))
        inputs.append(("s1", other._now.lists[1]))
        partial = b""
        while inputs:
            sender, message = inputs.pop(0)
            out = machine.receive(sender, message, 1.0)
            while out:
                step, *out = out
                match step:
                    case Persist(key=key, record=record):
                        records[key] = record
                    case Forget(key=key):
                        records.pop(key, None)
                    case Drop(round=round):
                        store.drop(round)
                    case Send(to="s1", message=said):
                        inputs += [
                            ("s1", more) for more in sent(other.receive("s0", said, 1.0), (ReceivedList, Agreement))
                        ]
                    case Send(to="aggregator", message=Partial() as said):
                        assert partial in (b"", encode(said))
                        partial = encode(said)
                steps += 1
                if steps == crash_after:
                    machine, out = ServerMachine.restore(p, "s0", records, boot=1, now=2.0, **given)
                    inputs.insert(0, (sender, message))  # whoever got no answer asks again
        return partial, noise.draws

    reference, _ = play(-1)
    for crash_after in range(1, 25):
        partial, draws = play(crash_after)
        if crash_after == 1:  # the noise was kept, the round not yet: it is opened with that noise, under the new start
            mine, theirs = decode(partial), decode(reference)
            assert (mine.vector, mine.start.boot) == (theirs.vector, 1)
        else:
            assert partial == reference, crash_after
        assert draws == 1, crash_after


def test_a_damaged_record_stops_the_party() -> None:
    p = parameters()
    with pytest.raises(VerificationError):
        ServerMachine.restore(
            p,
            "s0",
            {"round": b"SRNDxx"},
            key=keys(2)[0],
            noise=ZeroNoise(),
            blinds=SameBlind(),
            shares=MemoryShares(),
            boot=1,
            now=0.0,
        )
    with pytest.raises(VerificationError):
        ClientMachine.restore(p, "c0", {"contribution": b"?"})


def test_a_server_with_another_key_than_the_studys_does_not_start() -> None:
    with pytest.raises(LocalProtocolError):
        ServerMachine(parameters(), "s0", key=keys(2)[1], noise=ZeroNoise(), blinds=SameBlind(), shares=MemoryShares())


# -- aggregator ------------------------------------------------------------------------------------------------------


def finish(p, values=None, tamper=None):
    machine = aggregator(p)
    out = machine.open_round(1, MODEL, 0.0)
    assert isinstance(out[0], Persist)
    _, said = whole_round(p, values)
    out = []
    for name, message in said:
        out += machine.receive(name, tamper(message) if tamper else message, 3.0)
    return machine, out


def test_the_sum_is_exact_and_names_who_is_in_it() -> None:
    p = parameters()
    machine, out = finish(p)
    (done,) = [step for step in out if isinstance(step, Finished)]
    assert done.result.total.tolist() == [6] * SIZE
    assert done.result.participants == p.clients
    assert done.result.dropped == ()
    assert len(sent(out, RoundClosed)) == 5
    kinds = [type(step) for step in out]
    assert kinds.index(Persist) < kinds.index(Finished)
    _, said = whole_round(p)
    later = [step for name, message in said for step in machine.receive(name, message, 4.0)]
    assert not any(isinstance(step, Finished) for step in later)


def test_a_total_out_of_range_is_withheld() -> None:
    p = parameters()
    _, out = finish(p, [[10**7] * SIZE, [0] * SIZE, [0] * SIZE])
    assert not any(isinstance(step, Finished) for step in out)
    (error,) = errors(out)
    assert error.rule == "out-of-range"
    assert "10000000" not in str(error)


def test_a_forged_partial_is_refused() -> None:
    p = parameters()
    forge = lambda m: replace(m, vector=bytes(8 * SIZE)) if isinstance(m, Partial) else m  # noqa: E731
    _, out = finish(p, tamper=forge)
    assert codes(out) == [Code.BAD_SIGNATURE] * 2
    assert not any(isinstance(step, Finished) for step in out)


def test_two_different_partials_of_one_server_end_the_round() -> None:
    p = parameters()
    machine = aggregator(p)
    machine.open_round(1, MODEL, 0.0)
    _, said = whole_round(p)
    name, partial = next((name, m) for name, m in said if isinstance(m, Partial))
    machine.receive(name, partial, 1.0)
    twin = replace(partial, vector=bytes(8 * SIZE))
    twin = replace(twin, signature=keys(2)[p.server_index[name]].sign(twin.signed_part()))
    (error,) = errors(machine.receive(name, twin, 1.0))
    assert (error.rule, error.party) == ("equivocation", name)


def test_rounds_are_numbered_upwards_and_models_checked_before_they_leave() -> None:
    machine = aggregator(parameters())
    with pytest.raises(LocalProtocolError):
        machine.open_round(1, np.array([np.nan, 1.0]).tobytes(), 0.0)
    machine.open_round(2, MODEL, 0.0)
    with pytest.raises(LocalProtocolError):
        machine.open_round(3, MODEL, 0.0)
    machine.cancel("stopped")
    with pytest.raises(LocalProtocolError):
        machine.open_round(2, MODEL, 0.0)
    machine.open_round(3, MODEL, 0.0)


def test_the_aggregator_restarts_with_the_same_model_or_the_same_end() -> None:
    p = parameters()
    machine = aggregator(p)
    first = machine.open_round(1, MODEL, 0.0)
    records = {step.key: step.record for step in first if isinstance(step, Persist)}
    again, out = AggregatorMachine.restore(p, records, 9.0)
    assert [step for step in out if isinstance(step, Send)] == [step for step in first if isinstance(step, Send)]
    _, said = whole_round(p)
    out = [step for name, message in said for step in again.receive(name, message, 10.0)]
    records.update({step.key: step.record for step in out if isinstance(step, Persist)})
    (done,) = [step.result for step in out if isinstance(step, Finished)]
    ended, out = AggregatorMachine.restore(p, records, 20.0)
    (redone,) = [step.result for step in out if isinstance(step, Finished)]
    assert redone.total.tolist() == done.total.tolist()
    assert (redone.participants, redone.agreement) == (done.participants, done.agreement)
    with pytest.raises(LocalProtocolError):
        ended.open_round(1, MODEL, 21.0)


def test_an_aborted_round_stays_aborted_after_a_restart() -> None:
    p = parameters()
    machine = aggregator(p)
    out = machine.open_round(1, MODEL, 0.0) + machine.tick(1000.0)
    (error,) = errors(out)
    assert (error.rule, error.party) == ("missing-server", "s0")
    records = {step.key: step.record for step in out if isinstance(step, Persist)}
    again, out = AggregatorMachine.restore(p, records, 0.0)
    assert errors(out)[0].as_dict() == error.as_dict()
    _, said = whole_round(p)
    assert not any(isinstance(s, Finished) for name, m in said for s in again.receive(name, m, 1.0))


# -- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"study_hash": b""},
        {"size": 0},
        {"servers": ("s0",), "server_keys": ()},
        {"clients": ("c0", "c0", "c1")},
        {"clients": ("c0", "../x", "c1")},
        {"clients": ("c0", "s0", "c1")},
        {"server_keys": ()},
        {"honest": 2},
        {"honest": 0},
        {"min_clients": 1},
        {"min_clients": 4},
        {"result_limit": 0},
        {"result_limit": 2**63},
        {"round_seconds": 0},
        {"last_round": 0},
    ],
)
def test_parameters_that_cannot_be_are_refused(change: dict) -> None:
    with pytest.raises(StudyError) as refusal:
        replace(parameters(), **change)
    assert refusal.value.remedy


def test_only_a_simulation_may_run_one_client_alone() -> None:
    p = parameters(clients=1, min_clients=1, simulation_of_one=True)
    assert p.min_clients == 1


def test_the_vector_takes_turns() -> None:
    p = parameters(servers=3)
    assert {p.vector_server(round, 0) for round in range(1, 4)} == {0, 1, 2}


def test_messages_that_a_party_does_not_expect_are_refused() -> None:
    p = parameters()
    question = Inquiry(study_hash=STUDY, round=1)
    assert codes(ClientMachine(p, "c0").receive("c1", question, 0.0)) == [Code.NOT_EXPECTED]
    held = StillIn(study_hash=STUDY, round=1, mark=bytes(16))
    assert codes(ClientMachine(p, "c0").receive("c1", held, 0.0)) == [Code.WRONG_PARTY]
    assert codes(aggregator(p).receive("stranger", question, 0.0)) == [Code.WRONG_PARTY]
    assert decode(encode(question)) == question
