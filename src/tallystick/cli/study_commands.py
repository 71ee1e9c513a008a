"""The commands of governance: ``verify`` and ``study propose|list|show|status|wait|approve|reject|counter|run|result|
receipt|withdraw``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tallystick.cli.output import (
    ROLE,
    CsvOption,
    Format,
    FormatOption,
    PlotOption,
    SetOption,
    StudyPath,
    show_answer,
    show_result,
    warn_of_epsilon,
    whoami,
)
from tallystick.cli.progress import told_on_stderr

study_app = typer.Typer(no_args_is_help=True, help="Propose a study, decide about it, run it, fetch its result.")

ConfigOption = Annotated[Path, typer.Option(help="This party's role file.")]
StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="Its name (name@2: its version 2), or its hash or the beginning of that.")
]
ReasonOption = Annotated[str, typer.Option(help="In words; the analyst and the other stewards read it.")]
ByOption = Annotated[str | None, typer.Option(help="Who decides; your login name unless given.")]
OutOption = Annotated[Path | None, typer.Option(help="Write result.json and receipt.json into this folder.")]


@study_app.command()
def propose(
    study: StudyPath,
    config: ConfigOption = ROLE,
    records: Annotated[int | None, typer.Option(help="Public number of records, if the study states none.")] = None,
    set_: SetOption = None,
    days: Annotated[float, typer.Option(help="The stewards have so long to decide, and you to run it.")] = 30.0,
    supersedes: Annotated[str | None, typer.Option(help="The proposal of yours that this one replaces.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Analyst: put a study before the data stewards. Nothing runs and nothing is spent."""
    from tallystick.application import studies

    made = studies.propose(study, config, records=records, settings=tuple(set_ or ()), days=days, supersedes=supersedes)
    warn_of_epsilon(made["epsilon"])
    show_result(made, format, studies.words.standing)


@study_app.command(name="list")
def list_(config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """Every study proposed to this consortium, and how it stands."""
    from tallystick.application import studies

    show_result(studies.listing(config), format, studies.words.listing)


@study_app.command()
def show(study: StudyArgument, config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """What a study would do and cost; at a client also what it would do to its own budget."""
    from tallystick.application import studies

    show_result(studies.show(study, config), format, studies.words.show)


@study_app.command()
def status(study: StudyArgument, config: ConfigOption = ROLE, format: FormatOption = Format.text) -> None:
    """Who has decided what, and whether the study may run."""
    from tallystick.application import studies

    show_result(studies.show(study, config), format, studies.words.standing)


@study_app.command()
def wait(
    config: ConfigOption = ROLE,
    new: Annotated[bool, typer.Option("--new", help="Wait for one that does not wait yet.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Give up after so many seconds, with exit code 4.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Data steward: return as soon as a study waits for your decision, and say which."""
    from tallystick.application import studies

    found = studies.wait(config, new=new, timeout=timeout, tell=lambda words: typer.echo(words, err=True))
    show_result(found, format, studies.words.waiting)


@study_app.command()
def approve(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    reason: ReasonOption = "",
    by: ByOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Data steward: let this client's records take part. Signed; the running client passes it on."""
    _decide(study, config, "approve", reason, by, format)


@study_app.command()
def reject(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    reason: ReasonOption = "",
    by: ByOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Data steward: keep this client's records out; also takes back an approval, until the study runs."""
    _decide(study, config, "reject", reason, by, format)


@study_app.command()
def counter(
    study: StudyArgument,
    epsilon: Annotated[float, typer.Option(help="The most this client would agree to.")],
    config: ConfigOption = ROLE,
    reason: ReasonOption = "",
    by: ByOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Data steward: not like this, but with a lower epsilon. The analyst may propose that as a new version."""
    _decide(study, config, "counter", reason, by, format, epsilon=epsilon)


def _decide(study: str, config: Path, decision: str, reason: str, by: str | None, format: Format, **terms: Any) -> None:
    from tallystick.application import studies

    made = studies.decide(study, config, decision, reason=reason, by=by or whoami(), **terms)
    show_result(made, format, studies.words.decided)


@study_app.command()
def run(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    out: OutOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Analyst: run an approved study. One that has run gives its stored result and costs nothing again."""
    _run(study, config, "run", out, csv, plot, format)


@study_app.command()
def resume(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    out: OutOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Analyst: go on with a study that is paused, once the missing party is back. Costs nothing again."""
    _run(study, config, "resume", out, csv, plot, format)


@study_app.command()
def close(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    out: OutOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Analyst: end a study that is paused, with what it has released. Its keys are erased everywhere."""
    _run(study, config, "close", out, csv, plot, format)


@study_app.command()
def result(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    out: OutOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
    format: FormatOption = Format.text,
) -> None:
    """The result of a study that has run, if the study shows it to you."""
    from tallystick.application import studies

    _deliver(studies.result(study, config), config, out, csv, plot, format)


def _run(
    study: str, config: Path, wish: str, out: Path | None, csv: Path | None, plot: Path | None, format: Format
) -> None:
    """Run a study, or go on with one that is paused as the analyst wishes."""
    from tallystick.application import studies

    with told_on_stderr(quiet=format is Format.json) as story:
        made = studies.run(study, config, wish=wish, progress=story.step, tell=story.tell)
    _deliver(made, config, out, csv, plot, format)


def _deliver(
    made: dict[str, Any], config: Path, out: Path | None, csv: Path | None, plot: Path | None, format: Format
) -> None:
    from tallystick.application import studies
    from tallystick.application.result_document import write_canonical, write_result

    if out is not None:
        write_result(made, out)
        if made["receipt"] is not None:
            write_canonical(made["receipt"], out, "receipt.json")
    show_answer(made, format, csv, plot, lambda: studies.answer(made, config))


@study_app.command()
def receipt(
    study: StudyArgument,
    config: ConfigOption = ROLE,
    out: Annotated[Path, typer.Option(help="Write receipt.json into this folder.")] = Path(),
    format: FormatOption = Format.text,
) -> None:
    """Everybody: the privacy receipt of a study that has run, for tallystick verify."""
    from tallystick.application import studies

    show_result(studies.receipt(study, config, out), format, studies.words.receipt)


@study_app.command()
def withdraw(
    study: StudyArgument, config: ConfigOption = ROLE, reason: ReasonOption = "", format: FormatOption = Format.text
) -> None:
    """Analyst: take a proposal back before it runs."""
    from tallystick.application import studies

    show_result(studies.withdraw(study, config, reason=reason), format, studies.words.standing)


def verify(
    file: Annotated[Path, typer.Argument(metavar="RESULT", help="A result.json or receipt.json.")],
    consortium: Annotated[Path | None, typer.Option(help="Your own consortium.toml, to compare the keys with.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Check a result or receipt offline: noise, signatures, approvals, ledgers. Exit 6 if anything differs."""
    from tallystick.application import study_results

    show_result(study_results.verify(file, consortium), format, study_results.describe_verdict)
