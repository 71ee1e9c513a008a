"""Which readings of which columns a person here has accepted for a data set: ``tallystick data check STUDY --accept``.

A rule approves only studies all of whose columns are accepted. So it is a person, who has seen on this machine's screen
what the study would find in the data, that lets rules decide; and what rules decide never depends on what the data
hold. An acceptance belongs to a registration of a data set, not to its content: if a changed record ended it, others
would see that a record has changed.

One row a column, in the client's ``governance.sqlite``, on the disk when the command returns.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.roles.storage.database import Table, transaction_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS acceptances (
    dataset TEXT NOT NULL, reading BLOB NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, accepted_by TEXT NOT NULL,
    PRIMARY KEY (dataset, reading)) WITHOUT ROWID
"""


class Acceptances(Table):
    """The table."""

    WHAT = "the list of accepted columns"
    SCHEMA = _SCHEMA

    def accept(self, dataset: str, columns: Iterable[tuple[str, bytes]], *, by: str, at: float) -> None:
        """A person has looked at the data and lets rules decide about studies that read these columns so."""
        rows = [(dataset, reading, name, int(at), by) for name, reading in columns]
        with self._guarded(), transaction_of(self._db):
            self._db.executemany("INSERT OR IGNORE INTO acceptances VALUES (?, ?, ?, ?, ?)", rows)

    def lacking(self, dataset: str, columns: Iterable[tuple[str, bytes]]) -> list[str]:
        """The columns that nobody has accepted for this data set as they would be read."""
        with self._guarded():
            rows = self._db.execute("SELECT reading FROM acceptances WHERE dataset = ?", (dataset,)).fetchall()
        known = {bytes(row[0]) for row in rows}
        return [name for name, reading in columns if reading not in known]

    def count(self) -> int:
        """How many there are: more than before, if a person has accepted something since."""
        with self._guarded():
            return int(self._db.execute("SELECT count(*) FROM acceptances").fetchone()[0])
