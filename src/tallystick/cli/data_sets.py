"""The commands of a client's records: ``data add|list|describe|check|example``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallystick.cli.output import ROLE, Format, FormatOption, show_result, whoami

data_app = typer.Typer(
    no_args_is_help=True, help="A client's records: register them, once, with their budget; check them."
)
ConfigOption = Annotated[Path, typer.Option(help="The client's config file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The data set's name.")]


@data_app.command()
def add(
    name: NameArgument,
    source: Annotated[
        str,
        typer.Option(
            help="The records: a CSV or Parquet file, a folder of Parquet files, or the "
            "address of a database (postgresql://user@host/database)."
        ),
    ],
    config: ConfigOption = ROLE,
    query: Annotated[str | None, typer.Option(help="What the database is asked: SELECT …, or a table's name.")] = None,
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
        query=query,
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


@data_app.command()
def check(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or the hash or name of a proposal.")],
    config: ConfigOption = ROLE,
    source: Annotated[str | None, typer.Option(help="Look at this file instead; no client is needed.")] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Let this client's rules approve studies that read these columns so.")
    ] = False,
    by: Annotated[str | None, typer.Option(help="Who accepts; your login name unless given.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """What a study would find in the records, by column: on this screen only. Exit 2 if nothing can be learned."""
    from tallystick.application import data_check

    found = data_check.check(study, config, source=source, accept=accept, by=by or whoami())
    show_result(found, format, data_check.describe)
    if found["useless"] and not accept:
        raise typer.Exit(2)


@data_app.command()
def example(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("hospitals"),
    format: FormatOption = Format.text,
) -> None:
    """Two hospitals' invented records (north.csv, south.csv) and a study of them (study.toml), to try things on."""
    from tallystick.application import example_files

    show_result(example_files.write(folder), format, example_files.describe)
