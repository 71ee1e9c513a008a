"""Whom a message speaks to: somebody who writes Python, or somebody who writes TOML files and types commands.

The same mistake has one cause and two remedies: ``missing="drop"`` in a call, ``missing = "drop"`` in a file. The
command line says once, for the whole process, that its user writes files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_writes_files = False


@contextmanager
def speaking_of_files() -> Iterator[None]:
    """Inside, remedies are lines of a file."""
    global _writes_files
    before, _writes_files = _writes_files, True
    try:
        yield
    finally:
        _writes_files = before


def for_caller(*, python: str, toml: str) -> str:
    """The one of the two that the caller can paste."""
    return toml if _writes_files else python
