"""Private set intersection: the same people as a plain join finds, and a transcript that shows nobody else."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto.blinded_identifiers import BlindingKey, points_of
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.identifiers import aligned_rows, usable_identifiers
from tallystick.protocol.alignment import Aligned, AligningMachine, AlignmentParameters, decode, encode
from tallystick.protocol.alignment.messages import BlindedList, Code, Refused
from tallystick.protocol.instructions import Send
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
    machines = {n: AligningMachine(p, n, key=BlindingKey.generate(source(f"key {n}{keys}"))) for n in people}
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
        carry_out(name, machine.start(people[name], source(f"order {name}{keys}")))
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
    key = BlindingKey.generate(source("key"))

    def started() -> AligningMachine:
        machine = AligningMachine(p, "hospital", key=key)
        machine.start(people["hospital"], source("order"))
        return machine

    (sent,) = AligningMachine(p, "bank", key=BlindingKey.generate(source("other"))).start(people["bank"], source("o"))
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
    with pytest.raises(LocalProtocolError, match="bound to 25 people"):
        AligningMachine(p, "hospital", key=key).start(people["hospital"][1:], source("x"))
    with pytest.raises(LocalProtocolError, match="twice"):
        AligningMachine(p, "hospital", key=key).start([*people["hospital"][1:], "p21"], source("x"))
    assert parameters(people, data_sets=(b"x" * 32, b"y" * 32)).context != p.context


def test_a_message_has_one_encoding() -> None:
    for message in (
        BlindedList(study_hash=STUDY, owner=1, hops=2, data_set=bytes(32), points=bytes(64)),
        Refused(study_hash=STUDY, code=Code.WRONG_SIZE, cause="no"),
    ):
        raw = encode(message)
        assert decode(raw) == message
        with pytest.raises(RemoteProtocolError):
            decode(raw[:-1])


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols" / "vertical.md").read_text(encoding="utf-8")
    assert transition_table(AligningMachine.TRANSITIONS) in page
