"""A ledger that was tampered with, truncated, rolled back, copied or forked is detected, and its owner refuses."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from ledger_examples import (
    BUDGET,
    IDENTITIES,
    PARTY,
    SERVER_KEYS,
    WHOLE,
    charge,
    copy,
    countersign,
    database,
    dataset,
    open_ledger,
    small_ledger,
    study,
)

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.crypto.signing import SigningKey
from tallystick.privacy.chain import Head, Link, make_link
from tallystick.protocol.governance.statements import make
from tallystick.roles.ledger.account import charge_facts
from tallystick.roles.ledger.countersignatures import kept
from tallystick.roles.ledger.file import COLUMNS
from tallystick.roles.ledger.report import export
from tallystick.roles.ledger.seen_heads import SeenHeads


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    small_ledger(made)
    return made


def detected(folder: Path) -> str:
    """Opening it must fail as a verification (exit 6) with a remedy; the cause is given back."""
    with pytest.raises(VerificationError) as caught:
        open_ledger(folder).close()
    assert caught.value.exit_code == 6
    assert caught.value.remedy
    assert caught.value.party == PARTY
    return caught.value.cause


def flips(value: Any) -> list[Any]:
    """The value with one bit of one byte changed, for every byte."""
    raw = value.encode() if isinstance(value, str) else value
    changed = [raw[:i] + bytes([raw[i] ^ (1 << (i % 7))]) + raw[i + 1 :] for i in range(len(raw))]
    return [c.decode("latin-1") if isinstance(value, str) else c for c in changed]


def test_every_byte_of_every_row(folder: Path) -> None:
    """Each byte of a small ledger flipped in turn, in a running process: the next release refuses.

    ``check`` is what opening and every release do; opening anew for each of thousands of flips would only be slower.
    """
    tried = 0
    with open_ledger(folder) as ledger, database(folder) as burglar:
        rows = burglar.execute(f"SELECT {COLUMNS} FROM links").fetchall()
        for row in rows:
            for name, value in zip(COLUMNS.split(", ")[1:], row[1:]):
                changes = flips(value)
                for bad in changes:
                    burglar.execute(f"UPDATE links SET {name} = ? WHERE sequence = ?", (bad, row[0]))
                    with pytest.raises(VerificationError):
                        ledger.file.check()
                    tried += 1
                burglar.execute(f"UPDATE links SET {name} = ? WHERE sequence = ?", (value, row[0]))
        ledger.file.check()
    assert tried > 2500


@pytest.mark.parametrize("column", ["kind", "body", "previous", "hash", "signature"])
@pytest.mark.parametrize("sequence", [1, 4, 7])
def test_a_changed_row_is_found_at_start_up(folder: Path, column: str, sequence: int) -> None:
    with database(folder) as burglar:
        (value,) = burglar.execute(f"SELECT {column} FROM links WHERE sequence = ?", (sequence,)).fetchone()
        burglar.execute(f"UPDATE links SET {column} = ? WHERE sequence = ?", (flips(value)[-1], sequence))
    assert f"link {sequence}" in detected(folder)


@pytest.mark.parametrize("bad", [None, 5, "text", b"", b"short"])
def test_a_row_of_another_type(folder: Path, bad: object) -> None:
    with database(folder) as burglar:
        for column in ("hash", "previous", "signature", "body"):
            (value,) = burglar.execute(f"SELECT {column} FROM links WHERE sequence = 3").fetchone()
            try:
                burglar.execute(f"UPDATE links SET {column} = ? WHERE sequence = 3", (bad,))
            except sqlite3.IntegrityError:
                continue
            detected(folder)
            burglar.execute(f"UPDATE links SET {column} = ? WHERE sequence = 3", (value,))
    open_ledger(folder).close()


def test_a_changed_row_stops_the_next_release(folder: Path) -> None:
    """Not only at start-up: a running client follows the whole chain before anything leaves."""
    with open_ledger(folder) as ledger:
        ledger.reserve("default", charge(3))
        with database(folder) as burglar:
            burglar.execute("UPDATE links SET body = replace(body, 'one', 'two') WHERE sequence = 3")
        with pytest.raises(VerificationError, match="link 3"):
            ledger.release(study(3))
        assert ledger.file.links(7)[-1].kind == "reserve", "no release was written"


def test_a_lowered_charge_does_not_help(folder: Path) -> None:
    """A burglar with the file but without the key makes the hashes fit again: the signatures do not."""
    with database(folder) as burglar:
        rows = burglar.execute(f"SELECT {COLUMNS} FROM links ORDER BY sequence").fetchall()
        links = [Link(**dict(zip(COLUMNS.split(", "), row))) for row in rows]
        head = Head(ledger=b"", sequence=2, hash=links[1].hash)
        for link in links[2:]:
            body = json.loads(link.body)
            body |= {"rho": "1/1000000", "curve": [1] * len(body["curve"])} if link.kind == "reserve" else {}
            made = make_link(head, link.kind, body)
            head = Head(ledger=b"", sequence=made.sequence, hash=made.hash)
            burglar.execute(
                "UPDATE links SET body = ?, previous = ?, hash = ? WHERE sequence = ?",
                (made.body, made.previous, made.hash, made.sequence),
            )
    assert "identity key" in detected(folder)


def test_a_ledger_with_its_end_cut_off(folder: Path) -> None:
    """Links cut off at the end (the anchor knows), in the middle, or all of them."""
    for where in ("sequence > 4", "sequence = 4", "sequence = 1", "sequence > 0"):
        other = copy(folder, folder.parent / where.replace(" ", ""))
        with database(other) as burglar:
            burglar.execute(f"DELETE FROM links WHERE {where}")
        cause = detected(other)
        assert "missing" in cause or "rolled back: it ends at link" in cause
    shutil.rmtree(other)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 5000])
def test_a_truncated_file(folder: Path, size: int) -> None:
    file = folder / "ledger.sqlite"
    raw = file.read_bytes()
    assert len(raw) > 5000
    file.write_bytes(raw[:size])
    detected(folder)


def test_any_byte_of_the_file(folder: Path) -> None:
    """A byte of the database file flipped: found, or not a byte that says anything (then the chain is the same)."""
    with open_ledger(folder) as ledger:
        whole = export(ledger.file)
    file = folder / "ledger.sqlite"
    raw = file.read_bytes()
    found: list[TallystickError] = []
    for place in range(0, len(raw), 97):
        file.write_bytes(raw[:place] + bytes([raw[place] ^ 0x41]) + raw[place + 1 :])
        for extra in folder.glob("ledger.sqlite-*"):
            extra.unlink()
        try:
            with open_ledger(folder) as ledger:
                ledger.verify()
                assert export(ledger.file) == whole, place
        except TallystickError as error:
            found.append(error)
    assert len(found) > 30
    assert all(error.exit_code == 6 or error.rule.startswith("storage-") for error in found)


def test_every_byte_of_the_anchor(folder: Path) -> None:
    file = folder / "ledger.anchor"
    raw = file.read_bytes()
    for bad in [*flips(raw), raw[:-1], b"", raw + b" ", b"null", b"[1]", b'{"ledger":5}']:
        file.write_bytes(bad)
        detected(folder)
    file.unlink()
    assert "anchor file is gone" in detected(folder)
    file.write_bytes(raw)
    open_ledger(folder).close()


def test_a_ledger_rolled_back_alone(folder: Path) -> None:
    """The database is restored from yesterday's backup, the anchor is not."""
    with open_ledger(folder) as ledger:
        backup = copy(folder, folder.parent / "backup")
        ledger.reserve("default", charge(3))
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    for file in backup.glob("ledger.sqlite*"):
        shutil.copy2(file, folder / file.name)
    assert "rolled back: it ends at link 7, its anchor is at link 8" in detected(folder)
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    assert "database is gone" in detected(folder)


def test_a_lost_write_ahead_log(folder: Path) -> None:
    with open_ledger(folder) as ledger:
        ledger.file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ledger.reserve("default", charge(3))
        crashed = copy(folder, folder.parent / "crashed")  # as kill -9 leaves it
    open_ledger(crashed).close()
    crashed = copy(folder, folder.parent / "again") if not (crashed / "ledger.sqlite-wal").exists() else crashed
    with open_ledger(folder) as ledger:
        ledger.reserve("default", charge(4))
        lost = copy(folder, folder.parent / "lost")
    (lost / "ledger.sqlite-wal").unlink()
    assert "rolled back" in detected(lost)


def test_a_ledger_rolled_back_with_its_anchor_is_found_by_a_server(folder: Path) -> None:
    """Everything restored from a backup agrees with itself; the servers have seen more."""
    with SeenHeads(folder.parent / "server.sqlite", party="server-1") as server:
        backup = copy(folder, folder.parent / "backup")
        with open_ledger(folder) as ledger:
            ledger.reserve("default", charge(3))
            assert server.accept(PARTY, ledger.head(), ledger.links(0)).accepted
        with open_ledger(backup) as old:
            old.verify()  # nothing to be seen here
            seen = server.last(PARTY)
            with pytest.raises(
                VerificationError, match="rolled back: it ends at link 7, server-1 has seen link 8"
            ) as caught:
                old.compare(seen, by="server-1")
            assert caught.value.rule == "ledger-seen-elsewhere"


def test_forked_copies_of_a_ledger(folder: Path) -> None:
    """Two copies that both went on: the second to be shown is refused, and learns why."""
    fork = copy(folder, folder.parent / "fork")
    with (
        SeenHeads(folder.parent / "server.sqlite", party="server-1") as server,
        open_ledger(folder) as one,
        open_ledger(fork) as two,
    ):
        assert server.accept(PARTY, one.head(), one.links(0)).accepted
        one.reserve("default", charge(3, WHOLE / 2))
        two.reserve("default", charge(4, WHOLE / 2))
        assert server.accept(PARTY, one.head(), one.links(7)).accepted
        for ledger, since in ((two, 7), (two, 0)):
            verdict = server.accept(PARTY, ledger.head(), ledger.links(since))
            assert (verdict.accepted, verdict.why) == (False, "another link was seen in its place")
        with pytest.raises(VerificationError, match="two copies of this ledger: server-1 has seen another link 8"):
            two.compare(verdict.last, by="server-1")
        one.compare(verdict.last, by="server-1")
        signed = countersign(one, 3)
        with pytest.raises(VerificationError, match="another link stands there"):
            two.add_countersignature(signed.encode(), IDENTITIES)
        with pytest.raises(VerificationError):
            two.verify(IDENTITIES, [signed])


def test_a_ledger_copied_from_another_client(tmp_path: Path) -> None:
    other_key = SigningKey(b"o" * 32)
    (tmp_path / "theirs").mkdir()
    small_ledger(tmp_path / "theirs", party="client-2", key=other_key)
    mine = copy(tmp_path / "theirs", tmp_path / "mine")
    assert "belongs to 'client-2'" in detected(mine)
    with database(mine) as burglar:
        burglar.execute("UPDATE meta SET value = ? WHERE key = 'party'", (PARTY,))
    assert "link 1" in detected(mine)
    with database(mine) as burglar:  # an empty one under my name: the anchor is theirs
        burglar.execute("DELETE FROM links")
    assert "anchor file is another institution's" in detected(mine)


def test_another_ledger_of_ones_own(folder: Path) -> None:
    """Started anew with an unspent budget: a server knows this client's ledger by its id."""
    fresh = folder.parent / "fresh"
    fresh.mkdir()
    with SeenHeads(folder.parent / "server.sqlite", party="server-1") as server:
        with open_ledger(folder) as old:
            assert server.accept(PARTY, old.head(), old.links(0)).accepted
        with open_ledger(fresh) as new:
            new.register(dataset(), BUDGET)
            verdict = server.accept(PARTY, new.head(), new.links(0))
            assert (verdict.accepted, verdict.why) == (False, "another ledger of this client is known")
            with pytest.raises(VerificationError, match="another ledger of this institution"):
                new.compare(verdict.last, by="server-1")
    (folder / "ledger.anchor").replace(fresh / "ledger.anchor")
    assert "belongs to another ledger" in detected(fresh)


def test_a_ledger_replaced_under_a_running_client(folder: Path) -> None:
    backup = copy(folder, folder.parent / "backup")
    with open_ledger(folder) as ledger:
        shutil.copy2(backup / "ledger.sqlite", folder / "new")
        (folder / "new").replace(folder / "ledger.sqlite")
        with pytest.raises(VerificationError, match="replaced under this process"):
            ledger.reserve("default", charge(3))
        (folder / "ledger.sqlite").unlink()
        with pytest.raises(VerificationError, match="replaced under this process"):
            ledger.reserve("default", charge(3))


@pytest.mark.parametrize(
    "sql", ["DROP TABLE links", "DROP TABLE meta", "DELETE FROM meta", "ALTER TABLE links RENAME TO x"]
)
def test_tables_that_are_gone(folder: Path, sql: str) -> None:
    with database(folder) as burglar:
        burglar.execute(sql)
    detected(folder)


def test_a_changed_ledger_id(folder: Path) -> None:
    with database(folder) as burglar:
        burglar.execute("UPDATE meta SET value = ? WHERE key = 'ledger'", (b"x" * 16,))
    detected(folder)


def test_a_changed_countersignature(folder: Path) -> None:
    with open_ledger(folder) as ledger:
        ledger.reserve("default", charge(3))
        ledger.add_countersignature(countersign(ledger, 3).encode(), IDENTITIES)
        ledger.verify(IDENTITIES)
        (raw,) = [raw for (at, _), raw in kept(ledger.file).items() if at == 8]
        forged = make("countersignature", "server-1", countersign(ledger, 3).body, SERVER_KEYS["server-2"]).encode()
        for bad in [*flips(raw)[::3], forged, b"", "text"]:
            with database(folder) as burglar:
                burglar.execute("UPDATE countersignatures SET statement = ?", (bad,))
            with pytest.raises(VerificationError):
                ledger.verify(IDENTITIES)


def test_an_overspent_ledger_does_not_verify(folder: Path) -> None:
    """Even one signed with the right key: a client whose program was changed to admit everything."""
    with open_ledger(folder) as ledger:
        facts = {
            "dataset": ledger.dataset("default").ident,
            "group": "default",
            "study_name": "",
            **charge_facts(charge(3, WHOLE * 2)),
        }
        with ledger.file.turn():
            ledger.file.append(("reserve", facts))
        with pytest.raises(VerificationError, match="link 8 spends more than the budget"):
            ledger.verify()
