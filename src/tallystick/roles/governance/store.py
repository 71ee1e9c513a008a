"""A party's copy of the bulletin board: signed statements, kept word for word in one SQLite file.

Several processes of one party use the file at once: the role itself, and its steward's or analyst's command line. So
there is no owner lock; WAL and short immediate transactions let them share it, ``since`` tells a role what the command
line has added, and ``synchronous=FULL`` makes an added statement survive the loss of power. What a peer has sent is
not forced to the disk by itself, a thousand clients would have it wait a thousand times: it is there with the next
statement of this party's own, which is what others may build on, and a peer sends again what power loss took.

Nothing goes in that its signer, as pinned in the consortium file, did not sign; and what is read is checked again, for
a file can be edited. What was signed with a key that is pinned no more, because the party left or was given a new one,
stays in the file and is passed over. Anyone in the consortium can send statements, so what one signer may fill is
limited, and what has expired is pruned: see ``room``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.core.identifiers import digest, parse_hash
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.governance.statements import Statement, decode, verify
from tallystick.roles.governance import room
from tallystick.roles.storage.database import (
    BUSY_SECONDS,
    connect,
    corrupt,
    create_tables,
    is_sound,
    make_durable,
    storage_guard,
    transaction_of,
)

STATEMENTS = "governance.sqlite"
"""Its name in a party's state folder."""
SCHEMA_VERSION = "2"
KNOWN_BYTES = 1 << 24  # of kept statements remembered as verified

_SCHEMA = """
CREATE TABLE IF NOT EXISTS governance_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS statements (
    number INTEGER PRIMARY KEY AUTOINCREMENT, ident TEXT NOT NULL UNIQUE, study BLOB NOT NULL, supersedes BLOB,
    signer TEXT NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL, raw BLOB NOT NULL,
    kind TEXT NOT NULL DEFAULT '', expires INTEGER);
CREATE INDEX IF NOT EXISTS statements_by_study ON statements (study);
CREATE INDEX IF NOT EXISTS statements_by_successor ON statements (supersedes);
CREATE INDEX IF NOT EXISTS statements_by_signer ON statements (signer, study, kind, size);
CREATE INDEX IF NOT EXISTS statements_by_kind ON statements (kind, study);
"""
_COLUMNS = ("ident", "study", "supersedes", "signer", "key", "size", "raw", "kind", "expires")
_WHAT = "the file of statements"


class GovernanceStore:
    """Statements of this party and of all the others, about all studies."""

    def __init__(self, path: Path, *, party: str, identities: Mapping[str, VerifyKey]) -> None:
        self._path, self._party, self._identities = path, party, identities
        self._lock = threading.RLock()
        self._forced = True
        self._known: dict[bytes, Statement] = {}  # digest of raw -> what was decoded and verified in this process
        self._known_bytes = 0
        with storage_guard(_WHAT, party=party):
            self._db = connect(path, busy_seconds=BUSY_SECONDS)
        try:
            with storage_guard(_WHAT, party=party):
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        run = self._db.execute
        make_durable(self._db, busy_seconds=BUSY_SECONDS)
        if not is_sound(self._db, "quick_check"):
            raise corrupt(_WHAT, party=self._party)
        with self._transaction():
            self._migrate()
            create_tables(self._db, _SCHEMA)
            for item in (("schema", SCHEMA_VERSION), ("party", self._party)):
                run("INSERT OR IGNORE INTO governance_meta VALUES (?, ?)", item)
        known = dict(run("SELECT key, value FROM governance_meta").fetchall())
        if known.get("schema") != SCHEMA_VERSION or known.get("party") != self._party:
            raise VerificationError(
                f"these statements were kept by party {known.get('party')!a} in format {known.get('schema')!a}",
                rule="storage-corrupt",
                party=self._party,
                remedy="Give every role a state directory of its own, made by this release of tallystick.",
            )

    def _migrate(self) -> None:
        """A file of the first format does not say of what kind a statement is."""
        run = self._db.execute
        tables = {row[0] for row in run("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables >= {"governance_meta", "statements"}:
            return
        if run("SELECT value FROM governance_meta WHERE key = 'schema'").fetchone() != ("1",):
            return
        run("ALTER TABLE statements ADD COLUMN kind TEXT NOT NULL DEFAULT ''")
        run("ALTER TABLE statements ADD COLUMN expires INTEGER")
        run("DROP INDEX IF EXISTS statements_by_signer")
        for number, raw in run("SELECT number, raw FROM statements").fetchall():
            with contextlib.suppress(TallystickError, TypeError, AttributeError):  # damaged: met when it is read
                known = decode(raw)
                values = known.kind, known.body.get("expires"), number
                run("UPDATE statements SET kind = ?, expires = ? WHERE number = ?", values)
        run("UPDATE governance_meta SET value = ? WHERE key = 'schema'", (SCHEMA_VERSION,))

    @contextlib.contextmanager
    def _transaction(self, *, forced: bool = True) -> Iterator[None]:
        with self._lock, storage_guard("a statement", party=self._party):
            if forced != self._forced:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if forced else 'NORMAL'}")  # of this connection
                self._forced = forced
            with transaction_of(self._db):
                yield

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, raw: bytes, *, sender: str | None = None) -> bool:
        """Keep a statement; whether it was new. Refuses what is malformed or not signed by who it says.

        Durable when this returns, unless a peer has brought it: ``sender``.
        """
        statement = self.check(raw, sender=sender)
        earlier = statement.body.get("supersedes")
        row = (
            statement.ident,
            statement.study_hash,
            None if earlier is None else parse_hash(earlier),
            statement.signer,
            self._identities[statement.signer].encoded,
            len(raw),
            raw,
            statement.kind,
            statement.body.get("expires"),
        )
        with self._transaction(forced=sender is None):
            run = self._db.execute
            if run("SELECT 1 FROM statements WHERE ident = ?", (statement.ident,)).fetchone():
                return False
            room.check_room(self._db, statement, len(raw), parties=len(self._identities))
            run(f"INSERT INTO statements ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})", row)
        return True

    def pin(self, identities: Mapping[str, VerifyKey]) -> None:
        """Other parties or keys from now on; what was verified is verified anew."""
        with self._lock:
            self._identities, self._known, self._known_bytes = identities, {}, 0

    def prune(self, now: float, grace: float = room.GRACE_SECONDS) -> set[bytes]:
        """Forget studies that can never start any more, and all that was said about them; which ones."""
        with self._transaction(forced=False):
            return room.prune(self._db, party=self._party, now=now, grace=grace)

    # -- reading -------------------------------------------------------------------------------------------------------

    def statements(self, study: bytes | None = None) -> tuple[Statement, ...]:
        """All statements, or those that bear on one study: about it, or proposing what takes its place. In order."""
        if study is None:
            return tuple([kept for _, kept in self.since(0)])
        return tuple([kept for _, kept in self._select("study = ?1 OR supersedes = ?1", study)])

    def since(self, number: int) -> tuple[tuple[int, Statement], ...]:
        """What was added after the statement of this number (0: everything), each with its own number, in order."""
        return tuple(self._select("number > ?", number))

    def _select(self, where: str, *values: object) -> Iterator[tuple[int, Statement]]:
        for number, signer, key, raw in self._read(
            f"SELECT number, signer, key, raw FROM statements WHERE {where} ORDER BY number", *values
        ):
            pinned = self._identities.get(signer)
            if pinned is not None and pinned.encoded == key:
                yield int(number), self._again(raw)

    def last(self) -> int:
        """The number of the newest statement; 0 if there is none."""
        return int(self._read("SELECT coalesce(max(number), 0) FROM statements")[0][0])

    def hashes(self) -> tuple[bytes, ...]:
        """Every study somebody has said something about, oldest first."""
        rows = self._read("SELECT study FROM statements GROUP BY study ORDER BY min(number)")
        return tuple([bytes(row[0]) for row in rows])

    def proposed(self) -> frozenset[bytes]:
        """Every study of which a proposal is kept."""
        rows = self._read("SELECT DISTINCT study FROM statements WHERE kind = 'proposal'")
        return frozenset([bytes(row[0]) for row in rows])

    def idents(self) -> frozenset[str]:
        """The names of all statements: what need not be sent here again."""
        return frozenset([str(row[0]) for row in self._read("SELECT ident FROM statements")])

    def statement(self, ident: str) -> Statement | None:
        """The statement of this name."""
        return next((kept for _, kept in self._select("ident = ?", ident)), None)

    def _read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, storage_guard(_WHAT, party=self._party):
            return self._db.execute(sql, values).fetchall()

    # -- checking ------------------------------------------------------------------------------------------------------

    def check(self, raw: bytes, *, sender: str | None = None) -> Statement:
        """The statement, if it is one and who it says has signed it; the same bytes are looked at once."""
        name = digest(raw)
        known = self._known.get(name)
        if known is None:
            known = decode(raw, party=sender)
            verify(known, self._identities)
            self._known_bytes += len(raw)
            if self._known_bytes > KNOWN_BYTES:
                self._known, self._known_bytes = {}, len(raw)
            self._known[name] = known
        return known

    def _again(self, raw: object) -> Statement:
        try:
            if type(raw) is bytes:
                return self.check(raw)
        except TallystickError:
            pass
        raise VerificationError(
            "a kept statement is not what its signer signed",
            rule="storage-corrupt",
            party=self._party,
            remedy="Restore this party's state from its last good copy; until then it takes part in no study.",
        )

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the file free. A second call does nothing."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> GovernanceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
