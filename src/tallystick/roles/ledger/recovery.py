"""A ledger whose links are damaged or lost, continued from the last head that the servers have signed.

Kept are the links that still verify. Then comes one link of kind ``recovered``: it continues from the newest head the
servers know (from the kept links, if those reach further), takes over every charge that is still known from elsewhere,
counts every open reservation as released, and closes every budget until the steward grants one anew. So nothing that
was spent is forgotten, nothing more is admitted on figures that may be incomplete, and the servers can follow.

Known from elsewhere: links that verify by themselves though one before them does not, and this client's own signed
``charge`` statements, whose ρ bounds the whole curve (ρ·α at order α) and is not taken for Gaussian. For whom such a
charge was is said by the study that was proposed, if that statement is kept; otherwise by the data set's registration.

The damaged files are put aside, never deleted. Whoever has them open is told that they were replaced.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallystick.core.errors import StudyError, TallystickError, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.crypto.signing import SigningKey, VerifyKey
from tallystick.privacy.accountant import ORDERS, epsilon_from_rho
from tallystick.privacy.chain import Head, Link, parse_body
from tallystick.privacy.totals import steps
from tallystick.protocol.governance.statements import Statement, verify
from tallystick.roles.ledger.account import ratio
from tallystick.roles.ledger.anchor import Anchor
from tallystick.roles.ledger.countersignatures import head_of
from tallystick.roles.ledger.datasets import check_words
from tallystick.roles.ledger.file import LedgerFile, create, insert, signed_link
from tallystick.roles.ledger.salvage import RECOVERED, Salvage, kept_statements, salvage
from tallystick.roles.ledger.turn_lock import TurnLock
from tallystick.roles.storage.database import storage_guard, transaction_of
from tallystick.study import Study

_FILES = ("", "-wal", "-shm")


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What was done."""

    kept: int
    resumed: Head
    charges: int
    """Charges taken over from what was lost."""
    closed: tuple[str, ...]
    aside: tuple[str, ...]
    """Where the damaged files are."""


def recover(
    path: Path,
    *,
    party: str,
    signing: SigningKey,
    identities: Mapping[str, VerifyKey],
    statements: Iterable[Statement] = (),
    by: str,
    reason: str = "",
) -> Recovery:
    """Continue a ledger that no longer verifies. ``statements``: countersignatures and charges of it kept elsewhere."""
    check_words(by=by, reason=reason)
    known = [s for s in (*statements, *kept_statements(path)) if _signed(s, identities)]
    told = [s for s in known if s.kind == "countersignature" and s.body["client"] == party]
    charges = [s for s in known if s.kind == "charge" and s.signer == party]
    heads = [head_of(s) for s in told]
    _check_needed(path, party, signing, heads)
    with storage_guard("the ledger", party=party):
        lock = TurnLock(path.with_suffix(".lock"))
        try:
            lock.take(party=party)
            found = salvage(path, party, signing, heads)
            units = {s.body["hash"]: _unit_of(s.body["study"]) for s in known if s.kind == "proposal"}
            link = _link(found, [h for h in heads if h.ledger == found.ledger], charges, units, signing, by, reason)
            aside = _replace(path, party, found, link)
        finally:
            lock.close()
    with contextlib.closing(LedgerFile(path, party=party, signing=signing)) as file, file.reading() as account:
        return Recovery(
            kept=len(found.kept),
            resumed=Head(ledger=found.ledger, sequence=link.sequence - 1, hash=link.previous),
            charges=sum(c["kind"] == "reserve" for c in parse_body(link)["carried"]),
            closed=tuple(account.groups),
            aside=aside,
        )


def _signed(statement: Statement, identities: Mapping[str, VerifyKey]) -> bool:
    try:
        verify(statement, identities)
    except VerificationError:
        return False
    return True


def _check_needed(path: Path, party: str, signing: SigningKey, heads: Sequence[Head]) -> None:
    """A ledger in order is left alone."""
    if not path.exists():
        return
    try:
        with contextlib.closing(LedgerFile(path, party=party, signing=signing)) as file:
            here, last = file.ledger, file.head().sequence
            known = [h for h in heads if h.ledger == here and file.hash_at(h.sequence) in (None, h.hash)]
    except VerificationError:
        return
    if len(known) == len(heads) and all(h.sequence <= last for h in heads):
        raise StudyError("the ledger is in order: there is nothing to recover", rule="ledger-in-order", party=party)


def _unit_of(study: str) -> dict[str, Any]:
    """How a proposed study names and caps what it protects, between which neighbours if it has noise, and what its
    trust model sets aside; nothing if its text is no study."""
    try:
        claim = Study.from_canonical(study).claim(rounds=1)
    except (TallystickError, ValueError, RecursionError, TypeError):
        return {}
    more: dict[str, Any] = {"distance_aside": ratio(claim.distance_aside)} if claim.distance_aside else {}
    if claim.neighbours == "add-remove":
        more["neighbours"] = claim.neighbours
    if claim.mechanism == "none":
        more["private"] = False
    if claim.unit != "person":
        return {"unit": "record", **more}
    caps = {"max_records": claim.max_records, "max_institutions": claim.max_institutions}
    return {"unit": "person", "person": claim.person, **caps, **more}


def _link(
    found: Salvage,
    heads: Sequence[Head],
    charges: Sequence[Statement],
    units: Mapping[str, dict[str, Any]],
    signing: SigningKey,
    by: str,
    reason: str,
) -> Link:
    """The ``recovered`` link."""
    newest = max(heads, key=lambda h: h.sequence, default=found.head)
    after = newest if newest.sequence > found.head.sequence else found.head
    gap = {"sequence": after.sequence, "head": format_hash(after.hash)} if after is not found.head else None
    body = {
        "by": by,
        "reason": reason,
        "resumed": gap,
        "carried": _carried(found, [s for s in charges if s.body["ledger"] == found.ledger.hex()], units),
    }
    return signed_link(after, "recovered", body, signing)


def _carried(found: Salvage, charges: Sequence[Statement], units: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    carried: list[dict[str, Any]] = []
    groups = {d.ident: d.group for d in found.account.datasets.values()}
    registered = {d.ident: {"unit": d.unit} for d in found.account.datasets.values()}
    known = {format_hash(study) for study, entry in found.account.studies.items() if entry.state != "voided"}
    for link in found.loose:
        body = {k: v for k, v in parse_body(link).items() if k not in ("salt", "at")}
        if link.kind == "register":
            body |= {"bytes": "", "content": ""}  # found again at the next start
            groups[body["id"]] = body["group"]
            registered[body["id"]] = {"unit": body["unit"]}
        if link.kind == "reserve":
            known.add(body["study"])
        if link.kind in ("register", "grant", "reserve"):
            carried.append({"kind": link.kind, "body": body})
    lost: dict[str, Fraction] = {}
    for statement in charges:
        told = statement.body
        if told["hash"] not in known:
            rho, group = Fraction(told["rho"]), groups.get(told["dataset"], told["dataset"])
            known.add(told["hash"])
            if told["dataset"] not in groups:
                lost[group] = lost.get(group, Fraction(0)) + rho
            unit = units.get(told["hash"]) or registered.get(told["dataset"], {"unit": "record"})
            carried.append({"kind": "reserve", "body": {**_charge_facts(told, rho, group), **unit}})
    for group, rho in lost.items():  # a group whose very registration is lost: it has what was spent, and is closed
        figures = {"epsilon": repr(epsilon_from_rho(rho, 1e-6) or 1.0), "delta": repr(1e-6)}
        grant = {"group": group, **figures, "by": "recovery", "reason": "as much as was spent"}
        carried.insert(0, {"kind": "grant", "body": grant})
    return carried


def _charge_facts(told: Any, rho: Fraction, group: str) -> dict[str, Any]:
    return {
        "study": told["hash"],
        "study_name": "",
        "dataset": told["dataset"],
        "group": group,
        "rho": told["rho"],
        "pure_epsilon": None,
        "curve": [steps(rho * order) for order in ORDERS],
        "private": True,
        "neighbours": "replace-one",
    }


def _replace(path: Path, party: str, found: Salvage, link: Link) -> tuple[str, ...]:
    """Write the recovered ledger beside the damaged one, keep a copy of that, then change places; the anchor last.

    Killed anywhere on the way, the ledger stays unusable (an anchor that does not fit, or none) and recovery can be
    run again: what was in either file is still in one of them.
    """
    anchor = Anchor(path.with_suffix(".anchor"), party=party)
    if not anchor.exists():
        anchor.write(found.head)  # so that a missing database is never taken for a new ledger
    fresh = path.with_suffix(".recovering")
    for suffix in _FILES:
        path.with_name(fresh.name + suffix).unlink(missing_ok=True)
    _write(fresh, party, [*found.kept, link], found.ledger)
    ready = fresh.replace(path.with_suffix(RECOVERED))
    number = next(n for n in range(1, 10_000) if not path.with_name(f"{path.name}.damaged-{n}").exists())
    aside = []
    for suffix in reversed(_FILES):
        old = path.with_name(path.name + suffix)
        if old.exists():
            copy = path.with_name(f"{path.name}.damaged-{number}{suffix}")
            copy.unlink(missing_ok=True)
            copy.hardlink_to(old)
            aside.append(str(copy))
            if suffix:  # the log of the old file must not be read into the new one
                old.unlink()
    ready.replace(path)
    anchor.write(link.head(found.ledger))
    return tuple(sorted(aside))


def _write(file: Path, party: str, links: Sequence[Link], ledger: bytes) -> None:
    """A database with these links, on the disk when this returns."""
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        with transaction_of(db):
            create(db, party=party, ledger=ledger)
            insert(db, links)
