"""What a screen shows of a proposed study, whether or not anybody could run it.

A proposal is kept, listed and refused by everybody before its study is known to be one; who proposed it may have left
out or mistyped anything. Here every figure is taken if it is what it should be, and missing otherwise. What is *done*
with a study goes by the study itself (:class:`~tallystick.study.Study`), which is derived and checked anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tallystick.core.errors import TallystickError
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.core.readable_text import one_line, what_is_unreadable
from tallystick.study.trust import DEFAULT_TRUST, TrustModel, trust_model

MAX_NUMBER = 2**53  # whole numbers any JSON reader keeps
MAX_DEPTH = 12
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

    @property
    def trust_model(self) -> TrustModel | None:
        """Its trust model, if it names one that is known here (or none, which is the default)."""
        try:
            return trust_model(self.section("trust").get("model", DEFAULT_TRUST))
        except (TallystickError, TypeError):
            return None


@lru_cache(maxsize=64)
def proposed_study(text: str) -> ProposedStudy:
    """A proposed study, read once."""
    return ProposedStudy(text)


def check_value(value: Any, depth: int = MAX_DEPTH) -> str | None:
    """Any JSON value fit to be shown: what is wrong with it, or None."""
    if value is None or type(value) is bool:
        return None
    if type(value) is int:
        return None if -MAX_NUMBER < value < MAX_NUMBER else "holds a number beyond 2^53"
    if type(value) is float:
        return None if math.isfinite(value) else "holds a number that is not finite"
    if type(value) is str:
        return "holds control or invisible characters" if what_is_unreadable(value) else None
    if depth == 0 or type(value) not in (list, dict):
        return "is nested too deeply" if depth == 0 else "holds something that is not JSON"
    inner: list[Any] = list(value)
    if isinstance(value, dict):
        if not all(type(key) is str and what_is_unreadable(key) is None for key in value):
            return "has a key that is not a printable text"
        inner = list(value.values())
    return next((wrong for wrong in (check_value(v, depth - 1) for v in inner) if wrong is not None), None)
