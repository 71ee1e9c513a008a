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


def show_result(result: dict[str, Any], format: Format, describe: Callable[[dict[str, Any]], str]) -> None:
    """Print a result as asked."""
    typer.echo(json.dumps(result, allow_nan=False) if format is Format.json else describe(result))


def whoami() -> str:
    """The account this command runs under, for the record of who decided."""
    import pwd  # not on every system

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    return name if name and what_is_unreadable(name) is None and len(name) <= 100 else f"uid {os.getuid()}"
