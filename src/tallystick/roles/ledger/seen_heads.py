"""What a server has seen of each client's ledger: why a client cannot quietly go back to an older copy of it.

A client shows the head its charge stands at, with the contents (digests) of the links since one that the server knows.
The server follows the chain itself and signs the head only if it adds to everything it has seen; it keeps the hash of
every link on the way, so that heads of studies that run at once may arrive in any order. Otherwise it tells the newest
head it knows, and the client, comparing it with its own chain, learns what happened: its ledger was rolled back
(restored from a backup), or two copies of it went on (a fork), or it is another ledger altogether.

The table lives in the server's ``governance.sqlite``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.core.identifiers import HASH_BYTES
from tallystick.privacy.chain import LEDGER_BYTES, Head, extend, genesis
from tallystick.roles.storage.database import Table, transaction_of

MAX_LINKS = 100_000
"""Contents in one message; a ledger that grew by more shows them in steps."""
_MAX_SEQUENCE = 1 << 40
_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen_heads (
    client TEXT NOT NULL, ledger BLOB NOT NULL, sequence INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (client, sequence)) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a head may be countersigned; ``last`` is the newest one seen of this client before."""

    accepted: bool
    why: str
    last: Head | None
    new: tuple[tuple[int, bytes], ...] = ()
    """The (sequence, hash) pairs learnt."""


def judge(client: str, head: Head, contents: Sequence[bytes], known: dict[int, bytes], last: Head | None) -> Verdict:
    """Pure: does ``head``, ``contents`` after an earlier link, agree with everything seen (``known`` hashes)?

    ``known`` holds at least the hashes from the link before the first content on. Of a client never met before, the
    first head is taken as it is: whoever makes a ledger could make all of it.
    """

    def refused(why: str) -> Verdict:
        return Verdict(accepted=False, why=why, last=last)

    sizes = len(head.hash) == HASH_BYTES and len(head.ledger) == LEDGER_BYTES
    if not sizes or not 0 < head.sequence < _MAX_SEQUENCE or any(len(c) != HASH_BYTES for c in contents):
        return refused("that is no head of a ledger")
    if len(contents) > min(MAX_LINKS, head.sequence):
        return refused("more links than there can be")
    if last is not None and last.ledger != head.ledger:
        return refused("another ledger of this client is known")
    since = head.sequence - len(contents)
    start = genesis(head.ledger, client) if since == 0 else known.get(since)
    if start is None:
        if last is not None:
            return refused("it continues from a link that was never shown")
        return Verdict(accepted=True, why="first seen", last=None, new=((head.sequence, head.hash),))
    hashes = [start, *extend(start, contents)]
    if hashes[-1] != head.hash:
        return refused("its links do not lead to its head")
    pairs = tuple(zip(range(since + 1, head.sequence + 1), hashes[1:]))
    if any(known.get(sequence, hashed) != hashed for sequence, hashed in pairs):
        return refused("another link was seen in its place")
    new = tuple(pair for pair in pairs if pair[0] not in known)
    if last is not None and new and new[0][0] != last.sequence + 1:
        return refused("it fills a place that was passed over")
    return Verdict(accepted=True, why="it adds to what was seen" if new else "it was seen", last=last, new=new)


class SeenHeads(Table):
    """The table; one per server."""

    WHAT = "what this server has seen of a ledger"
    SCHEMA = _SCHEMA

    def last(self, client: str) -> Head | None:
        """The newest head seen of this client's ledger."""
        with self._guarded():
            sql = "SELECT ledger, sequence, hash FROM seen_heads WHERE client = ? ORDER BY sequence DESC LIMIT 1"
            row = self._db.execute(sql, (client,)).fetchone()
        return Head(ledger=bytes(row[0]), sequence=int(row[1]), hash=bytes(row[2])) if row else None

    def accept(self, client: str, head: Head, contents: Sequence[bytes]) -> Verdict:
        """Judge, and keep what was learnt before anybody is told; the countersignature may follow."""
        with self._guarded(), transaction_of(self._db):
            last = self.last(client)
            since = max(0, head.sequence - len(contents))
            rows = self._db.execute(
                "SELECT sequence, hash FROM seen_heads WHERE client = ? AND sequence >= ? AND sequence <= ?",
                (client, min(since, _MAX_SEQUENCE), min(head.sequence, _MAX_SEQUENCE)),
            ).fetchall()
            verdict = judge(client, head, contents, {int(s): bytes(h) for s, h in rows}, last)
            learnt = [(client, head.ledger, sequence, hashed) for sequence, hashed in verdict.new]
            self._db.executemany("INSERT INTO seen_heads VALUES (?, ?, ?, ?)", learnt)
        return verdict
