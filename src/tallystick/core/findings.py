"""What pydantic found wrong with the tables of a file: the first finding, and the keys that are known where it is.

Study, role and consortium files are checked by models; each words a finding in its own way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from tallystick.core.errors import TallystickError

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class Table(BaseModel):
    """A table of a file in which every key is known and every value of its type: true is no 1, "1" is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class Finding:
    """The first thing that is wrong: "unknown" (a key nobody reads), "missing", or pydantic's name for a wrong value.

    ``known`` are the keys of the table it is in, ``closest`` the one of them that looks most like an unknown one.
    """

    kind: str
    path: tuple[str, ...]
    message: str
    value: Any
    known: tuple[str, ...]
    closest: str | None


def first_finding(error: ValidationError, model: type[BaseModel], *, unknown_first: bool = False) -> Finding:
    """What to tell about ``error`` of ``model``; a refusal that one of its validators raised is raised as it is.

    ``unknown_first``: of a misspelt key say that nobody knows it, rather than that the right one is missing.
    """
    errors = error.errors(include_url=False)
    first = next((e for e in errors if unknown_first and e["type"] in _UNKNOWN), errors[0])
    refusal = first.get("ctx", {}).get("error")
    if isinstance(refusal, TallystickError):
        raise refusal from None
    path = tuple(map(str, first["loc"]))
    tables: list[Any] = [model]
    for part in path[:-1]:  # a place in a list, a name in a table and the tag of a union lead to no other table
        fields = [table.__pydantic_fields__[part] for table in tables if part in table.__pydantic_fields__]
        tables = [inner for field in fields for inner in _tables(field.annotation)] or tables
    known = sorted({key for table in tables for key in table.__pydantic_fields__})
    kind = "unknown" if first["type"] in _UNKNOWN else first["type"]
    closest = difflib.get_close_matches(path[-1], known, n=1) if kind == "unknown" else []
    return Finding(kind, path, first["msg"], first["input"], tuple(known), closest[0] if closest else None)


def _tables(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for inner in get_args(annotation):
        yield from _tables(inner)
