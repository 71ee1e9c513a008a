"""The servers' signatures under heads of this client's ledger, kept beside the links they vouch for.

A countersignature says: this server has followed the ledger to this head. It is what a ledger is recovered from, and
what an old copy of it cannot agree with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import parse_hash
from tallystick.crypto.signing import VerifyKey
from tallystick.privacy.chain import Head
from tallystick.protocol.governance.statements import Statement, decode, verify
from tallystick.roles.ledger.anchor import broken_ledger
from tallystick.roles.ledger.file import LedgerFile
from tallystick.roles.storage.database import transaction_of


def head_of(statement: Statement) -> Head:
    """The head that a countersignature or a charge is about."""
    body = statement.body
    return Head(ledger=bytes.fromhex(body["ledger"]), sequence=body["sequence"], hash=parse_hash(body["head"]))


def add(file: LedgerFile, raw: bytes, identities: Mapping[str, VerifyKey] | None = None) -> Statement:
    """Keep a countersignature of this ledger; refused if it is about another one, or about a head it never had."""
    statement = decode(raw)
    _check(file, statement, identities)
    with file.turn(), transaction_of(file.db):
        row = (statement.body["sequence"], statement.signer, raw)
        file.db.execute("INSERT OR REPLACE INTO countersignatures VALUES (?, ?, ?)", row)
    return statement


def kept(file: LedgerFile) -> dict[tuple[int, str], bytes]:
    """Those kept, by (sequence, server)."""
    rows = file.read("SELECT sequence, server, statement FROM countersignatures ORDER BY 1, 2")
    return {(int(number), str(server)): raw for number, server, raw in rows}


def check_all(
    file: LedgerFile, identities: Mapping[str, VerifyKey] | None, more: Iterable[Statement] = ()
) -> dict[str, int]:
    """Check every countersignature kept here, and those given, against the chain; the last head by server."""
    last: dict[str, int] = {}
    statements = []
    for (sequence, server), raw in kept(file).items():
        try:
            found = decode(raw) if isinstance(raw, bytes) else None
        except RemoteProtocolError:
            found = None
        if found is None or (found.body.get("sequence"), found.signer) != (sequence, server):
            raise broken_ledger(f"the countersignature of link {sequence} was changed", party=file.party)
        statements.append(found)
    for statement in (*statements, *more):
        _check(file, statement, identities)
        last[statement.signer] = max(last.get(statement.signer, 0), statement.body["sequence"])
    return last


def _check(file: LedgerFile, statement: Statement, identities: Mapping[str, VerifyKey] | None) -> None:
    if statement.kind != "countersignature" or statement.body["client"] != file.party:
        raise VerificationError(
            "that is no countersignature of this institution's ledger", rule="ledger-countersignature", party=file.party
        )
    if identities is not None:
        verify(statement, identities)
    head = head_of(statement)
    if head.ledger != file.ledger:
        raise broken_ledger(f"{statement.signer} has signed another ledger of this institution", party=file.party)
    here = file.hash_at(head.sequence)
    if here == head.hash or (here is None and head.sequence < file.head().sequence):
        return  # or it was lost, and the ledger recovered beyond it
    what = "it ends before that" if here is None else "another link stands there"
    raise broken_ledger(
        f"this is not the ledger whose link {head.sequence} {statement.signer} has signed: {what}",
        party=file.party,
        rule="ledger-seen-elsewhere",
    )
