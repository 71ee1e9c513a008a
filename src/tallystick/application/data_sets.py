"""A client's registered records, as data and in words: ``tallystick data add|list|describe``.

Registering reads the source once, to know it again: the same records cannot be registered for a second budget. It is
done on the client's own machine; nothing about a data set leaves it but an opaque id, with the charges of studies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.application.budget import amount
from tallystick.application.party_files import PartyFiles, client_ledger
from tallystick.application.text_layout import day
from tallystick.core.errors import StudyError
from tallystick.core.outside_text import NotReadable, read_toml
from tallystick.privacy.ledger import Budget
from tallystick.roles.identity.identity_files import read_public
from tallystick.roles.ledger.account import DataSet
from tallystick.roles.ledger.budget_groups import BudgetView
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.registration import engine_of
from tallystick.study.schema import Schema


def add(
    config: Path,
    name: str,
    source: str,
    *,
    by: str,
    query: str | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    unit: str = "record",
    person: str | None = None,
    group: str | None = None,
    schema: Path | None = None,
) -> dict[str, Any]:
    """Register records with their budget; ``schema`` is a file whose [data.columns] are open to studies."""
    columns = None if schema is None else _read_schema(schema)
    budget = None if epsilon is None else Budget(epsilon=epsilon, delta=delta)
    with PartyFiles.of(config, holder=True) as files, files.ledger() as ledger:
        files.check_ledger(ledger)
        made = make_dataset(
            name,
            source,
            query=query,
            group=group,
            unit=unit,
            person=person,
            schema=columns,
            party=ledger.party,
            engine=engine_of(files.config),
        )
        before = ledger.head().sequence
        kept = ledger.register(made, budget, by=by)
        return {"action": "add", "new": ledger.head().sequence > before, **_facts(kept, ledger.view(kept.name))}


def listing(config: Path) -> dict[str, Any]:
    """Every registered data set, with what is spent and left."""
    with client_ledger(config) as ledger:
        return {"action": "list", "datasets": [_facts(d, ledger.view(d.name)) for d in ledger.datasets()]}


def show(config: Path, name: str) -> dict[str, Any]:
    """All that is known here of one data set."""
    with client_ledger(config) as ledger:
        found, view = ledger.dataset(name), ledger.view(name)
    mark = found.fingerprint
    return {
        "action": "describe",
        **_facts(found, view),
        "fingerprint": {"location": mark.location, "bytes": mark.bytes, "content": mark.content},
        "shares_budget_with": [other for other in view.datasets if other != name],
        "studies": len([e for e in view.entries if e.state != "voided"]),
    }


def _read_schema(path: Path) -> Schema:
    try:
        table = read_toml(read_public(path))["data"]["columns"]
    except (NotReadable, KeyError, TypeError):
        raise StudyError(
            f"{path} declares no columns", rule="schema", remedy="Give a TOML file with a [data.columns] table."
        ) from None
    return Schema.from_dict(table)


def _facts(dataset: DataSet, view: BudgetView) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "id": dataset.ident,
        "group": dataset.group,
        "source": dataset.source,
        "unit": dataset.unit,
        "person": dataset.person,
        "columns": None if dataset.schema is None else list(dataset.schema),
        "registered_at": dataset.registered_at,
        "changed_at": dataset.changed_at,
        "budget": amount(view.budget),
        "spent": {**amount(view.spent), "studies": view.spent.fits},
        "left_epsilon": view.left_epsilon,
        "statement": view.words,
    }


def describe(result: dict[str, Any]) -> str:
    """In words."""
    if result["action"] == "list":
        return _table(result["datasets"])
    if result["action"] == "add":
        told = "is registered" if result["new"] else "was registered already"
        lines = [f"{result['source']} {told} as {result['name']!r}."]
    else:
        changed = result["changed_at"]
        since = f", its records changed {day(changed)}; what was spent stays spent" if changed else ""
        lines = [
            f"{result['name']} (budget group {result['group']})",
            f"  records     {result['source']}",
            f"  registered  {day(result['registered_at'])}{since}",
            f"  others see  id {result['id']}, never the name, the place or the content",
        ]
    person = f", named by the column {result['person']!r}" if result["person"] else ""
    lines.append(f"  protects    each {result['unit']}{person}")
    lines.append(f"  columns     {', '.join(result['columns'] or ()) or 'all; studies declare what they use'}")
    if result.get("shares_budget_with"):
        lines.append(f"  shares its budget with {', '.join(result['shares_budget_with'])}")
    lines.append(f"  {result['statement']}")
    if result["action"] == "add" and result["new"]:
        lines.append(f'Next: in role.toml write [data] dataset = "{result["name"]}" and restart the client.')
    return "\n".join(lines)


def _table(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No data set is registered. Register one: tallystick data add NAME --source FILE --budget-epsilon 1"
    rows = [("name", "group", "protects", "budget", "spent", "left", "records")]
    for one in found:
        epsilon = one["spent"]["epsilon"]
        spent = "exact" if epsilon is None else f"{epsilon:.4g}"
        figures = (f"{one['budget']['epsilon']:g}", spent, f"{one['left_epsilon']:.4g}")
        rows.append((one["name"], one["group"], one["unit"], *figures, one["source"]))
    widths = [max(map(len, column)) for column in zip(*rows)][:-1]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[-1]]) for row in rows]
    return "\n".join([*lines, "Figures are epsilon; budgets of one group are one budget."])
