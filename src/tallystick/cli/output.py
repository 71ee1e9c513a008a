"""How commands print: text for people, JSON alone on stdout for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

__all__ = ["Format", "FormatOption", "show_result"]


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs (stdout alone).")]


def show_result(result: dict[str, Any], format: Format, describe: Callable[[dict[str, Any]], str]) -> None:
    """Print a result as asked."""
    typer.echo(json.dumps(result, allow_nan=False) if format is Format.json else describe(result))
