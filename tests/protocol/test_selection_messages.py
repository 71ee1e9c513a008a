"""Selections on bad networks: loss, repetition, any order, silence, strangers, and bytes that are no messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from selection_world import SESSION, SMALL, World, stream

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, RoundAborted
from tallystick.privacy.mechanisms.exponential_mechanism import WeightTable
from tallystick.protocol.instructions import Aborted, Send, Wake
from tallystick.protocol.selection import Question, SelectionMachine, decode, encode
from tallystick.protocol.selection.machine import State, message_limit
from tallystick.protocol.selection.messages import Again, Code, Layer, Refused, Stopped

QUESTION = Question(cells=5, kind="ranks", numerator=1, denominator=2, width=12, table=SMALL)
TOTALS = [3, 1, 4, 1, 5, 9, 2]


def world(**settings: Any) -> World:
    return World(QUESTION, TOTALS, **settings)


def test_without_faults() -> None:
    run = world().run()
    assert run.places == dict.fromkeys(run.names, run.expected)
    assert run.now == 0.0
    assert not any(isinstance(m, (Again, Refused, Stopped)) for _, _, m in run.sent)


@pytest.mark.parametrize("seed", range(12))
def test_lost_repeated_and_reordered_messages_change_nothing(seed: int) -> None:
    run = world(
        seed=seed, parties=3 + seed % 3, loss=(0.0, 0.05, 0.3)[seed % 3], repeat=(0.5, 0.1)[seed % 2], reorder=True,
        give_up=1e6,
    ).run()  # fmt: skip
    assert run.places == dict.fromkeys(run.names, run.expected)
    assert not run.errors


def test_memory_stays_small() -> None:
    """Of what was sent, the last layer or two are kept for each peer; of what came, none."""
    run = world(reorder=True, seed=5).run()
    for machine in run.machines.values():
        assert len(machine._sent) <= 2 * 2
        assert not machine._arrived
        assert max(step for _, step in machine._sent) == machine.layers - 1


def test_parties_may_begin_at_different_times() -> None:
    run = world()
    run.do("p0", run.machines["p0"].begin(0.0))
    run.do("p1", run.machines["p1"].begin(0.0))
    while run.flying:
        sender, to, raw = run.flying.pop(0)
        run.do(to, run.machines[to].receive_bytes(sender, raw, 0.0))
    assert run.machines["p2"].state is State.IDLE
    run.run(begin=["p2"])
    assert run.places == dict.fromkeys(run.names, run.expected)


# -- silence -----------------------------------------------------------------------------------------------------------


def layers_of(question: Question = QUESTION) -> int:
    return World(question, TOTALS).run().machines["p0"].layers


@pytest.mark.parametrize("at", [0, 1, 30, -2])
def test_a_silent_peer_ends_the_selection_in_bounded_time(at: int) -> None:
    last = layers_of() - 1
    step = at if at >= 0 else last + 1 + at
    run = world(dead=lambda name, message: name == "p2" and isinstance(message, Layer) and message.step >= step).run()
    assert not run.places
    assert set(run.errors) == {"p0", "p1"}
    assert run.now <= 30.0 + 1.0
    for error in run.errors.values():
        assert isinstance(error, RoundAborted)
        assert error.party == "p2"
        assert error.rule == "silent-party"
        assert error.round == 4
        assert "Nothing was opened" in error.remedy
        assert "stays charged" in error.remedy
    opened = [m for _, _, m in run.sent if isinstance(m, Layer) and m.step == last]
    assert not opened


def test_silence_in_the_opening_is_told_apart() -> None:
    """Whoever has sent its shares of the answer cannot say that nobody knows it."""
    last = layers_of() - 1
    run = world(dead=lambda name, message: name == "p2" and isinstance(message, Layer) and message.step == last).run()
    assert not run.places
    for error in run.errors.values():
        assert "others may know it" in error.remedy


def test_who_stops_tells_the_others() -> None:
    run = world()
    for name in run.names:
        run.do(name, run.machines[name].begin(0.0))
    run.do("p1", run.machines["p1"].stop("this party was restarted"))
    assert run.machines["p1"].stop("again") == []
    run.run(begin=())
    assert set(run.errors) == set(run.names)
    assert run.errors["p0"].rule == "given-up"
    assert "restarted" in run.errors["p0"].cause
    assert run.now == 0.0
    assert run.machines["p0"].tick(99.0) == []


def test_a_stopped_machine_keeps_no_shares() -> None:
    machine = world().machines["p0"]
    machine.begin(0.0)
    machine.stop("enough")
    assert not machine._sent
    assert not machine._arrived
    assert not machine._own.size
    with pytest.raises(LocalProtocolError, match="no transition"):
        machine.begin(1.0)


# -- messages that are not taken ---------------------------------------------------------------------------------------


def layer(step: int = 0, payload: bytes = b"", **other: Any) -> Layer:
    return Layer(**{"study_hash": SESSION, "round": 4, "step": step, "payload": payload} | other)


def only(instructions: list[Any]) -> Refused:
    (sent,) = [i for i in instructions if isinstance(i, Send)]
    assert isinstance(sent.message, Refused)
    return sent.message


def test_messages_of_others_are_refused() -> None:
    machine = world().machines["p0"]
    machine.begin(0.0)
    size = (machine._own.size + 1) // 2
    good = bytes(size)
    assert only(machine.receive("p1", layer(payload=good, study_hash=bytes(32)), 0.0)).code == Code.WRONG_STUDY
    assert only(machine.receive("p1", layer(payload=good, round=3), 0.0)).code == Code.WRONG_ROUND
    assert only(machine.receive("p1", layer(payload=good, round=5), 0.0)).code == Code.WRONG_ROUND
    assert only(machine.receive("stranger", layer(payload=good), 0.0)).code == Code.WRONG_PARTY
    assert only(machine.receive("p0", layer(payload=good), 0.0)).code == Code.WRONG_PARTY  # its own name
    assert only(machine.receive("p1", layer(step=2, payload=good), 0.0)).code == Code.WRONG_STEP
    assert only(machine.receive("p1", layer(payload=good[1:]), 0.0)).code == Code.WRONG_SHAPE
    assert only(machine.receive("p1", layer(payload=good + b"\0"), 0.0)).code == Code.WRONG_SHAPE
    assert only(machine.receive_bytes("p1", b"nonsense", 0.0)).code == Code.MALFORMED
    newer = encode(layer(payload=good))
    assert only(machine.receive_bytes("p1", newer[:4] + b"\x02\0" + newer[6:], 0.0)).code == Code.OTHER_VERSION
    assert machine.receive("p1", layer(payload=good), 0.0) == []
    other = only(machine.receive("p1", layer(payload=bytes([1]) + good[1:]), 0.0))
    assert other.code == Code.EQUIVOCATION
    assert machine.receive("p1", layer(payload=good), 0.0) == []  # the same again
    refusal = Refused(study_hash=SESSION, round=4, code=Code.MALFORMED, cause="?")
    assert machine.receive("p1", refusal, 0.0) == []
    assert machine.receive("p1", replace(refusal, round=9), 0.0) == []  # refusals are not refused
    assert machine.receive("p1", Again(study_hash=SESSION, round=4, step=7), 0.0) == []
    (repeated,) = machine.receive("p1", Again(study_hash=SESSION, round=4, step=0), 0.0)
    assert isinstance(repeated.message, Layer)


def test_an_early_layer_of_another_length_is_refused_when_its_turn_comes() -> None:
    run = world()
    p0 = run.machines["p0"]
    p0.begin(0.0)
    p0.receive("p1", layer(step=1, payload=b"\0"), 0.0)
    answers = []
    for peer in ("p1", "p2"):
        (own,) = [i.message for i in run.machines[peer].begin(0.0) if isinstance(i, Send) and i.to == "p0"]
        answers += p0.receive(peer, own, 0.0)
    refusals = [i.message for i in answers if isinstance(i, Send) and isinstance(i.message, Refused)]
    assert [r.code for r in refusals] == [Code.WRONG_SHAPE]
    assert p0.state is State.COMPUTING


@pytest.mark.parametrize("kind", ["ranks", "scores"])
@pytest.mark.parametrize("cells", [2, 5, 40])
def test_no_message_is_above_the_limit(kind: Any, cells: int) -> None:
    for table in (SMALL, WeightTable(tuple(range(1 << 13, 0, -1))), WeightTable((2**63, 1))):
        for width in (8, 52):
            question = Question(cells=cells, kind=kind, numerator=1, denominator=2, width=width, table=table)
            run = World(question, [1] * question.values, parties=7, colluding=3).run()
            longest = max(m.longest_message for m in run.machines.values())
            assert longest <= message_limit(question, 7) <= 40 * longest
            assert run.places["p3"] == run.expected


def test_a_message_above_the_limit_is_not_read() -> None:
    machine = world().machines["p0"]
    machine.begin(0.0)
    assert machine.message_limit is not None
    raw = encode(layer(payload=bytes(machine.message_limit)))
    assert only(machine.receive_bytes("p1", raw, 0.0)).code == Code.MALFORMED


MESSAGES = [
    layer(step=3, payload=b"\x12\x34"),
    Again(study_hash=SESSION, round=4, step=9),
    Refused(study_hash=SESSION, round=4, code=Code.WRONG_STEP, cause="layer 7 came in layer 3"),
    Stopped(study_hash=SESSION, round=4, code=Code.SILENT_PARTY, party="p2", cause="p2 has been silent"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_one_encoding(message: Any) -> None:
    raw = encode(message)
    assert decode(raw) == message
    for cut in range(len(raw)):
        with pytest.raises(RemoteProtocolError):
            decode(raw[:cut])
    with pytest.raises(RemoteProtocolError):
        decode(raw + b"\0")


def test_golden_bytes() -> None:
    """The format as it is on the wire, by hand."""
    raw = encode(layer(step=3, payload=b"\x12\x34"))
    assert raw == b"TSEL\x01\0\x01\0" + SESSION + b"\x04\0\0\0" + b"\x03\0\0\0" + b"\x02" + bytes(7) + b"\x12\x34"


def mutated(raw: bytes, random: Random) -> bytes:
    changed = bytearray(raw)
    match random.randrange(5):
        case 0:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        case 1:
            del changed[random.randrange(len(changed)) :]
        case 2:
            changed += random.randbytes(random.randrange(1, 9))
        case 3:
            at = random.randrange(len(changed))
            changed[at : at + 4] = random.randbytes(4)
        case _:
            changed = bytearray(random.randbytes(random.randrange(80)))
    return bytes(changed)


@pytest.mark.parametrize("seed", range(6))
def test_mutated_messages_never_crash_and_change_nothing(seed: int) -> None:
    """After each true message come mutations of it in its sender's name: refused or ignored, the cell stays the same.

    (A changed copy of a layer that comes first would be taken for it: who sends what is the transport's to prove.)
    """
    random = Random(seed)

    def injected(sender: str, to: str, message: Any) -> Iterator[tuple[str, bytes]]:
        for _ in range(3 if isinstance(message, (Layer, Again)) else 0):  # a refusal each: they must not breed
            bad = mutated(encode(message), random)
            try:
                parsed = decode(bad)
            except RemoteProtocolError:
                yield sender, bad
                continue
            true = isinstance(message, Layer) and message.step
            future = isinstance(parsed, Layer) and (true is False or parsed.step > true)
            if not future and not isinstance(parsed, Stopped):
                yield sender, bad

    run = world(seed=seed, injected=injected).run()
    assert run.places == dict.fromkeys(run.names, run.expected)
    assert any(isinstance(m, Refused) for _, _, m in run.sent)


@pytest.mark.parametrize("seed", range(4))
def test_wrong_shares_end_in_an_answer_or_a_typed_error(seed: int) -> None:
    """A party that does not follow the protocol may spoil the cell, or make the opening fail; it crashes nobody."""
    random = Random(seed)
    run = world(seed=seed)
    original = run.do

    def spoil(name: str, instructions: list[Any]) -> None:
        out = []
        for i in instructions:
            if name == "p1" and isinstance(i, Send) and isinstance(i.message, Layer) and random.random() < 0.05:
                changed = bytearray(i.message.payload)
                changed[0] ^= 1
                i = Send(i.to, replace(i.message, payload=bytes(changed)))
            out.append(i)
        original(name, out)

    run.do = spoil  # type: ignore[method-assign]
    run.run()
    assert set(run.places) | set(run.errors) == set(run.names)
    for error in run.errors.values():
        assert isinstance(error, RoundAborted)
        assert error.rule == "inconsistent-shares"


# -- the machine's own side --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"share": np.zeros(6, dtype=np.uint64)},
        {"share": np.full(7, 2**64 - 1, dtype=np.uint64)},
        {"share": np.zeros(7)},
        {"word": b""},
        {"session": b"short"},
        {"name": "stranger"},
        {"parties": ("p0", "p0", "p1")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_bad_settings_are_our_bug(changed: dict[str, Any]) -> None:
    good = {
        "name": "p0", "session": SESSION, "parties": ("p0", "p1", "p2"), "colluding": 1, "round": 1,
        "question": QUESTION, "share": np.zeros(7, dtype=np.uint64), "word": bytes(QUESTION.word_bytes),
        "source": stream(1), "retry_seconds": 1.0, "give_up_seconds": 9.0,
    }  # fmt: skip
    SelectionMachine(**good)
    with pytest.raises(LocalProtocolError):
        SelectionMachine(**good | changed)


def test_ticks_ask_again_and_say_when_they_want_to_be_called() -> None:
    machine = world().machines["p0"]
    begun = machine.begin(10.0)
    assert [i for i in begun if isinstance(i, Wake)] == [Wake(11.0)]
    assert machine.tick(10.5) == [Wake(11.0)]
    asked = machine.tick(11.0)
    assert [i.to for i in asked if isinstance(i, Send)] == ["p1", "p2"]
    assert asked[-1] == Wake(12.0)
    assert any(isinstance(i, Aborted) for i in machine.tick(40.0))


# -- slow in every layer -----------------------------------------------------------------------------------------------


def dragged(whole: float) -> World:
    """Every layer of p2 comes 20 seconds late: never silent for 30, and yet two thousand seconds in all."""
    run = world()
    for machine in run.machines.values():
        machine.whole_seconds = whole
    for name in run.names:
        run.do(name, run.machines[name].begin(0.0))
    while run.flying and not run.errors:
        late = [m for m in run.flying if m[0] == "p2"]
        if len(late) == len(run.flying):
            run.now += 20.0
            for name in run.names:
                run.do(name, run.machines[name].tick(run.now))
        sender, to, raw = run.flying.pop(0)
        run.do(to, run.machines[to].receive_bytes(sender, raw, run.now))
    return run


def test_all_layers_together_have_a_time_too() -> None:
    run = dragged(150.0)
    assert not run.places
    assert run.now <= 150.0 + 20.0
    for error in run.errors.values():
        assert error.rule == "silent-party"
        assert "more than 150 seconds" in error.cause
        assert "Nothing was opened" in error.remedy
    assert set(dragged(1e9).places.values()) == {world().expected}  # as it was: nothing stopped it


def test_a_layer_that_comes_after_the_end_is_not_worked_on() -> None:
    run = world()
    machine = run.machines["p0"]
    machine.whole_seconds = 50.0
    machine.begin(0.0)
    first = run.machines["p1"].begin(0.0)
    (layer,) = [s.message for s in first if isinstance(s, Send) and s.to == "p0"]
    out = machine.receive("p1", layer, 50.0)
    assert any(isinstance(step, Aborted) for step in out)
    assert machine.state is State.ABORTED
