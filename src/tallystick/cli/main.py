"""``tallystick``: one command per act, JSON on request, exit codes that mean something.

Exit codes: 0 done; 1 bug; 2 usage, study, schema or data; 3 refused by a privacy or budget rule; 4 party, network or
round failed; 5 not approved; 6 verification failed; 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tallystick.application.kernel_cache import keep_kernels
from tallystick.cli.budget import budget_app, ledger_app
from tallystick.cli.data_sets import data_app
from tallystick.cli.deployment import CommandsAndRoles, consortium_app, doctor
from tallystick.cli.output import (
    CsvOption,
    Format,
    FormatOption,
    PlotOption,
    SetOption,
    StudyPath,
    show_answer,
    show_result,
    warn_of_epsilon,
)
from tallystick.cli.progress import told_on_stderr
from tallystick.cli.study_commands import study_app, verify
from tallystick.core.caller import speaking_of_files
from tallystick.core.errors import StudyError, TallystickError
from tallystick.core.readable_text import escaped

app = typer.Typer(
    name="tallystick",
    cls=CommandsAndRoles,
    help="Mine data together without sharing it: exact secure sums, differential privacy by construction.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SeedOption = Annotated[
    int | None,
    typer.Option(help="Make splits and noise reproducible. Simulation only: no deployed role can be seeded."),
]


@app.command()
def simulate(
    study: StudyPath,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="CSV or Parquet file; repeat it for one institution a file. Without it: the built-in census."
        ),
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Split the data over this many institutions.")] = None,
    partition: Annotated[str, typer.Option(help="even, column:NAME or dirichlet:ALPHA.")] = "even",
    set_: SetOption = None,
    seed: SeedOption = None,
    holdout: Annotated[float | None, typer.Option(help="Share of records kept back to measure accuracy.")] = None,
    folds: Annotated[int | None, typer.Option(help="Cross-validate over this many folds instead.")] = None,
    drop: Annotated[float, typer.Option(help="Probability that an institution misses a round.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Directory for result.json.")] = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Run a study on this machine: the deployed protocol, minus sockets."""
    from tallystick.application import loading, result_document, simulation

    quiet = format is Format.json
    with told_on_stderr(quiet=quiet) as story:
        result = simulation.simulate(
            study,
            data=tuple(data or ()),
            clients=clients,
            partition=partition,
            settings=tuple(set_ or ()),
            seed=seed,
            holdout=holdout,
            folds=folds,
            drop=drop,
            progress=None if quiet else story.titled_step,
        )
    warn_of_epsilon(result["privacy"]["epsilon"], result["privacy"]["mechanism"])
    if out is not None:
        result_document.write_result(result, out)
    told = {name: part for name, part in result.items() if name != "fitted"}  # for ts.load, and only in the file
    show_answer(told, format, csv, plot, lambda: loading.of_simulation(result).answer())


@app.command()
def plan(
    study: StudyPath,
    records: Annotated[
        int | None, typer.Option(help="Public number of records, if the study does not state it.")
    ] = None,
    set_: SetOption = None,
    format: FormatOption = Format.text,
) -> None:
    """What a study costs, how noisy it is and how accurate to expect. Spends nothing, reads no record."""
    from tallystick.application import planning

    made = planning.plan(study, records=records, settings=tuple(set_ or ()))
    warn_of_epsilon(made["privacy"]["epsilon"], made["privacy"]["mechanism"])
    show_result(made, format, planning.describe)


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option(help="Run in this new folder and leave it: keys, configs, state, logs.")
    ] = None,
    format: FormatOption = Format.text,
) -> None:
    """A deployment on this machine: nine processes, one killed on the way, a private model, and what it cost."""
    from tallystick.application.demo import demonstration, words

    with told_on_stderr(quiet=format is Format.json) as story:
        made = demonstration.demo(keep=keep, tell=story.tell, step=story.step)
    show_result(made, format, words.describe)


@app.command(name="check-program")
def check_program(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program file of one's own (Python).")],
    study: Annotated[
        Path | None, typer.Option(help="Try it out on made-up records that fit the columns of this study.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="Try it out on these records of one's own; what it says stays here.")
    ] = None,
    format: FormatOption = Format.text,
) -> None:
    """Read a user's program against the allow-list; with a study, run it: is it exact, does clipping bite?"""
    from tallystick.application import check_program as checking

    report = checking.check_program(file, study, data=tuple(data or ()))
    show_result(report, format, checking.describe)
    if not report["ok"]:
        raise typer.Exit(2)


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(help="gossip, itemsets, masks, network, noise, proxy, quantiles, scale, secure-sum or svm."),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, rougher figures.")] = False,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", help="Of scale, repeatable: only local-round, local-stream, spark-round or server-sum."),
    ] = None,
    format: FormatOption = Format.text,
) -> None:
    """Measure this machine; every figure is a ratio to a reference in the same run."""
    from tallystick import bench as benchmarks

    show_result(benchmarks.run(name, quick=quick, cases=case or ()), format, benchmarks.describe)


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a page that people read.")] = False,
) -> None:
    """Print what a study file may say: its JSON Schema, or a reference of every key and option."""
    from tallystick.application.study_files import json_schema
    from tallystick.application.study_reference import study_reference

    typer.echo(study_reference() if markdown else json.dumps(json_schema(), indent=2), nl=not markdown)


app.add_typer(consortium_app, name="consortium")
app.add_typer(data_app, name="data")
app.add_typer(budget_app, name="budget")
app.add_typer(ledger_app, name="ledger")
app.add_typer(study_app, name="study")
app.command()(verify)
app.command()(doctor)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    if version:
        from tallystick.core.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def main(arguments: list[str] | None = None) -> NoReturn:
    """The console script: typed errors become exit codes and, with --format json, an error object on stdout."""
    argv = sys.argv[1:] if arguments is None else arguments
    as_json = "--format=json" in argv or any(a == "--format" and b == "json" for a, b in pairwise(argv))
    try:
        keep_kernels(_config_in(argv))
        with speaking_of_files(), _warnings_in_words():
            code = app(args=argv, standalone_mode=False)  # that of a typer.Exit, else what the command returned
    except TallystickError as error:
        _fail(error.exit_code, error.as_dict(), str(error), as_json)
    except PermissionError as error:
        from tallystick.application.permissions import denied

        _fail(2, denied(error).as_dict(), str(denied(error)), as_json)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        usage = _usage(error)
        if usage is not None:
            _fail(2, usage.as_dict(), str(usage), as_json)
        traceback.print_exc()
        cause = f"{type(error).__name__}: this is a bug"
        _fail(1, {"code": 1, "cause": cause, "remedy": "Please report it."}, cause, as_json)
    if code == 130:
        _fail(130, {"code": 130, "cause": "interrupted"}, "interrupted", as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _config_in(argv: list[str]) -> Path | None:
    """The role file that a command names."""
    given = [b for a, b in pairwise(argv) if a == "--config"]
    given += [a.removeprefix("--config=") for a in argv if a.startswith("--config=")]
    return Path(given[0]) if given else None


def _in_words(message: Warning | str, *_: object, **__: object) -> str:
    return f"tallystick: warning: {message}\n"


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """What Python would tell a programmer, with its file and line, told to whoever typed the command."""
    before = warnings.formatwarning
    warnings.formatwarning = _in_words
    try:
        yield
    finally:
        warnings.formatwarning = before


def _usage(error: Exception) -> StudyError | None:
    """A click usage error, whichever copy of click typer carries, and where to read what is right."""
    show = getattr(error, "format_message", None)
    if not callable(show):
        return None
    words, path = str(show()), getattr(getattr(error, "ctx", None), "command_path", "")
    command = " ".join(["tallystick", *path.split()[1:]])  # the first is whatever started it
    misplaced = "unexpected extra argument" in words and any(k in words for k in (".csv", ".tsv", ".parquet"))
    hint = "Records are given with --data FILE. " if misplaced else ""
    return StudyError(words, rule="usage", remedy=f"{hint}{command} --help says what it takes.")


def _fail(code: int, facts: dict[str, Any], words: str, as_json: bool) -> NoReturn:
    if as_json:
        keys = ("code", "rule", "party", "round", "cause", "remedy")
        typer.echo(json.dumps({"error": {key: facts.get(key) for key in keys}}))
    shown = "\n".join(map(escaped, words.split("\n")))  # an error may repeat what a stranger wrote
    typer.echo(f"tallystick: {shown}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
