"""The file of statements: word for word, shared by processes, checked when written and again when read."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.core.errors import RemoteProtocolError, RoundAborted, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey, VerifyKey
from tallystick.protocol.governance.statements import Statement, make
from tallystick.roles.governance import room
from tallystick.roles.governance import store as module
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.storage.database import is_storage_failure
from tallystick.study import study_digest

TEXTS = ['{"study":{"version":1}}', '{"study":{"version":2}}']
HASHES = [study_digest(text.encode()) for text in TEXTS]


def key(name: str) -> SigningKey:
    return SigningKey.generate(AesStream(derive(bytes(32), b"governance store", name.encode())))


IDENTITIES = {name: key(name).public for name in ("hub", "ana", "s0", "c0", "c1")}


def withdrawal(number: int = 0, study: int = 0, signer: str = "ana") -> Statement:
    body = {"hash": format_hash(HASHES[study]), "reason": f"reason {number}", "at": number}
    return make("withdrawal", signer, body, key(signer))


def successor() -> Statement:
    body = {
        "study": TEXTS[1],
        "program": "",
        "hash": format_hash(HASHES[1]),
        "consortium": format_hash(bytes(32)),
        "created": 1,
        "expires": 2,
        "supersedes": format_hash(HASHES[0]),
        "purpose": "",
        "plan": {"rounds": 1, "rho": "1/2", "noise": [[1, ["1/1"]]], "words": []},
    }
    return make("proposal", "ana", body, key("ana"))


def start(study: int = 0) -> Statement:
    hashed = format_hash(HASHES[study])
    body = {"hash": hashed, "proposal": hashed, "attempt": 1, "at": 1, "parties": ["s0"], "approvals": {}}
    return make("start", "hub", body, key("hub"))


def charge(signer: str) -> Statement:
    hashed = format_hash(HASHES[1])
    place = {"ledger": "0" * 32, "dataset": "d", "sequence": 1, "head": hashed}
    return make("charge", signer, {"hash": hashed, **place, "rho": "1/2", "spent_rho": "1/2", "at": 1}, key(signer))


def open_store(tmp_path: Path, party: str = "c0", identities: dict[str, VerifyKey] | None = None) -> GovernanceStore:
    return GovernanceStore(tmp_path / "state" / "governance.sqlite", party=party, identities=identities or IDENTITIES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GovernanceStore]:
    with open_store(tmp_path) as opened:
        yield opened


def test_statements_are_kept_word_for_word_and_in_order(store: GovernanceStore, tmp_path: Path) -> None:
    said = [withdrawal(2), withdrawal(1, 1), withdrawal(0), successor()]
    assert [store.add(s.encode()) for s in said] == [True] * 4
    assert [store.add(s.encode()) for s in said] == [False] * 4
    store.close()
    with open_store(tmp_path) as again:
        assert [s.encode() for s in again.statements()] == [s.encode() for s in said]
        assert again.hashes() == (HASHES[0], HASHES[1])
        assert again.idents() == {s.ident for s in said}
        assert again.statement(said[2].ident) == said[2]
        assert again.statement("sha256:" + "0" * 64) is None
        assert again.last() == 4


def test_what_bears_on_a_study_includes_what_takes_its_place(store: GovernanceStore) -> None:
    first, second = withdrawal(1), successor()
    for s in (first, second, withdrawal(3, 1)):
        store.add(s.encode())
    assert store.statements(HASHES[0]) == (first, second)
    assert store.statements(HASHES[1])[0] == second
    assert store.statements(bytes(32)) == ()


def test_polling_sees_what_another_process_of_this_party_added(store: GovernanceStore, tmp_path: Path) -> None:
    assert (store.last(), store.since(0)) == (0, ())
    store.add(withdrawal(1).encode())
    seen = store.last()
    with open_store(tmp_path) as command_line:
        command_line.add(withdrawal(2).encode())
        command_line.add(withdrawal(3).encode())
    news = store.since(seen)
    assert [s for _, s in news] == [withdrawal(2), withdrawal(3)]
    assert store.since(news[-1][0]) == ()


@pytest.mark.parametrize(
    "raw, error, rule",
    [
        (b"{}", RemoteProtocolError, "malformed"),
        (withdrawal().encode() + b" ", RemoteProtocolError, "malformed"),
        (withdrawal(signer="c1").encode().replace(b'"c1"', b'"c0"'), VerificationError, "bad-signature"),
        (withdrawal().encode().replace(b"reason 0", b"reason 1"), VerificationError, "bad-signature"),
        (make("withdrawal", "eve", withdrawal().body, key("eve")).encode(), VerificationError, "unknown-signer"),
    ],
)
def test_only_what_its_signer_signed_goes_in(store: GovernanceStore, raw: bytes, error: type, rule: str) -> None:
    with pytest.raises(error) as refusal:
        store.add(raw, sender="hub")
    assert refusal.value.rule == rule
    assert store.statements() == ()


@pytest.mark.parametrize("how", ["text", "swap", "blob", "null-ish"])
def test_an_edited_file_is_detected_when_it_is_read(store: GovernanceStore, tmp_path: Path, how: str) -> None:
    store.add(withdrawal(1).encode())
    store.add(withdrawal(2).encode())
    store.close()
    edits = {
        "text": ("UPDATE statements SET raw = ? WHERE number = 1", (withdrawal(1).encode().replace(b"n 1", b"n 7"),)),
        "swap": ("UPDATE statements SET raw = ? WHERE number = 1", (b"not a statement",)),
        "blob": ("UPDATE statements SET raw = CAST(raw AS TEXT) WHERE number = ?", (1,)),
        "null-ish": ("UPDATE statements SET raw = ? WHERE number = 1", (7,)),
    }
    with sqlite3.connect(tmp_path / "state" / "governance.sqlite") as db:
        db.execute(*edits[how])
    db.close()
    with open_store(tmp_path) as again:
        for read in (lambda: again.statements(), lambda: again.statements(HASHES[0]), lambda: again.since(0)):
            with pytest.raises(VerificationError) as refusal:
                read()
            assert (refusal.value.rule, refusal.value.party, refusal.value.exit_code) == ("storage-corrupt", "c0", 6)
        assert [s for _, s in again.since(1)] == [withdrawal(2)]


def test_a_party_that_left_or_has_a_new_key_is_passed_over(store: GovernanceStore, tmp_path: Path) -> None:
    kept, gone = withdrawal(1), withdrawal(2, signer="c1")
    store.add(kept.encode())
    store.add(gone.encode())
    store.close()
    left = {name: k for name, k in IDENTITIES.items() if name != "c1"}
    for identities in (left, left | {"c1": key("c1, anew").public}):
        with open_store(tmp_path, identities=identities) as again:
            assert again.statements() == (kept,)
            with pytest.raises(VerificationError):
                again.add(gone.encode())
    with open_store(tmp_path) as back:
        assert back.statements() == (kept, gone)


def test_one_signer_cannot_fill_it(store: GovernanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "OF_A_KIND", 3)
    for n in range(3):
        assert store.add(withdrawal(n).encode())
    with pytest.raises(RemoteProtocolError) as refusal:
        store.add(withdrawal(3).encode())
    assert (refusal.value.rule, refusal.value.party) == ("too-many-statements", "ana")
    assert not store.add(withdrawal(1).encode())  # what is known is still known
    assert store.add(withdrawal(3, 1).encode())  # another study
    assert store.add(withdrawal(3, signer="c1").encode())  # another signer
    monkeypatch.setattr(room, "SIGNER_BYTES", 1300)
    with pytest.raises(RemoteProtocolError):
        store.add(withdrawal(5, 1).encode())
    assert len(store.statements()) == 5


def test_what_has_not_started_has_less_room_than_what_has(
    store: GovernanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "UNSTARTED_STATEMENTS", 2)
    assert store.add(withdrawal(1).encode())
    assert store.add(withdrawal(2, 1).encode())
    with pytest.raises(RemoteProtocolError) as refusal:
        store.add(withdrawal(3).encode())
    assert (refusal.value.rule, refusal.value.party) == ("too-many-statements", "ana")
    assert store.add(withdrawal(1, signer="c1").encode())  # another signer has room of its own
    assert store.add(start().encode())
    assert store.add(withdrawal(3).encode())  # about the study that has started


def test_what_has_expired_is_pruned_and_what_has_started_or_was_paid_for_is_not(
    store: GovernanceStore, tmp_path: Path
) -> None:
    kept = successor()  # expires at 2
    store.add(kept.encode())
    store.add(withdrawal(3, 1, signer="c1").encode())
    assert store.prune(now=1.0, grace=0.0) == set()
    assert store.prune(now=2.0 + room.GRACE_SECONDS) == set()
    assert store.prune(now=3.0, grace=0.0) == {HASHES[1]}
    assert store.statements() == ()
    assert HASHES[1] not in store.proposed()
    for about in (charge("c0"), start(1)):
        store.add(kept.encode())
        store.add(about.encode())
        assert store.prune(now=1e12) == set()
        assert store.proposed() == {HASHES[1]}
        (tmp_path / "state" / "governance.sqlite").unlink()
        store.close()
        store = open_store(tmp_path)
    store.add(kept.encode())
    store.add(charge("c1").encode())  # somebody else's charge does not keep it
    store.add(withdrawal(4).encode())  # nobody has proposed this
    assert store.prune(now=1e12) == set(HASHES)
    store.close()


def test_a_file_of_the_first_format_is_taken_over(store: GovernanceStore, tmp_path: Path) -> None:
    said = [successor(), withdrawal(1)]
    for statement in said:
        store.add(statement.encode())
    store.close()
    with sqlite3.connect(tmp_path / "state" / "governance.sqlite") as db:
        db.execute("DROP INDEX statements_by_kind")
        db.execute("DROP INDEX statements_by_signer")
        for column in ("kind", "expires"):
            db.execute(f"ALTER TABLE statements DROP COLUMN {column}")
        db.execute("CREATE INDEX statements_by_signer ON statements (signer, study, size)")
        db.execute("UPDATE governance_meta SET value = '1' WHERE key = 'schema'")
    db.close()
    with open_store(tmp_path) as again:
        assert again.statements() == tuple(said)
        assert again.proposed() == {HASHES[1]}
        assert again.prune(now=1e12) == set(HASHES)


def test_what_is_remembered_as_verified_is_limited(store: GovernanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_BYTES", 1000)
    for n in range(20):
        store.add(withdrawal(n).encode())
    assert len(store._known) <= 3
    assert len(store.statements()) == 20


def test_full_disk_keeps_nothing_by_halves_and_recovers(store: GovernanceStore) -> None:
    store.add(withdrawal(1).encode())
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    body = dict(withdrawal(2).body) | {"reason": "long " * 790}
    long = [make("withdrawal", "ana", body | {"at": n}, key("ana")) for n in range(40)]

    def fill() -> None:
        for statement in long:
            store.add(statement.encode())

    with pytest.raises(RoundAborted) as full:
        fill()
    assert (full.value.rule, full.value.party) == ("storage-full", "c0")
    assert is_storage_failure(full.value)
    kept = len(store.statements())
    store._db.execute("PRAGMA max_page_count = 1000000")
    fill()
    assert (kept < 41, len(store.statements())) == (True, 41)


def test_a_read_only_disk(store: GovernanceStore) -> None:
    store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(RoundAborted) as refused:
        store.add(withdrawal().encode())
    assert refused.value.rule == "storage-read-only"


def test_another_process_that_does_not_let_go(
    store: GovernanceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.05)
    with open_store(tmp_path) as second:
        store._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(RoundAborted) as refused:
            second.add(withdrawal().encode())
        assert refused.value.rule == "storage-in-use"
        assert second.statements() == ()  # readers are never in the way
        store._db.execute("COMMIT")
        assert second.add(withdrawal().encode())


def test_the_file_of_another_party_is_refused(store: GovernanceStore, tmp_path: Path) -> None:
    store.close()
    store.close()
    with pytest.raises(VerificationError, match="c0"):
        open_store(tmp_path, "c1")


@pytest.mark.parametrize("damage", ["header", "middle"])
def test_a_damaged_file_is_not_used(store: GovernanceStore, tmp_path: Path, damage: str) -> None:
    for n in range(200):
        store.add(withdrawal(n, n % 2, signer=("ana", "c0", "c1", "s0")[n // 2 % 4]).encode())
    store.close()
    path = tmp_path / "state" / "governance.sqlite"
    raw = bytearray(path.read_bytes())
    if damage == "header":
        raw[:100] = bytes(100)
    else:
        for page in range(2 * 4096, len(raw), 4096):
            raw[page : page + 200] = b"\xa5" * 200
    path.write_bytes(raw)
    with pytest.raises(VerificationError) as refused:
        open_store(tmp_path)
    assert refused.value.rule == "storage-corrupt"


def test_only_its_owner_can_read_it(store: GovernanceStore, tmp_path: Path) -> None:
    assert (tmp_path / "state" / "governance.sqlite").stat().st_mode & 0o077 == 0
    mode = store._db.execute("PRAGMA journal_mode").fetchone()[0], store._db.execute("PRAGMA synchronous").fetchone()[0]
    assert mode == ("wal", 2)


def test_own_statements_are_forced_to_the_disk_and_take_what_peers_sent_with_them(store: GovernanceStore) -> None:
    asked: list[str] = []
    store._db.set_trace_callback(asked.append)
    store.add(withdrawal(1).encode(), sender="hub")
    store.add(withdrawal(2).encode(), sender="hub")
    store.add(withdrawal(3).encode())
    store._db.set_trace_callback(None)
    assert [sql for sql in asked if "synchronous" in sql or sql == "COMMIT"] == [
        "PRAGMA synchronous = NORMAL", "COMMIT", "COMMIT", "PRAGMA synchronous = FULL", "COMMIT",
    ]  # fmt: skip


def test_threads_share_one_store(store: GovernanceStore) -> None:
    said = [withdrawal(n) for n in range(40)]
    new: list[bool] = []

    def add() -> None:
        new.extend([store.add(s.encode()) for s in said])

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(new), len(new), len(store.statements())) == (40, 160, 40)


FORK = multiprocessing.get_context("fork")


def _write(tmp_path: Path, said: list[Statement], told: Any, together: Any) -> None:
    together.wait()
    with open_store(tmp_path) as store:
        told.put(sum(store.add(s.encode()) for s in said))


def test_processes_share_one_file(tmp_path: Path) -> None:
    """All open it at once, before it exists; every statement is new to exactly one of them."""
    said = [withdrawal(n) for n in range(30)]
    told, together = FORK.SimpleQueue(), FORK.Barrier(6)
    running = [FORK.Process(target=_write, args=(tmp_path, said, told, together)) for _ in range(6)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [0] * 6
    assert sum(told.get() for _ in running) == 30
    with open_store(tmp_path) as store:
        assert set(store.statements()) == set(said)
        assert [n for n, _ in store.since(0)] == sorted(n for n, _ in store.since(0))


def _killed(tmp_path: Path, number: int) -> None:
    store = open_store(tmp_path)
    store.add(withdrawal(number).encode())
    store._db.execute("BEGIN IMMEDIATE")
    store._db.execute("DELETE FROM statements")
    os.kill(os.getpid(), signal.SIGKILL)


def test_kill_keeps_what_was_added(tmp_path: Path) -> None:
    for number in range(3):
        process = FORK.Process(target=_killed, args=(tmp_path, number))
        process.start()
        process.join()
        assert process.exitcode == -9
    with open_store(tmp_path) as store:
        assert store.statements() == (withdrawal(0), withdrawal(1), withdrawal(2))
