"""``tallystick budget show|grant`` and ``tallystick ledger verify|export|recover``: a steward's account.

What may be spent, what was spent on which study, and the proof: a chain of entries that this institution has signed
and the servers have countersigned. A budget changes by a grant alone, with a name and a reason, for ever on record.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallystick.cli.data_sets import ROLE, ConfigOption, client_ledger, day, whoami
from tallystick.cli.output import Format, FormatOption, show_result
from tallystick.core.errors import StudyError

if TYPE_CHECKING:
    from tallystick.crypto.signing import VerifyKey
    from tallystick.privacy.totals import UnitSpent
    from tallystick.protocol.governance.statements import Statement
    from tallystick.roles.identity.consortium import Consortium
    from tallystick.roles.ledger.account import StudyCharge
    from tallystick.roles.ledger.store import BudgetView

__all__ = ["budget_app", "ledger_app"]

budget_app = typer.Typer(no_args_is_help=True, help="What a client's data sets may spend, and have spent.")
ledger_app = typer.Typer(no_args_is_help=True, help="The proof of it: check, hand out or recover the ledger.")
ByOption = Annotated[str | None, typer.Option(help="Who decides this; the account of this command if left out.")]
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence; kept for ever.")]
_EVENTS = "tallystick/ledger-events/1"


@budget_app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A data set or group; all if left out.")] = None,
    config: ConfigOption = ROLE,
    format: FormatOption = Format.text,
) -> None:
    """Budgets, what each study cost, and what is left."""
    with client_ledger(config) as ledger:
        views = ledger.views() if name is None else (ledger.view(name),)
        result = {"action": "show", "party": ledger.party, "budgets": [_facts(view) for view in views]}
    show_result(result, format, describe)


@budget_app.command()
def grant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set or budget group.")],
    epsilon: Annotated[float, typer.Option(help="The new total (not an addition).")],
    config: ConfigOption = ROLE,
    delta: Annotated[float, typer.Option(help="The delta of the new total.")] = 1e-6,
    by: ByOption = None,
    reason: ReasonOption = "",
    format: FormatOption = Format.text,
) -> None:
    """State a new total for a budget: larger, smaller, never below what is spent."""
    with client_ledger(config) as ledger:
        before = ledger.view(name).budget
        view = ledger.grant(name, epsilon=epsilon, delta=delta, by=by or whoami(), reason=reason)
        old = {"epsilon": before.epsilon, "delta": before.delta}
        result = {"action": "grant", "party": ledger.party, "before": old, **_facts(view)}
    show_result(result, format, describe)


@ledger_app.command()
def verify(
    config: Annotated[Path | None, typer.Option(help="The client's config file (role.toml).")] = None,
    file: Annotated[Path | None, typer.Option(help="Check an exported chain instead (ledger export --chain).")] = None,
    consortium: Annotated[Path | None, typer.Option(help="The consortium.toml to check an export against.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Check every link, signature and sum of a ledger, its anchor and what the servers have signed. Exit 6 if wrong."""
    if config is None and file is None and ROLE.exists():
        config = ROLE
    if (config is None) == (file is None) or (file is not None) != (consortium is not None):
        raise StudyError(
            "which ledger is to be checked?", rule="usage", remedy="Give --config, or --file with --consortium."
        )
    result = _verify_own(config) if config is not None else _verify_export(file, consortium)
    show_result(result, format, describe)


def _verify_own(config: Path) -> dict[str, Any]:
    with client_ledger(config) as ledger:
        identities, statements = _statements(config)
        signed = [s for s in statements if s.kind == "countersignature" and s.body["client"] == ledger.party]
        report = ledger.verify(identities, signed)
    facts = {"party": report.party, "links": report.links, "head": f"sha256:{report.head.hash.hex()}"}
    facts |= {"ledger": report.head.ledger.hex(), "countersigned": dict(report.countersigned)}
    return {"action": "verify", **facts, "recovered": report.recovered, "statement": report.words}


def _verify_export(file: Path | None, consortium: Path | None) -> dict[str, Any]:
    from tallystick.data.files import read_file
    from tallystick.roles.identity.identity_files import read_consortium
    from tallystick.roles.ledger.report import MAX_EXPORT, check_export

    if file is None or consortium is None:
        raise StudyError("nothing to check", rule="usage")
    raw = read_file(file, limit=MAX_EXPORT)
    head, account = check_export(raw, _identities(read_consortium(consortium)))
    spent = {
        name: group.totals.spent(group.budget.delta or 1e-6).statement if group.grants else "no budget was ever granted"
        for name, group in account.groups.items()
    }
    words = f"All {head.sequence} links follow each other and are signed. " + " ".join(
        f"{name}: {said}." for name, said in spent.items()
    )
    facts = {"links": head.sequence, "head": f"sha256:{head.hash.hex()}", "ledger": head.ledger.hex()}
    return {"action": "verify", **facts, "spent": spent, "statement": words}


@ledger_app.command()
def export(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    config: ConfigOption = ROLE,
    chain: Annotated[bool, typer.Option("--chain", help="The signed chain itself, for ledger verify --file.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Write what was spent as dp-accounting events, or the signed chain, for somebody else to check."""
    import json

    from tallystick.roles.identity.identity_files import write_public

    with client_ledger(config) as ledger:
        head = ledger.head()
        facts = {"party": ledger.party, "ledger": head.ledger.hex(), "head": f"sha256:{head.hash.hex()}"}
        if chain:
            content = ledger.export_chain()
        else:
            events = {"schema": _EVENTS, **facts, "events": ledger.export_events()}
            content = json.dumps(events, indent=1).encode() + b"\n"
    write_public(out, content)
    kind = "the signed chain" if chain else "dp-accounting events"
    show_result({"action": "export", **facts, "kind": kind, "file": str(out)}, format, describe)


@ledger_app.command()
def recover(
    reason: Annotated[str, typer.Option(help="What happened, in a sentence; kept for ever.")],
    config: ConfigOption = ROLE,
    by: ByOption = None,
    statement: Annotated[
        list[Path] | None, typer.Option(help="A server's countersignature from elsewhere (a file); repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what it means.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Continue a damaged ledger from the last entry the servers have signed; closes every budget until a new grant."""
    from tallystick.protocol.governance.statements import decode
    from tallystick.roles.identity.identity_files import load_identity, read_consortium, read_public, wall_clock
    from tallystick.roles.identity.role_config import load_role_config
    from tallystick.roles.ledger.recovery import recover as recover_ledger
    from tallystick.roles.ledger.store import LEDGER

    if not yes:
        raise StudyError(
            "recovering puts the damaged files aside, counts all that may have been released as spent, and closes "
            "every budget of this client until its steward grants one anew",
            rule="confirm",
            remedy="Look for a newer backup of the state folder first. If there is none, run it again with --yes.",
        )
    role = load_role_config(config, role="client")
    identity = load_identity(role, read_consortium(role.consortium), wall_clock())
    identities, known = _statements(config)
    given = [decode(read_public(path)) for path in statement or ()]
    done = recover_ledger(
        role.state / LEDGER,
        party=role.name,
        signing=identity.signing,
        identities=identities,
        statements=[*known, *given],
        by=by or whoami(),
        reason=reason,
    )
    result = {
        "action": "recover",
        "kept": done.kept,
        "resumed": {"sequence": done.resumed.sequence, "head": f"sha256:{done.resumed.hash.hex()}"},
        "charges": done.charges,
        "closed": list(done.closed),
        "aside": list(done.aside),
    }
    show_result(result, format, describe)


def _identities(consortium: Consortium) -> dict[str, VerifyKey]:
    return {party.name: party.identity for party in consortium.parties}


def _statements(config: Path) -> tuple[dict[str, VerifyKey], tuple[Statement, ...]]:
    """The consortium's keys, and every statement this client has kept."""
    from contextlib import closing

    from tallystick.roles.governance.store import GovernanceStore
    from tallystick.roles.identity.identity_files import read_consortium
    from tallystick.roles.identity.role_config import load_role_config

    role = load_role_config(config, role="client")
    identities = _identities(read_consortium(role.consortium))
    path = role.state / "governance.sqlite"
    if not path.exists():
        return identities, ()
    with closing(GovernanceStore(path, party=role.name, identities=identities)) as store:
        return identities, store.statements()


def _facts(view: BudgetView) -> dict[str, Any]:
    return {
        "group": view.group,
        "datasets": list(view.datasets),
        "budget": {"epsilon": view.budget.epsilon, "delta": view.budget.delta},
        "spent": {
            "epsilon": view.spent.epsilon,
            "delta": view.spent.delta,
            "studies": view.spent.fits,
            **(view.spent.unit.as_dict() if view.spent.fits else {}),
            "units": [_spent(one) for one in view.spent.units if view.spent.fits],
        },
        "left_epsilon": view.left_epsilon,
        "closed": view.closed,
        "statement": view.words,
        "studies": [_study(entry, view.budget.delta or 1e-6) for entry in view.entries],
    }


def _spent(one: UnitSpent) -> dict[str, Any]:
    return {
        **one.unit.as_dict(),
        "neighbours": one.neighbours,
        "epsilon": one.epsilon,
        "delta": one.delta,
        "studies": one.fits,
        "left_out": one.left_out,
    }


def _study(entry: StudyCharge, delta: float) -> dict[str, Any]:
    from tallystick.privacy.accountant import epsilon_from_rho

    charge = entry.charge
    alone = float(charge.pure_epsilon) if charge.pure_epsilon is not None else epsilon_from_rho(charge.rho, delta)
    return {
        "name": entry.name,
        "hash": f"sha256:{charge.study.hex()}",
        "state": entry.state,
        "at": entry.at,
        "epsilon_alone": alone if charge.private else None,
        "neighbours": charge.neighbours,
        **charge.protects.as_dict(),
        "protects": charge.protects.words,
    }


# -- words -------------------------------------------------------------------------------------------------------------

_STATES = {
    "reserved": "reserved (counts as spent)",
    "released": "released, no result here yet",
    "committed": "done",
    "voided": "given back",
}


def describe(result: dict[str, Any]) -> str:
    """In words."""
    match result["action"]:
        case "show":
            shown = "\n\n".join(_budget(one) for one in result["budgets"])
            return shown or "No data set is registered yet: tallystick data add NAME --source FILE --budget-epsilon 1"
        case "grant":
            before = result["before"]
            head = f"The budget of {result['group']} was epsilon = {before['epsilon']:g}, delta = {before['delta']:g}."
            return f"{head}\n{_budget(result)}"
        case "verify":
            return f"The ledger is in order. {result['statement']}"
        case "export":
            return f"{result['file']}: {result['kind']} of {result['party']}, up to {result['head']}."
        case _:
            return _recovered(result)


def _budget(one: dict[str, Any]) -> str:
    lines = [f"{one['group']} ({', '.join(one['datasets']) or 'no data set'})", f"  {one['statement']}"]
    for entry in one["studies"]:
        alone = "exact sums" if entry["epsilon_alone"] is None else f"epsilon {entry['epsilon_alone']:.4g} by itself"
        name = entry["name"] or "study"
        whom = f"for any one {entry['protects']}"
        lines.append(f"  {day(entry['at'])}  {name}  {entry['hash'][:19]}  {alone}, {_STATES[entry['state']]}, {whom}")
    if len({entry["protects"] for entry in one["studies"]}) == 1 < len(one["studies"]):
        lines.append("  Together they cost no more than the sum of the parts, usually much less.")
    return "\n".join(lines)


def _recovered(result: dict[str, Any]) -> str:
    resumed = result["resumed"]["sequence"]
    return "\n".join(
        [
            f"The ledger goes on after link {resumed}. {result['kept']} links are kept, {result['charges']} charge(s) "
            "of lost ones are taken over as spent.",
            f"The damaged files are kept: {', '.join(result['aside']) or 'there were none'}.",
            f"Closed until a new grant: {', '.join(result['closed']) or 'nothing'}.",
            "Next: find out what happened, then decide what may still be spent: tallystick budget show, then "
            "tallystick budget grant NAME --epsilon … --reason …. Restart the client.",
        ]
    )
