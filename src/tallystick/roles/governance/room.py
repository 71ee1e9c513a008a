"""How much of the file of statements one member may fill, and what is pruned.

Everybody in the consortium can sign statements, so what is kept of each signer is limited: of one kind about one study,
about studies that have not started, and in all. A client's first decision about a study takes none of its own number:
the proposer has asked for it, and there are only so many proposals. Otherwise an analyst with a thousand proposals that
the client's rules answer would leave it no room to answer another's, or to take an approval back.

A study that nobody can start any more, because its proposals have expired, is pruned with all that was said about it
when its time of grace is over, or when its proposer needs the room. It stays expired by this party's own clock: whoever
sends its old approvals again gains nothing. A study that has started is never pruned, nor is one for which this party
has charged its ledger.
"""

from __future__ import annotations

import sqlite3

from tallystick.core.errors import RemoteProtocolError
from tallystick.protocol.governance.statements import Statement

GRACE_SECONDS = 30 * 86_400  # what has expired is shown for so long
OF_A_KIND = 64  # of one signer about one study; of countersignatures, four for every party besides
UNSTARTED_STATEMENTS = 1000  # of one signer about studies that have not started, first decisions not counted
UNSTARTED_BYTES = 64 << 20
SIGNER_BYTES = 1 << 29  # all statements of one signer together

_STARTED = "SELECT study FROM statements WHERE kind = 'start'"
_COUNT = f"""
SELECT count(*) FILTER (WHERE study = ?2 AND kind = ?3),
       count(*) FILTER (WHERE study NOT IN ({_STARTED}))
           - count(DISTINCT study) FILTER (WHERE kind = 'decision' AND study NOT IN ({_STARTED})),
       coalesce(sum(size) FILTER (WHERE study NOT IN ({_STARTED})), 0),
       coalesce(sum(size), 0)
FROM statements WHERE signer = ?1
"""
_DEAD = """
SELECT study FROM statements GROUP BY study
HAVING sum(kind IN ('start', 'outcome', 'attestation', 'countersignature') OR (kind = 'charge' AND signer = ?2)) = 0
   AND coalesce(max(expires), 0) < ?1
"""


def check_room(db: sqlite3.Connection, statement: Statement, size: int, *, parties: int) -> None:
    """Raise if there is no room for one more statement of its signer."""
    alike, unstarted, unstarted_bytes, everything = db.execute(
        _COUNT, (statement.signer, statement.study_hash, statement.kind)
    ).fetchone()
    started = db.execute(f"{_STARTED} AND study = ?", (statement.study_hash,)).fetchone() is not None
    most = OF_A_KIND + (4 * parties if statement.kind == "countersignature" else 0)
    if (
        alike >= most
        or (not started and (unstarted >= UNSTARTED_STATEMENTS or unstarted_bytes + size > UNSTARTED_BYTES))
        or everything + size > SIGNER_BYTES
    ):
        raise RemoteProtocolError(
            "this party has made more statements than are kept",
            party=statement.signer,
            rule="too-many-statements",
            remedy="Its further statements are not kept. Ask its operator what it is doing.",
        )


def prune(db: sqlite3.Connection, *, party: str, now: float, grace: float = GRACE_SECONDS) -> set[bytes]:
    """Delete what is said about studies that can never start; within a transaction. Those studies."""
    dead = {bytes(row[0]) for row in db.execute(_DEAD, (now - grace, party)).fetchall()}
    db.executemany("DELETE FROM statements WHERE study = ?", [(study,) for study in dead])
    return dead
