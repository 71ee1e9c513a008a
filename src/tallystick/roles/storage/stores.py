"""What a role knows for ever: one SQLite file per role, durable before anything is said.

    meta        schema version, whose file this is, the boot counter and this boot's random value
    studies     each study's canonical bytes, program text, status, when it began and ended
    records     what the protocol machines persist: (study, key) -> bytes, the last one counts
    results     nothing: what came of a study is among its records
    releases    what left, by (study, round): once, and never anything else
    boots       under which boots other servers were met, by their key

What must be erased one day (a study's private key, a round's noise, the seed of a client's shares) is never in that
file but in files of its own in the study's folder (``erasure``), of which nothing is left when it is forgotten.

A commit that has returned survives the loss of power, and a failing disk is met in typed words (``database``). One
process owns the file (an advisory lock; a second copy of a role is refused), one connection writes. The file is
checked when it is opened, and the boot counter is raised and committed, with a fresh random value, before anything else
happens: what a server signs says how often it had been started, and others see if the same start happens twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.core.redaction import Secret
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.boots import BOOT_VALUE_BYTES, Witness
from tallystick.roles.storage.database import (
    connect,
    corrupt,
    create_tables,
    in_use,
    is_sound,
    make_durable,
    storage_guard,
    transaction_of,
)
from tallystick.roles.storage.erasure import SecretFiles

SCHEMA_VERSION = 3
_BUSY_SECONDS = 5.0  # nobody else has the file
_RECORD, _KEY, _TOTAL = ".secret", ".key", ".total"  # how files end: of secret records, private keys, secret totals
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


ROLE_STORE = "role.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A row of ``studies``; ``started`` and ``ended`` are whatever clock the role reports with."""

    hash: bytes
    canonical: bytes = field(repr=False)
    program: str = field(repr=False)
    status: str
    started: float | None
    ended: float | None


def is_running(state: Path) -> bool:
    """Whether the role whose state folder this is runs now: it holds its lock for as long."""
    lock = _lock_of(state / ROLE_STORE)
    if not lock.exists():
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def records_of(state: Path, study: bytes, prefix: str) -> dict[str, bytes]:
    """Records that a role has kept of a study and that are not secret, for a command beside it, while it runs;
    those whose keys begin so, without that beginning."""
    path = state / ROLE_STORE
    if not path.exists():
        return {}
    with (
        storage_guard("this role's state"),
        contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as db,
    ):
        rows = db.execute("SELECT key, value FROM records WHERE study = ?", (study,)).fetchall()
    return {str(k).removeprefix(prefix): bytes(v) for k, v in rows if str(k).startswith(prefix)}


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


class RoleStore:
    """One role's state. Every method is one transaction, or part of the enclosing :meth:`transaction`."""

    def __init__(self, path: Path, *, party: str) -> None:
        self._path, self._party = path, party
        self._lock = threading.RLock()
        self._inside = False  # of a transaction
        with storage_guard("this role's state", party=party):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._open()
        except BaseException:
            os.close(self._owner)
            raise

    def _open(self) -> None:
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use(self._party) from None
        with storage_guard("this role's state", party=self._party):
            self._db = connect(self._path, busy_seconds=_BUSY_SECONDS)
        try:
            with storage_guard("this role's state", party=self._party):
                self._prepare()
                self._count_boot()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        run = self._db.execute
        make_durable(self._db, busy_seconds=_BUSY_SECONDS)
        run("PRAGMA foreign_keys = ON")
        run("PRAGMA secure_delete = ON")  # nothing secret is in here; what is forgotten need not stay all the same
        if not is_sound(self._db) or run("PRAGMA foreign_key_check").fetchall():
            raise corrupt("this role's state", party=self._party)
        with self.transaction():
            create_tables(self._db, _SCHEMA)
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

    def _count_boot(self) -> None:
        with self.transaction():
            row = self._db.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
            self.boot = (int(row[0]) if row else 0) + 1
            """How often this role has been started, this time included."""
            self.boot_value = os.urandom(BOOT_VALUE_BYTES)
            """Other ones at every start: the same start of a copy has others."""
            both = (self.boot, self.boot_value)
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?), ('boot_value', ?)", both)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is committed together, durably, or not at all."""
        with self._lock:
            if self._inside:
                yield
                return
            with storage_guard("a record", party=self._party):
                self._inside = True
                try:
                    with transaction_of(self._db):
                        yield
                finally:
                    self._inside = False

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

    # -- releases ------------------------------------------------------------------------------------------------------

    def put_release(self, study: bytes, round: int, body: bytes, *, secret: bool = False) -> None:
        """What left in this round; again the same is fine, another is refused. A ``secret`` one goes with the study."""
        with self.transaction():
            known = self.release(study, round)
            if known is None and secret:
                self._put_secret(study, f"{round}{_TOTAL}", body)
            elif known is None:
                self._write("INSERT INTO releases VALUES (?, ?, ?)", (study, round, body))
            elif known != body:
                raise VerificationError(
                    "another entry is stored in releases already",
                    party=self._party,
                    remedy="Nothing is released twice: a new run is a new version of the study.",
                )

    def release(self, study: bytes, round: int) -> bytes | None:
        """What left in this round."""
        rows = self._read("SELECT body FROM releases WHERE study = ? AND round = ?", (study, round))
        kept = bytes(rows[0][0]) if rows else None  # type: ignore[call-overload]
        if kept is None:
            with storage_guard("a record", party=self._party):
                kept = self._secrets(study).get(f"{round}{_TOTAL}")
        return kept

    def releases(self, study: bytes) -> tuple[tuple[int, bytes], ...]:
        """Everything that left, by round."""
        rows = self._read("SELECT round, body FROM releases WHERE study = ? ORDER BY round", (study,))
        found = {int(round): bytes(body) for round, body in rows}  # type: ignore[call-overload]
        with storage_guard("a record", party=self._party):
            for name in self._secrets(study).names(_TOTAL):
                body = self._secrets(study).get(name)
                if body is not None:
                    found[int(name.removesuffix(_TOTAL))] = body
        return tuple(sorted(found.items()))

    # -- other servers' boots --------------------------------------------------------------------------------

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

    def __exit__(self, *_exception: object) -> None:
        self.close()


class StudyBoots:
    """The book of boots (``protocol.boots.BootBook``) of one study, over the memory of all."""

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
