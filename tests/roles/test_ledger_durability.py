"""A charge that was told is on the disk: every commit of a ledger, and of what servers saw of it, is a synced one.

No test can cut the power, so this looks at each connection at the moment it commits: the log is written ahead, and
``synchronous`` is FULL, with which SQLite does not return from a commit before the disk has it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from ledger_examples import BUDGET, IDENTITIES, PARTY, charge, countersign, dataset, open_ledger, small_ledger, study

from tallystick.privacy.chain import Head
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.ledger import recovery
from tallystick.roles.ledger.seen_heads import SeenHeads
from tallystick.roles.storage.stores import RoleStore

FULL = 2
Commits = list[tuple[str, str, int]]  # file, journal mode, synchronous


class Watched(sqlite3.Connection):
    """Notes how durable each commit is; of a statement outside a transaction too, which is one by itself."""

    commits: Commits = []  # noqa: RUF012 - one list for all connections of a test
    overruled: int | None = None

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        word = sql.split()[0].upper() if sql.split() else ""
        if word == "PRAGMA" and "SYNCHRONOUS" in sql.upper() and "=" in sql and self.overruled is not None:
            sql = f"PRAGMA synchronous = {self.overruled}"
        if word == "COMMIT" or (word in ("INSERT", "UPDATE", "DELETE") and not self.in_transaction):
            real = super().execute
            name = Path(real("PRAGMA database_list").fetchone()[2]).name
            mode, synced = (real(f"PRAGMA {what}").fetchone()[0] for what in ("journal_mode", "synchronous"))
            self.commits.append((name, mode, synced))
        return super().execute(sql, *given)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: real(*given, **{**named, "factory": Watched}))
    monkeypatch.setattr(Watched, "commits", [])
    monkeypatch.setattr(Watched, "overruled", None)
    return Watched.commits


def live(folder: Path) -> None:
    """Everything a ledger ever writes: opening, registering, a study through all its states, another given back."""
    small_ledger(folder)
    with open_ledger(folder) as ledger:
        ledger.register(dataset("more"), BUDGET, by="steward")
        ledger.reserve("default", charge(3), study_name="three")
        ledger.release(study(3))
        ledger.add_countersignature(countersign(ledger, 3).encode(), IDENTITIES)
        ledger.commit(study(3), b"r" * 32)


def test_every_commit_of_a_ledger_is_synced(tmp_path: Path, commits: Commits) -> None:
    live(tmp_path)
    assert len(commits) >= 12  # every link, and the schema
    assert set(commits) == {("ledger.sqlite", "wal", FULL)}


def test_it_stays_so_when_the_file_is_opened_again(tmp_path: Path, commits: Commits) -> None:
    """``synchronous`` is of the connection, not of the file: each one has to ask for it."""
    live(tmp_path)
    commits.clear()
    with open_ledger(tmp_path) as one, open_ledger(tmp_path) as two:
        one.reserve("default", charge(8), study_name="eight")
        two.release(study(8))
    assert set(commits) == {("ledger.sqlite", "wal", FULL)}


def test_what_servers_saw_and_what_roles_keep_is_synced(tmp_path: Path, commits: Commits) -> None:
    seen = SeenHeads(tmp_path / "seen.sqlite", party="server-1")
    assert seen.accept(PARTY, Head(ledger=bytes(16), sequence=1, hash=b"h" * 32), []).accepted
    seen.close()
    with RoleStore(tmp_path / "role.sqlite", party=PARTY) as store:
        store.add_study(study(1), b"{}", "")
        store.persist(study(1), "round", b"x")
    GovernanceStore(tmp_path / "governance.sqlite", party=PARTY, identities=IDENTITIES).close()
    assert {file for file, _, _ in commits} >= {"seen.sqlite", "role.sqlite"}
    assert {(mode, synced) for file, mode, synced in commits if file != "governance.sqlite"} == {("wal", FULL)}


def test_a_recovered_ledger_is_synced_before_it_takes_the_old_ones_place(tmp_path: Path, commits: Commits) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET, by="steward")
        links = ledger.file.links(0)
        ident = ledger.file.ledger
    commits.clear()
    recovery._write(tmp_path / "recovered.sqlite", PARTY, links, ident)
    assert [(file, synced) for file, _, synced in commits] == [("recovered.sqlite", FULL)]


@pytest.mark.parametrize("planted", ["OFF", "NORMAL"])
def test_a_planted_pragma_is_caught(tmp_path: Path, commits: Commits, planted: str) -> None:
    Watched.overruled = {"OFF": 0, "NORMAL": 1}[planted]
    live(tmp_path)
    assert {synced for _, _, synced in commits} == {Watched.overruled}
