"""Why this party did not take part in a study it was asked to take part in: for its own steward's screen.

One line per study, in the party's ``governance.sqlite``, so that ``tallystick study show`` can tell it while the role
runs. Nobody else is told more than the message of refusal said. Only proposed studies are noted, and the newest of
those: an aggregator that makes up studies fills nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.core.readable_text import one_line
from tallystick.roles.storage.database import Table

MAX_KEPT = 1000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS refusals (
    study BLOB PRIMARY KEY, at INTEGER NOT NULL, rule TEXT NOT NULL, cause TEXT NOT NULL) WITHOUT ROWID
"""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """When this party last refused, by which rule, and why."""

    at: int
    rule: str
    cause: str


class Refusals(Table):
    """The table."""

    WHAT = "the list of refusals"
    SCHEMA = _SCHEMA
    DURABLE = False

    def note(self, study: bytes, *, at: float, rule: str, cause: str) -> None:
        """This party has refused; the newest reason stays."""
        with self._guarded():
            row = (study, int(at), one_line(rule, 200), one_line(cause, 2000))
            self._db.execute("INSERT OR REPLACE INTO refusals VALUES (?, ?, ?, ?)", row)
            self._db.execute(
                "DELETE FROM refusals WHERE study IN (SELECT study FROM refusals ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (MAX_KEPT,),
            )

    def clear(self, study: bytes) -> None:
        """This party takes part after all."""
        with self._guarded():
            self._db.execute("DELETE FROM refusals WHERE study = ?", (study,))

    def get(self, study: bytes) -> Refusal | None:
        """The newest refusal of a study."""
        with self._guarded():
            row = self._db.execute("SELECT at, rule, cause FROM refusals WHERE study = ?", (study,)).fetchone()
        return None if row is None else Refusal(at=int(row[0]), rule=str(row[1]), cause=str(row[2]))
