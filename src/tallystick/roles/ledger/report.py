"""Proof of what was spent: the whole ledger checked, and written out for others.

``events``  what was spent as dp-accounting events, for anyone's own accountant
``export``  the chain as one canonical file: every link's hash and signature; the bodies of registrations stay here, as
            their digests are enough to follow the chain and their fingerprints are nobody else's business
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.identifiers import canonical, format_hash, parse_hash
from tallystick.core.outside_text import read_json
from tallystick.crypto.signing import VerifyKey
from tallystick.privacy.accountant import rounded_up
from tallystick.privacy.chain import Head, Link, extend, genesis, parse_body, signed_bytes
from tallystick.privacy.ledger import covers, covers_sum
from tallystick.protocol.governance.statements import Statement, decode, verify
from tallystick.roles.ledger import countersignatures
from tallystick.roles.ledger.account import Account, StudyCharge
from tallystick.roles.ledger.anchor import broken_ledger
from tallystick.roles.ledger.file import LedgerFile

SCHEMA = "tallystick/ledger/1"
MAX_EXPORT = 256 << 20
_WITHHELD = ("register", "changed")


@dataclass(frozen=True, kw_only=True)
class LedgerReport:
    """A ledger in which everything agrees."""

    party: str
    head: Head
    links: int
    recovered: int
    """How many times it was recovered from a loss."""
    countersigned: Mapping[str, int]
    """The last link signed, by server."""

    @property
    def words(self) -> str:
        signed = ", ".join(f"{server} up to link {n}" for server, n in sorted(self.countersigned.items()))
        again = f" It was recovered {self.recovered} time(s) from a loss." if self.recovered else ""
        return (
            f"All {self.links} links follow each other and are signed by {self.party}; no budget was ever overspent; "
            f"the anchor agrees. Countersigned: {signed or 'by nobody yet'}.{again}"
        )


def verify_ledger(
    file: LedgerFile, identities: Mapping[str, VerifyKey] | None = None, statements: Iterable[Statement] = ()
) -> LedgerReport:
    """Chain, signatures, every admission done again, anchor, countersignatures: a report, or ``VerificationError``."""
    with file.turn() as live:
        file.check()
        again, recovered, links = Account(), 0, file.links(0)
        for link in links:
            again.apply(link)
            recovered += link.kind == "recovered"
            if link.kind == "reserve":
                _check_admitted(again, link, file.party)
        if (again.datasets, again.groups, again.studies) != (live.datasets, live.groups, live.studies):
            raise broken_ledger("the running totals are not those of the links", party=file.party)
        signed = countersignatures.check_all(file, identities, statements)
        head = file.head()
    return LedgerReport(party=file.party, head=head, links=len(links), recovered=recovered, countersigned=signed)


def _check_admitted(account: Account, link: Link, party: str) -> None:
    entry = account.studies[parse_hash(parse_body(link)["study"])]
    group = account.groups[entry.group]
    # Versions before units were told apart admitted by the plain sum, and noted no column: their word is not broken.
    earlier = all(unit.kind == "record" or not unit.noted for unit, _ in group.totals.units)
    admitted = covers(group.budget, group.totals) or (earlier and covers_sum(group.budget, group.totals.summed()))
    if entry.charge.private and not admitted:
        raise broken_ledger(
            f"the ledger's link {link.sequence} spends more than the budget of {group.name!r}",
            party=party,
            rule="ledger-overspent",
        )


def events(file: LedgerFile) -> list[dict[str, Any]]:
    """Every charge that counts as spent, as the name and arguments of a ``dp_accounting`` event.

    ρ-zCDP is ``ZCDpEvent``. A pure-ε study is the randomised response of its ε, which dominates every ε-DP mechanism
    [KOV15]; p = 2/(1 + e^ε) is rounded down. A study without noise is ``NonPrivateDpEvent``. All of them go
    into ``RdpAccountant(neighboring_relation=REPLACE_ONE)``; each study's own relation is in its ρ or ε already. Events
    of different units (``unit``, ``person`` and its caps) go into different accountants: they do not add up.
    """
    with file.reading() as account:
        spent = [entry for entry in account.studies.values() if entry.state != "voided"]
    return [
        {
            "study": format_hash(entry.charge.study),
            "name": entry.name,
            "group": entry.group,
            "state": entry.state,
            "neighbours": entry.charge.neighbours,
            **entry.charge.protects.as_dict(),
            **_event(entry),
        }
        for entry in sorted(spent, key=lambda entry: entry.sequence)
    ]


_LARGEST_EXPONENT = 700  # e^709 is the largest power of e in float64


def _event(entry: StudyCharge) -> dict[str, Any]:
    pure = entry.charge.pure_epsilon
    if not entry.charge.private or (pure is not None and pure > _LARGEST_EXPONENT):
        return {"event": "NonPrivateDpEvent", "arguments": {}}  # no noise, or odds that no float64 holds
    if pure is not None:
        p = 2 / (1 + math.exp(rounded_up(pure)))
        return {
            "event": "RandomizedResponseDpEvent",
            "arguments": {"noise_parameter": p * (1 - 1e-15), "num_buckets": 2},
        }
    return {"event": "ZCDpEvent", "arguments": {"rho": rounded_up(entry.charge.rho), "xi": 0.0}}


# -- the chain as a file -----------------------------------------------------------------------------------------------


def export(file: LedgerFile) -> bytes:
    """The chain as one canonical JSON document."""
    with file.turn():
        links = [
            {
                "sequence": link.sequence,
                "kind": link.kind,
                "body": None if link.kind in _WITHHELD else parse_body(link),
                "content": link.content.hex(),
                "previous": link.previous.hex(),
                "signature": link.signature.hex(),
            }
            for link in file.links(0)
        ]
        signed = [raw.decode("ascii") for raw in countersignatures.kept(file).values()]
        head = file.head()
    facts = {"schema": SCHEMA, "party": file.party, "ledger": file.ledger.hex(), "head": format_hash(head.hash)}
    return canonical({**facts, "links": links, "countersignatures": signed})


def check_export(raw: bytes, identities: Mapping[str, VerifyKey]) -> tuple[Head, Account]:
    """Follow an exported chain offline: its head and account, or ``VerificationError`` that says what is wrong."""
    try:
        told = read_json(raw, limit=MAX_EXPORT)
        if canonical(told) != raw or set(told) != _DOCUMENT or told["schema"] != SCHEMA:
            raise ValueError("it is not in the form it was written in")
        return _follow(told, identities)
    except (LookupError, TypeError, AttributeError, OverflowError, RemoteProtocolError):
        cause = "it is not in the form it was written in"
    except (ValueError, VerificationError) as error:
        cause = str(error)
    raise VerificationError(
        f"the exported ledger was changed: {cause}", rule="ledger-export", remedy="Ask its owner to export it again."
    )


def _follow(told: Mapping[str, Any], identities: Mapping[str, VerifyKey]) -> tuple[Head, Account]:
    party, ledger, key = told["party"], _hex(told["ledger"]), identities[told["party"]]
    head, account = Head(ledger=ledger, sequence=0, hash=genesis(ledger, party)), Account()
    hashes, signed = {}, []
    for entry in told["links"]:
        sequence, kind, body = entry["sequence"], entry["kind"], entry["body"]
        previous, content = _hex(entry["previous"]), _hex(entry["content"])
        resumed = body["resumed"] if kind == "recovered" and sequence > head.sequence else None
        follows = (sequence, previous) == (head.sequence + 1, head.hash)
        jumps = resumed == {"sequence": sequence - 1, "head": format_hash(previous)}
        (hashed,) = extend(previous, [content])
        text = b"" if body is None else canonical(body)
        link = Link(sequence=sequence, kind=kind, body=text, previous=previous, hash=hashed, signature=b"")
        if set(entry) != _FIELDS or (body is None) != (kind in _WITHHELD) or not (follows or jumps):
            raise ValueError(f"link {sequence!a} does not follow")
        if body is not None and link.content != content:
            raise ValueError(f"link {sequence} says something else than was signed")
        head = link.head(ledger)
        hashes[sequence - 1], hashes[sequence] = previous, hashed
        signed.append((link, head, _hex(entry["signature"])))
    if told["head"] != format_hash(head.hash):
        raise ValueError("it does not end at its head")
    for link, at, signature in signed:
        key.verify(signed_bytes(at), signature)
        if link.body:
            account.apply(link)
    for encoded in told["countersignatures"]:
        _check_countersignature(decode(encoded.encode("ascii")), identities, party, head, hashes)
    return head, account


def _check_countersignature(
    statement: Statement, identities: Mapping[str, VerifyKey], party: str, head: Head, hashes: Mapping[int, bytes]
) -> None:
    verify(statement, identities)
    signed = countersignatures.head_of(statement)
    if (signed.ledger, statement.kind, statement.body["client"]) != (head.ledger, "countersignature", party):
        raise ValueError("a countersignature of another ledger")
    if signed.sequence > head.sequence:
        raise ValueError(f"{statement.signer} has signed link {signed.sequence}, which is missing")
    if hashes.get(signed.sequence, signed.hash) != signed.hash:
        raise ValueError(f"{statement.signer} has signed another link {signed.sequence}")


def _hex(text: str) -> bytes:
    """Lower-case hex, the one spelling."""
    found = bytes.fromhex(text)
    if found.hex() != text:
        raise ValueError("a number is not spelt as it was written")
    return found


_FIELDS = {"sequence", "kind", "body", "content", "previous", "signature"}
_DOCUMENT = {"schema", "party", "ledger", "head", "links", "countersignatures"}
