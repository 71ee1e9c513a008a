"""What a program may not say, one thing at a time: where (line, column), which rule, why, and what to write instead."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass
from typing import Any

from tallystick.core.errors import StudyError


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One thing a program may not say."""

    line: int
    column: int
    rule: str
    cause: str
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """As ``tallystick check-program --format json`` prints it."""
        return asdict(self)

    def error(self, file: str) -> StudyError:
        """The same as an exception."""
        return StudyError(f"{file}:{self.line}:{self.column}: {self.cause}", remedy=self.remedy, rule=self.rule)


def finding_at(node: ast.AST, rule: str, cause: str, remedy: str) -> Finding:
    """A finding at the place of a node (columns are counted from 1, as editors do)."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    return Finding(line=line, column=column, rule=rule, cause=cause, remedy=remedy)
