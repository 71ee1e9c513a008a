"""SQLite files of a role: opened one way, durable, and what a disk says in typed words.

WAL with ``synchronous=FULL``: a commit that has returned survives the loss of power. Only the owner reads the file, and
whoever finds it in use waits. A full disk, a read-only file system or an I/O error is a ``RoundAborted`` whose rule
begins with ``storage-``: the transaction is rolled back, nothing was kept by halves, and the next call simply
tries again. A damaged file is a ``VerificationError``: the role stops rather than guess.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from tallystick.core.errors import LocalProtocolError, RoundAborted, TallystickError, VerificationError
from tallystick.data.accounts import account_to_use, may

BUSY_SECONDS = 30.0
"""How long to wait for other processes of the same party: the role, its steward's and analyst's commands."""

_FULL = ("storage-full", "there is no space left to keep it", "Free space on that disk; nothing was released.")
_READ_ONLY = ("storage-read-only", "its file cannot be written", "Make the state directory writable by this role.")
_IN_USE = ("storage-in-use", "another process holds its state", "Stop the other copy of this role; run one only.")
_FAILED = ("storage-failed", "the disk did not do what was asked", "Look at the disk and the system log; then restart.")
_BY_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
}
_BY_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def corrupt(what: str, *, party: str | None = None) -> VerificationError:
    """The file is not what was written: stop, do not guess."""
    return VerificationError(
        f"{what} is damaged",
        rule="storage-corrupt",
        party=party,
        remedy="Restore this party's state from its last good copy; until then it takes part in no study.",
    )


def storage_error(error: OSError | sqlite3.Error, what: str, *, party: str | None = None) -> TallystickError:
    """The typed form of what the disk said; paths and contents stay out of it, but for a file of another account."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one
        if code in _DAMAGED:
            return corrupt(what, party=party)
        if code == sqlite3.SQLITE_CONSTRAINT:
            return LocalProtocolError(f"{what} is of a study that is not stored", party=party, remedy="Store it first.")
        rule, cause, remedy = _BY_SQLITE.get(code, _FAILED)
    else:
        rule, cause, remedy = _BY_ERRNO.get(error.errno or 0, _FAILED)
        if isinstance(error, PermissionError) and error.filename:
            cause, remedy = f"{error.filename} is not open to it", account_to_use(Path(error.filename))
    return RoundAborted(f"{what} was not kept: {cause}", rule=rule, party=party, remedy=remedy)


def in_use(party: str) -> RoundAborted:
    """A second copy of a role."""
    rule, cause, remedy = _IN_USE
    return RoundAborted(f"not started: {cause}", rule=rule, party=party, remedy=remedy)


def is_storage_failure(error: BaseException) -> bool:
    """Whether a role must go red and release nothing until its disk is well again."""
    return isinstance(error, TallystickError) and (error.rule or "").startswith("storage-")


def make_private(path: Path) -> None:
    """Make an empty file for a database that only its owner reads, if there is none; one that is there is not touched.

    SQLite's locks are the process's: to open and close a file that another connection of this process has open would
    give them all up, and the next process to leave would take the write-ahead log for its own to delete.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in (path.parent, path):  # SQLite would say no more than that it cannot
        if may(place, os.F_OK) and not may(place, os.R_OK | os.W_OK) and not os.statvfs(place).f_flag & os.ST_RDONLY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection, for any thread, to a private file; outside :func:`transaction_of` every statement is one."""
    make_private(path)
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=busy_seconds)


def make_durable(db: sqlite3.Connection, *, busy_seconds: float = BUSY_SECONDS) -> None:
    """WAL for good, and every commit on the disk when it returns.

    Processes that open a new file at the same moment get in each other's way here, and SQLite tells them so at once
    instead of letting them wait.
    """
    patience = time.monotonic() + busy_seconds
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > patience:
                raise
        time.sleep(0.005)
    db.execute("PRAGMA synchronous = FULL")


def is_sound(db: sqlite3.Connection, check: str = "integrity_check") -> bool:
    """What SQLite itself says of the file."""
    return [row[0] for row in db.execute(f"PRAGMA {check}")] == ["ok"]


def create_tables(db: sqlite3.Connection, schema: str) -> None:
    """Make what is not there yet, within the caller's transaction."""
    for statement in schema.split(";"):
        db.execute(statement)


@contextlib.contextmanager
def transaction_of(db: sqlite3.Connection) -> Iterator[None]:
    """Everything inside is kept, or nothing is; the writer's place is taken at once, not at the first write."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled back already
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def storage_guard(what: str, *, party: str | None = None) -> Iterator[None]:
    """Turn what the disk says inside into a typed error."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise storage_error(error, what, party=party) from error


class Table:
    """A small table in a file of its own or beside others; usable from any thread, and by several processes at once."""

    WHAT: ClassVar[str]
    """What it holds, for messages."""
    SCHEMA: ClassVar[str]
    DURABLE: ClassVar[bool] = True
    """False where nothing is built on it."""

    def __init__(self, path: Path, *, party: str) -> None:
        self._party, self._lock = party, threading.RLock()
        with storage_guard(self.WHAT, party=party):
            self._db = connect(path)
            if self.DURABLE:
                make_durable(self._db)
            else:
                self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(self.SCHEMA)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Alone in this process; what fails names the table and the party."""
        with self._lock, storage_guard(self.WHAT, party=self._party):
            yield

    def close(self) -> None:
        """Give the file free."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
