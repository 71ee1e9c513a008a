"""The commands of a client's registered records: ``data add|list|describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallystick.cli.output import ROLE, Format, FormatOption, show_result, whoami

data_app = typer.Typer(no_args_is_help=True, help="Register a client's records, once, with their budget.")
ConfigOption = Annotated[Path, typer.Option(help="The client's config file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The data set's name.")]


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
    from tallystick.application import data_sets

    made = data_sets.add(
        config,
        name,
        source,
        by=whoami(),
        epsilon=budget_epsilon,
        delta=budget_delta,
        unit=unit,
        person=person,
        group=group,
        schema=schema,
    )
    show_result(made, format, data_sets.describe)


@data_app.command(name="list")
def list_(config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """Every registered data set, with what is spent and left."""
    from tallystick.application import data_sets

    show_result(data_sets.listing(config), format, data_sets.describe)


@data_app.command(name="describe")
def describe_(name: NameArgument, config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """All that is known here of one data set."""
    from tallystick.application import data_sets

    show_result(data_sets.show(config, name), format, data_sets.describe)
