"""The file under a ledger: an append-only chain of links in SQLite, and an anchor beside it.

    ledger.sqlite   meta (id, owner, format), links, countersignatures; WAL, synchronous=FULL
    ledger.anchor   sequence and hash of the newest link, replaced and fsynced after every append
    ledger.lock     who appends now: the client's process and its steward's commands share the file
    ledger.waiting  held by those who wait for the lock, so that a busy one steps back now and then

An append is one turn of the lock: look at what others have added and follow it, decide, insert, commit, anchor. A
reader needs no lock. After a crash the anchor may lag behind the chain, never lead it: an anchor that leads means that
the database was restored alone from an older copy, and the owner refuses to go on. Restoring both is found by the
servers, who have signed later heads (:mod:`tallystick.roles.ledger.seen_heads`).

The whole chain is followed when the file is opened and whenever :meth:`LedgerFile.check` is called (before every
release); in between, each turn follows what is new and looks at the last known link again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from tallystick.core.errors import LocalProtocolError, RoundAborted, VerificationError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.crypto.signing import SIGNATURE_BYTES, SigningKey
from tallystick.privacy.chain import LEDGER_BYTES, Head, Link, genesis, make_link, signed_bytes, verify_chain
from tallystick.roles.identity.identity_files import wall_clock
from tallystick.roles.ledger.account import Account
from tallystick.roles.ledger.anchor import Anchor, broken_ledger
from tallystick.roles.ledger.turn_lock import PATIENCE_SECONDS, TurnLock
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.database import (
    connect,
    corrupt,
    create_tables,
    is_sound,
    make_durable,
    make_private,
    storage_guard,
    transaction_of,
)

FORMAT = "1"
_SALT_BYTES = 16
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS links (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL,
    previous BLOB NOT NULL, hash BLOB NOT NULL, signature BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS countersignatures (
    sequence INTEGER NOT NULL, server TEXT NOT NULL, statement BLOB NOT NULL, PRIMARY KEY (sequence, server));
"""
COLUMNS = "sequence, kind, body, previous, hash, signature"


def create(db: sqlite3.Connection, *, party: str, ledger: bytes) -> None:
    """The tables of a ledger without links, within the caller's transaction."""
    create_tables(db, SCHEMA)
    facts = (("format", FORMAT), ("party", party), ("ledger", ledger))
    db.executemany("INSERT INTO meta VALUES (?, ?)", facts)


def insert(db: sqlite3.Connection, links: Sequence[Link]) -> None:
    """Keep these links, within the caller's transaction."""
    db.executemany(f"INSERT INTO links ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", map(astuple, links))


def as_link(row: tuple[Any, ...]) -> Link | None:
    """A row of the table of links, if it is of the form of one."""
    sequence, kind, body, previous, hashed, signature = row
    sizes = ((body, None), (previous, HASH_BYTES), (hashed, HASH_BYTES), (signature, SIGNATURE_BYTES))
    if not (isinstance(sequence, int) and sequence > 0 and isinstance(kind, str)):
        return None
    if not all(isinstance(value, bytes) and size in (None, len(value)) for value, size in sizes):
        return None
    return Link(sequence=sequence, kind=kind, body=body, previous=previous, hash=hashed, signature=signature)


def signed_link(after: Head, kind: str, body: Mapping[str, Any], signing: SigningKey) -> Link:
    """The next link, dated, salted and signed."""
    now, salt = int(wall_clock().timestamp()), os.urandom(_SALT_BYTES).hex()
    link = make_link(after, kind, {**body, "at": now, "salt": salt})
    return replace(link, signature=signing.sign(signed_bytes(link.head(after.ledger))))


class LedgerFile:
    """One connection to a ledger; many may be open at once, in any number of threads and processes."""

    def __init__(self, path: Path, *, party: str, signing: SigningKey) -> None:
        self.path, self.party = path, party
        self.anchor = Anchor(path.with_suffix(".anchor"), party=party)
        self._signing = signing
        self._mutex = threading.RLock()
        self._process = os.getpid()
        self._turn_taken = False
        with self._guard("the ledger"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = TurnLock(path.with_suffix(".lock"))
            make_private(path)
            self._file = _same_file(path)  # before it is opened: a file that takes its place in between is noticed
            self.db = connect(path, busy_seconds=PATIENCE_SECONDS)
        try:
            with self._guard("the ledger"), self._alone():
                self._prepare()
                self._forget()
                self._follow()
                self._check_anchor()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        try:
            with storage_guard(what, party=self.party):
                yield
        except RoundAborted as error:
            cause = error.__cause__
            code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if isinstance(cause, sqlite3.Error) and code == sqlite3.SQLITE_ERROR:
                # No such table, a column that is not text: not the disk's failure but another's work.
                raise corrupt("the ledger", party=self.party) from error
            raise

    # -- opening -----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        run = self.db.execute
        make_durable(self.db, busy_seconds=PATIENCE_SECONDS)
        if not is_sound(self.db):
            raise corrupt("the ledger", party=self.party)
        if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            if self.anchor.exists():
                raise broken_ledger("the ledger's database is gone, its anchor is not", party=self.party)
            with transaction_of(self.db):
                create(self.db, party=self.party, ledger=os.urandom(LEDGER_BYTES))
        known = dict(run("SELECT key, value FROM meta").fetchall())
        if known.get("format") != FORMAT or known.get("party") != self.party:
            raise broken_ledger(
                f"this ledger belongs to {known.get('party')!a} (format {known.get('format')!a}), not to {self.party}",
                party=self.party,
                rule="ledger-owner",
            )
        ident = known.get("ledger")
        if not isinstance(ident, bytes) or len(ident) != LEDGER_BYTES:
            raise broken_ledger("the ledger has no id", party=self.party)
        self.ledger = ident
        self._start = Head(ledger=ident, sequence=0, hash=genesis(ident, self.party))

    def _forget(self) -> None:
        """The next look begins at the first link again."""
        self._head, self._account = self._start, Account()

    def _follow(self) -> None:
        """Take in what others have appended, having looked at the last link that was known."""
        known = self._head.sequence
        rows = self.links(known - 1 if known else 0)
        if known and (not rows or (rows[0].sequence, rows[0].hash) != (known, self._head.hash)):
            raise broken_ledger(f"link {known} of the ledger is gone or was replaced", party=self.party)
        new = rows[1:] if known else rows
        try:
            head = verify_chain(new, self._signing.public, after=self._head)
            for link in new:
                self._account.apply(link)
        except VerificationError as error:
            self._forget()  # the account was made by halves
            error.party = self.party
            raise
        self._head = head

    def links(self, since: int, until: int | None = None) -> list[Link]:
        """The links after ``since``, as they are stored."""
        last = (1 << 62) if until is None else until
        sql = f"SELECT {COLUMNS} FROM links WHERE sequence > ? AND sequence <= ? ORDER BY sequence"
        return [self._link(row) for row in self.read(sql, (since, last))]

    def _link(self, row: tuple[Any, ...]) -> Link:
        link = as_link(row)
        if link is None:
            raise broken_ledger(f"link {row[0]!a} of the ledger is not as it was written", party=self.party)
        return link

    # -- the anchor --------------------------------------------------------------------------------------------------

    def _check_anchor(self) -> None:
        """An anchor at or behind the head, on this very chain; a lagging one (a crash) is brought forward."""
        if not self.anchor.exists():
            if self._head.sequence:
                raise broken_ledger("the ledger's anchor file is gone", party=self.party, rule="ledger-anchor")
            self.anchor.write(self._head)
            return
        noted = self.anchor.read()
        if noted == self._head:
            return
        if noted.ledger != self.ledger:
            cause = "the anchor file beside the ledger belongs to another ledger"
        elif noted.sequence > self._head.sequence:
            here = self._head.sequence
            cause = f"the ledger was rolled back: it ends at link {here}, its anchor is at link {noted.sequence}"
        elif self.hash_at(noted.sequence) != noted.hash:
            cause = f"the ledger is not the one its anchor was written for: link {noted.sequence} differs"
        else:
            self.anchor.write(self._head)
            return
        raise broken_ledger(cause, party=self.party, rule="ledger-anchor")

    # -- turns ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise LocalProtocolError("a ledger is opened anew in every process", party=self.party)
        with self._mutex:
            if self._turn_taken:
                raise LocalProtocolError("a turn at the ledger within a turn", party=self.party)
            self._lock.take(party=self.party)
            self._turn_taken = True
            try:
                yield
            finally:
                self._turn_taken = False
                self._lock.give_back()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Account]:
        """Nobody else appends until this ends; the account is that of the newest link. Append with :meth:`append`."""
        with self._guard("a ledger entry"), self._alone():
            if _same_file(self.path) != self._file:
                raise broken_ledger("the ledger's file was replaced under this process: restart it", party=self.party)
            self._follow()
            self._check_anchor()
            yield self._account

    def append(self, *entries: tuple[str, dict[str, Any]]) -> None:
        """Within a turn: these links together or none; durable and anchored when this returns."""
        if not self._turn_taken:
            raise LocalProtocolError("links are appended within a turn", party=self.party)
        head, links = self._head, []
        for kind, body in entries:
            links.append(signed_link(head, kind, body, self._signing))
            head = links[-1].head(self.ledger)
        try:
            for link in links:
                self._account.apply(link)  # before it is kept: a link that cannot follow would close the ledger
            with transaction_of(self.db):
                insert(self.db, links)
                crashpoint(f"ledger-{links[-1].kind}-written")
        except BaseException:
            self._forget()
            raise
        self._head = head
        crashpoint(f"ledger-{links[-1].kind}-kept")
        self.anchor.write(head)
        crashpoint(f"ledger-{links[-1].kind}-anchored")

    # -- looking -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[Account]:
        """The account as of now; do not keep it beyond the block."""
        with self._mutex, self._guard("the ledger"):
            if not self._turn_taken:
                self._follow()
            yield self._account

    def check(self) -> None:
        """Follow the whole chain again from its first link, signatures and all. Within a turn or outside."""
        with self._mutex, self._guard("the ledger"):
            head = verify_chain(self.links(0), self._signing.public, after=self._start)
            if head.sequence < self._head.sequence or self.hash_at(self._head.sequence) != self._head.hash:
                raise broken_ledger("the ledger is not the one this process has known", party=self.party)

    def head(self) -> Head:
        """The newest link's."""
        with self.reading():
            return self._head

    def hash_at(self, sequence: int) -> bytes | None:
        """The hash of this link (0: before the first), or None if it is not there."""
        if sequence == 0:
            return self._start.hash
        for column, place in (("hash", sequence), ("previous", sequence + 1)):  # the second: a head recovered from
            for (found,) in self.read(f"SELECT {column} FROM links WHERE sequence = ?", (place,)):
                return found if isinstance(found, bytes) else None
        return None

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Rows as they are."""
        with self._mutex, self._guard("the ledger"):
            return self.db.execute(sql, values).fetchall()

    def close(self) -> None:
        """Give the file free; a second call does nothing."""
        with self._mutex:
            self.db.close()
            self._lock.close()


def _same_file(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino
