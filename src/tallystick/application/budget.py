"""What a client's data sets may spend and have spent, as data and in words: ``tallystick budget show|grant``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.application.party_files import client_ledger
from tallystick.application.text_layout import day
from tallystick.core.identifiers import format_hash
from tallystick.privacy.accountant import epsilon_from_rho
from tallystick.privacy.ledger import Budget
from tallystick.privacy.totals import Spent, UnitSpent
from tallystick.roles.ledger.account import StudyCharge
from tallystick.roles.ledger.budget_groups import BudgetView


def show(config: Path, name: str | None = None) -> dict[str, Any]:
    """The budget of a data set or group, or all of them: what each study cost, and what is left."""
    with client_ledger(config) as ledger:
        views = ledger.views() if name is None else (ledger.view(name),)
        return {"action": "show", "party": ledger.party, "budgets": [_facts(view) for view in views]}


def grant(config: Path, name: str, *, epsilon: float, delta: float, by: str, reason: str) -> dict[str, Any]:
    """State a new total for a budget."""
    with client_ledger(config) as ledger:
        before = amount(ledger.view(name).budget)
        view = ledger.grant(name, epsilon=epsilon, delta=delta, by=by, reason=reason)
        return {"action": "grant", "party": ledger.party, "before": before, **_facts(view)}


def amount(one: Budget | Spent | UnitSpent) -> dict[str, Any]:
    """An amount of privacy."""
    return {"epsilon": one.epsilon, "delta": one.delta}


def _facts(view: BudgetView) -> dict[str, Any]:
    spent = view.spent
    return {
        "group": view.group,
        "datasets": list(view.datasets),
        "budget": amount(view.budget),
        "spent": {
            **amount(spent),
            "studies": spent.fits,
            **(spent.unit.as_dict() if spent.fits else {}),
            "units": [_unit(one) for one in spent.units if spent.fits],
        },
        "left_epsilon": view.left_epsilon,
        "closed": view.closed,
        "statement": view.words,
        "studies": [_study(entry, view.budget.delta or 1e-6) for entry in view.entries],
    }


def _unit(one: UnitSpent) -> dict[str, Any]:
    facts = {**one.unit.as_dict(), "neighbours": one.neighbours, **amount(one)}
    return {**facts, "studies": one.fits, "left_out": one.left_out}


def _study(entry: StudyCharge, delta: float) -> dict[str, Any]:
    charge = entry.charge
    alone = float(charge.pure_epsilon) if charge.pure_epsilon is not None else epsilon_from_rho(charge.rho, delta)
    return {
        "name": entry.name,
        "hash": format_hash(charge.study),
        "state": entry.state,
        "at": entry.at,
        "epsilon_alone": alone if charge.private else None,
        "neighbours": charge.neighbours,
        **charge.protects.as_dict(),
        "protects": charge.protects.words,
    }


_STATES = {
    "reserved": "reserved (counts as spent)",
    "released": "released, no result here yet",
    "committed": "done",
    "voided": "given back",
}


def describe(result: dict[str, Any]) -> str:
    """In words."""
    if result["action"] == "grant":
        before = result["before"]
        head = f"The budget of {result['group']} was epsilon = {before['epsilon']:g}, delta = {before['delta']:g}."
        return f"{head}\n{_budget(result)}"
    shown = "\n\n".join(_budget(one) for one in result["budgets"])
    return shown or "No data set is registered yet: tallystick data add NAME --source FILE --budget-epsilon 1"


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
