"""What a client's data sets may spend and have spent, as data and in words: ``tallystick budget show|grant``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.application.party_files import PartyFiles, client_ledger
from tallystick.application.text_layout import at_most_sure, day, paragraph
from tallystick.core.errors import StudyError
from tallystick.core.identifiers import format_hash
from tallystick.privacy.ledger import Budget
from tallystick.privacy.ranges import BUDGET_EPSILON
from tallystick.privacy.spent import Spent, UnitSpent
from tallystick.privacy.totals import UnitTotals
from tallystick.roles.identity.identity_files import unix_time
from tallystick.roles.ledger.account import StudyCharge
from tallystick.roles.ledger.budget_groups import BudgetView

SIZES = (0.1, 0.5, 1.0)
"""Of studies, in epsilon: how many more of each would fit."""


def show(config: Path, name: str | None = None, *, epsilon: float | None = None) -> dict[str, Any]:
    """The budget of a data set or group, or all of them: what each study cost, and how many more of ``epsilon`` fit."""
    if epsilon is not None and not BUDGET_EPSILON.holds(epsilon):
        raise StudyError(
            f"no study has epsilon = {epsilon:g}", rule="usage", remedy="Give that of a study, such as 0.5."
        )
    sizes = SIZES if epsilon is None else (epsilon,)
    with PartyFiles.of(config, holder=True) as files, files.ledger() as ledger:
        files.check_ledger(ledger)
        views = ledger.views() if name is None else (ledger.view(name),)
        budgets = [_facts(view, sizes) | {"studies": _studies(view, files)} for view in views]
        return {"action": "show", "party": ledger.party, "budgets": budgets}


def grant(config: Path, name: str, *, epsilon: float, delta: float, by: str, reason: str) -> dict[str, Any]:
    """State a new total for a budget."""
    with client_ledger(config) as ledger:
        before = amount(ledger.view(name).budget)
        view = ledger.grant(name, epsilon=epsilon, delta=delta, by=by, reason=reason)
        facts = _facts(view, SIZES) | {"studies": _studies(view)}
        return {"action": "grant", "party": ledger.party, "before": before, **facts}


def amount(one: Budget | Spent | UnitSpent) -> dict[str, Any]:
    """An amount of privacy."""
    return {"epsilon": one.epsilon, "delta": one.delta}


def _facts(view: BudgetView, sizes: tuple[float, ...]) -> dict[str, Any]:
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
        "still_fit": [{"epsilon": size, "studies": view.how_many_fit(size)} for size in sizes],
        "closed": view.closed,
        "statement": view.words,
    }


def _unit(one: UnitSpent) -> dict[str, Any]:
    facts = {**one.unit.as_dict(), "neighbours": one.neighbours, **amount(one)}
    return {**facts, "studies": one.fits, "left_out": one.left_out}


def _studies(view: BudgetView, files: PartyFiles | None = None) -> list[dict[str, Any]]:
    """Every study on the account; ``failed`` if it is known here to have ended without a result."""
    return [_study(entry, view.budget.delta or 1e-6) | {"failed": _failed(entry, files)} for entry in view.entries]


def _failed(entry: StudyCharge, files: PartyFiles | None) -> bool:
    if files is None or not files.has_heard:
        return False
    return files.docket(entry.charge.study).standing(unix_time()).state == "failed"


def _study(entry: StudyCharge, delta: float) -> dict[str, Any]:
    charge = entry.charge
    pure = charge.pure_epsilon
    alone = float(pure) if pure is not None else UnitTotals.of(charge).to_convert().promise(delta)[0]
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
    "voided": "given back: nothing had left",
}


def _state(entry: dict[str, Any]) -> str:
    return "failed, charged in full" if entry["failed"] and entry["state"] != "voided" else _STATES[entry["state"]]


def describe(result: dict[str, Any]) -> str:
    """In words."""
    if result["action"] == "grant":
        before = result["before"]
        head = f"The budget of {result['group']} was epsilon = {before['epsilon']:g}, delta = {before['delta']:g}."
        return f"{head}\n{_budget(result)}"
    if not result["budgets"]:
        return "No data set is registered yet: tallystick data add NAME --source FILE --budget-epsilon 1"
    return "\n\n".join([*map(_budget, result["budgets"]), _CHOOSING])


_CHOOSING = paragraph(
    "How to choose a budget: it bounds all studies on these records together, for good. Decide how sure a stranger may "
    f"become of one person (from even odds, {at_most_sure(0.5)} at epsilon 0.5, {at_most_sure(1)} at 1, "
    f"{at_most_sure(3)} at 3), then how many studies that pays for (budget show --epsilon E counts those of another "
    "size). 1 is a common choice. It can be raised later (budget grant), and never lowered below what is spent.",
    0,
)


def _budget(one: dict[str, Any]) -> str:
    lines = [f"{one['group']} ({', '.join(one['datasets']) or 'no data set'})", f"  {one['statement']}"]
    fitting = ", or ".join(f"{each['studies']} of epsilon = {each['epsilon']:g}" for each in one["still_fit"])
    lines.append(f"  Further studies that still fit: {fitting}.")
    sure = at_most_sure(one["budget"]["epsilon"])
    lines.append(f"  When all of it is spent, a guess about somebody that was even odds is {sure}.")
    for entry in one["studies"]:
        alone = "exact sums" if entry["epsilon_alone"] is None else f"epsilon {entry['epsilon_alone']:.4g} by itself"
        name = entry["name"] or "study"
        whom = f"for any one {entry['protects']}"
        lines.append(f"  {day(entry['at'])}  {name}  {entry['hash'][:19]}  {alone}, {_state(entry)}, {whom}")
    lost = [entry for entry in one["studies"] if entry["failed"] and entry["state"] != "voided"]
    if lost:
        names = ", ".join(entry["name"] or "study" for entry in lost)
        lines.append(f"  Ended without a result: {names}. What had left this client may have been seen: it is spent.")
    if len({entry["protects"] for entry in one["studies"]}) == 1 < len(one["studies"]):
        lines.append("  Together they cost no more than the sum of the parts, usually much less.")
    return "\n".join(lines)
