"""What all commands share: how they print (text for people, JSON alone on stdout for programs), where they
look, and who runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tallystick.core.readable_text import what_is_unreadable

ROLE = Path("role.toml")
"""The role file of whoever stands in the party's own folder."""


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs (stdout alone).")]
StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (TOML).")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the study, e.g. privacy.epsilon=0.5; repeatable."),
]

CsvOption = Annotated[Path | None, typer.Option("--csv", help="Write the answer's table into this file, too.")]

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw the answer into this .png, .svg or .pdf file (tallystick[plot]).")
]


def show_result(result: dict[str, Any], format: Format, describe: Callable[[dict[str, Any]], str]) -> None:
    """Print a result as asked."""
    typer.echo(json.dumps(result, allow_nan=False) if format is Format.json else describe(result))


def warn_of_epsilon(epsilon: float | None, mechanism: str = "") -> None:
    """Say on stderr what the rules say of an epsilon that protects hardly anybody."""
    from tallystick.application.planning import epsilon_warning

    if (warning := epsilon_warning(epsilon, mechanism)) is not None:
        typer.echo(f"warning: {warning}", err=True)


def show_answer(
    result: dict[str, Any], format: Format, csv: Path | None, plot: Path | None, answer: Callable[[], Any]
) -> None:
    """Print a study's result as asked, its answer as a table, and write that to the files that are named."""
    from tallystick.application.result_document import describe_result, write_csv, write_plot

    table = None if format is Format.json and csv is None and plot is None else answer()
    if csv is not None and table is not None:
        write_csv(table, csv)
    if plot is not None and table is not None:
        write_plot(table, plot)
    show_result(result, format, lambda made: describe_result(made, table))


def whoami() -> str:
    """The account this command runs under, for the record of who decided."""
    import pwd  # not on every system

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    return name if name and what_is_unreadable(name) is None and len(name) <= 100 else f"uid {os.getuid()}"
