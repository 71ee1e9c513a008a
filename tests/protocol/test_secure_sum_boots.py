"""Old copies of a server: which start is believed, by whom, and who is named when two of them meet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from secure_sum_examples import MODEL, SEED, SIZE, STUDY, SameBlind, ZeroNoise, keys, opening, parameters, shares

from tallystick.protocol.secure_sum import (
    Aborted,
    AggregatorMachine,
    MemoryBoots,
    MemoryShares,
    Persist,
    Send,
    ServerMachine,
    Witness,
)
from tallystick.protocol.secure_sum.boots import SeenBoots, dispute
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Agreement,
    Code,
    Inquiry,
    Partial,
    ReceivedList,
    Refused,
    Start,
    noise_commitment,
)

ONE, TWO = b"1" * 16, b"2" * 16
P = parameters()
KEY = P.server_keys[1]


def start(boot: int, value: bytes = ONE, noise: bytes = bytes(32)) -> Start:
    return Start(boot=boot, value=value, noise=noise)


def book(*met: tuple[int, bytes]) -> MemoryBoots:
    known = MemoryBoots()
    for boot, value in met:
        known.note(Witness(KEY, boot, value))
    return known


@pytest.mark.parametrize(
    ("said", "fine"),
    [
        (start(3), True),
        (start(3, TWO), False),  # the same start, happening twice
        (start(2), False),  # it went back
        (start(2, TWO), False),
        (start(4, TWO), True),  # it restarted
        (start(2**32 - 1), True),
    ],
)
def test_which_starts_are_believed(said: Start, fine: bool) -> None:
    for known in (book((2, TWO), (3, ONE)), book((3, ONE))):
        assert (SeenBoots(P, known).objection(1, said) is None) == fine
    assert SeenBoots(P, book()).objection(1, said) is None
    assert SeenBoots(P, book((3, ONE))).objection(0, said) is None  # of another server


def test_a_study_notes_a_start_once_and_a_new_one_again() -> None:
    seen = SeenBoots(P, book((3, ONE)))
    assert seen.note(1, start(3)) == [Witness(KEY, 3, ONE)]  # known, but not from this study
    assert seen.note(1, start(3, noise=b"n" * 32)) == []
    assert seen.note(1, start(4, TWO)) == [Witness(KEY, 4, TWO)]
    assert seen.objection(1, start(3)) is not None
    assert seen.objection(1, start(4, ONE)) is not None  # though nobody wrote it into the book


def test_a_restart_seen_in_another_study_is_not_held_against_a_round_that_is_open() -> None:
    """A server opened a round here at start 3, restarted, and speaks in another study at start 4."""
    shared = book((3, ONE))
    here = SeenBoots(P, shared)
    shared.note(Witness(KEY, 4, TWO))
    assert here.objection(1, start(3)) is None
    assert here.objection(1, start(4, ONE)) is not None  # but start 4 exists only once, wherever it was met
    assert SeenBoots(P, shared).objection(1, start(3)) is not None  # a study that begins now


def test_the_noise_commitment_is_of_this_draw_and_cannot_be_tested_without_its_blind() -> None:
    mine, other = bytes(32), b"\1" * 32
    noise = np.arange(SIZE, dtype="<i8").tobytes()
    known = noise_commitment(mine, STUDY, 1, ONE, noise)
    assert known == noise_commitment(mine, STUDY, 1, ONE, noise)
    others = [
        noise_commitment(other, STUDY, 1, ONE, noise),
        noise_commitment(mine, SEED, 1, ONE, noise),
        noise_commitment(mine, STUDY, 2, ONE, noise),
        noise_commitment(mine, STUDY, 1, TWO, noise),
        noise_commitment(mine, STUDY, 1, ONE, noise[:-1] + b"\1"),
    ]
    assert len({known, *others}) == 6
    assert len(known) == 32


def machine(name: str = "s0", known: MemoryBoots | None = None, **given) -> ServerMachine:
    made = ServerMachine(
        P,
        name,
        key=keys(2)[P.server_index[name]],
        noise=ZeroNoise(),
        blinds=SameBlind(),
        shares=MemoryShares(),
        boots=known,
        **given,
    )
    made.receive("aggregator", opening(P), 0.0)
    for client in P.clients:
        made.receive(client, shares(P, client, [1] * SIZE)[made.index], 1.0)
    return made


def listed(made: ServerMachine) -> ReceivedList:
    return made._now.lists[made.index]


def signed(message, server: int):
    return replace(message, signature=keys(2)[server].sign(replace(message, signature=b"").signed_part()))


def said(steps, kind) -> list:
    return [step.message for step in steps if isinstance(step, Send) and isinstance(step.message, kind)]


def failure(steps) -> tuple[str | None, str | None]:
    (error,) = [step.error for step in steps if isinstance(step, Aborted)]
    return error.rule, error.party


def test_a_server_refuses_a_peer_it_knows_at_a_later_start() -> None:
    old = machine("s1", boot=3, boot_value=ONE)
    for known in (book((4, TWO)), book((3, TWO))):
        out = machine("s0", known).receive("s1", listed(old), 2.0)
        assert failure(out) == ("stale-server", "s1")
        assert not said(out, (Agreement, Partial))
        assert {abort.code for abort in said(out, Abort)} == {Code.STALE_SERVER}


def test_what_was_met_is_kept_before_anything_is_signed_on_it() -> None:
    known = book((3, ONE))
    out = machine("s0", known).receive("s1", listed(machine("s1", boot=4, boot_value=TWO)), 2.0)
    kinds = [type(step) for step in out]
    assert kinds.index(Witness) < kinds.index(Persist) < kinds.index(Send)
    (agreement,) = said(out, Agreement)[:1]
    assert agreement.starts[1] == listed(machine("s1", boot=4, boot_value=TWO)).start


def test_a_round_opened_twice_is_seen_although_every_list_is_signed() -> None:
    one, two = machine("s1", boot=3, boot_value=ONE), machine("s1", boot=4, boot_value=TWO)
    watcher = machine("s0")
    watcher.receive("s1", listed(one), 2.0)
    assert failure(watcher.receive("s1", listed(two), 2.0)) == ("stale-server", "s1")
    again = watcher.receive("s1", listed(two), 2.0)  # the round is over: the copy is told what it is
    assert [refusal.code for refusal in said(again, Refused)] == [Code.STALE_SERVER]
    assert failure(two.receive("s0", said(again, Refused)[0], 3.0)) == ("stale-server", "s1")
    assert two.receive("s0", said(again, Refused)[0], 3.0) == []


def test_two_servers_that_were_told_of_different_starts_name_the_one_that_told() -> None:
    first, second = machine("s0"), machine("s1", boot=3)
    out = first.receive("s1", listed(second), 2.0)
    (mine,) = said(out, Agreement)[:1]
    other = replace(listed(first).start, value=TWO)
    theirs = signed(replace(mine, server=1, starts=(other, mine.starts[1])), 1)
    out = first.receive("s1", theirs, 3.0)
    assert failure(out) == ("stale-server", "s0")
    assert not said(out, Partial)
    code, party, cause = dispute(mine, theirs, P.servers)
    assert (code, party) == (Code.STALE_SERVER, "s0")
    assert "s0 and s1" in cause
    assert dispute(mine, replace(mine, server=1, clients=(0, 1)), P.servers)[0] == Code.SET_DISAGREEMENT


def test_a_partial_after_a_restart_is_of_the_start_that_opened_the_round() -> None:
    first, second = machine("s0", boot=1, boot_value=ONE), machine("s1")
    first.receive("s1", listed(second), 2.0)
    (agreement,) = said(second.receive("s0", listed(first), 2.0), Agreement)[:1]
    out = first.receive("s1", agreement, 3.0)
    records = {step.key: step.record for step in out if isinstance(step, Persist)}
    (partial,) = said(out, Partial)
    # whatever restarts later, with another boot and value, says the same bytes
    fresh = machine("s0", boot=1, boot_value=ONE)
    records = {"round": fresh._now.record.to_bytes(), **records}
    again, out = ServerMachine.restore(
        P,
        "s0",
        records,
        key=keys(2)[0],
        noise=ZeroNoise(),
        blinds=SameBlind(),
        shares=MemoryShares(),
        boot=9,
        boot_value=TWO,
        now=5.0,
    )
    assert said(out, Partial) == [partial]
    assert partial.start.boot == 1
    answer = again.receive("aggregator", Inquiry(study_hash=STUDY, round=1), 6.0)
    assert said(answer, Partial) == [partial]


# -- the aggregator --------------------------------------------------------------------------------------------------


def round_of(*machines: ServerMachine) -> list[tuple[str, Agreement | Partial]]:
    """What the aggregator hears of a round of two servers."""
    heard, inbox = [], [(m.name, Send(o.name, listed(m))) for m, o in zip(machines, machines[::-1])]
    while inbox:
        name, step = inbox.pop(0)
        if isinstance(step, Send) and step.to in P.server_index:
            target = machines[P.server_index[step.to]]
            inbox += [(target.name, more) for more in target.receive(name, step.message, 2.0)]
        elif isinstance(step, Send) and isinstance(step.message, (Agreement, Partial)):
            heard.append((name, step.message))
    return heard


def hear(aggregator: AggregatorMachine, heard: list) -> list:
    return [step for name, message in heard for step in aggregator.receive(name, message, 3.0)]


def waiting(known: MemoryBoots | None = None) -> AggregatorMachine:
    made = AggregatorMachine(P, boots=known)
    made.open_round(1, MODEL, 0.0)
    return made


def test_the_aggregator_notes_each_start_from_that_servers_own_word() -> None:
    heard = round_of(machine("s0", boot=5, boot_value=ONE), machine("s1", boot=7, boot_value=TWO))
    steps = hear(waiting(), heard)
    assert {step for step in steps if isinstance(step, Witness)} == {
        Witness(P.server_keys[0], 5, ONE),
        Witness(P.server_keys[1], 7, TWO),
    }
    kinds = [type(step) for step in steps]
    assert kinds.index(Persist) > kinds.index(Witness)
    lie = next(m for name, m in heard if isinstance(m, Agreement) and m.server == 0)
    lie = signed(replace(lie, starts=(lie.starts[0], start(10**6))), 0)
    steps = waiting().receive("s0", lie, 3.0)
    assert [step for step in steps if isinstance(step, Witness)] == [Witness(P.server_keys[0], 5, ONE)]


@pytest.mark.parametrize("known", [book((8, ONE)), book((7, ONE))])
def test_the_aggregator_refuses_an_old_copy(known: MemoryBoots) -> None:
    for kind in (Agreement, Partial):
        heard = round_of(machine("s0", boot=5), machine("s1", boot=7, boot_value=TWO))
        steps = hear(waiting(known), [(name, m) for name, m in heard if isinstance(m, kind)])
        assert failure(steps) == ("stale-server", "s1")


def test_a_partial_of_another_start_than_agreed_is_not_added() -> None:
    heard = round_of(machine("s0"), machine("s1", boot=7, boot_value=TWO))
    swapped = [
        (name, signed(replace(m, start=replace(m.start, noise=b"x" * 32)), 1))
        if isinstance(m, Partial) and name == "s1"
        else (name, m)
        for name, m in heard
    ]
    assert failure(hear(waiting(), swapped)) == ("stale-server", "s1")
    assert not any(isinstance(step, Aborted) for step in hear(waiting(), heard))
