"""Private set intersection: the same people as a plain join finds, and a transcript that shows nobody else."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.crypto.blinded_identifiers import BlindingKey, points_of
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.data.identifiers import aligned_rows, usable_identifiers
from tallystick.protocol.alignment import Aligned, AligningMachine, AlignmentParameters, decode, encode
from tallystick.protocol.alignment.messages import BlindedList, Code, Refused, Wanted
from tallystick.protocol.instructions import Aborted, Persist, Send
from tallystick.protocol.machine import transition_table
from tallystick.study.sections import IdentifierSection

STUDY = bytes(range(32))
PEOPLE = {
    "bank": [f"p{i}" for i in range(30)],
    "hospital": [f"p{i}" for i in range(20, 45)],
    "school": [f"p{i}" for i in range(0, 60, 2)],
}


def source(label: str) -> AesStream:
    return AesStream(derive(bytes(32), label.encode()))


def seed_of(label: str) -> bytes:
    return derive(bytes(32), label.encode())


def parameters(people: dict[str, list[str]], **other: Any) -> AlignmentParameters:
    facts = {
        "study_hash": STUDY,
        "parties": tuple(people),
        "sizes": tuple(map(len, people.values())),
        "data_sets": tuple(name.encode().ljust(32) for name in people),
    }
    return AlignmentParameters(**{**facts, **other})


def run(people: dict[str, list[str]], keys: str = "") -> tuple[dict[str, np.ndarray], list[tuple[str, str, bytes]]]:
    """Everybody's positions, and every byte that was said to whom."""
    p = parameters(people)
    machines = {n: AligningMachine(p, n, seed=seed_of(f"{n}{keys}")) for n in people}
    queue: deque[tuple[str, str, bytes]] = deque()
    found: dict[str, np.ndarray] = {}
    transcript = []

    def carry_out(name: str, steps: list[Any]) -> None:
        for step in steps:
            if isinstance(step, Send):
                assert not isinstance(step.message, Refused), step.message
                queue.append((name, step.to, encode(step.message)))
            elif isinstance(step, Aligned):
                found[name] = step.positions

    for name, machine in machines.items():
        carry_out(name, machine.start(people[name]))
    while queue:
        sender, to, raw = queue.popleft()
        transcript.append((sender, to, raw))
        carry_out(to, machines[to].receive_bytes(sender, raw, 0.0))
    return found, transcript


@pytest.mark.parametrize("names", [("bank", "hospital"), ("hospital", "school", "bank")])
def test_the_people_are_those_of_a_plain_join(names: tuple[str, ...]) -> None:
    people = {name: PEOPLE[name] for name in names}
    found, _ = run(people)
    declared = IdentifierSection(column="id")
    plain = aligned_rows({name: usable_identifiers(own, declared) for name, own in people.items()})
    there = [[people[name][at] for at in found[name]] for name in names]
    assert all(one == there[0] for one in there)  # the same person in the same place at all of them
    assert sorted(there[0]) == [people[names[0]][at] for at in plain[names[0]]]
    assert len(there[0]) > 3


def test_nobody_in_common_is_an_empty_answer() -> None:
    found, _ = run({"bank": ["a", "b"], "hospital": ["c"]})
    assert all(len(positions) == 0 for positions in found.values())


def test_the_transcript_shows_blinded_points_only() -> None:
    """No identifier, no hash of one, no order; other keys give other bytes, and only common people meet."""
    people = {name: PEOPLE[name] for name in ("bank", "hospital")}
    _, first = run(people)
    _, second = run(people, keys=" again")
    context = parameters(people).context
    plain = {x for own in people.values() for x in points_of(own, context)}
    seen: dict[str, list[set[bytes]]] = {"bank": [], "hospital": []}
    for (_, to, raw), (_, _, other) in zip(first, second):
        message = decode(raw)
        assert isinstance(message, BlindedList)
        points = [message.points[i : i + 32] for i in range(0, len(message.points), 32)]
        assert not set(points) & plain
        assert points != sorted(points)
        assert not set(points) & {other[i : i + 32] for i in range(len(other) - 31)}
        assert not any(person.encode() in raw for own in people.values() for person in own if len(person) > 2)
        seen[to].append(set(points))
    # The bank's view: the hospital's people under the hospital's key, and its own under both keys.
    assert sorted(len(points) for points in seen["bank"]) == [25, 30]
    assert not seen["bank"][0] & seen["bank"][1]


def test_order_of_keys_does_not_matter() -> None:
    a, b = (BlindingKey.generate(source(name)) for name in "ab")
    points = points_of(["x", "é", "x "], b"context")
    assert a.blind(b.blind(points)) == b.blind(a.blind(points))
    assert points_of(["x"], b"another") != points[:1]
    assert "secret" in repr(a)
    with pytest.raises(RemoteProtocolError, match="no point"):
        a.blind([b"\xff" * 32])


def test_a_list_is_bound_to_its_data_set_and_size() -> None:
    people = {name: PEOPLE[name] for name in ("bank", "hospital")}
    p = parameters(people)

    def started() -> AligningMachine:
        machine = AligningMachine(p, "hospital", seed=seed_of("key"))
        machine.start(people["hospital"])
        return machine

    *kept, sent = AligningMachine(p, "bank", seed=seed_of("other")).start(people["bank"])
    assert all(isinstance(step, Persist) for step in kept)  # before it leaves
    good = sent.message

    def code(sender: str, **changed: Any) -> Code:
        facts = {name: getattr(good, name) for name in ("study_hash", "owner", "hops", "data_set", "points")}
        (answer,) = started().receive(sender, BlindedList(**{**facts, **changed}), 0.0)
        return Code(answer.message.code)

    assert code("bank", points=good.points + good.points[:32]) == Code.WRONG_SIZE  # names made up to be tried
    assert code("bank", points=good.points[:-32] + good.points[:32]) == Code.REPEATED
    assert code("bank", data_set=bytes(32)) == Code.WRONG_DATA_SET
    assert code("school") == Code.WRONG_PARTY
    assert code("bank", owner=7) == Code.MALFORMED
    assert code("bank", points=b"\xff" * len(good.points[:-32]) + good.points[:32]) in (Code.REPEATED, Code.MALFORMED)
    assert code("bank", study_hash=bytes(32)) == Code.WRONG_STUDY
    machine = started()
    assert machine.receive("bank", good, 0.0)
    assert machine.receive("bank", good, 0.0) == []  # blinded once
    with pytest.raises(DataError, match="list to 25") as caught:
        AligningMachine(p, "hospital", seed=seed_of("key")).start([*people["hospital"], "one more"])
    assert caught.value.rule == "lists-have-lengths"
    with pytest.raises(LocalProtocolError, match="twice"):
        AligningMachine(p, "hospital", seed=seed_of("key")).start([*people["hospital"][1:], "p21"])
    assert parameters(people, data_sets=(b"x" * 32, b"y" * 32)).context != p.context


def test_a_shorter_list_is_filled_up() -> None:
    """How many people an institution names is not to be seen; whom they share is the same."""
    people = {name: PEOPLE[name] for name in ("bank", "hospital")}
    p = parameters(people, sizes=(40, 50))
    machines = {name: AligningMachine(p, name, seed=seed_of(name)) for name in people}
    found, said = talk(machines, {name: machine.start(people[name]) for name, machine in machines.items()})
    assert {len(message.points) // 32 for _, _, message in said} == {40, 50}
    there = [[people[name][at] for at in found[name]] for name in people]
    assert there[0] == there[1]
    assert len(there[0]) == 10


def talk(
    machines: dict[str, AligningMachine],
    first: dict[str, list[Any]],
    kept: dict[str, dict[str, bytes]] | None = None,
    lost: int = -1,
) -> tuple[dict[str, np.ndarray], list[tuple[str, str, Any]]]:
    """Until nobody says anything; ``lost``: this one of the messages does not come, nor any after it."""
    queue: deque[tuple[str, str, Any]] = deque()
    found: dict[str, np.ndarray] = {}
    said = []

    def carry_out(name: str, steps: list[Any]) -> None:
        for step in steps:
            if isinstance(step, Send):
                queue.append((name, step.to, step.message))
            elif isinstance(step, Persist) and kept is not None:
                assert step.secret
                kept[name][step.key] = step.record
            elif isinstance(step, Aligned):
                found[name] = step.positions

    for name, steps in first.items():
        carry_out(name, steps)
    while queue:
        sender, to, message = queue.popleft()
        said.append((sender, to, message))
        if lost < 0 or len(said) <= lost:
            carry_out(to, machines[to].receive(sender, message, 0.0))
    return found, said


@pytest.mark.parametrize("lost", range(12))
def test_killed_at_any_message_it_says_the_same_again(lost: int) -> None:
    """Everybody is killed when so many messages have come. What is said afterwards was said before, or is new."""
    people = {name: PEOPLE[name] for name in ("hospital", "school", "bank")}
    p, kept = parameters(people), {name: dict[str, bytes]() for name in people}

    def restored() -> tuple[dict[str, AligningMachine], dict[str, list[Any]]]:
        machines, first = {}, {}
        for name in people:
            machines[name], steps = AligningMachine.restore(p, name, kept[name], system_stream())
            for step in steps:
                kept[name][step.key] = step.record
        for name, machine in machines.items():
            first[name] = [*machine.start(people[name]), *machine.tick(0.0)]
        return machines, first

    _, before = talk(*restored(), kept, lost)
    found, after = talk(*restored(), kept)
    there = [[people[name][at] for at in found[name]] for name in people]
    assert all(one == there[0] for one in there)
    assert len(there[0]) > 3
    said: dict[tuple[str, int, int], set[bytes]] = {}
    for sender, _, message in (*before, *after):
        if isinstance(message, BlindedList):
            said.setdefault((sender, message.owner, message.hops), set()).add(message.points)
    assert all(len(lists) == 1 for lists in said.values())


def test_after_a_restart_nobody_has_a_second_list_blinded() -> None:
    people = {name: PEOPLE[name] for name in ("bank", "hospital")}
    p, records = parameters(people), dict[str, bytes]()
    bank = AligningMachine(p, "bank", seed=seed_of("bank"))
    (*_, sent), other = bank.start(people["bank"]), AligningMachine(p, "bank", seed=seed_of("tries names"))
    (*_, tried) = other.start([f"tried-{i}" for i in range(30)])
    hospital, steps = AligningMachine.restore(p, "hospital", records, source("seed"))
    steps += hospital.start(people["hospital"]) + hospital.receive("bank", sent.message, 0.0)
    records |= {step.key: step.record for step in steps if isinstance(step, Persist)}
    again, first = AligningMachine.restore(p, "hospital", records, source("another"))
    assert first == []  # the seed is the one it had
    again.start(people["hospital"])
    assert again.receive("bank", tried.message, 0.0) == []
    forgetful, _ = AligningMachine.restore(  # planted: what it had blinded is not remembered
        p, "hospital", {k: v for k, v in records.items() if "list" not in k}, source("another")
    )
    forgetful.start(people["hospital"])
    assert any(isinstance(step, Send) for step in forgetful.receive("bank", tried.message, 0.0))


def test_identifiers_that_changed_after_the_list_was_shown_are_refused() -> None:
    people = {name: PEOPLE[name] for name in ("bank", "hospital")}
    p = parameters(people)
    machine, steps = AligningMachine.restore(p, "bank", {}, source("seed"))
    steps += machine.start(people["bank"])
    records = {step.key: step.record for step in steps if isinstance(step, Persist)}
    again, _ = AligningMachine.restore(p, "bank", records, source("x"))
    with pytest.raises(DataError, match="have changed") as caught:
        again.start([*people["bank"][1:], "somebody"])
    assert caught.value.rule == "records-are-those-shown"
    refused = again.receive("hospital", Refused(study_hash=STUDY, code=Code.WRONG_SIZE, cause="too long"), 0.0)
    assert [type(step) for step in refused] == [Aborted]


def test_a_message_has_one_encoding() -> None:
    for message in (
        BlindedList(study_hash=STUDY, owner=1, hops=2, data_set=bytes(32), points=bytes(64)),
        Refused(study_hash=STUDY, code=Code.WRONG_SIZE, cause="no"),
        Wanted(study_hash=STUDY, owner=1, hops=2),
    ):
        raw = encode(message)
        assert decode(raw) == message
        with pytest.raises(RemoteProtocolError):
            decode(raw[:-1])


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols" / "vertical.md").read_text(encoding="utf-8")
    assert transition_table(AligningMachine.TRANSITIONS) in page
