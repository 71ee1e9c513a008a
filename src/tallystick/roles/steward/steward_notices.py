"""When the steward is told: soon, once a study, and never in a flood.

Proposals come as fast as an analyst signs them, and a client that is started again hears of all of them anew. So what
was told is kept, and so is every attempt, before it is made: there is one notice in ten minutes at most, and a few a
day; what has come meanwhile is in the next one. Each notice is sent by a thread of its own: a mail server that does not
answer holds up nobody, and that it failed is a line in the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tallystick.core.errors import TallystickError
from tallystick.core.identifiers import parse_hash
from tallystick.roles.identity.notify_settings import Notify
from tallystick.roles.steward.delivery import Waiting, deliver
from tallystick.roles.storage.database import connect, storage_guard

_log = logging.getLogger("tallystick.roles")
APART_SECONDS, DAY_SECONDS, MOST_A_DAY = 600, 86_400, 12
MAX_KEPT = 5000
_WHAT = "whom the steward was told of"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS told_of (study BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS notices (at INTEGER NOT NULL)",
)
_FORGET = "DELETE FROM told_of WHERE study IN (SELECT study FROM told_of ORDER BY at DESC LIMIT -1 OFFSET ?)"


class StewardNotices:
    """What waits and was not told yet. Called by the client's loop; ``wall`` is the time of day."""

    def __init__(self, path: Path, notify: Notify, *, party: str, wall: Callable[[], float]) -> None:
        self._notify, self._party, self._wall = notify, party, wall
        self._waiting: dict[bytes, Waiting] = {}
        self._lock = threading.RLock()
        self._sending: threading.Thread | None = None
        with storage_guard(_WHAT, party=party):
            self._db = connect(path)
            for table in _TABLES:
                self._db.execute(table)

    def add(self, waiting: Waiting) -> None:
        """A study waits for a person; told of before, it is not told of again."""
        study = parse_hash(waiting.hash)
        with self._lock, storage_guard(_WHAT, party=self._party):
            if self._db.execute("SELECT 1 FROM told_of WHERE study = ?", (study,)).fetchone() is None:
                self._waiting[study] = waiting

    def due(self, still_waits: Callable[[bytes], bool]) -> None:
        """Tell of what still waits, if a notice may be sent now."""
        if not self._waiting or (self._sending is not None and self._sending.is_alive()) or not self._may_send():
            return
        with self._lock:
            self._waiting = {study: one for study, one in self._waiting.items() if still_waits(study)}
            batch = tuple(self._waiting.items())
        if batch:
            with self._lock, storage_guard(_WHAT, party=self._party):  # before it is made: a crash makes no flood
                self._db.execute("INSERT INTO notices VALUES (?)", (int(self._wall()),))
            self._sending = threading.Thread(target=self._send, args=(batch,), name="steward's notice", daemon=True)
            self._sending.start()

    def _may_send(self) -> bool:
        now = int(self._wall())
        with self._lock, storage_guard(_WHAT, party=self._party):
            self._db.execute("DELETE FROM notices WHERE at <= ? OR at > ?", (now - DAY_SECONDS, now))
            sent = [int(at) for (at,) in self._db.execute("SELECT at FROM notices").fetchall()]
        return len(sent) < MOST_A_DAY and all(at + APART_SECONDS <= now for at in sent)

    def _send(self, batch: Sequence[tuple[bytes, Waiting]]) -> None:
        try:
            deliver(self._notify, self._party, [one for _, one in batch])
            with self._lock, storage_guard(_WHAT, party=self._party):
                told = [(study, int(self._wall())) for study, _ in batch]
                self._db.executemany("INSERT OR REPLACE INTO told_of VALUES (?, ?)", told)
                self._db.execute(_FORGET, (MAX_KEPT,))
                for study, _ in batch:
                    self._waiting.pop(study, None)
            _log.info("the steward was told of %d waiting studies", len(batch))
        except TallystickError as error:
            _log.warning("the steward was not told of %d waiting studies: %s", len(batch), error)
        except Exception:
            _log.exception("a fault in telling the steward")

    def close(self, patience: float = 1.0) -> None:
        """Give the file free; a notice that is on its way has a moment to get there."""
        if self._sending is not None:
            self._sending.join(patience)
        with self._lock:
            self._db.close()
