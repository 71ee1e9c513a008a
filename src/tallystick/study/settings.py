"""``--set section.key=value``: changes to a study before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.core.outside_text import DEPTH, BeyondLimits, NotReadable, read_toml

__all__ = ["apply_settings"]


def apply_settings(raw: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """``--set privacy.epsilon=0.5``: TOML values, bare words taken as strings."""
    out: dict[str, Any] = json.loads(json.dumps(raw, default=str)) if settings else raw
    for setting in settings:
        key, sign, text = setting.partition("=")
        path = key.strip().split(".")
        if not sign or not 2 <= len(path) <= DEPTH or not all(path):
            raise StudyError(f"--set {setting[:200]!r} is not of the form section.key=value")
        try:
            value = read_toml(f"x = {text.strip()}")["x"]
        except BeyondLimits as error:
            raise StudyError(f"--set {key[:200]!r}: {error}", rule="study-unreadable") from None
        except NotReadable:
            value = text.strip()
        table = out
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise StudyError(f"--set {setting[:200]!r}: {part!r} is a value, not a table")
        table[path[-1]] = value
    return out
