"""The proof of what was spent: check it, hand it out, go on after damage. ``tallystick ledger verify|export|recover``.

A chain of entries that this institution has signed and the servers have countersigned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tallystick.application.party_files import PartyFiles, client_ledger, identities_of
from tallystick.core.identifiers import format_hash
from tallystick.data.files import read_file
from tallystick.protocol.governance.statements import decode
from tallystick.roles.governance.ledger_inquiry import ask_witnesses
from tallystick.roles.identity.identity_files import read_consortium, read_public, write_public
from tallystick.roles.ledger.recovery import recover as recover_ledger
from tallystick.roles.ledger.report import MAX_EXPORT, check_export
from tallystick.roles.ledger.report import events as export_events
from tallystick.roles.ledger.report import export as export_chain
from tallystick.roles.ledger.store import LEDGER

_EVENTS = "tallystick/ledger-events/1"


def verify(config: Path, *, offline: bool = False) -> dict[str, Any]:
    """Check a client's own ledger: every link, signature and sum, its anchor, what the servers have signed, and, unless
    ``offline``, what they say now that they have seen of it."""
    asked: dict[str, Any] = {"asked": None, "silent": []}
    with PartyFiles.of(config, holder=True) as files, files.ledger() as ledger:
        report = files.check_ledger(ledger)
        if not offline:
            found = ask_witnesses(files.config, files.consortium, files.identity, report.head.ledger)
            for server, seen in found.seen.items():
                if seen is not None:
                    ledger.compare(seen, by=server)
            links = {server: 0 if seen is None else seen.sequence for server, seen in found.seen.items()}
            asked = {"asked": links, "silent": list(found.silent)}
    facts = {"party": report.party, "links": report.links, "head": format_hash(report.head.hash)}
    facts |= {"ledger": report.head.ledger.hex(), "countersigned": dict(report.countersigned)}
    return {
        "action": "verify",
        **facts,
        "recovered": report.recovered,
        **asked,
        "statement": f"{report.words} {_asked(**asked)}",
    }


def _asked(asked: dict[str, int] | None, silent: list[str]) -> str:
    if asked is None:
        return "The servers were not asked."
    said = [
        f"{server} has seen {f'link {link}' if link else 'nothing of it'}" for server, link in sorted(asked.items())
    ]
    words = [f"Asked just now: {', '.join(said)}, and nothing that is not here."] if said else []
    if silent:
        words.append(
            f"NO ANSWER from {', '.join(silent)}: what they have seen of it is known only as far as the notice board "
            "tells. Run it again when they can be reached."
        )
    return " ".join(words)


def verify_export(file: Path, consortium: Path) -> dict[str, Any]:
    """Check somebody's exported chain against the consortium's keys."""
    identities = identities_of(read_consortium(consortium))
    head, account = check_export(read_file(file, limit=MAX_EXPORT), identities)
    spent = {
        name: group.totals.spent(group.budget.delta or 1e-6).statement if group.grants else "no budget was ever granted"
        for name, group in account.groups.items()
    }
    words = f"All {head.sequence} links follow each other and are signed. " + " ".join(
        f"{name}: {said}." for name, said in spent.items()
    )
    facts = {"links": head.sequence, "head": format_hash(head.hash), "ledger": head.ledger.hex()}
    return {"action": "verify", **facts, "spent": spent, "statement": words}


def export(config: Path, out: Path, *, chain: bool) -> dict[str, Any]:
    """Write what was spent as dp-accounting events, or the signed chain, for somebody else to check."""
    with client_ledger(config) as ledger:
        head = ledger.head()
        facts = {"party": ledger.party, "ledger": head.ledger.hex(), "head": format_hash(head.hash)}
        if chain:
            content = export_chain(ledger.file)
        else:
            events = {"schema": _EVENTS, **facts, "events": export_events(ledger.file)}
            content = json.dumps(events, indent=1).encode() + b"\n"
    write_public(out, content)
    kind = "the signed chain" if chain else "dp-accounting events"
    return {"action": "export", **facts, "kind": kind, "file": str(out)}


def recover(config: Path, *, by: str, reason: str, statements: Iterable[Path] = ()) -> dict[str, Any]:
    """Continue a damaged ledger from the last entry the servers have signed; ``statements`` are countersignatures
    kept elsewhere."""
    with PartyFiles.of(config, holder=True) as files:
        done = recover_ledger(
            files.config.state / LEDGER,
            party=files.config.name,
            signing=files.identity.signing,
            identities=identities_of(files.consortium),
            statements=[*files.statements(), *(decode(read_public(path)) for path in statements)],
            by=by,
            reason=reason,
        )
    return {
        "action": "recover",
        "kept": done.kept,
        "resumed": {"sequence": done.resumed.sequence, "head": format_hash(done.resumed.hash)},
        "charges": done.charges,
        "closed": list(done.closed),
        "aside": list(done.aside),
    }


def describe(result: dict[str, Any]) -> str:
    """In words."""
    match result["action"]:
        case "verify":
            return f"The ledger is in order. {result['statement']}"
        case "export":
            return f"{result['file']}: {result['kind']} of {result['party']}, up to {result['head']}."
    return (
        f"The ledger goes on after link {result['resumed']['sequence']}. {result['kept']} links are kept, "
        f"{result['charges']} charge(s) of lost ones are taken over as spent.\n"
        f"The damaged files are kept: {', '.join(result['aside']) or 'there were none'}.\n"
        f"Closed until a new grant: {', '.join(result['closed']) or 'nothing'}.\n"
        "Next: find out what happened, then decide what may still be spent: tallystick budget show, then "
        "tallystick budget grant NAME --epsilon … --reason …. Restart the client."
    )
