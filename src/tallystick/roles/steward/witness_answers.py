"""What the witnesses say they have seen of this client's ledger, asked anew for its steward.

A party has one line to each peer, so a command beside a running client does not dial in its name: it leaves a question
in the client's file of statements, the process asks the witnesses over its own lines, and their answers are kept there.
"""

from __future__ import annotations

from tallystick.roles.storage.database import Table

_SCHEMA = """
CREATE TABLE IF NOT EXISTS witness_answers (
    witness TEXT PRIMARY KEY, question INTEGER NOT NULL, head BLOB NOT NULL) WITHOUT ROWID
"""
_ASKING = ""  # the row that is no witness's: the newest question


class WitnessAnswers(Table):
    """The table."""

    WHAT = "what witnesses have seen"
    SCHEMA = _SCHEMA
    DURABLE = False

    def ask(self) -> int:
        """Leave a question; its number."""
        sql = (
            "INSERT INTO witness_answers VALUES (?, 1, x'') "
            "ON CONFLICT (witness) DO UPDATE SET question = question + 1 RETURNING question"
        )
        with self._guarded():
            return int(self._db.execute(sql, (_ASKING,)).fetchall()[0][0])

    def question(self) -> int:
        """The newest question; 0 if there was none."""
        with self._guarded():
            found = self._db.execute("SELECT question FROM witness_answers WHERE witness = ?", (_ASKING,)).fetchone()
        return 0 if found is None else int(found[0])

    def note(self, witness: str, head: bytes) -> None:
        """A witness has answered: a packed head, or nothing if it has seen nothing."""
        question = self.question()
        with self._guarded():
            self._db.execute("INSERT OR REPLACE INTO witness_answers VALUES (?, ?, ?)", (witness, question, head))

    def answers(self, question: int) -> dict[str, bytes]:
        """Who has answered since this question was asked, and what."""
        sql = "SELECT witness, head FROM witness_answers WHERE question >= ? AND witness <> ?"
        with self._guarded():
            return {str(name): bytes(head) for name, head in self._db.execute(sql, (question, _ASKING)).fetchall()}
