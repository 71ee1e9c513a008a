"""The study machines, one step at a time: who is believed, who is left out, what is said again, what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from study_examples import (
    CONSORTIUM,
    HASH,
    PACKED,
    PROGRAM,
    REQUEST,
    STUDY,
    every_message,
    identity,
    members,
    opening,
    propose,
    ready,
    start,
    study_key,
    ticket,
)

import tallystick.protocol.study as room
from tallystick.core.errors import (
    LocalProtocolError,
    NotApproved,
    PrivacyRefused,
    RemoteProtocolError,
    RoundAborted,
    StudyError,
    TooFewParties,
    VerificationError,
)
from tallystick.protocol.machine import transition_table
from tallystick.protocol.study import (
    AggregatorMachine,
    AnalystMachine,
    Confirm,
    Delivered,
    Ended,
    Erase,
    ParticipantMachine,
    Persist,
    Review,
    RoundsDone,
    Send,
    Started,
    StudyCode,
    Wake,
    decode,
    encode,
    result_digest,
)
from tallystick.protocol.study.analyst import AnalystEvent, AnalystState
from tallystick.protocol.study.gathering import AggregatorEvent, AggregatorState
from tallystick.protocol.study.messages import (
    Failed,
    Progress,
    Result,
    StudyDeclined,
    StudyEnd,
    StudyInquiry,
    StudyRefused,
    StudyStart,
)
from tallystick.protocol.study.roster import make_roster
from tallystick.protocol.study.waiting import ParticipantEvent, ParticipantState
from tallystick.trust.servers.parts import sum_parameters

README = Path(room.__file__).with_name("README.md")
MACHINES = {
    "analyst": (AnalystMachine, AnalystState, AnalystEvent),
    "aggregator": (AggregatorMachine, AggregatorState, AggregatorEvent),
    "participant": (ParticipantMachine, ParticipantState, ParticipantEvent),
}
ALL = ("s0", "s1", "c0", "c1", "c2", "c3")


@pytest.mark.parametrize("name", MACHINES)
def test_readme_shows_the_transitions(name: str) -> None:
    """TALLYSTICK_WRITE_TABLES=1 writes them anew."""
    text = README.read_text()
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = text.split(first)
    inside, after = rest.split(last)
    table = transition_table(MACHINES[name][0].TRANSITIONS)
    if os.environ.get("TALLYSTICK_WRITE_TABLES"):
        README.write_text(f"{before}{first}{table}\n{last}{after}")
        inside = table
    assert inside.strip() == table


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_and_event_is_used(name: str) -> None:
    machine, states, events = MACHINES[name]
    table = machine.TRANSITIONS
    assert {state for state, _ in table} | set(table.values()) == set(states)
    assert {event for _, event in table} == set(events)


def test_a_finished_study_has_no_way_on() -> None:
    assert not [event for (state, event) in AggregatorMachine.TRANSITIONS if state is AggregatorState.FINISHED]


# -- helpers -----------------------------------------------------------------------------------------------------------


def sent(out: list, kind: type) -> list[tuple[str, object]]:
    return [(step.to, step.message) for step in out if isinstance(step, Send) and isinstance(step.message, kind)]


def records(*outs: list) -> dict[str, bytes]:
    return {step.key: step.record for out in outs for step in out if isinstance(step, Persist)}


def only(out: list, kind: type):
    (found,) = [step for step in out if isinstance(step, kind)]
    return found


def gathering(**changes) -> tuple[AggregatorMachine, list]:
    hub = AggregatorMachine(members(), HASH)
    out = hub.receive("ana", propose(), 0.0)
    out += hub.accept(**{"min_clients": 2, "ready_seconds": 60.0, "now": 0.0} | changes)
    return hub, out


def running() -> tuple[AggregatorMachine, list]:
    hub, out = gathering()
    for name in ALL:
        out += hub.receive(name, ready(name), 1.0)
    assert hub.state is AggregatorState.RUNNING
    return hub, out


def party(name: str = "c0", upto: str = "running") -> tuple[ParticipantMachine, list]:
    machine = ParticipantMachine(members(), name, HASH)
    out = machine.receive("hub", opening(), 0.0)
    if upto in ("ready", "running"):
        out += machine.approve(study_key(name), attempt=1, min_clients=2)
    if upto == "running":
        out += machine.receive("hub", start(*ALL), 1.0)
        assert machine.state is ParticipantState.READY  # until it has looked once more
        out += machine.begin(attempt=1, now=1.0)
        assert machine.state is ParticipantState.RUNNING
    return machine, out


# -- the aggregator ----------------------------------------------------------------------------------------------------


def test_the_whole_way_at_the_aggregator() -> None:
    hub, out = running()
    assert [step.key for step in out if isinstance(step, Persist)] == ["study/proposal", "study/open", "study/start"]
    assert only(out, Review) == Review(study=STUDY, program=PROGRAM, attempt=1)
    assert {to for to, _ in sent(out, StudyStart)} == set(ALL)
    assert only(out, Started).roster == hub.roster == make_roster(members(), start(*ALL))
    assert sent(hub.progress(1, 3), Progress) == [("ana", Progress(study_hash=HASH, round=1, rounds=3))]
    end = hub.finish(PACKED)
    assert isinstance(end[0], Persist)
    assert {to for to, m in sent(end, StudyEnd) if m.result == result_digest(HASH, PACKED)} == set(ALL)
    assert sent(end, Result)[0][0] == "ana"
    assert only(end, Ended).result == result_digest(HASH, PACKED)
    for request in (REQUEST, bytes(16)):  # again, whoever asks: the stored result, and nothing else happens
        again = hub.receive("bob", propose(request), 9.0)
        assert again == [Send("bob", Result(study_hash=HASH, attempt=1, packed=PACKED))]
    with pytest.raises(LocalProtocolError):
        hub.finish(PACKED)
    with pytest.raises(LocalProtocolError):
        hub.fail(RoundAborted("x"))


@pytest.mark.parametrize(
    ("sender", "change", "code"),
    [
        ("c0", {}, StudyCode.WRONG_PARTY),
        ("stranger", {}, StudyCode.WRONG_PARTY),
        ("ana", {"study": b"{}"}, StudyCode.WRONG_STUDY),
        ("ana", {"consortium_hash": bytes(32)}, StudyCode.OTHER_CONSORTIUM),
    ],
)
def test_bad_proposals(sender: str, change: dict, code: StudyCode) -> None:
    hub = AggregatorMachine(members(), HASH)
    out = hub.receive(sender, replace(propose(), **change), 0.0)
    assert [m.code for _, m in sent(out, StudyRefused)] == [code]
    assert hub.state is AggregatorState.IDLE
    assert not records(out)


def test_another_program_under_the_same_study_is_refused() -> None:
    hub, _ = gathering()
    out = hub.receive("bob", propose(program="other"), 1.0)
    assert [m.code for _, m in sent(out, StudyRefused)] == [StudyCode.WRONG_STUDY]


def test_a_rejected_study_fails_typed_and_may_come_again() -> None:
    hub = AggregatorMachine(members(), HASH)
    hub.receive("ana", propose(), 0.0)
    out = hub.reject(PrivacyRefused("epsilon is 9", rule="P07", remedy="Lower it.", party="hub"))
    ((_, failed),) = sent(out, Failed)
    assert (failed.rule, failed.exit_code, failed.final, failed.request) == ("P07", 3, 0, REQUEST)
    assert isinstance(only(out, Ended).error, PrivacyRefused)
    assert hub.receive("ana", propose(), 1.0) == [Send("ana", failed)]  # a late copy of the same wish
    out = hub.receive("ana", propose(bytes(16)), 2.0)
    assert only(out, Review).attempt == 2
    with pytest.raises(LocalProtocolError):
        AggregatorMachine(members(), HASH).reject(StudyError("x"))
    with pytest.raises(LocalProtocolError):
        AggregatorMachine(members(), HASH).accept(min_clients=2, ready_seconds=1, now=0.0)


def test_declined_and_silent_clients_are_left_out() -> None:
    hub, _ = gathering()
    for name in ("s0", "s1", "c2", "c0"):
        assert not sent(hub.receive(name, ready(name), 1.0), StudyStart)
    declined = StudyDeclined(study_hash=HASH, attempt=1, party="c1", code=StudyCode.NOT_APPROVED, cause="no")
    assert not sent(hub.receive("c1", declined, 2.0), StudyStart)
    asked = hub.tick(5.0)
    assert {to for to, _ in sent(asked, type(opening()))} == {"c3"}
    assert only(asked, Wake).at == 10.0
    out = hub.tick(60.0)
    assert {to for to, _ in sent(out, StudyStart)} == {"s0", "s1", "c0", "c2"}
    assert hub.roster.clients == ("c0", "c2")
    late = hub.receive("c3", ready("c3"), 61.0)
    assert [m.code for _, m in sent(late, StudyRefused)] == [StudyCode.LATE]
    assert sent(hub.receive("c0", ready("c0"), 62.0), StudyStart)  # it may have missed it
    assert not sent(hub.receive("c0", ready("c0", draw=2), 62.0), StudyStart)


@pytest.mark.parametrize("missing", ["server-silent", "server-declined", "clients-silent", "clients-declined"])
def test_too_few_is_a_typed_failure_in_time(missing: str) -> None:
    hub, _ = gathering(min_clients=3)
    out: list = []
    for name in ALL:
        gone = name == "s1" if missing.startswith("server") else name in ("c0", "c3")
        if not gone:
            out += hub.receive(name, ready(name, min_clients=3), 1.0)
        elif missing.endswith("declined"):
            no = StudyDeclined(study_hash=HASH, attempt=1, party=name, code=StudyCode.UNAVAILABLE, cause="no disk")
            out += hub.receive(name, no, 1.0)
    if missing.endswith("silent"):
        assert hub.state is AggregatorState.GATHERING
        out += hub.tick(60.0)
    assert hub.state is AggregatorState.FAILED
    error = only(out, Ended).error
    assert isinstance(error, TooFewParties) == missing.startswith("clients")
    assert isinstance(error, RoundAborted)
    assert error.party == ("s1" if missing.startswith("server") else "hub")
    assert error.remedy
    assert {to for to, m in sent(out, StudyEnd) if m.code != StudyCode.FINISHED} == set(ALL)
    ((_, failed),) = sent(out, Failed)
    assert failed.final == 0


@pytest.mark.parametrize(
    "answer",
    [
        ready("c0", study=bytes(32)),
        ready("c0", role="server"),
        replace(ready("c0"), public=study_key("c0", draw=2).public),
        replace(ready("c0"), signature=bytes(64)),
        replace(ready("c0"), public=bytes(32)),
        replace(ready("c1"), party="c0"),
    ],
)
def test_keys_that_do_not_verify_are_not_ready(answer) -> None:
    hub, _ = gathering()
    out = hub.receive("c0", answer, 1.0)
    assert [m.code for _, m in sent(out, StudyRefused)] == [StudyCode.BAD_ROSTER]
    assert "c0" not in hub._ready


def test_parties_speak_for_themselves() -> None:
    hub, _ = gathering()
    no = StudyDeclined(study_hash=HASH, attempt=1, party="c1", code=StudyCode.NOT_APPROVED, cause="no")
    for sender, message in (("c0", ready("c1")), ("ana", ready("ana")), ("c0", no)):
        assert [m.code for _, m in sent(hub.receive(sender, message, 1.0), StudyRefused)] == [StudyCode.WRONG_PARTY]
    other = hub.receive("c0", ready("c0", min_clients=3), 1.0)
    assert [m.code for _, m in sent(other, StudyRefused)] == [StudyCode.WRONG_STUDY]
    assert hub.receive("c0", ready("c0", attempt=2), 1.0) == []
    assert hub._ready == {}


def test_a_server_that_leaves_or_anyone_who_objects_ends_it_for_good() -> None:
    def says(name: str, code: StudyCode) -> StudyDeclined:
        return StudyDeclined(study_hash=HASH, attempt=1, party=name, code=code, cause="x")

    hub, _ = running()
    assert hub.receive("c0", says("c0", StudyCode.UNAVAILABLE), 2.0) == []
    for name, code in (("s1", StudyCode.UNAVAILABLE), ("c1", StudyCode.BAD_ROSTER)):
        hub, _ = running()
        out = hub.receive(name, says(name, code), 2.0)
        ((_, failed),) = sent(out, Failed)
        assert (failed.final, failed.party) == (1, name)
        again = hub.receive("ana", propose(bytes(16)), 3.0)
        assert sent(again, Failed)[0][1].request == bytes(16)
        assert hub.state is AggregatorState.FAILED


def test_inquiries() -> None:
    hub = AggregatorMachine(members(), HASH)
    ask = StudyInquiry(study_hash=HASH, request=REQUEST)
    for sender, code in (
        ("ana", StudyCode.UNKNOWN_STUDY),
        ("c0", StudyCode.UNKNOWN_STUDY),
        ("x", StudyCode.WRONG_PARTY),
    ):
        assert [m.code for _, m in sent(hub.receive(sender, ask, 0.0), StudyRefused)] == [code]
    hub, _ = running()
    hub.progress(2, 5)
    assert hub.receive("bob", ask, 1.0) == [Send("bob", Progress(study_hash=HASH, round=2, rounds=5))]
    assert hub.receive("c0", ask, 1.0) == [Send("c0", Progress(study_hash=HASH, round=2, rounds=5))]
    assert {to for to, _ in sent(hub.finish(PACKED), Result)} == {"ana", "bob"}
    assert sent(hub.receive("c0", ask, 2.0), StudyEnd)
    assert sent(hub.receive("ana", ask, 2.0), Result)


def test_the_aggregator_comes_back_as_it_was() -> None:
    hub, out = gathering()
    back, first = AggregatorMachine.restore(members(), HASH, records(out), 100.0)
    assert (back.state, back.attempt) == (AggregatorState.GATHERING, 1)
    assert {to for to, m in sent(first, type(opening())) if m == opening()} == set(ALL)
    hub, out = running()
    back, first = AggregatorMachine.restore(members(), HASH, records(out), 100.0)
    assert back.state is AggregatorState.RUNNING
    assert {encode(m) for _, m in sent(first, StudyStart)} == {encode(hub._start)}
    assert only(first, Started).roster == hub.roster
    out += hub.finish(PACKED)
    back, first = AggregatorMachine.restore(members(), HASH, records(out), 100.0)
    assert back.state is AggregatorState.FINISHED
    assert {to for to, _ in sent(first, StudyEnd)} == set(ALL)
    assert sent(back.receive("bob", propose(bytes(16)), 101.0), Result)
    empty, first = AggregatorMachine.restore(members(), HASH, {}, 0.0)
    assert (empty.state, first) == (AggregatorState.IDLE, [])
    hub = AggregatorMachine(members(), HASH)
    kept = records(hub.receive("ana", propose(), 0.0))
    back, first = AggregatorMachine.restore(members(), HASH, kept, 0.0)
    assert back.state is AggregatorState.REVIEWING
    assert only(first, Review).attempt == 1
    kept |= records(hub.reject(StudyError("x", remedy="y")))
    back, first = AggregatorMachine.restore(members(), HASH, kept, 0.0)
    assert back.state is AggregatorState.FAILED
    kept |= records(back.receive("ana", propose(bytes(16)), 1.0))
    back, first = AggregatorMachine.restore(members(), HASH, kept, 0.0)
    assert back.state is AggregatorState.REVIEWING
    assert only(first, Review).attempt == 2


# -- servers and clients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s1", "c2"])
def test_the_whole_way_at_a_party(name: str) -> None:
    machine, out = party(name)
    assert [step.key for step in out if isinstance(step, Persist)] == ["study/ready", "study/start"]
    review = only(out, Review)
    assert (review.study, review.program, review.min_clients) == (STUDY, PROGRAM, 2)
    assert sent(out, type(ready("c0"))) == [("hub", ready(name))]
    roster = only(out, Started).roster
    assert roster == make_roster(members(), start(*ALL))
    assert roster.helper_identities == (identity("s0").public, identity("s1").public)
    assert machine.receive("hub", start(*ALL), 2.0) == []
    end = StudyEnd(study_hash=HASH, attempt=1, code=StudyCode.FINISHED, result=result_digest(HASH, PACKED))
    out = machine.receive("hub", end, 3.0)
    assert [type(step) for step in out] == [Persist, Erase, Ended]
    assert only(out, Ended).result == result_digest(HASH, PACKED)
    assert machine.receive("hub", end, 4.0) == []
    again = machine.receive("hub", opening(attempt=2), 5.0)  # the same data is not summed twice
    assert [m.code for _, m in sent(again, StudyDeclined)] == [StudyCode.ALREADY_RUN]
    assert machine.state is ParticipantState.ENDED


def changed(begun: StudyStart, index: int, **changes) -> StudyStart:
    tickets = list(begun.tickets)
    tickets[index] = replace(tickets[index], **changes)
    return replace(begun, tickets=tuple(tickets))


BAD_STARTS = {
    "server missing": start("s0", "c0", "c1"),
    "server after clients": start("s0", "c0", "c1", "s1"),
    "clients out of order": start("s0", "s1", "c1", "c0"),
    "client twice": start("s0", "s1", "c0", "c0", "c1"),
    "too few clients": start("s0", "s1", "c0"),
    "without this party": start("s0", "s1", "c1", "c2"),
    "nobody": start(),
    "stranger": changed(start("s0", "s1", "c0", "c1"), 3, party="stranger"),
    "analyst": changed(start("s0", "s1", "c0", "c1"), 3, party="ana"),
    "bad signature": changed(start("s0", "s1", "c0", "c1"), 3, signature=bytes(64)),
    "other key": changed(start("s0", "s1", "c0", "c1"), 3, public=study_key("c1", draw=2).public),
    "another party's key": changed(start("s0", "s1", "c0", "c1"), 3, public=study_key("c0").public),
    "low order": changed(start("s0", "s1", "c0", "c1"), 3, public=bytes(32)),
    "own key changed": replace(
        start("s0", "s1", "c0", "c1"), tickets=(ticket("s0"), ticket("s1"), ticket("c0", draw=2), ticket("c1"))
    ),
    "other min_clients": start("s0", "s1", "c0", "c1", min_clients=1),
    "key of another study": replace(
        start("s0", "s1", "c0", "c1"),
        tickets=(ticket("s0"), ticket("s1"), ticket("c0"), ticket("c1", study=bytes(32))),
    ),
}


@pytest.mark.parametrize("why", BAD_STARTS)
def test_a_start_that_does_not_verify_ends_it(why: str) -> None:
    machine, _ = party("c0", "ready")
    out = machine.receive("hub", BAD_STARTS[why], 1.0)
    assert not [step for step in out if isinstance(step, Started)]
    assert machine.state is ParticipantState.ENDED
    assert Erase() in out
    assert [m.code for to, m in sent(out, StudyDeclined) if to == "hub"] == [StudyCode.BAD_ROSTER]
    error = only(out, Ended).error
    assert (error.rule, error.party) == ("bad-roster", "hub")
    assert "study/start" not in records(out)


def test_a_start_is_confirmed_by_the_party_itself() -> None:
    """To be ready is no promise: what the steward says until the start counts, and nothing is kept before."""
    machine, _ = party("c0", "ready")
    assert machine.begin(attempt=1, now=1.0) == []  # nobody has started it
    out = machine.receive("hub", start(*ALL), 1.0)
    assert out == [Confirm(1)]
    assert machine.begin(attempt=2, now=1.0) == []
    again = machine.receive("hub", start(*ALL), 1.5)  # said again while the party looks
    assert again == [Confirm(1)]
    begun = machine.begin(attempt=1, now=2.0)
    assert [type(step) for step in begun] == [Persist, Started, Wake]
    assert machine.begin(attempt=1, now=2.0) == []
    assert machine.decline(StudyCode.NOT_APPROVED, "too late", attempt=1) == []
    assert machine.state is ParticipantState.RUNNING


@pytest.mark.parametrize("offered", [False, True])
def test_a_party_that_was_ready_takes_it_back(offered: bool) -> None:
    machine, out = party("c0", "ready")
    if offered:
        machine.receive("hub", start(*ALL), 1.0)
    out += machine.decline(StudyCode.NOT_APPROVED, "the approval was taken back", attempt=1)
    assert [type(step) for step in out[-3:]] == [Persist, Erase, Send]  # kept before it is said; the key goes
    assert machine.state is ParticipantState.DECLINED
    assert machine.begin(attempt=1, now=2.0) == []
    assert machine.receive("hub", start(*ALL), 2.0) == []
    assert machine.state is ParticipantState.DECLINED
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out), 5.0)
    assert (back.state, first) == (ParticipantState.DECLINED, [])
    assert back.receive("hub", start(*ALL), 6.0) == []
    assert only(back.receive("hub", opening(attempt=2), 7.0), Review).attempt == 2  # asked anew, it decides anew


def test_leaving_before_anything_was_sent() -> None:
    machine, out = party("c0")
    error = NotApproved("taken back", rule="own-approval", remedy="Ask its steward.")
    left = machine.leave(StudyCode.NOT_APPROVED, error)
    assert [type(step) for step in left] == [Persist, Erase, Ended, Send]
    assert [m.code for _, m in sent(left, StudyDeclined)] == [StudyCode.NOT_APPROVED]
    assert machine.leave(StudyCode.NOT_APPROVED, error) == []
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out, left), 5.0)
    assert (back.state, first) == (ParticipantState.ENDED, [Erase()])
    hub, _ = running()
    ((_, said),) = sent(left, StudyDeclined)
    assert hub.receive("c0", said, 3.0) == []  # the rounds go on without it
    assert hub.state is AggregatorState.RUNNING


def test_a_second_start_is_refused_and_named() -> None:
    machine, _ = party("c0")
    out = machine.receive("hub", start("s0", "s1", "c0", "c1"), 2.0)
    assert machine.state is ParticipantState.ENDED
    assert Erase() in out
    assert "twice" in only(out, Ended).error.cause


def test_only_the_aggregator_is_listened_to() -> None:
    end = StudyEnd(study_hash=HASH, attempt=1, code=StudyCode.FAILED, result=bytes(32))
    for upto, message in (("reviewing", opening(attempt=2)), ("ready", start(*ALL)), ("running", end)):
        machine, _ = party("c0", upto)
        before = machine.state
        for sender in ("c1", "s0", "ana", "stranger"):
            out = machine.receive(sender, message, 2.0)
            assert [m.code for _, m in sent(out, StudyRefused)] == [StudyCode.WRONG_PARTY]
        lost = StudyRefused(study_hash=HASH, code=StudyCode.UNKNOWN_STUDY, cause="x")
        assert machine.receive("c1", lost, 2.0) == []
        assert machine.state is before


@pytest.mark.parametrize(
    ("change", "code"),
    [({"study": b"{}"}, StudyCode.WRONG_STUDY), ({"consortium_hash": bytes(32)}, StudyCode.OTHER_CONSORTIUM)],
)
def test_what_is_not_even_looked_at(change: dict, code: StudyCode) -> None:
    machine = ParticipantMachine(members(), "c0", HASH)
    out = machine.receive("hub", replace(opening(), **change), 0.0)
    assert [m.code for _, m in sent(out, StudyDeclined)] == [code]
    assert machine.state is ParticipantState.IDLE


def test_declining_is_said_again_and_kept() -> None:
    machine, _ = party("c0", "reviewing")
    out = machine.decline(StudyCode.NOT_APPROVED, "policy", attempt=1)
    said = sent(out, StudyDeclined)
    assert sent(machine.receive("hub", opening(), 1.0), StudyDeclined) == said
    assert machine.approve(study_key("c0"), attempt=1, min_clients=2) == []
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out), 5.0)
    assert (back.state, first) == (ParticipantState.DECLINED, [])
    assert sent(back.receive("hub", opening(), 6.0), StudyDeclined) == said
    assert machine.receive("hub", start(*ALL), 2.0) == []


def test_approving() -> None:
    machine, _ = party("c0", "reviewing")
    assert machine.approve(study_key("c0"), attempt=2, min_clients=2) == []
    with pytest.raises(LocalProtocolError):
        machine.approve(study_key("c1"), attempt=1, min_clients=2)
    with pytest.raises(VerificationError):
        machine.approve(replace(study_key("c0"), signature=bytes(64)), attempt=1, min_clients=2)
    assert machine.state is ParticipantState.REVIEWING
    out = machine.approve(study_key("c0"), attempt=1, min_clients=3)  # the hub asked with fewer than the study has
    assert [m.code for _, m in sent(out, StudyDeclined)] == [StudyCode.WRONG_STUDY]
    with pytest.raises(LocalProtocolError):
        ParticipantMachine(members(), "ana", HASH)


def test_a_new_attempt_takes_a_new_key() -> None:
    machine, _ = party("c0", "ready")
    out = machine.receive("hub", opening(attempt=2), 5.0)
    assert [type(step) for step in out[:2]] == [Erase, Review]
    assert machine.receive("hub", opening(attempt=1), 6.0) == []
    old_end = StudyEnd(study_hash=HASH, attempt=1, code=StudyCode.TOO_FEW_CLIENTS, result=bytes(32))
    assert machine.receive("hub", old_end, 6.0) == []
    machine.approve(study_key("c0", draw=2), attempt=2, min_clients=2)
    assert machine.receive("hub", start(*ALL), 7.0) == []  # of the first attempt
    assert machine.state is ParticipantState.READY


def test_left_out_lost_and_silent() -> None:
    for code, upto in ((StudyCode.LATE, "ready"), (StudyCode.UNKNOWN_STUDY, "running")):
        machine, _ = party("c0", upto)
        out = machine.receive("hub", StudyRefused(study_hash=HASH, code=code, cause="x"), 2.0)
        assert Erase() in out
        assert only(out, Ended).error.rule == code.name.lower().replace("_", "-")
    machine, _ = party("c0", "ready")
    assert sent(machine.tick(5.0), type(ready("c0"))) == [("hub", ready("c0"))]
    out = machine.tick(3600.0)
    assert Erase() in out
    assert only(out, Ended).error.rule == "silent"
    assert machine.tick(9999.0) == []
    late = machine.receive("hub", start(*ALL), 9999.0)
    assert [m.code for _, m in sent(late, StudyDeclined)] == [StudyCode.UNAVAILABLE]
    machine, _ = party("c0")
    assert sent(machine.tick(40.0), StudyInquiry)
    machine.receive("hub", Progress(study_hash=HASH, round=1, rounds=2), 3000.0)
    assert machine.tick(3700.0)
    assert machine.state is ParticipantState.RUNNING


def test_a_party_comes_back_as_it_was() -> None:
    _, out = party("c0", "ready")
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out), 50.0)
    assert back.state is ParticipantState.READY
    assert sent(first, type(ready("c0"))) == [("hub", ready("c0"))]
    machine, out = party("c0")
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out), 50.0)
    assert only(first, Started).roster == machine.roster
    out += machine.receive("hub", StudyEnd(study_hash=HASH, attempt=1, code=1, result=bytes(32)), 51.0)
    back, first = ParticipantMachine.restore(members(), "c0", HASH, records(out), 60.0)
    assert (back.state, first) == (ParticipantState.ENDED, [Erase()])
    again = back.receive("hub", opening(attempt=9), 61.0)
    assert [m.code for _, m in sent(again, StudyDeclined)] == [StudyCode.ALREADY_RUN]
    back, first = ParticipantMachine.restore(members(), "c0", HASH, {}, 0.0)
    assert (back.state, first) == (ParticipantState.IDLE, [])


# -- the analyst -------------------------------------------------------------------------------------------------------


def analyst() -> AnalystMachine:
    machine = AnalystMachine(members(), "ana", study=STUDY, program=PROGRAM, request=REQUEST, patience_seconds=100.0)
    assert machine.propose(0.0) == [Send("hub", propose()), Wake(5.0)]
    return machine


def test_the_analyst_gets_the_result() -> None:
    machine = analyst()
    assert sent(machine.tick(5.0), type(propose())) == [("hub", propose())]
    assert machine.receive("hub", Progress(study_hash=HASH, round=0, rounds=0), 6.0) == []
    assert machine.receive("hub", Progress(study_hash=HASH, round=1, rounds=2), 6.0) == [RoundsDone(1, 2)]
    assert machine.receive("hub", Progress(study_hash=HASH, round=1, rounds=2), 6.0) == []  # said again
    assert machine.receive("hub", Progress(study_hash=HASH, round=2, rounds=2), 6.0) == [RoundsDone(2, 2)]
    assert machine.receive("hub", Progress(study_hash=HASH, round=1, rounds=2), 6.0) == []  # overtaken
    assert sent(machine.tick(10.0), StudyInquiry) == [("hub", StudyInquiry(study_hash=HASH, request=REQUEST))]
    result = Result(study_hash=HASH, attempt=1, packed=PACKED)
    assert machine.receive("c0", result, 11.0) == []
    out = machine.receive("hub", result, 11.0)
    assert out == [Delivered(PACKED), Ended(result_digest(HASH, PACKED), None)]
    assert machine.receive("hub", result, 12.0) == []
    assert machine.tick(500.0) == []


def test_the_analyst_hears_of_failures() -> None:
    failed = every_message()["failed"]
    machine = analyst()
    assert machine.receive("hub", replace(failed, request=bytes(16)), 1.0) == []
    error = only(machine.receive("hub", failed, 1.0), Ended).error
    assert isinstance(error, TooFewParties)
    assert error.as_dict() == {
        "code": 4, "rule": "too-few-clients", "party": "hub", "round": None, "cause": failed.cause,
        "remedy": "Ask them.",
    }  # fmt: skip
    for exit_code, kind in ((2, StudyError), (3, PrivacyRefused), (4, RoundAborted), (6, VerificationError)):
        other = replace(failed, exit_code=exit_code, code=StudyCode.FAILED, round=3)
        error = only(analyst().receive("hub", other, 1.0), Ended).error
        assert type(error) is kind
        assert error.round == 3
    machine = analyst()
    unknown = StudyRefused(study_hash=HASH, code=StudyCode.UNKNOWN_STUDY, cause="x")
    assert machine.receive("hub", unknown, 1.0) == [Send("hub", propose())]
    no = StudyRefused(study_hash=HASH, code=StudyCode.OTHER_CONSORTIUM, cause="x")
    assert only(machine.receive("hub", no, 1.0), Ended).error.rule == "other-consortium"
    machine = analyst()
    assert only(machine.tick(100.0), Ended).error.rule == "silent"


# -- strangers and rubbish ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: running()[0], lambda: party()[0], analyst], ids=["hub", "party", "analyst"])
def test_every_message_from_anyone_at_any_time_is_answered_typed(make) -> None:
    for sender in ("hub", "ana", "s0", "c0", "stranger"):
        for message in every_message().values():
            make().receive_bytes(sender, encode(message), 2.0)
            out = make().receive_bytes(sender, encode(replace(message, study_hash=bytes(32))), 2.0)
            assert all(m.code == StudyCode.WRONG_STUDY for _, m in sent(out, StudyRefused))
            assert not records(out)
    machine = make()
    before = machine.state
    for raw, code in ((b"", StudyCode.MALFORMED), (b"TSTU\x02\x00\x01\x00", StudyCode.OTHER_VERSION)):
        out = machine.receive_bytes("stranger", raw, 2.0)
        assert [m.code for _, m in sent(out, StudyRefused)] == [code]
    out = machine.receive_bytes("stranger", encode(every_message()["open"]), 2.0, limit=20)
    assert [m.code for _, m in sent(out, StudyRefused)] == [StudyCode.MALFORMED]
    assert machine.state is before


def test_refusals_are_not_refused() -> None:
    for machine in (running()[0], party()[0], analyst()):
        assert machine.receive("stranger", every_message()["refused"], 2.0) == []


def test_members_and_rosters() -> None:
    good = members()
    roles = good.members.roles
    for change in (
        {"roles": {**roles, "client": ("c0", "c0", "c1")}},
        {"roles": {**roles, "client": ("c0", "../x")}},
        {"consortium_hash": b""},
        {"identities": {}},
    ):
        with pytest.raises(StudyError):
            replace(good.members, **change)
    assert good.consortium_hash == CONSORTIUM
    roster = make_roster(good, start("s0", "s1", "c1", "c3"))
    p = sum_parameters(roster, size=3, honest=1, colluding=1, result_limit=99, round_seconds=7.0)
    assert (p.clients, p.servers, p.aggregator, p.min_clients) == (("c1", "c3"), ("s0", "s1"), "hub", 2)
    assert p.server_keys == roster.helper_identities
    assert len({make_roster(good, s).digest for s in (start("s0", "s1", "c1", "c3"), start(*ALL))}) == 2
    with pytest.raises(RemoteProtocolError):
        make_roster(members(clients=2), start(*ALL))
    assert decode(encode(start(*ALL))) == start(*ALL)
