"""Second draws: an old copy of a peer, or two at once, publish the very same record; and what it was drawn from goes.

The same checks catch a peer that draws fresh words, one whose words do not follow from its rows, and one that keeps
everything: the planted bugs at the end.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.trust.gossip_deployment import frame, text
from tests.trust.test_gossip_publishing import PUBLISHING, STUDY, source

from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.crypto.signing import SigningKey
from tallystick.data.encoding import study_records
from tallystick.engines.setup import set_up
from tallystick.privacy.ledger import Budget, charge_of
from tallystick.protocol.gossip.messages import publication_digest
from tallystick.protocol.instructions import Compute
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.study import Study
from tallystick.trust.gossip.draw_key import FOLDER, DrawKey
from tallystick.trust.gossip.parts import PeerPart
from tallystick.trust.gossip.peer import PeerProcess
from tallystick.trust.gossip.publishing import Publishing, Words
from tallystick.trust.gossip.simulation import _person_rows

ROWS = frame(10, 1)
STEP = Compute(1, b"")


def records(rows: dict[str, np.ndarray], study: Study = STUDY) -> Any:
    return study_records(study, rows, lenient=True)


def opened(state: Path, *, fresh: bytes = b"fresh") -> DrawKey:
    ledger = LedgerStore(state / LEDGER, party="peer-01", signing=SigningKey(derive(bytes(32), b"identity")))
    try:
        return DrawKey(state, ledger, source=AesStream(derive(bytes(32), fresh)))
    finally:
        ledger.file.close()


def drawn(words: Words, rows: dict[str, np.ndarray] = ROWS, *, name: str = "peer-01", of: Any = None) -> bytes | None:
    return (of or PUBLISHING).drawn(records(rows), name, words)


# -- the secret --------------------------------------------------------------------------------------------------------


def test_an_older_copy_of_the_files_draws_what_was_drawn(tmp_path: Path) -> None:
    first = opened(tmp_path / "peer")
    shutil.copytree(tmp_path / "peer", tmp_path / "copy")
    body = drawn(first.words)
    first.give_up(STUDY.hash)
    assert body is not None
    assert drawn(opened(tmp_path / "copy", fresh=b"other").words) == body
    assert drawn(first.words) is None
    assert drawn(opened(tmp_path / "peer").words) is None  # nor after a restart


def test_what_was_given_up_is_on_no_file_and_the_rest_is_kept(tmp_path: Path) -> None:
    made = opened(tmp_path)
    root = next((tmp_path / FOLDER).iterdir()).read_bytes()[-32:]
    other = bytes(32)
    value = made.words(other, b"")
    for i in range(3):
        made.give_up(bytes([i + 1]) * 32)
        files = list((tmp_path / FOLDER).iterdir())
        assert len(files) == 1
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and root in path.read_bytes()]
    assert value is not None
    again = opened(tmp_path).words(other, b"")
    assert again is not None
    assert np.array_equal(again.words(4), value.words(4))


@pytest.mark.parametrize("left", ["new", "old", "both"])
def test_a_crash_while_it_forgets_loses_nothing_and_is_finished_at_the_next_start(tmp_path: Path, left: str) -> None:
    made, folder = opened(tmp_path), tmp_path / FOLDER
    before = next(folder.iterdir())
    kept = before.read_bytes()
    made.give_up(STUDY.hash)
    after = next(folder.iterdir())
    if left in ("old", "both"):
        before.write_bytes(kept)  # the newer one is there, the older one not erased yet
    if left == "both":
        before.with_name(before.name + ".erasing").write_bytes(kept)
    if left == "new":
        (folder / "000000000003.key.new").write_bytes(b"half of it")
    assert opened(tmp_path).words(STUDY.hash, b"") is None
    assert [path.name for path in folder.iterdir()] == [after.name]


def test_a_ledger_without_its_secret_draws_nothing_and_makes_no_other(tmp_path: Path) -> None:
    opened(tmp_path)
    shutil.rmtree(tmp_path / FOLDER)
    for _ in range(2):
        with pytest.raises(VerificationError) as caught:
            opened(tmp_path, fresh=b"other")
        assert caught.value.rule == "draw-key-lost"


def test_another_peers_secret_is_not_taken(tmp_path: Path) -> None:
    opened(tmp_path / "one")
    opened(tmp_path / "two", fresh=b"other")
    shutil.rmtree(tmp_path / "one" / FOLDER)
    shutil.copytree(tmp_path / "two" / FOLDER, tmp_path / "one" / FOLDER)
    with pytest.raises(VerificationError, match="not the one that the ledger was begun with"):
        opened(tmp_path / "one")


def test_a_secret_made_just_before_a_crash_is_taken_up(tmp_path: Path) -> None:
    first = opened(tmp_path)
    shutil.copytree(tmp_path / FOLDER, tmp_path / "kept")
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / LEDGER).unlink()
    (tmp_path / LEDGER).with_suffix(".anchor").unlink()
    for rest in tmp_path.glob("ledger*"):
        rest.unlink()
    shutil.copytree(tmp_path / "kept", tmp_path / FOLDER)  # the secret is there, and no ledger that notes it
    assert drawn(opened(tmp_path, fresh=b"other").words) == drawn(first.words)


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    opened(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / FOLDER).iterdir()} == {0o600}
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700


# -- a draw ------------------------------------------------------------------------------------------------------------


def check_same(words: Words, again: Words) -> None:
    """Of one peer in one study, whatever happened to it: the same rows, in whatever order, give the same bytes."""
    body = drawn(words)
    assert body is not None
    assert drawn(again) == body
    order = np.random.default_rng(5).permutation(10)
    assert drawn(again, {name: column[order] for name, column in ROWS.items()}) == body


def test_which_records_of_a_person_are_taken_does_not_depend_on_their_order() -> None:
    vectors, labels = np.arange(24, dtype=np.int64).reshape(8, 3), np.array([0, 1] * 4, dtype=np.int64)
    persons = np.array([0, 0, 0, 1, 1, 0, 1, 2], dtype=np.int64)
    order = np.random.default_rng(3).permutation(8)

    def taken(at: NDArray[np.int64], most: int) -> list[list[tuple[int, ...]]]:
        rows, _ = _person_rows(vectors[at], labels[at], persons[at], most, 0)
        return [sorted(map(tuple, rows[p * most : (p + 1) * most].tolist())) for p in range(3)]

    for most in (1, 2, 3, 4):
        assert taken(order, most) == taken(np.arange(8), most)
    assert taken(np.arange(8), 4)[0] == sorted(tuple(v) for v in vectors[[0, 1, 2, 5]].tolist())  # all of few are taken


def check_other(words: Words) -> None:
    """Whatever else differs, words differ wholly: draws that share words would not be independent."""
    seen: list[bytes] = []

    def noted(study: bytes, context: bytes) -> AesStream:
        made = words(study, context)
        copy = words(study, context)
        assert copy is not None
        seen.append(copy.words(4).tobytes())
        return made  # type: ignore[return-value]

    changed = {name: column.copy() for name, column in ROWS.items()}
    changed["x"][3] = -changed["x"][3]
    drawn(noted)
    drawn(noted, changed)
    drawn(noted, {name: column[:9] for name, column in ROWS.items()})
    drawn(noted, name="peer-02")
    for more in ("version = 2", 'name = "other"'):
        line = more if more.startswith("version") else ""
        study = Study.parse(text("again" if not line else "among peers", peers=3, each=10).replace(
            'accept_noise = true', f"accept_noise = true\n{line}"))  # fmt: skip
        drawn(noted, of=Publishing.of(set_up(study.canonical(), ""), study.hash))
    for randomiser in ("laplace", "gaussian"):
        wanted = f'[program]\nrandomiser = "{randomiser}"\n[privacy]'
        study = Study.parse(text(peers=3, each=10).replace("[privacy]", wanted))
        made = Publishing.of(set_up(study.canonical(), ""), study.hash)
        drawn(noted, of=Publishing(
            study=STUDY.hash, plan=made.plan, randomiser=made.randomiser, program=made.program, most=made.most
        ))  # the same hash, were it possible: other noise has other words all the same  # fmt: skip
    assert len(set(seen)) == len(seen) == 8


def test_the_same_rows_in_the_same_study_are_drawn_alike_and_nothing_else_is(tmp_path: Path) -> None:
    made = opened(tmp_path)
    check_same(made.words, opened(tmp_path).words)
    check_other(made.words)


@pytest.mark.parametrize("randomiser", ["subset", "laplace", "gaussian"])
def test_every_randomiser_is_drawn_so(tmp_path: Path, randomiser: str) -> None:
    study = Study.parse(
        text(peers=3, each=10).replace("[privacy]", f'[program]\nrandomiser = "{randomiser}"\n[privacy]')
    )
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    made = opened(tmp_path)
    both = [publishing.drawn(records(ROWS, study), "peer-01", made.words) for _ in range(2)]
    assert both[0] is not None
    assert both[0] == both[1]
    other = {name: column[::-1].copy() for name, column in frame(10, 2).items()}
    assert publishing.drawn(records(other, study), "peer-01", made.words) != both[0]


def test_how_words_are_read_is_written_down() -> None:
    """A draw that is read from the same words in another way is a second release: if this fails, give ``_READING`` in
    ``trust/gossip/publishing`` another number, and then write the new bytes down here."""
    recorded = {
        "subset": "sha256:61dbfa7fdfcb5",
        "laplace": "sha256:cf04d58e4c9d6",
        "gaussian": "sha256:8bf7b3a3e5817",
    }
    found = {}
    for randomiser in recorded:
        wanted = f'[program]\nrandomiser = "{randomiser}"\n[privacy]'
        study = Study.parse(text(peers=3, each=10).replace("[privacy]", wanted))
        publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
        body = publishing.drawn(
            records(frame(4, 1), study), "peer-01", lambda _study, context: AesStream(derive(bytes(32)), context)
        )
        assert body is not None
        found[randomiser] = format_hash(publication_digest(study.hash, "peer-01", body))[:20]
    assert found == recorded


def test_over_all_secrets_the_law_is_that_of_fresh_words() -> None:
    """A chi-square test of what is published of one record, over secrets, against the randomiser's exact law; and its
    negative control."""
    from tests.trust.test_gossip_publishing import _one

    rows = {name: column[:1] for name, column in ROWS.items()}
    vectors, labels = PUBLISHING._rows(records(rows))
    from tallystick.privacy.local.records import record_identities

    identity = record_identities(STUDY.hash, "peer-01", 1)[0]
    law = _one(vectors[0], labels[0], identity)
    root, many = derive(bytes(32), b"root"), 4000
    seen = np.zeros(len(law))
    for i in range(many):
        body = drawn(lambda _s, c, i=i: AesStream(derive(root, i.to_bytes(4, "little")), c), rows)  # type: ignore[misc]
        assert body is not None
        seen[PUBLISHING.unpack(body)[0].values[0]] += 1
    likely = np.argsort(law)[-8:]

    def statistic(law: np.ndarray) -> float:
        expected = np.append(law[likely], 1 - law[likely].sum()) * many
        counts = np.append(seen[likely], many - seen[likely].sum())
        return float(((counts - expected) ** 2 / expected).sum())

    assert statistic(law) < 28  # 8 degrees of freedom, seeded; 26.1 is one in a thousand
    assert statistic(np.full(len(law), 1 / len(law))) > 100


# -- a peer ------------------------------------------------------------------------------------------------------------


class Peer:
    """A peer's part over a state folder, as much of it as a draw needs, under a board that tells it ``said``."""

    def __init__(self, state: Path, *, said: tuple[str, ...] = (), charged_here: bool = False) -> None:
        self.kept: bytes | None = None
        self.withdrawn, self.as_charged = False, True
        statements = [SimpleNamespace(signer="peer-01", body={"partials": [one]}) for one in said]
        exchange = SimpleNamespace(name="peer-01", members=SimpleNamespace(board="relay"), in_step=lambda _board: True)
        exchange.docket = lambda _study: SimpleNamespace(statements=lambda *_: statements)
        process = SimpleNamespace(
            name="peer-01", exchange=exchange, now=lambda: 0.0, wake=lambda *_: None, draws=opened(state),
            health=SimpleNamespace(rounds=0), records_as_charged=lambda _study: self.as_charged,
        )  # fmt: skip
        self.part: Any = object.__new__(PeerPart)
        self.part.session = SimpleNamespace(process=process, study_hash=STUDY.hash, charged_here=charged_here)
        self.part.machine, self.part.publishing, self.part.drive = self, PUBLISHING, list
        self.part._waiting = None

    published = property(lambda self: self.kept)

    def publish(self, body: bytes) -> list[Any]:
        self.kept = body
        return []

    def withdraw(self) -> list[Any]:
        self.withdrawn = True
        return []

    def answer(self, rows: dict[str, np.ndarray] = ROWS) -> bytes | None:
        self.part.answer(STEP, records(rows))
        return self.kept


def told(body: bytes) -> str:
    return format_hash(publication_digest(STUDY.hash, "peer-01", body))


def copies(tmp_path: Path) -> tuple[Path, Path]:
    """One peer's files, and what was copied of them between its charge and its draw."""
    opened(tmp_path / "peer")
    shutil.copytree(tmp_path / "peer", tmp_path / "copy")
    return tmp_path / "peer", tmp_path / "copy"


def check_no_second_draw(peer: Path, copy: Path) -> None:
    first = Peer(peer).answer()
    assert first is not None
    second = Peer(copy).answer()  # the board tells it nothing of the first
    assert second == first


def test_a_peer_that_was_set_back_before_its_draw_draws_the_same_whatever_the_board_hides(tmp_path: Path) -> None:
    check_no_second_draw(*copies(tmp_path))


def test_two_copies_that_draw_at_the_same_time_publish_one_record(tmp_path: Path) -> None:
    peer, copy = copies(tmp_path)
    both = Peer(peer), Peer(copy)
    made = [one.part._drawn(records(ROWS), None) for one in both]
    assert made[0] is not None
    assert made[0] == made[1]


def test_a_peer_that_was_set_back_goes_on_with_what_it_has_vouched_for(tmp_path: Path) -> None:
    peer, copy = copies(tmp_path)
    first = Peer(peer).answer()
    assert first is not None
    assert Peer(copy, said=(told(first),)).answer() == first


def test_it_publishes_nothing_where_it_has_vouched_for_other_records(tmp_path: Path) -> None:
    peer, copy = copies(tmp_path)
    first = Peer(peer).answer(frame(10, 2))
    assert first is not None
    again = Peer(copy, said=(told(first),))
    assert again.answer() is None
    assert again.withdrawn


def test_it_publishes_nothing_after_a_restart_if_its_records_are_not_those_it_was_charged_for(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    peer.as_charged = False
    assert peer.answer() is None
    assert peer.withdrawn
    live = Peer(tmp_path, charged_here=True)  # a table that grows while the process runs
    live.as_charged = False
    assert live.answer() is not None


def test_what_a_ledger_was_charged_for_is_what_was_registered_then(tmp_path: Path) -> None:
    source, signing = tmp_path / "lines.csv", SigningKey(derive(bytes(32), b"identity"))
    source.write_text("x,z,y\n0.1,0.2,a\n0.3,0.4,b\n")
    charge = charge_of(STUDY.hash, set_up(STUDY.canonical(), "").plan)
    process: Any = object.__new__(PeerProcess)
    process.parts = SimpleNamespace(config=SimpleNamespace(dataset="own", data=source, spark=None, memory_mb=None))
    process.name = "peer-01"
    with_budget = Budget(epsilon=10.0, delta=1e-6)
    ledger = process.ledger = LedgerStore(tmp_path / LEDGER, party="peer-01", signing=signing)
    try:
        first = ledger.register(make_dataset("own", source), with_budget)
        ledger.reserve("own", charge)
        assert process.records_as_charged(STUDY.hash)
        source.write_text("x,z,y\n0.3,0.4,b\n0.1,0.2,a\n")  # the same in another order
        assert process.records_as_charged(STUDY.hash)
        source.write_text("x,z,y\n0.3,0.4,b\n0.1,0.2,a\nno record\n")  # which would be published, as zeros
        assert not process.records_as_charged(STUDY.hash)
        source.write_text("x,z,y\n0.1,0.2,a\n0.3,0.5,b\n")
        assert not process.records_as_charged(STUDY.hash)
        changed = ledger.register(make_dataset("own", source), with_budget)  # as every start does
        assert changed.fingerprint.content != first.fingerprint.content
        assert not process.records_as_charged(STUDY.hash)
        assert ledger.charged_records(STUDY.hash) == first.fingerprint
    finally:
        ledger.close()


def test_it_publishes_nothing_if_only_its_memory_of_the_record_is_gone(tmp_path: Path) -> None:
    assert Peer(tmp_path).answer() is not None
    again = Peer(tmp_path)
    assert again.answer() is None
    assert again.withdrawn


def test_a_peer_killed_before_it_has_forgotten_forgets_when_it_begins(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    peer.kept = b"kept"
    peer.begin = lambda _now: []  # type: ignore[attr-defined]
    peer.part.begin()
    assert opened(tmp_path).words(STUDY.hash, b"") is None


# -- planted bugs ------------------------------------------------------------------------------------------------------


def test_planted_bug_fresh_words_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DrawKey, "words", lambda *_: system_stream())
    with pytest.raises(AssertionError):
        check_no_second_draw(*copies(tmp_path))
    with pytest.raises(AssertionError):
        check_same(opened(tmp_path / "peer").words, opened(tmp_path / "peer").words)


def test_planted_bug_words_that_do_not_follow_from_the_rows_are_caught(tmp_path: Path) -> None:
    made = opened(tmp_path)
    with pytest.raises(AssertionError):
        check_other(lambda study, _context: made.words(study, b""))


def test_planted_bug_the_same_words_for_other_rows_show_the_difference() -> None:
    """Why the rows are in the words' name: of Laplace noise that two copies share, everybody takes the difference."""
    study = Study.parse(text(peers=3, each=10).replace("[privacy]", '[program]\nrandomiser = "laplace"\n[privacy]'))
    publishing = Publishing.of(set_up(study.canonical(), ""), study.hash)
    one = {name: column[:1].copy() for name, column in ROWS.items()}
    other = {**one, "x": -one["x"]}

    def difference(words: Words) -> np.ndarray:
        bodies = [publishing.drawn(records(rows, study), "peer-01", words) for rows in (one, other)]
        first, second = (publishing.unpack(body or b"")[0].values for body in bodies)
        return np.array(first) - np.array(second)

    vectors = [publishing._rows(records(rows, study))[0] for rows in (one, other)]
    clipped = [publishing.randomiser.vector.clipped(v)[0] for v in vectors]  # type: ignore[union-attr]
    exact = np.abs(clipped[0] - clipped[1])
    assert exact.any()
    assert np.array_equal(np.abs(difference(lambda _s, _c: source())), exact)  # the bug: exact, no noise at all
    assert not np.array_equal(np.abs(difference(lambda _s, c: AesStream(derive(bytes(32)), c))), exact)
