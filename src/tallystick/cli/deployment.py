"""The commands of a deployment: ``consortium …``, ``ROLE start`` for every registered role, ``doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tallystick.cli.output import ROLE, Format, FormatOption, show_result

consortium_app = typer.Typer(no_args_is_help=True, help="Keys, certificates and addresses: who is who.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The party's name.")]
RoleOption = Annotated[
    str,
    typer.Option(
        help="client, analyst, or a role of the trust model: server, aggregator; party, aggregator; reducer; "
        "dealer; peer, relay; proxy, data-user."
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="host:port where others reach a server, aggregator, party, reducer, proxy or data user."),
]
ListenOption = Annotated[str | None, typer.Option(help="Where it listens on its own machine, if that differs.")]
DataOption = Annotated[
    str | None,
    typer.Option(help="A client's records: a CSV or Parquet file; a relative path is taken from its role.toml."),
]
DecideOption = Annotated[str, typer.Option(help="A client's studies: ask (a person approves each) or approve.")]
BudgetOption = Annotated[float, typer.Option(help="A client's budget: the epsilon its records may ever spend.")]
FolderOption = Annotated[Path, typer.Option("--in", help="The consortium's folder.")]
PartyFolderOption = Annotated[Path, typer.Option("--in", help="The party's own folder, which request has made.")]


def _act(action: str, format: Format, *arguments: Any, **options: Any) -> None:
    from tallystick.application import consortium

    show_result(getattr(consortium, action)(*arguments, **options), format, consortium.describe)


@consortium_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The consortium's name.")],
    out: Annotated[Path, typer.Option(help="A new folder for the authority's key and consortium.toml.")],
    format: FormatOption = Format.text,
) -> None:
    """Make a certificate authority and an empty consortium."""
    _act("create", format, name, out)


@consortium_app.command()
def enrol(
    name: NameArgument,
    role: RoleOption,
    directory: FolderOption,
    address: AddressOption = None,
    listen: ListenOption = None,
    data: DataOption = None,
    decide: DecideOption = "ask",
    budget: BudgetOption = 1.0,
    format: FormatOption = Format.text,
) -> None:
    """Add a party whose keys may be made on this machine: request, approve and install in one step."""
    where = {"address": address, "listen": listen, "data": data, "decide": decide, "budget": budget}
    _act("enrol", format, name, role=role, directory=directory, **where)


@consortium_app.command()
def request(
    name: NameArgument,
    role: RoleOption,
    out: Annotated[Path, typer.Option(help="A new folder for this party's keys.")],
    address: AddressOption = None,
    listen: ListenOption = None,
    data: DataOption = None,
    decide: DecideOption = "ask",
    budget: BudgetOption = 1.0,
    format: FormatOption = Format.text,
) -> None:
    """At the party: make keys, which never leave this machine, and a request to send to the authority."""
    where = {"address": address, "listen": listen, "data": data, "decide": decide, "budget": budget}
    _act("request", format, name, role=role, out=out, **where)


@consortium_app.command()
def approve(
    asked: Annotated[Path, typer.Argument(metavar="REQUEST", help="The request file of a party.")],
    directory: FolderOption,
    fingerprint: Annotated[str | None, typer.Option(help="The fingerprint the party read out to you.")] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Compare nothing: it never left your hands.")] = False,
    rotate: Annotated[bool, typer.Option("--rotate", help="A new certificate of a party that is in already.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """At the authority: compare a request with what its party read out, and issue its certificate."""
    _act("approve", format, asked, directory=directory, fingerprint=fingerprint, unchecked=unchecked, renewal=rotate)


@consortium_app.command()
def install(
    certificate: Annotated[Path, typer.Argument(help="The certificate that came back.")],
    consortium: Annotated[Path, typer.Option(help="The consortium.toml that came with it.")],
    directory: PartyFolderOption,
    format: FormatOption = Format.text,
) -> None:
    """At the party: check what came back and put it in place."""
    _act("install", format, certificate, consortium=consortium, directory=directory)


@consortium_app.command()
def rotate(
    directory: FolderOption,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The party, at the authority.")] = None,
    finish: Annotated[bool, typer.Option("--finish", help="The old certificate counts no more.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Renew a certificate; old and new both count until --finish."""
    _act("rotate", format, name, directory=directory, finish=finish)


@consortium_app.command()
def remove(name: NameArgument, directory: FolderOption, format: FormatOption = Format.text) -> None:
    """Take a party out: nobody with the new consortium.toml talks to it any more."""
    _act("remove", format, name, directory=directory)


@consortium_app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A consortium.toml.")], format: FormatOption = Format.text
) -> None:
    """Who is who, and when certificates expire."""
    _act("show", format, path)


def doctor(
    config: Annotated[Path, typer.Option(help="A role's config file.")],
    test_notice: Annotated[bool, typer.Option("--test-notice", help="Tell a client's steward, as a test.")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Check keys, certificates, clock, addresses, data and disk of a role and what waits for it; say what to do."""
    from tallystick.application import doctor as health

    report = health.examine(config, test_notice=test_notice)
    show_result(report, format, health.describe)
    if not report["ok"]:
        raise typer.Exit(4)


def role_words() -> dict[str, str]:
    """What each role does that runs as a process: those of the registered trust models, and the client of them all."""
    from tallystick.study.trust import registered

    cast = {role.name: role.words for model in registered() for role in model.roles}
    return cast | {"client": "Sits beside an institution's records; dials out only."}


def role_app(role: str, words: str) -> typer.Typer:
    """``tallystick ROLE start``."""
    app = typer.Typer(name=role, no_args_is_help=True, help=words, add_completion=False, rich_markup_mode=None)

    @app.callback()
    def _group() -> None:
        pass

    @app.command()
    def start(
        config: Annotated[Path, typer.Option(help="The role's config file.")],
        log_format: Annotated[str, typer.Option(help="text, or json for one object a line.")] = "text",
    ) -> None:
        """Run the role until it is stopped; it resumes where it was, whatever happened."""
        from tallystick.roles.operations.logs import configure_logs
        from tallystick.roles.processes.start import start as start_role

        configure_logs(log_format)
        start_role(config, role)

    if role in FURTHER:
        FURTHER[role](app)
    return app


def _peer_commands(app: typer.Typer) -> None:
    @app.command()
    def publish(
        study: Annotated[
            str, typer.Argument(metavar="STUDY", help="A study's hash, the beginning of it, or its name.")
        ],
        config: Annotated[Path, typer.Option(help="The peer's config file.")] = ROLE,
        out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("published"),
        format: FormatOption = Format.text,
    ) -> None:
        """Write the perturbed records that this peer holds, for any learner: Parquet, with their privacy statement; and
        the model that this peer has learnt from them."""
        from tallystick.application import published_records

        show_result(published_records.publish(study, config, out), format, published_records.describe)


FURTHER = {"peer": _peer_commands}
"""What a role can do beside starting."""


class CommandsAndRoles(TyperGroup):
    """The commands that are written down, and one for every role that is registered when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *role_words()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in role_words():
            return get_command(role_app(cmd_name, role_words()[cmd_name]))
        return found
