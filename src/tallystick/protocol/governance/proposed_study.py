"""What a screen shows of a proposed study, whether or not anybody could run it.

A proposal is kept, listed and refused by everybody before its study is known to be one; who proposed it may have left
out or mistyped anything. Here every figure is taken if it is what it should be, and missing otherwise. What is *done*
with a study goes by the study itself (``engines.study``), which is derived and checked anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tallystick.core.outside_text import NotReadable, read_json
from tallystick.core.readable_text import one_line
from tallystick.protocol.governance.bodies import check_value

__all__ = ["ProposedStudy"]

_LIMIT = 8 << 20


class ProposedStudy:
    """The tables of a study's canonical text; nothing in them is believed."""

    def __init__(self, text: str) -> None:
        try:
            found = read_json(text, limit=_LIMIT, constants=True)
        except NotReadable:
            found = None
        self._tables: Mapping[str, Any] = found if isinstance(found, dict) else {}

    def section(self, name: str) -> Mapping[str, Any]:
        """A section, or an empty one."""
        found = self._tables.get(name)
        return found if isinstance(found, dict) else {}

    def fit_to_show(self, name: str) -> Mapping[str, Any]:
        """A section whose every value can be shown as it is, or an empty one."""
        found = self.section(name)
        return found if check_value(found) is None else {}

    def text(self, section: str, key: str) -> str:
        """A text as it can be shown; empty if there is none."""
        found = self.section(section).get(key)
        return one_line(found) if isinstance(found, str) else ""

    def texts(self, section: str, key: str) -> list[str]:
        """The texts of a list."""
        found = self.section(section).get(key)
        return [one_line(t) for t in found if isinstance(t, str)] if isinstance(found, list) else []

    def number(self, section: str, key: str) -> float | int | None:
        """A finite number, or None."""
        found = self.section(section).get(key)
        return found if type(found) is int or (type(found) is float and math.isfinite(found)) else None

    @property
    def name(self) -> str:
        return self.text("study", "name")

    @property
    def columns(self) -> list[str]:
        """The columns it learns from."""
        if isinstance(self.section("study").get("features"), list):
            return self.texts("study", "features")
        declared = self.section("data").get("columns")
        target = self.section("study").get("target")
        return [one_line(c) for c in declared if c != target] if isinstance(declared, dict) else []

    @property
    def is_stream(self) -> bool:
        return bool(self._tables.get("stream"))
