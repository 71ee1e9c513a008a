"""Recovery goes on from the last head the servers have signed; all that may have been released is spent."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_examples import (
    BUDGET,
    IDENTITIES,
    KEY,
    PARTY,
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

from tallystick.core.errors import BudgetExceeded, LocalProtocolError, StudyError, VerificationError
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.governance.statements import Statement, make
from tallystick.roles.ledger.recovery import Recovery, recover
from tallystick.roles.ledger.seen_heads import SeenHeads
from tallystick.roles.ledger.store import LedgerStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two studies released (1, 3), one given back (2), one reserved (4), in ten links."""
    made = tmp_path / "state"
    made.mkdir()
    small_ledger(made)
    with open_ledger(made) as ledger:
        ledger.reserve("default", charge(3, WHOLE / 4), study_name="three")
        ledger.release(study(3))
        ledger.reserve("default", charge(4), study_name="four")
    return made


def do(folder: Path, *statements: Statement) -> Recovery:
    return recover(
        folder / "ledger.sqlite",
        party=PARTY,
        signing=KEY,
        identities=IDENTITIES,
        statements=statements,
        by="steward",
        reason="a test",
    )


def spent(ledger: LedgerStore, group: str = "default") -> Fraction:
    with ledger.file.reading() as account:
        return account.groups[group].totals.rho


def charged(ledger: LedgerStore, number: int) -> Statement:
    return make("charge", PARTY, ledger.charge_body(study(number)), KEY)


def check_closed_until_granted(ledger: LedgerStore) -> None:
    assert ledger.view("default").closed
    for attempt in (ledger.preview, ledger.reserve):
        with pytest.raises(BudgetExceeded) as caught:
            attempt("default", charge(50))
        assert caught.value.rule == "budget-closed"
    ledger.grant("default", epsilon=2.0, delta=1e-6, by="steward", reason="looked into it")
    ledger.reserve("default", charge(50))
    ledger.verify(IDENTITIES)


def test_a_ledger_in_order_is_left_alone(folder: Path) -> None:
    before = (folder / "ledger.sqlite").read_bytes()
    with pytest.raises(StudyError) as caught:
        do(folder)
    assert caught.value.rule == "ledger-in-order"
    assert (folder / "ledger.sqlite").read_bytes() == before


def test_a_damaged_link(folder: Path) -> None:
    """What follows the damage verifies by itself: its charges are taken over."""
    with database(folder) as burglar:
        burglar.execute("UPDATE links SET body = '{}' WHERE sequence = 5")
    done = do(folder)
    assert (done.kept, done.resumed.sequence, done.charges, done.closed) == (4, 4, 3, ("default",))
    with open_ledger(folder) as ledger:
        assert spent(ledger) == WHOLE / 8 * 3 + WHOLE / 4, "even what was given back: nobody can tell any more"
        assert {ledger.standing(study(n)) for n in (1, 2, 3, 4)} == {"released"}
        with pytest.raises(LocalProtocolError):
            ledger.void(study(4))
        assert ledger.verify().recovered == 1
        check_closed_until_granted(ledger)
    assert Path(done.aside[0]).name == "ledger.sqlite.damaged-1"
    assert all(Path(aside).exists() for aside in done.aside)


def test_a_lowered_charge_is_not_taken_over(folder: Path) -> None:
    """A link that was tampered with says nothing any more; its budget is closed for that reason."""
    with database(folder) as burglar:
        burglar.execute("UPDATE links SET body = replace(body, '\"three\"', '\"tree\"') WHERE sequence = 8")
    done = do(folder)
    with open_ledger(folder) as ledger:
        assert ledger.standing(study(3)) is None
        assert ledger.standing(study(4)) == "released"
        assert ledger.view("default").closed
    assert done.charges == 1


def test_rolled_back_beyond_what_a_server_has_signed(folder: Path, tmp_path: Path) -> None:
    """The backup lacks links; the server's head and this client's own charge statements tell of them."""
    backup = copy(folder, tmp_path / "backup")
    with open_ledger(folder) as ledger, SeenHeads(tmp_path / "server.sqlite", party="server-1") as server:
        ledger.reserve("default", charge(5, WHOLE / 16))
        ledger.release(study(5))
        ledger.reserve("default", charge(6, WHOLE / 32))
        assert server.accept(PARTY, ledger.head(), ledger.links(0)).accepted
        said = [
            countersign(ledger, 6),
            countersign(ledger, 3),
            charged(ledger, 5),
            charged(ledger, 6),
            charged(ledger, 3),
        ]
        lost_head = ledger.head()
    done = do(backup, *said)
    assert (done.kept, done.charges) == (10, 2)
    assert done.resumed == lost_head
    with open_ledger(backup) as ledger, SeenHeads(tmp_path / "server.sqlite", party="server-1") as server:
        assert ledger.head().sequence == lost_head.sequence + 1
        assert ledger.file.hash_at(lost_head.sequence) == lost_head.hash
        assert ledger.file.hash_at(lost_head.sequence - 1) is None
        assert spent(ledger) == WHOLE / 8 * 2 + WHOLE / 4 + WHOLE / 16 + WHOLE / 32
        ledger.compare(server.last(PARTY), by="server-1")
        since = server.last(PARTY).sequence
        assert server.accept(PARTY, ledger.head(), ledger.links(since)).accepted, "the server can follow"
        ledger.verify(IDENTITIES, [s for s in said if s.kind == "countersignature"])
        check_closed_until_granted(ledger)
        assert server.accept(PARTY, ledger.head(), ledger.links(since)).accepted
    with open_ledger(backup) as ledger:
        ledger.verify(IDENTITIES)


def test_a_fork_goes_on_where_the_servers_are(folder: Path, tmp_path: Path) -> None:
    """Two copies went on; the one the servers did not see is recovered, and its own charges count as well."""
    fork = copy(folder, tmp_path / "fork")
    with open_ledger(folder) as ledger:
        early = countersign(ledger, 3)
        ledger.reserve("default", charge(5, WHOLE / 16))
        said = [early, countersign(ledger, 5), charged(ledger, 5)]
        seen = ledger.head()
    with open_ledger(fork) as ledger:
        ledger.reserve("default", charge(6, WHOLE / 32))
        ledger.release(study(6))
    done = do(fork, *said)
    assert done.resumed == seen
    with open_ledger(fork) as ledger:
        assert {ledger.standing(study(n)) for n in (5, 6)} == {"released"}
        assert spent(ledger) == WHOLE / 8 * 2 + WHOLE / 4 + WHOLE / 16 + WHOLE / 32
        check_closed_until_granted(ledger)


def test_the_whole_ledger_is_lost(folder: Path, tmp_path: Path) -> None:
    """Nothing but a server's signature and what this client had said itself."""
    with open_ledger(folder) as ledger:
        said = [countersign(ledger, 4), *(charged(ledger, n) for n in (1, 3, 4))]
        ident, head = ledger.dataset("default").ident, ledger.head()
    lost = tmp_path / "lost"
    lost.mkdir()
    done = do(lost, *said)
    assert (done.kept, done.charges, done.closed) == (0, 3, (ident,))
    with open_ledger(lost) as ledger:
        assert ledger.head().ledger == head.ledger
        assert spent(ledger, ident) == WHOLE / 8 * 2 + WHOLE / 4
        ledger.register(dataset(group=ident))  # the steward registers the records into what is left of their group
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", charge(50))
        with pytest.raises(BudgetExceeded, match="below what is spent"):
            ledger.grant("default", epsilon=0.1, delta=1e-6, by="")
        ledger.grant("default", epsilon=2.0, delta=1e-6, by="steward")
        ledger.reserve("default", charge(50))
        ledger.verify(IDENTITIES)


def test_nothing_to_recover_from(tmp_path: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        do(tmp_path)
    assert caught.value.rule == "ledger-lost"
    assert not (tmp_path / "ledger.sqlite").exists()


def test_another_institutions_ledger_is_not_made_ones_own(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    small_ledger(tmp_path / "theirs", party="client-2", key=SigningKey(b"o" * 32))
    with pytest.raises(VerificationError) as caught:
        do(tmp_path / "theirs")
    assert caught.value.rule == "ledger-lost"


@pytest.mark.parametrize("anchor", [None, b"", b"{}"])
def test_a_lost_anchor(folder: Path, anchor: bytes | None) -> None:
    """All links are there, but that they are all of them only the anchor knew."""
    (folder / "ledger.anchor").unlink()
    if anchor is not None:
        (folder / "ledger.anchor").write_bytes(anchor)
    assert do(folder).kept == 10
    with open_ledger(folder) as ledger:
        assert spent(ledger) == WHOLE / 8 * 2 + WHOLE / 4
        check_closed_until_granted(ledger)


@pytest.mark.parametrize("what", ["truncate", "garbage", "DROP TABLE links", "DELETE FROM meta", "DROP TABLE meta"])
def test_a_file_that_cannot_be_read(folder: Path, what: str) -> None:
    with open_ledger(folder) as ledger:
        said = [countersign(ledger, 4), *(charged(ledger, n) for n in (1, 3, 4))]
        ledger.file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = folder / "ledger.sqlite"
    if what == "truncate":
        file.write_bytes(file.read_bytes()[:5000])
    elif what == "garbage":
        file.write_bytes(b"x" * 20_000)
    else:
        with database(folder) as burglar:
            burglar.execute(what)
    do(folder, *said)
    with open_ledger(folder) as ledger:
        with ledger.file.reading() as account:
            assert sum(g.totals.rho for g in account.groups.values()) == WHOLE / 8 * 2 + WHOLE / 4
            assert all(g.closed for g in account.groups.values())
        ledger.verify(IDENTITIES)


def test_a_forged_statement_does_not_count(folder: Path) -> None:
    """Nobody moves this ledger's head but a server of the consortium."""
    (folder / "ledger.anchor").unlink()
    with database(folder) as db:
        ledger = db.execute("SELECT value FROM meta WHERE key = 'ledger'").fetchone()[0].hex()
    some = "sha256:" + "a" * 64
    body = {"hash": some, "ledger": ledger, "head": some, "client": PARTY, "sequence": 99}
    forged = [
        make("countersignature", "server-1", body, KEY),
        make("countersignature", "stranger", body, KEY),
        make("countersignature", "server-1", {**body, "client": "client-2"}, KEY),
    ]
    assert do(folder, *forged).resumed.sequence == 10


@pytest.mark.parametrize("step", range(9))
def test_killed_on_the_way(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Recovery that ends in the middle leaves a ledger that refuses, and can be done again."""
    with open_ledger(folder) as ledger:
        ledger.file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with database(folder) as burglar:
            burglar.execute("UPDATE links SET signature = zeroblob(64) WHERE sequence = 10")
        crashed = copy(folder, folder.parent / "crashed")  # with a write-ahead log, as kill -9 leaves it
    left = step

    def dying(real: Any) -> Any:
        def once(self: Path, *more: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return real(self, *more, **options)

        return once

    died = False
    with monkeypatch.context() as patched:
        for name in ("replace", "unlink", "hardlink_to"):
            patched.setattr(Path, name, dying(getattr(Path, name)))
        try:
            do(crashed)
        except KeyboardInterrupt:
            died = True
    assert died == (step < 8), "every step of it was tried"
    if died:
        with pytest.raises(VerificationError):
            open_ledger(crashed).close()
        do(crashed)
    with open_ledger(crashed) as ledger:
        assert [ledger.standing(study(n)) for n in (1, 3)] == ["committed", "released"]
        assert spent(ledger) >= WHOLE / 8 + WHOLE / 4
        check_closed_until_granted(ledger)


def test_a_running_client_is_told(folder: Path) -> None:
    with open_ledger(folder) as ledger:
        (folder / "ledger.anchor").unlink()
        do(folder)
        with pytest.raises(VerificationError, match="replaced under this process"):
            ledger.reserve("default", charge(50))


def test_recovered_twice(folder: Path) -> None:
    for _ in range(2):
        (folder / "ledger.anchor").unlink()
        do(folder)
    with open_ledger(folder) as ledger:
        assert ledger.verify().recovered == 2
        assert spent(ledger) == WHOLE / 8 * 2 + WHOLE / 4
    assert {"ledger.sqlite.damaged-1", "ledger.sqlite.damaged-2"} <= {f.name for f in folder.iterdir()}


def test_the_budget_of_a_recovered_ledger_is_the_last_known(folder: Path) -> None:
    with open_ledger(folder) as ledger:
        ledger.grant("default", epsilon=3.0, delta=1e-6, by="steward")
    with database(folder) as burglar:
        burglar.execute("DELETE FROM links WHERE sequence = 9")
    do(folder)
    with open_ledger(folder) as ledger:
        assert ledger.view("default").budget.epsilon == 3.0
        assert BUDGET.epsilon == 1.0
