"""What can still be read of a damaged ledger: links that follow from the first, links that stand alone, signatures.

Nothing here trusts the file: a link counts if the owner's own signature under it does. A copy that went another way
than the servers have seen (a fork) counts up to the last head they agree with; the rest of it stands alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.crypto.signing import SigningKey
from tallystick.privacy.chain import LEDGER_BYTES, Head, Link, extend, genesis, parse_body, signed_bytes, verify_chain
from tallystick.protocol.governance.statements import Statement, decode
from tallystick.roles.ledger.account import Account
from tallystick.roles.ledger.anchor import Anchor
from tallystick.roles.ledger.file import COLUMNS, as_link

RECOVERED = ".recovered"
"""The suffix of a recovered ledger that has not taken its place yet: it counts too, if a recovery was cut short."""


@dataclass(frozen=True, kw_only=True)
class Salvage:
    """What can be read of a ledger, good or bad."""

    ledger: bytes
    kept: tuple[Link, ...]
    loose: tuple[Link, ...]
    account: Account
    head: Head


def kept_statements(path: Path) -> list[Statement]:
    """What can be read of the countersignatures kept in the ledger itself."""
    found: list[Statement] = []
    if path.exists():
        with contextlib.closing(sqlite3.connect(path, timeout=5.0)) as db, contextlib.suppress(sqlite3.Error):
            for (raw,) in db.execute("SELECT statement FROM countersignatures"):
                with contextlib.suppress(TallystickError, TypeError, AttributeError):
                    found.append(decode(raw))
    return found


def salvage(path: Path, party: str, signing: SigningKey, heads: Sequence[Head]) -> Salvage:
    rows, ident = _rows(path)
    unfinished, _ = _rows(path.with_suffix(RECOVERED))
    rows = [*rows, *(link for link in unfinished if link not in rows)]
    anchor = Anchor(path.with_suffix(".anchor"), party=party)
    candidates = [ident] if ident and rows else []
    candidates += [h.ledger for h in heads]
    with contextlib.suppress(TallystickError, OSError):
        candidates.append(anchor.read().ledger)
    candidates += [ident] if ident else []
    best: Salvage | None = None
    for ledger in dict.fromkeys(candidates):
        found = _follow(rows, ledger, party, signing, [h for h in heads if h.ledger == ledger])
        if best is None or len(found.kept) > len(best.kept):
            best = found
    if best is None or not (best.kept or any(h.ledger == best.ledger for h in heads)):
        raise VerificationError(
            "nothing is left of this institution's ledger, and no server's signature under it is at hand",
            rule="ledger-lost",
            party=party,
            remedy="Get countersignatures of it from a server or the aggregator: --statement FILE. If no study ever "
            "ran here, remove the ledger.* files and register the data again.",
        )
    return best


def _rows(path: Path) -> tuple[list[Link], bytes | None]:
    """Every row that is of the form of a link, and the ledger's id if it is there."""
    links: list[Link] = []
    ident = None
    if not path.exists():
        return [], None
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=5.0)) as db:
        db.text_factory = bytes
        with contextlib.suppress(sqlite3.Error):
            row = db.execute("SELECT value FROM meta WHERE key = 'ledger'").fetchone()
            ident = row[0] if row and isinstance(row[0], bytes) and len(row[0]) == LEDGER_BYTES else None
        with contextlib.suppress(sqlite3.Error):
            for row in db.execute(f"SELECT {COLUMNS} FROM links ORDER BY sequence"):
                kind = row[1].decode("ascii", errors="replace") if isinstance(row[1], bytes) else None
                if (link := as_link((row[0], kind, *row[2:]))) is not None:
                    links.append(link)
    return links, ident


def _follow(rows: Sequence[Link], ledger: bytes, party: str, signing: SigningKey, heads: Sequence[Head]) -> Salvage:
    start = Head(ledger=ledger, sequence=0, hash=genesis(ledger, party))
    head, kept, hashes, trial = start, [], {0: start.hash}, Account()
    while (link := _next(rows, head, signing)) is not None:
        try:
            trial.apply(link)
        except VerificationError:
            break
        kept.append(link)
        head = link.head(ledger)
        hashes[link.sequence] = link.hash
    if any(hashes.get(h.sequence, h.hash) != h.hash for h in heads):  # this copy went another way than the servers saw
        last = max((h.sequence for h in heads if hashes.get(h.sequence) == h.hash), default=0)
        kept = [link for link in kept if link.sequence <= last]
    account = Account()
    for link in kept:
        account.apply(link)
    head = kept[-1].head(ledger) if kept else start
    loose = tuple(link for link in rows if link not in kept and _stands_alone(link, ledger, signing))
    return Salvage(ledger=ledger, kept=tuple(kept), loose=loose, account=account, head=head)


def _next(rows: Sequence[Link], head: Head, signing: SigningKey) -> Link | None:
    """The row that follows this head: the next one, or one that was recovered over a gap."""
    for link in sorted((row for row in rows if row.sequence > head.sequence), key=lambda row: row.sequence):
        if link.sequence == head.sequence + 1 or link.kind == "recovered":
            try:
                verify_chain([link], signing.public, after=head)
            except VerificationError:
                continue
            return link
    return None


def _stands_alone(link: Link, ledger: bytes, signing: SigningKey) -> bool:
    try:
        signing.public.verify(signed_bytes(link.head(ledger)), link.signature)
        parse_body(link)
    except VerificationError:
        return False
    return extend(link.previous, [link.content]) == [link.hash]
