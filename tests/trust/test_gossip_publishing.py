"""What a peer publishes: one record for every line, in a random order, that all can check and nobody can forge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.trust.gossip_deployment import frame, text

from tallystick.core.errors import DataError, PrivacyRefused, StudyError, TallystickError
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.encoding import study_records
from tallystick.engines.setup import set_up
from tallystick.privacy.local.records import record_identities
from tallystick.protocol.members import Members
from tallystick.study import Study
from tallystick.study.trust import trust_model
from tallystick.trust.gossip import publishing as made
from tallystick.trust.gossip.publishing import Publishing, shuffled

STUDY = Study.parse(text(peers=3, each=10))
PUBLISHING = Publishing.of(set_up(STUDY.canonical(), ""), STUDY.hash)


def source(seed: int = 0) -> AesStream:
    return AesStream(derive(bytes(32), seed.to_bytes(4, "little")))


def draw(rows: dict[str, np.ndarray], seed: int = 0) -> bytes:
    return PUBLISHING.perturbed(study_records(STUDY, rows, lenient=True), "peer-01", source(seed))


def test_a_publication_reads_back_and_is_as_long_as_it_says() -> None:
    body = draw(frame(10, 1))
    assert PUBLISHING.pack(PUBLISHING.unpack(body)) == body
    assert len(PUBLISHING.unpack(body)) == 10
    PUBLISHING.check("peer-01", body)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b[:-1],
        lambda b: b + b"\0",
        lambda b: b"",
        lambda b: b"\xff\xff\xff\xff" + b[4:],
    ],
)
def test_what_no_randomiser_of_the_study_can_have_drawn_is_refused(change: object) -> None:
    with pytest.raises(TallystickError):
        PUBLISHING.check("peer-01", change(draw(frame(10, 1))))  # type: ignore[operator]


def test_lines_that_cannot_be_read_are_published_like_any_other(tmp_path: Path) -> None:
    """How many lines there are is seen, and not which of them hold a record."""
    good = "0.1,0.2,a\n"
    for i, bad in enumerate(["oops,0.2,a\n", ",,\n", "0.1,0.2,nobody\n", "0.1,0.2,a,too,many\n"]):
        file = tmp_path / f"{i}.csv"
        file.write_text("x,z,y\n" + good * 4 + bad + good * 5)
        records = study_records(STUDY, file, lenient=True)
        assert len(PUBLISHING.unpack(PUBLISHING.perturbed(records, "peer-01", source()))) == 10


def test_more_records_than_are_stated_are_not_published() -> None:
    with pytest.raises(DataError, match="at most 30"):
        draw(frame(31, 1))


def test_orders_are_uniform_and_one_record_needs_no_word() -> None:
    class Nothing:
        def words(self, count: int) -> np.ndarray:
            raise AssertionError

        bytes = words

    assert shuffled(1, Nothing()).tolist() == [0]  # type: ignore[arg-type]
    one, seen = source(7), Counter[tuple[int, ...]]()
    for _ in range(6000):
        seen[tuple(shuffled(3, one).tolist())] += 1
    assert len(seen) == 6
    chi_square = sum((n - 1000) ** 2 / 1000 for n in seen.values())
    assert chi_square < 30  # of 5 degrees of freedom, seeded; 20.5 is one in a thousand


def law(lines: list[tuple[float, float, str] | None], *, shuffles: bool = True) -> dict[bytes, float]:
    """The exact law of a publication of two lines; None is one that cannot be read, and has no place in the table."""
    rows = [line for line in lines if line is not None]
    names = ("x", "z", "y")
    columns = {c: np.array([row[i] for row in rows]) for i, c in enumerate(names)}
    vectors, labels = made.rows_of(study_records(STUDY, columns, lenient=True), PUBLISHING.program)
    lost = len(lines) - len(rows)
    vectors, labels = np.vstack([vectors, np.zeros((lost, 3), np.int64)]), np.append(labels, np.zeros(lost, np.int64))
    identities = record_identities(STUDY.hash, "peer-01", len(lines))
    out: dict[bytes, float] = {}
    for order in [[0, 1], [1, 0]] if shuffles else [[0, 1]]:
        each = [_one(vectors[i], labels[i], identity) for i, identity in zip(order, identities)]
        for a, p in enumerate(each[0]):
            for b, q in enumerate(each[1]):
                key = a.to_bytes(2, "little") + b.to_bytes(2, "little")
                out[key] = out.get(key, 0) + p * q / (2 if shuffles else 1)
    return out


def _one(vector: np.ndarray, label: int, identity: bytes) -> np.ndarray:
    """The law of one record: every place of its one draw, published."""
    randomiser = PUBLISHING.randomiser
    vector_part = randomiser.vector
    places = vector_part.subset.candidates  # type: ignore[union-attr]
    signs = randomiser.label.signs(np.array([label]), [identity])
    chance = np.array([float(p) for p in vector_part.draws[0].law])  # type: ignore[union-attr]
    out = np.zeros(places)
    rows = np.repeat(vector[None, :] * signs, places, axis=0)
    at = vector_part.publish(rows, [identity] * places, np.arange(places)[:, None])  # type: ignore[union-attr]
    np.add.at(out, at[:, 0], chance)
    return out


TABLE = [(0.9, 0.1, "b"), (-0.8, 0.3, "a")]
CHANGED = [[(0.9, 0.1, "b"), (-0.8, -0.9, "b")], [None, (-0.8, 0.3, "a")], [(0.9, 0.1, "b"), None]]


@pytest.mark.parametrize("neighbour", CHANGED)
def test_by_brute_force_two_tables_that_differ_in_one_line_are_within_e_to_the_epsilon(neighbour: list) -> None:
    assert PUBLISHING.randomiser.vector.subset.draws == 1  # type: ignore[union-attr]
    first, second = law(list(TABLE)), law(neighbour)
    worst = max(max(first[k] / second[k], second[k] / first[k]) for k in first)
    assert worst <= np.exp(STUDY.privacy.epsilon) * (1 + 1e-9)


def test_planted_bug_without_shuffling_a_broken_line_moves_the_others_and_costs_twice() -> None:
    first, second = law(list(TABLE), shuffles=False), law([None, TABLE[1]], shuffles=False)
    worst = max(max(first[k] / second[k], second[k] / first[k]) for k in first)
    assert worst > np.exp(1.5 * STUDY.privacy.epsilon)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ('witnesses = ["a", "b"]', "three-witnesses-at-least"),
        ('witnesses = ["a", "b", "b"]', "three-witnesses-at-least"),
        ('witnesses = ["a", "b", "c", "d"]\ncountersignatures = 2', "majority-of-witnesses"),
        ('witnesses = ["a", "b", "c"]\ncountersignatures = 3', "majority-of-witnesses"),
        ("countersignatures = 2", "majority-of-witnesses"),
    ],
)
def test_witnesses_that_could_not_do_are_refused_by_the_plan(more: str, rule: str) -> None:
    with pytest.raises(TallystickError) as caught:
        set_up(Study.parse(text(peers=3, each=10, more=more)).canonical(), "")
    assert caught.value.rule == rule


def members(*peers: str) -> Members:
    from tallystick.crypto.signing import SigningKey

    names = (*peers, "relay", "ana")
    return Members(
        consortium_hash=bytes(32),
        board="relay",
        roles={"peer": peers, "relay": ("relay",), "analyst": ("ana",)},
        identities={name: SigningKey(derive(bytes(32), name.encode())).public for name in names},
    )


def test_witnesses_are_those_the_study_names_and_nobody_is_its_own() -> None:
    model = trust_model("gossip")
    cast = members("a", "b", "c", "d", "e", "f").cast(model, {"witnesses": ["b", "d", "f"], "countersignatures": 2})
    assert (cast.witnesses, cast.countersigners_of("a")) == (("b", "d", "f"), 2)
    assert cast.witnesses_of("d") == ("b", "f")
    assert cast.clients == ("a", "b", "c", "d", "e", "f")
    assert cast.helpers == ()
    assert members("a", "b", "c", "d", "e", "f").cast(model).witnesses == ("a", "b", "c", "d", "e")
    junk = members("a", "b", "c").cast(model, {"witnesses": [1, None, {}], "countersignatures": "all"})
    assert (junk.witnesses, junk.countersigners) == (("a", "b", "c"), 2)


def test_a_study_whose_witnesses_are_not_in_the_consortium_is_not_begun() -> None:
    study = Study.parse(text(peers=3, each=10, more='witnesses = ["a", "x", "y"]'))
    cast = members("a", "b", "c").cast(study.trust_model, study.trust.model_dump())
    with pytest.raises(StudyError, match="have to countersign"):
        set_up(study.canonical(), "").check_cast(cast)


def test_adding_and_removing_is_no_relation_among_peers() -> None:
    wrong = text(peers=3, each=10).replace("epsilon = 4.0", 'epsilon = 4.0\nneighbours = "add-remove"')
    with pytest.raises(PrivacyRefused):
        set_up(Study.parse(wrong).canonical(), "")
