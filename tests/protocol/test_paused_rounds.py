"""A round that was held while its study was paused: same set, same bytes, or it is spent; never a second draw.

The study's machines in a pause, too: who goes on, who leaves, who is still missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from secure_sum_examples import SIZE, SameBlind, ZeroNoise, aggregator, keys, opening, parameters
from study_examples import HASH, PACKED, members, propose
from test_secure_sum_machines import errors, give, opened, sent
from test_study_machines import party, records, running

from tallystick.core.errors import RoundAborted
from tallystick.crypto.prg import AesStream
from tallystick.protocol.secure_sum import ClientMachine, Held, MemoryShares, Persist, Send, ServerMachine
from tallystick.protocol.secure_sum.messages import Abort, Agreement, Code, Confirmed, Partial, Refused, StillIn
from tallystick.protocol.secure_sum.open_round import ServerState
from tallystick.protocol.secure_sum.server_agreeing import AgreeingServer
from tallystick.protocol.study import AggregatorMachine, Close, Confirm, Ended, Erase, Paused, Started
from tallystick.protocol.study.gathering import AggregatorState
from tallystick.protocol.study.messages import (
    Failed,
    Result,
    StudyCode,
    StudyDeclined,
    StudyEnd,
    StudyGoesOn,
    StudyInquiry,
    StudyPaused,
    StudyRefused,
    StudyResume,
    Wish,
)
from tallystick.protocol.study.participant import ParticipantMachine
from tallystick.protocol.study.waiting import ParticipantState

P = parameters(holds=True)
MARK = SameBlind().bytes(16)


class Held1:
    """Server s0 in round 1, which has listed all clients and misses s1; restored as after a pause."""

    def __init__(self, clients: tuple[str, ...] = P.clients) -> None:
        self.noise, self.store, self.records = ZeroNoise(SIZE), MemoryShares(), {}
        self.machine = ServerMachine(P, "s0", **self.parts())
        self.keep(self.machine.receive("aggregator", opening(P), 0.0))
        for client in clients:
            self.keep(give(self.machine, P, client))
        self.other = opened(P, "s1")
        for client in P.clients:
            give(self.other, P, client)

    def parts(self) -> dict:
        return {"key": keys(2)[0], "noise": self.noise, "blinds": SameBlind(), "shares": self.store}

    def keep(self, steps: list) -> list:
        self.records |= {step.key: step.record for step in steps if isinstance(step, Persist)}
        return steps

    def resumed(self) -> list:
        self.machine, out = ServerMachine.restore(P, "s0", self.records, boot=0, now=5.0, held=1, **self.parts())
        return out


def confirmed(client: str, *, complete: int = 1, values=(1,) * SIZE, round: int = 1) -> Confirmed:
    """What a client says that has shared these values."""
    machine = ClientMachine(P, client)
    machine.receive("aggregator", opening(P), 0.0)
    held = Held1(clients=())
    give(held.machine, P, client, values)
    digest = held.machine._now.received[P.client_index[client]]
    return Confirmed(study_hash=P.study_hash, round=round, digest=digest, complete=complete, mark=MARK)


def speaks_too_early() -> bool:
    """Whether a resumed server says anything new in the round before all whose shares it holds have said yes."""
    held = Held1()
    out = held.resumed()
    for client in P.clients[:2]:
        out += held.machine.receive(client, confirmed(client), 6.0)
    out += held.machine.receive("s1", held.other._now.lists[1], 6.0)
    return bool(sent(out, (Agreement, Partial)))


def test_a_missed_server_is_named_and_nothing_is_given_up() -> None:
    held = Held1()
    assert held.machine.state is ServerState.LISTED
    out = held.machine.tick(1000.0)
    assert [
        (s.to, s.message.party, s.message.code) for s in out if isinstance(s, Send) and isinstance(s.message, Abort)
    ] == [("aggregator", "s1", Code.MISSING_SERVER)]
    assert errors(out) == []
    assert held.machine.state is ServerState.LISTED
    hub = aggregator(P)
    hub.open_round(1, opening(P).model, 0.0)
    (step,) = hub.receive("s0", sent(out, Abort)[0], 1000.0)
    assert isinstance(step, Held)
    assert (step.error.party, step.error.rule, step.error.round) == ("s1", "missing-server", 1)
    again, first = type(hub).restore(P, records(hub.tick(1001.0), []), 0.0)
    assert (again.round, first) == (0, [])  # nothing was kept of it: no round has ended


def test_a_missed_client_holds_the_round_before_the_list_is_signed() -> None:
    held = Held1(clients=("c0",))
    out = held.machine.tick(60.0)
    assert [s.message.code for s in out if isinstance(s, Send) and isinstance(s.message, Refused)] == [
        Code.TOO_FEW_CLIENTS
    ]
    assert held.machine.state is ServerState.COLLECTING
    for client in ("c1", "c2"):  # back again, days later
        out = give(held.machine, P, client, now=5e5)
    assert held.machine.state is ServerState.LISTED


def test_a_server_goes_on_when_every_client_in_the_round_has_said_yes() -> None:
    held = Held1()
    asked = held.resumed()
    assert {s.to for s in asked if isinstance(s, Send) and isinstance(s.message, StillIn)} >= set(P.clients)
    out = held.machine.receive("s1", held.other._now.lists[1], 6.0)
    for client in P.clients:
        assert sent(out, Agreement) == []
        out = held.machine.receive(client, confirmed(client), 6.0)
    assert len(sent(out, Agreement)) == 2
    assert held.noise.draws == 1


def test_the_rule_is_caught_when_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not speaks_too_early()
    monkeypatch.setattr(AgreeingServer, "_ask_again", lambda self, current, now: self._go_on(current, now))
    assert speaks_too_early()


class Counted(SameBlind):
    """Another blind at every start of a server, as a deployed one has."""

    starts = 0

    def __init__(self) -> None:
        Counted.starts += 1
        self._own = Counted.starts

    def bytes(self, count: int) -> bytes:
        return self._own.to_bytes(count, "little")


def an_old_word_counts(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether what clients said in one pause of a round takes them into the round after the next pause of it."""
    held = Held1()
    with monkeypatch.context() as patched:
        patched.setattr(Held1, "parts", lambda self: {**PARTS(self), "blinds": Counted()})
        first = {s.message.mark for s in held.resumed() if isinstance(s, Send) and isinstance(s.message, StillIn)}
        second = {s.message.mark for s in held.resumed() if isinstance(s, Send) and isinstance(s.message, StillIn)}
    assert len(first) == len(second) == 1
    assert first != second
    for mark in (*first, *second):
        held.machine.receive("s1", held.other._now.lists[1], 6.0)
        said = [held.machine.receive(client, replace(confirmed(client), mark=mark), 6.0) for client in P.clients]
        if any(sent(out, Agreement) for out in said):
            return mark in first
    raise AssertionError("it never went on")


PARTS = Held1.parts


def test_a_word_of_an_earlier_pause_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a day old, and the client may have taken its approval back since."""
    assert not an_old_word_counts(monkeypatch)
    monkeypatch.setattr(AgreeingServer, "_on_confirmed", _whatever_its_mark)
    assert an_old_word_counts(monkeypatch)  # planted: the mark is not looked at


_ON_CONFIRMED = AgreeingServer._on_confirmed


def _whatever_its_mark(self: AgreeingServer, sender: str, message: Confirmed, now: float) -> list:
    return _ON_CONFIRMED(self, sender, replace(message, mark=self._mark), now)


def lost_share(held: Held1) -> None:
    held.store.discard(1, 0)


def lost_noise(held: Held1) -> None:
    del held.records["noise"]


@pytest.mark.parametrize("lose", [lost_share, lost_noise])
def test_a_server_that_has_lost_something_of_the_round_spends_it(lose: Callable[[Held1], None]) -> None:
    held = Held1()
    lose(held)
    out = held.resumed()
    assert [(error.rule, error.party) for error in errors(out)] == [("absent", "s0")]
    assert held.machine.state is ServerState.ABORTED
    assert held.machine.receive("aggregator", opening(P), 6.0) != []  # the same opening: only how it ended is said
    assert held.noise.draws == 1
    held.machine.receive("aggregator", opening(P, round=2), 7.0)
    assert (held.machine.round, held.noise.draws) == (2, 2)


@pytest.mark.parametrize(
    "said",
    [
        confirmed("c0", values=(2,) * SIZE),
        Confirmed(study_hash=P.study_hash, round=1, digest=bytes(32), complete=0, mark=MARK),
    ],
    ids=["other bytes", "nothing shared"],
)
def test_a_client_that_has_not_shared_what_is_held_spends_the_round(said: Confirmed) -> None:
    held = Held1()
    held.resumed()
    assert [(e.rule, e.party) for e in errors(held.machine.receive("c0", said, 6.0))] == [("absent", "c0")]


def test_silence_spends_the_round_in_bounded_time_and_strangers_change_nothing() -> None:
    held = Held1()
    held.resumed()
    for client in P.clients[1:]:
        held.machine.receive(client, confirmed(client), 6.0)
    assert held.machine.receive("stranger", confirmed("c0"), 6.0) == []
    assert held.machine.receive("c0", confirmed("c0", round=2), 6.0) == []
    assert errors(held.machine.tick(24.9)) == []
    assert [(e.rule, e.party) for e in errors(held.machine.tick(25.0))] == [("absent", "c0")]


def test_a_share_that_a_server_has_lost_is_noticed_by_its_client() -> None:
    held = Held1(clients=("c0", "c1"))
    held.resumed()
    assert errors(held.machine.receive("c2", confirmed("c2", complete=0), 6.0)) == []  # it will be sent again
    assert [e.rule for e in errors(held.machine.receive("c2", confirmed("c2"), 6.0))] == ["absent"]


def test_what_a_client_says_of_its_share() -> None:
    machine = ClientMachine(P, "c0")
    machine.receive("aggregator", opening(P), 0.0)
    question = StillIn(study_hash=P.study_hash, round=1, mark=b"m" * 16)
    (nothing,) = sent(machine.receive("s0", question, 1.0), Confirmed)
    assert (nothing.digest, nothing.complete, nothing.mark) == (bytes(32), 0, question.mark)
    out = machine.contribute(1, np.ones(SIZE, dtype=np.uint64), AesStream(bytes(32)), 1.0)
    assert machine.tick(1e6) != []  # it goes on sending: it has not given the round up
    (half,) = sent(machine.receive("s0", question, 1.0), Confirmed)
    restored, _ = ClientMachine.restore(P, "c0", records(out))
    (same,) = sent(restored.receive("s0", question, 1.0), Confirmed)
    assert (half.complete, same) == (0, half)
    restored, _ = ClientMachine.restore(P, "c0", {k: v for k, v in records(out).items() if k != "seed"})
    (whole,) = sent(restored.receive("s0", question, 1.0), Confirmed)
    assert (whole.complete, whole.digest) == (1, half.digest)


# -- the study ------------------------------------------------------------------------------------------------------


def lost() -> RoundAborted:
    return RoundAborted("s1 is gone", party="s1", round=3, rule="missing-server", remedy="Start it.")


def paused() -> tuple[AggregatorMachine, list]:
    machine, out = running()
    return machine, out + machine.pause(lost())


WISH = Wish(study_hash=HASH, request=bytes(16), close=0)


def goes_on(pause: int = 1) -> StudyGoesOn:
    return StudyGoesOn(study_hash=HASH, attempt=1, pause=pause)


def test_a_pause_is_told_to_all_and_survives_a_restart() -> None:
    machine, out = paused()
    told = {s.to for s in out if isinstance(s, Send) and isinstance(s.message, StudyPaused)}
    assert told == set(machine.roster.keys)
    (failed,) = sent(out[-1:], Failed)
    assert (failed.code, failed.final, failed.rule) == (StudyCode.PAUSED, 1, "missing-server")
    back, first = AggregatorMachine.restore(members(), HASH, records(out), 9.0)
    assert (back.state, back.waits, back.pauses) == (AggregatorState.PAUSED, True, 1)
    assert {s.to for s in first} == told
    (said,) = sent(back.receive("ana", StudyInquiry(study_hash=HASH, request=b"r" * 16), 9.0), Failed)
    assert said.cause == failed.cause
    assert sent(back.receive("c0", StudyInquiry(study_hash=HASH), 9.0), StudyPaused)
    assert sent(back.receive("ana", propose(request=b"q" * 16), 9.0), Failed)  # to run it again is no way on


def test_it_goes_on_when_all_helpers_and_enough_clients_do() -> None:
    machine, out = paused()
    out += machine.receive("ana", WISH, 10.0)
    assert machine.state is AggregatorState.RESUMING
    assert len(sent(out, StudyResume)) == len(machine.roster.keys)
    for name in list(machine.roster.keys)[:-1]:
        assert machine.receive(name, goes_on(2), 11.0) == []  # of another pause
        assert machine.receive(name, goes_on(), 11.0) == []
    step = machine.receive("stranger", goes_on(), 11.0)
    assert step == []
    last = machine.tick(1000.0)  # the last client says nothing
    assert [s.roster for s in last if isinstance(s, Started)] == [machine.roster]
    back, _ = AggregatorMachine.restore(members(), HASH, records(out, last), 20.0)
    assert (back.state, back.pauses) == (AggregatorState.RUNNING, 1)
    silent = list(machine.roster.keys)[-1]
    assert sent(machine.receive(silent, StudyInquiry(study_hash=HASH), 21.0), StudyResume)  # it may come later


def test_a_helper_that_is_not_back_or_leaves_pauses_it_again() -> None:
    machine, _ = paused()
    machine.receive("ana", WISH, 10.0)
    out = machine.tick(1000.0)
    assert machine.state is AggregatorState.PAUSED
    assert sent(out, Failed)[0].rule == "missing-helper"
    assert machine.pauses == 2
    machine.receive("ana", WISH, 1001.0)
    left = StudyDeclined(study_hash=HASH, attempt=1, party="s0", code=StudyCode.UNAVAILABLE, cause="its state is lost")
    for name in machine.roster.keys:
        out = machine.receive(name, left if name == "s0" else goes_on(2), 1002.0)
    assert machine.state is AggregatorState.PAUSED
    assert "its state is lost" in sent(out, Failed)[0].cause


def test_closing() -> None:
    machine, _ = running()
    close = Wish(study_hash=HASH, request=bytes(16), close=1)
    assert sent(machine.receive("ana", close, 1.0), StudyRefused)  # while it runs
    machine, _ = paused()
    assert sent(machine.receive("c0", close, 1.0), StudyRefused)
    assert machine.receive("ana", close, 1.0) == [Close()]
    out = machine.finish(PACKED)
    assert sent(out, Result)[0].packed == PACKED
    assert {s.message.code for s in out if isinstance(s, Send) and isinstance(s.message, StudyEnd)} == {
        StudyCode.FINISHED
    }
    machine, _ = paused()
    assert sent(machine.fail(lost()), Failed)[0].final == 1


def test_a_party_keeps_everything_is_asked_again_and_may_leave() -> None:
    machine, out = party("c0")
    message = StudyPaused(study_hash=HASH, attempt=1, pause=1)
    assert machine.receive("s0", message, 1.0)[0].message.code == StudyCode.WRONG_PARTY
    out += (steps := machine.receive("hub", message, 1.0))
    assert [type(step) for step in steps[:2]] == [Paused, Persist]
    assert not [step for step in steps if isinstance(step, (Erase, Ended))]
    assert machine.receive("hub", message, 2.0) == []
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out), 5.0)
    assert back.state is ParticipantState.PAUSED
    assert not [step for step in first if isinstance(step, (Started, Erase))]
    assert not [s for s in back.tick(1e9) if isinstance(s, Erase)]  # an hour of silence is nothing in a pause
    resume = StudyResume(study_hash=HASH, attempt=1, pause=1)
    assert back.receive("hub", resume, 6.0) == [Confirm(1)]
    begun = back.go_on(6.0)
    assert [type(step) for step in begun[:3]] == [Persist, Started, Send]
    again, first = ParticipantMachine.restore(members(), "c0", HASH, records(out, begun), 7.0)
    assert again.state is ParticipantState.RUNNING
    assert [type(s.message) for s in again.receive("hub", resume, 8.0)] == [StudyGoesOn]
    left = machine.leave(StudyCode.NOT_APPROVED, lost())  # still paused: its steward has said no
    assert {Erase, Ended} <= {type(step) for step in left}
    assert sent(left, StudyDeclined)


def test_a_party_that_waits_too_long_or_was_away_or_has_lost_everything() -> None:
    machine, _ = party("c0")
    resume = StudyResume(study_hash=HASH, attempt=1, pause=3)
    steps = machine.receive("hub", resume, 1.0)  # it was down when the others were paused
    assert isinstance(steps[0], Paused)
    assert steps[-1] == Confirm(1)
    assert {Erase, Ended} <= {type(step) for step in machine.expire()}
    assert machine.expire() == []
    empty = ParticipantMachine(members(), "c0", HASH)
    (said,) = sent(empty.receive("hub", resume, 1.0), StudyDeclined)
    assert (said.code, said.attempt) == (StudyCode.UNAVAILABLE, 1)
