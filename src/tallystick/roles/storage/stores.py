"""What a role knows for ever: one SQLite file per role, durable before anything is said.

    meta        schema version, whose file this is, the boot counter and this boot's random value
    studies     each study's canonical bytes, program text, status, when it began and ended
    records     what the protocol machines persist: (study, key) -> bytes, the last one counts
    results     a study's one result
    releases    what left, by (study, round): once, and never anything else
    boots       under which boots other servers were met, by their key

What must be erased one day (a study's private key, a round's noise, the seed of a client's shares) is never in that
file but in files of its own in the study's folder (``erasure``), of which nothing is left when it is forgotten.

WAL with ``synchronous=FULL``: a commit that has returned survives the loss of power. One process owns the file
(an advisory lock; a second copy of a role is refused), one connection writes. The file is checked when it is
opened, and the boot counter is raised and committed, with a fresh random value, before anything else happens: what a
server signs says how often it had been started, and others see if the same start happens twice.

A full disk, a read-only file system or an I/O error is a ``RoundAborted`` whose rule begins with ``storage-``:
the transaction is rolled back, nothing was kept by halves, and the next call simply tries again. A damaged
file is a ``VerificationError``: the role stops rather than guess.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tallystick.core.errors import LocalProtocolError, RoundAborted, TallystickError, VerificationError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.core.redaction import Secret
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.secure_sum import Witness
from tallystick.protocol.secure_sum.messages import BOOT_VALUE_BYTES
from tallystick.roles.storage.erasure import SecretFiles

__all__ = [
    "RoleStore",
    "StoredStudy",
    "StudyBoots",
    "is_storage_failure",
    "make_private",
    "storage_error",
    "storage_guard",
    "transaction_of",
]

SCHEMA_VERSION = 3
_RECORD, _KEY = ".secret", ".key"  # how the files of secret records and of private keys end
STATUSES = ("proposed", "ready", "running", "finished", "failed", "declined")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS studies (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    canonical BLOB NOT NULL, program TEXT NOT NULL, status TEXT NOT NULL, started REAL, ended REAL);
CREATE TABLE IF NOT EXISTS records (
    study BLOB NOT NULL REFERENCES studies (hash), key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (study, key));
CREATE TABLE IF NOT EXISTS results (study BLOB PRIMARY KEY REFERENCES studies (hash), packed BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS releases (
    study BLOB NOT NULL REFERENCES studies (hash), round INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (study, round));
CREATE TABLE IF NOT EXISTS boots (
    server BLOB NOT NULL, study BLOB NOT NULL REFERENCES studies (hash), boot INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (server, study, boot));
"""

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
    """The typed form of what the disk said; the paths and contents stay out of it."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one
        if code in _DAMAGED:
            return corrupt(what, party=party)
        if code == sqlite3.SQLITE_CONSTRAINT:
            return LocalProtocolError(f"{what} is of a study that is not stored", party=party, remedy="Store it first.")
        rule, cause, remedy = _BY_SQLITE.get(code, _FAILED)
    else:
        rule, cause, remedy = _BY_ERRNO.get(error.errno or 0, _FAILED)
    return RoundAborted(f"{what} was not kept: {cause}", rule=rule, party=party, remedy=remedy)


def is_storage_failure(error: BaseException) -> bool:
    """Whether a role must go red and release nothing until its disk is well again."""
    return isinstance(error, TallystickError) and (error.rule or "").startswith("storage-")


def make_private(path: Path) -> None:
    """Make an empty file for a database that only its owner reads, if there is none; one that is there is not touched.

    SQLite's locks are the process's: to open and close a file that another connection of this process has open would
    give them all up, and the next process to leave would take the write-ahead log for its own to delete.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A row of ``studies``; ``started`` and ``ended`` are whatever clock the role reports with."""

    hash: bytes
    canonical: bytes = field(repr=False)
    program: str = field(repr=False)
    status: str
    started: float | None
    ended: float | None


class RoleStore:
    """One role's state. Every method is one transaction, or part of the enclosing :meth:`transaction`."""

    def __init__(self, path: Path, *, party: str) -> None:
        self._path, self._party = path, party
        self._lock = threading.RLock()
        self._depth = 0
        with storage_guard("this role's state", party=party):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._open()
        except BaseException:
            os.close(self._owner)
            raise

    def _open(self) -> None:
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            rule, cause, remedy = _IN_USE
            raise RoundAborted(f"not started: {cause}", rule=rule, party=self._party, remedy=remedy) from None
        with storage_guard("this role's state", party=self._party):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # keys live here
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            with storage_guard("this role's state", party=self._party):
                self._prepare()
                self._boot, self._boot_value = self._count_boot()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        run = self._db.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA foreign_keys = ON")
        run("PRAGMA secure_delete = ON")  # nothing secret is in here; what is forgotten need not stay all the same
        if [row[0] for row in run("PRAGMA integrity_check")] != ["ok"] or run("PRAGMA foreign_key_check").fetchall():
            raise corrupt("this role's state", party=self._party)
        with self.transaction():
            for statement in _SCHEMA.split(";"):
                run(statement)
            for key, value in (("schema", str(SCHEMA_VERSION)), ("party", self._party)):
                run("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
        known = dict(run("SELECT key, value FROM meta").fetchall())
        if known["schema"] != str(SCHEMA_VERSION) or known["party"] != self._party:
            raise VerificationError(
                f"this state belongs to party {known['party']!a} in format {known['schema']!a}",
                rule="storage-corrupt",
                party=self._party,
                remedy="Give every role a state directory of its own, made by this release of tallystick.",
            )

    def _count_boot(self) -> tuple[int, bytes]:
        with self.transaction():
            row = self._db.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
            boot, value = (int(row[0]) if row else 0) + 1, os.urandom(BOOT_VALUE_BYTES)
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?), ('boot_value', ?)", (boot, value))
        return boot, value

    @property
    def boot(self) -> int:
        """How often this role has been started, this time included."""
        return self._boot

    @property
    def boot_value(self) -> bytes:
        """16 random bytes, other ones at every start: the same start of a copy has others."""
        return self._boot_value

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is committed together, durably, or not at all."""
        with self._lock:
            if self._depth:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            with storage_guard("a record", party=self._party):
                self._depth = 1
                try:
                    with transaction_of(self._db):
                        yield
                finally:
                    self._depth = 0

    def check_writable(self) -> None:
        """Whether the disk takes and keeps something now; a storage error if it does not."""
        self._write("INSERT OR REPLACE INTO meta VALUES ('written', ?)", (os.urandom(8),))

    def _write(self, sql: str, values: tuple[object, ...]) -> int:
        with self.transaction():
            return self._db.execute(sql, values).rowcount

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        with self._lock, storage_guard("this role's state", party=self._party):
            return self._db.execute(sql, values).fetchall()

    # -- studies ---------------------------------------------------------------------------------------------------

    def add_study(self, hash: bytes, canonical: bytes, program: str, *, started: float | None = None) -> None:
        """Note a study; again with the same bytes is nothing new, with others it is an error."""
        if len(hash) != HASH_BYTES:
            raise LocalProtocolError("a study hash has 32 bytes", party=self._party)
        with self.transaction():
            known = self.study(hash)
            if known is not None:
                if (known.canonical, known.program) != (canonical, program):
                    raise VerificationError(
                        "another study or program is stored under this hash",
                        party=self._party,
                        remedy="A changed study has another hash: propose it as a new version.",
                    )
                return
            self._write(
                "INSERT INTO studies VALUES (?, ?, ?, 'proposed', ?, NULL)", (hash, canonical, program, started)
            )

    def set_status(self, hash: bytes, status: str, *, ended: float | None = None) -> None:
        """Where the study stands; ``ended`` is kept once given."""
        if status not in STATUSES:
            raise LocalProtocolError(f"a study has no status {status!r}", party=self._party)
        sql = "UPDATE studies SET status = ?, ended = coalesce(?, ended) WHERE hash = ?"
        if self._write(sql, (status, ended, hash)) != 1:
            raise LocalProtocolError("the study is not stored", party=self._party, remedy="Store it first.")

    def study(self, hash: bytes) -> StoredStudy | None:
        """The study of this hash."""
        found = self._studies("WHERE hash = ?", (hash,))
        return found[0] if found else None

    def studies(self) -> tuple[StoredStudy, ...]:
        """Every study, in the order they were stored."""
        return self._studies("ORDER BY rowid", ())

    def _studies(self, where: str, values: tuple[object, ...]) -> tuple[StoredStudy, ...]:
        names = ("hash", "canonical", "program", "status", "started", "ended")
        rows = self._read(f"SELECT {', '.join(names)} FROM studies {where}", values)
        return tuple(StoredStudy(**dict(zip(names, row))) for row in rows)  # type: ignore[arg-type]

    # -- what machines persist ---------------------------------------------------------------------------------------

    def persist(self, study: bytes, key: str, value: bytes, *, secret: bool = False) -> None:
        """Keep this record in place of the last one under its key; durable when this returns.

        A ``secret`` one lies in a file of its own, where :meth:`forget` can overwrite it.
        """
        if secret:
            self._put_secret(study, key + _RECORD, value)
        else:
            self._write("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (study, key, value))

    def records(self, study: bytes) -> Mapping[str, bytes]:
        """Everything persisted for a study: what ``restore`` of a machine takes."""
        rows = self._read("SELECT key, value FROM records WHERE study = ?", (study,))
        found = {str(key): bytes(value) for key, value in rows}  # type: ignore[call-overload]
        with storage_guard("a record", party=self._party):
            for name in self._secrets(study).names(_RECORD):
                secret = self._secrets(study).get(name)
                if secret is not None:
                    found[name.removesuffix(_RECORD)] = secret
        return found

    def forget(self, study: bytes, key: str) -> None:
        """Erase the secret record under this key; it is on no disk any more when this returns."""
        with storage_guard("the erasure of a secret", party=self._party):
            self._secrets(study).erase(key + _RECORD)

    def forget_records(self, study: bytes) -> None:
        """Remove a study's records, once its end is kept elsewhere."""
        self._write("DELETE FROM records WHERE study = ?", (study,))

    # -- secrets -------------------------------------------------------------------------------------------------------

    def folder(self, study: bytes) -> Path:
        """Where a study's secrets and bulk files lie."""
        return self._path.parent / study.hex()

    def _secrets(self, study: bytes) -> SecretFiles:
        return SecretFiles(self.folder(study))

    def _put_secret(self, study: bytes, name: str, secret: bytes) -> None:
        if self.study(study) is None:
            raise LocalProtocolError("the study is not stored", party=self._party, remedy="Store it first.")
        with storage_guard("a record", party=self._party):
            self._secrets(study).put(name, secret)

    def put_key(self, study: bytes, name: str, secret: Secret) -> None:
        """Keep one of the study's private keys, in place of the last one of this name."""
        self._put_secret(study, name + _KEY, secret.reveal())

    def key(self, study: bytes, name: str) -> Secret | None:
        """A private key, or None when there is none or it has been erased."""
        with storage_guard("a key", party=self._party):
            found = self._secrets(study).get(name + _KEY)
        return Secret(found) if found is not None else None

    def erase_secrets(self, study: bytes) -> None:
        """Overwrite all that must not outlast the study (keys, noise, seeds, shares), and take its folder away."""
        with storage_guard("the erasure of a study's secrets", party=self._party):
            self._secrets(study).erase_folder()

    # -- results and releases ------------------------------------------------------------------------------------------

    def put_result(self, study: bytes, packed: bytes) -> None:
        """The study's one result; again the same is fine, another is refused."""
        self._once("results", "study = ?", (study,), "packed", packed)

    def result(self, study: bytes) -> bytes | None:
        """The stored result."""
        rows = self._read("SELECT packed FROM results WHERE study = ?", (study,))
        return bytes(rows[0][0]) if rows else None  # type: ignore[call-overload]

    def put_release(self, study: bytes, round: int, body: bytes) -> None:
        """What left in this round; again the same is fine, another is refused."""
        self._once("releases", "study = ? AND round = ?", (study, round), "body", body)

    def release(self, study: bytes, round: int) -> bytes | None:
        """What left in this round."""
        rows = self._read("SELECT body FROM releases WHERE study = ? AND round = ?", (study, round))
        return bytes(rows[0][0]) if rows else None  # type: ignore[call-overload]

    def releases(self, study: bytes) -> tuple[tuple[int, bytes], ...]:
        """Everything that left, by round."""
        rows = self._read("SELECT round, body FROM releases WHERE study = ? ORDER BY round", (study,))
        return tuple((int(round), bytes(body)) for round, body in rows)  # type: ignore[call-overload]

    def _once(self, table: str, where: str, key: tuple[object, ...], column: str, value: bytes) -> None:
        with self.transaction():
            known = self._db.execute(f"SELECT {column} FROM {table} WHERE {where}", key).fetchone()
            if known is None:
                marks = ", ".join("?" * (len(key) + 1))
                self._db.execute(f"INSERT INTO {table} VALUES ({marks})", (*key, value))
            elif bytes(known[0]) != value:
                raise VerificationError(
                    f"another entry is stored in {table} already",
                    party=self._party,
                    remedy="Nothing is released twice: a new run is a new version of the study.",
                )

    # -- other servers' boots ------------------------------------------------------------------------------------------

    def boots(self, study: bytes) -> StudyBoots:
        """What is known of other servers' starts, seen from a study."""
        return StudyBoots(self, study)

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the file free; what is stored stays. A second call does nothing."""
        with self._lock:
            if self._owner >= 0:
                self._db.close()
                os.close(self._owner)
                self._owner = -1

    def __enter__(self) -> RoleStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StudyBoots:
    """The book of boots (``protocol.secure_sum.boots.BootBook``) of one study, over the memory of all."""

    def __init__(self, store: RoleStore, study: bytes) -> None:
        self._store, self._study = store, study

    def last(self, server: VerifyKey) -> tuple[int, bytes] | None:
        for where, values in (("AND study = ?", (self._study,)), ("", ())):
            sql = f"SELECT boot, value FROM boots WHERE server = ? {where} ORDER BY boot DESC LIMIT 1"
            rows = self._store._read(sql, (server.encoded, *values))
            if rows:
                return int(rows[0][0]), bytes(rows[0][1])  # type: ignore[call-overload]
        return None

    def value(self, server: VerifyKey, boot: int) -> bytes | None:
        rows = self._store._read("SELECT value FROM boots WHERE server = ? AND boot = ?", (server.encoded, boot))
        return bytes(rows[0][0]) if rows else None  # type: ignore[call-overload]

    def note(self, witness: Witness) -> None:
        """Carry out a ``Witness``: durable when this returns."""
        row = (witness.server.encoded, self._study, witness.boot, witness.value)
        self._store._write("INSERT OR IGNORE INTO boots VALUES (?, ?, ?, ?)", row)
