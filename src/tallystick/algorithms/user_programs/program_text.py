"""A program file as text: what a steward reads is what is parsed, and no name in it looks like another."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings

from tallystick.algorithms.user_programs.findings import Finding, finding_at
from tallystick.core.readable_text import what_is_unreadable

_MAX_CHARACTERS = 100_000
_MAX_DEPTH = 60


def canonical_text(text: str) -> str:
    """The text that is hashed: no byte-order mark, ``\\n`` line ends, exactly one at the end."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n") + "\n"


def check_text(text: str) -> list[Finding]:
    """Too long, or with characters that hide what a steward reads (bidirectional overrides, zero-width, controls)."""
    if len(text) > _MAX_CHARACTERS:
        cause = f"the file has {len(text)} characters, more than {_MAX_CHARACTERS}"
        return [Finding(line=1, column=1, rule="size", cause=cause, remedy="Write a shorter program.")]
    for number, line in enumerate(text.split("\n"), start=1):
        wrong = what_is_unreadable(line, lines=True)
        if wrong is not None:
            column = next((at for at, c in enumerate(line, start=1) if what_is_unreadable(c, lines=True)), 1)
            cause = f"an invisible or control character: {wrong}"
            remedy = "Remove it: what is approved must be what is read."
            return [Finding(line=number, column=column, rule="hidden-character", cause=cause, remedy=remedy)]
    return []


def parse(text: str) -> tuple[ast.Module | None, list[Finding]]:
    """The syntax tree, or what is wrong: no Python, a name outside ASCII, or nested too deeply."""

    def syntax(line: int | None, column: int | None, cause: str) -> tuple[None, list[Finding]]:
        found = Finding(
            line=line or 1, column=max(1, column or 1), rule="syntax", cause=cause, remedy="Correct the Python syntax."
        )
        return None, [found]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, "<program>", "exec", dont_inherit=True)  # finds `break` outside a loop and the like
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except SyntaxError as error:
        return syntax(error.lineno, error.offset, f"not Python: {error.msg}")
    except tokenize.TokenError as error:
        return syntax(error.args[1][0], error.args[1][1], "not Python: the text ends in the middle")
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return syntax(1, 1, "not Python, or nested too deeply")
    for token in tokens:
        if token.type == tokenize.NAME and not token.string.isascii():
            cause = f"the name {token.string!a} has letters outside ASCII, which can look like others"
            place = {"line": token.start[0], "column": token.start[1] + 1}
            return None, [Finding(**place, rule="hidden-character", cause=cause, remedy="Use plain letters in names.")]
    layer: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
    if layer:
        deep = next((n for n in layer if hasattr(n, "lineno")), tree)
        return None, [finding_at(deep, "depth", "an expression nested too deeply", "Split it over several lines.")]
    return tree, []
