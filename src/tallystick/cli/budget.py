"""The commands of a steward's account: ``budget show|grant`` and ``ledger verify|export|recover``.

What may be spent, what was spent on which study, and the proof: a chain of entries that this institution has signed
and the servers have countersigned. A budget changes by a grant alone, with a name and a reason, for ever on record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallystick.cli.data_sets import ConfigOption
from tallystick.cli.output import ROLE, Format, FormatOption, show_result, whoami
from tallystick.core.errors import StudyError

budget_app = typer.Typer(no_args_is_help=True, help="What a client's data sets may spend, and have spent.")
ledger_app = typer.Typer(no_args_is_help=True, help="The proof of it: check, hand out or recover the ledger.")
ByOption = Annotated[str | None, typer.Option(help="Who decides this; the account of this command if left out.")]
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence; kept for ever.")]


@budget_app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A data set or group; all if left out.")] = None,
    config: ConfigOption = ROLE,
    epsilon: Annotated[float | None, typer.Option(help="Count how many studies of this size still fit.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Budgets, what each study cost (a failed one too), how many more fit, and how to choose a budget."""
    from tallystick.application import budget

    show_result(budget.show(config, name, epsilon=epsilon), format, budget.describe)


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
    from tallystick.application import budget

    made = budget.grant(config, name, epsilon=epsilon, delta=delta, by=by or whoami(), reason=reason)
    show_result(made, format, budget.describe)


@ledger_app.command()
def verify(
    config: Annotated[Path | None, typer.Option(help="The client's config file (role.toml).")] = None,
    file: Annotated[Path | None, typer.Option(help="Check an exported chain instead (ledger export --chain).")] = None,
    consortium: Annotated[Path | None, typer.Option(help="The consortium.toml to check an export against.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the servers what they have seen.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Check every link, signature and sum of a ledger, its anchor, and what the servers have signed and seen. Exit 6 if
    wrong; servers that cannot be reached are named."""
    from tallystick.application import ledger

    if config is None and file is None and ROLE.exists():
        config = ROLE
    if config is not None and file is None and consortium is None:
        result = ledger.verify(config, offline=offline)
    elif config is None and file is not None and consortium is not None:
        result = ledger.verify_export(file, consortium)
    else:
        raise StudyError(
            "which ledger is to be checked?", rule="usage", remedy="Give --config, or --file with --consortium."
        )
    show_result(result, format, ledger.describe)


@ledger_app.command()
def export(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    config: ConfigOption = ROLE,
    chain: Annotated[bool, typer.Option("--chain", help="The signed chain itself, for ledger verify --file.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Write what was spent as dp-accounting events, or the signed chain, for somebody else to check."""
    from tallystick.application import ledger

    show_result(ledger.export(config, out, chain=chain), format, ledger.describe)


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
    from tallystick.application import ledger

    if not yes:
        raise StudyError(
            "recovering puts the damaged files aside, counts all that may have been released as spent, and closes "
            "every budget of this client until its steward grants one anew",
            rule="confirm",
            remedy="Look for a newer backup of the state folder first. If there is none, run it again with --yes.",
        )
    made = ledger.recover(config, by=by or whoami(), reason=reason, statements=statement or ())
    show_result(made, format, ledger.describe)
