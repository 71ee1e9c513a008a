"""``tallystick data add|list|describe``: a client's registered records, for its steward.

Registering reads the source once, to know it again: the same records cannot be registered for a second budget. It is
done on the client's own machine; nothing about a data set leaves it but an opaque id, with the charges of studies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallystick.cli.output import Format, FormatOption, show_result
from tallystick.core.errors import StudyError

if TYPE_CHECKING:
    from tallystick.roles.ledger.account import DataSet
    from tallystick.roles.ledger.store import BudgetView, LedgerStore
    from tallystick.study.schema import Schema

__all__ = ["ROLE", "ConfigOption", "client_ledger", "data_app", "day", "whoami"]

data_app = typer.Typer(no_args_is_help=True, help="Register a client's records, once, with their budget.")
ConfigOption = Annotated[Path, typer.Option(help="The client's config file.")]
ROLE = Path("role.toml")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The data set's name.")]


@contextmanager
def client_ledger(config: Path, *, checked: bool = True) -> Iterator[LedgerStore]:
    """The ledger of the client whose config this is; ``checked``: and it is the newest copy, as far as is known."""
    from tallystick.application.ledger_check import check_own_ledger
    from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
    from tallystick.roles.identity.role_config import load_role_config
    from tallystick.roles.ledger.store import LEDGER, LedgerStore

    role = load_role_config(config, role="client")
    consortium = read_consortium(role.consortium)
    identity = load_identity(role, consortium, wall_clock())
    with LedgerStore(role.state / LEDGER, party=role.name, signing=identity.signing) as ledger:
        if checked:
            check_own_ledger(ledger, role, consortium)
        yield ledger


def whoami() -> str:
    """The account this command runs under, for the record of who decided."""
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def day(at: int) -> str:
    """A time in print."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


@data_app.command()
def add(
    name: NameArgument,
    source: Annotated[str, typer.Option(help="The records: a CSV or Parquet file.")],
    config: ConfigOption = ROLE,
    budget_epsilon: Annotated[float | None, typer.Option(help="The most it may ever spend.")] = None,
    budget_delta: Annotated[float, typer.Option(help="The delta of that budget.")] = 1e-6,
    unit: Annotated[str, typer.Option(help="What is protected: record or person.")] = "record",
    person: Annotated[str | None, typer.Option(help="The column that names a person.")] = None,
    group: Annotated[str | None, typer.Option(help="Share the budget of this group of data sets.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="A study or other TOML file whose [data.columns] are open to studies.")
    ] = None,
    format: FormatOption = Format.text,
) -> None:
    """Register records with their budget; the same records again must share a budget group."""
    from tallystick.privacy.ledger import Budget
    from tallystick.roles.ledger.datasets import make_dataset

    columns = None if schema is None else _read_schema(schema)
    budget = None if budget_epsilon is None else Budget(epsilon=budget_epsilon, delta=budget_delta)
    with client_ledger(config) as ledger:
        made = make_dataset(name, source, group=group, unit=unit, person=person, schema=columns, party=ledger.party)
        before = ledger.head().sequence
        kept = ledger.register(made, budget, by=whoami())
        result = {"action": "add", "new": ledger.head().sequence > before, **_facts(kept, ledger.view(kept.name))}
    show_result(result, format, describe)


@data_app.command(name="list")
def list_(config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """Every registered data set, with what is spent and left."""
    with client_ledger(config) as ledger:
        found = [_facts(d, ledger.view(d.name)) for d in ledger.datasets()]
    show_result({"action": "list", "datasets": found}, format, describe)


@data_app.command(name="describe")
def describe_(name: NameArgument, config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """All that is known here of one data set."""
    with client_ledger(config) as ledger:
        found = ledger.dataset(name)
        view = ledger.view(name)
        mark = found.fingerprint
        result = {
            "action": "describe",
            **_facts(found, view),
            "fingerprint": {"location": mark.location, "bytes": mark.bytes, "content": mark.content},
            "shares_budget_with": [other for other in view.datasets if other != name],
            "studies": len([e for e in view.entries if e.state != "voided"]),
        }
    show_result(result, format, describe)


def _read_schema(path: Path) -> Schema:
    from tallystick.core.outside_text import NotReadable, read_toml
    from tallystick.roles.identity.identity_files import read_public
    from tallystick.study.schema import Schema

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
        "budget": {"epsilon": view.budget.epsilon, "delta": view.budget.delta},
        "spent": {"epsilon": view.spent.epsilon, "delta": view.spent.delta, "studies": view.spent.fits},
        "left_epsilon": view.left_epsilon,
        "statement": view.words,
    }


def describe(result: dict[str, Any]) -> str:
    """In words."""
    if result["action"] == "list":
        return _table(result["datasets"])
    lines = []
    if result["action"] == "add":
        told = "is registered" if result["new"] else "was registered already"
        lines.append(f"{result['source']} {told} as {result['name']!r}.")
    else:
        lines.append(f"{result['name']} (budget group {result['group']})")
        lines.append(f"  records     {result['source']}")
        lines.append(f"  registered  {day(result['registered_at'])}" + _changed(result["changed_at"]))
        lines.append(f"  others see  id {result['id']}, never the name, the place or the content")
    person = f", named by the column {result['person']!r}" if result["person"] else ""
    lines.append(f"  protects    each {result['unit']}{person}")
    columns = result["columns"]
    lines.append(f"  columns     {', '.join(columns) if columns else 'all; studies declare what they use'}")
    if result.get("shares_budget_with"):
        lines.append(f"  shares its budget with {', '.join(result['shares_budget_with'])}")
    lines.append(f"  {result['statement']}")
    if result["action"] == "add" and result["new"]:
        lines.append(f'Next: in role.toml write [data] dataset = "{result["name"]}" and restart the client.')
    return "\n".join(lines)


def _changed(at: int | None) -> str:
    return f", its records changed {day(at)}; what was spent stays spent" if at else ""


def _table(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No data set is registered. Register one: tallystick data add NAME --source FILE --budget-epsilon 1"
    rows = [("name", "group", "protects", "budget", "spent", "left", "records")]
    for one in found:
        spent = one["spent"]["epsilon"]
        rows.append(
            (
                one["name"],
                one["group"],
                one["unit"],
                f"{one['budget']['epsilon']:g}",
                "exact" if spent is None else f"{spent:.4g}",
                f"{one['left_epsilon']:.4g}",
                one["source"],
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[-1]]) for row in rows]
    return "\n".join([*lines, "Figures are epsilon; budgets of one group are one budget."])
