"""A user's keywords for frequent itemsets, checked: the same for the estimator and for a study's [program]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.flags import flag
from tallystick.core.errors import StudyError

__all__ = ["MAX_LENGTH", "ItemsetSettings", "itemset_settings"]

MAX_LENGTH = 16
"""Longer sets are refused: the number of their subsets in one record would be astronomical."""
_LARGEST = 2**24


@dataclass(frozen=True, kw_only=True)
class ItemsetSettings:
    """The user's own parameters; None stands for ``"auto"``."""

    min_support: float = 0.1
    max_length: int = 4
    method: str = "auto"
    singles: bool = True
    """Levels: count single items first. PEM does not: its first level is all pairs."""
    cap: int | None = None
    """Levels: the most candidates of a level that one record counts."""
    max_candidates: int | None = None
    """Levels: the most candidates of a level."""
    exclusive: bool = True
    """Levels: leave out sets that no record can hold (two values of one category). PEM's apriori-gen does not."""
    split: str = "auto"
    """Levels: the budget over levels, ``uniform`` or in proportion to their sensitivities."""
    consistent: bool = True
    """Levels: make supports monotone; False gives the noisy counts as they are."""
    classes: int | None = None
    """Basis: latent classes."""


def itemset_settings(keywords: Mapping[str, Any]) -> ItemsetSettings:
    """What the keywords mean; what is out of range is refused with the range."""
    return ItemsetSettings(
        min_support=_support(keywords.get("min_support", 0.1)),
        max_length=_whole("max_length", keywords.get("max_length", 4), 1, MAX_LENGTH),
        method=_one_of("method", keywords.get("method", "auto"), ("auto", "levels", "basis")),
        singles=flag("singles", keywords.get("singles", True)),
        cap=_auto("cap", keywords.get("cap", "auto")),
        max_candidates=_auto("max_candidates", keywords.get("max_candidates", "auto")),
        exclusive=flag("exclusive", keywords.get("exclusive", True)),
        split=_one_of("split", keywords.get("split", "auto"), ("auto", "uniform")),
        consistent=flag("consistent", keywords.get("consistent", True)),
        classes=_auto("classes", keywords.get("classes", "auto"), largest=256),
    )


def _support(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise StudyError(
            f"min_support = {value!r} is not a number", remedy="Give the least share of records, e.g. min_support=0.01."
        )
    if not 0 < value <= 1:
        raise StudyError(
            f"min_support = {value} is not a share of the records",
            remedy="It lies above 0 (every set there could be would be frequent at 0) and at most at 1.",
        )
    return float(value)


def _auto(name: str, value: Any, *, largest: int = _LARGEST) -> int | None:
    return None if value == "auto" and isinstance(value, str) else _whole(name, value, 1, largest)


def _whole(name: str, value: Any, least: int, largest: int) -> int:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value != int(value):  # int() of NaN or infinity is no refusal of ours
        raise StudyError(f"{name} = {value!r} is not a whole number", remedy=f"Use {least} to {largest}.")
    if not least <= value <= largest:
        raise StudyError(f"{name} = {value} is out of range", remedy=f"Use {least} to {largest}.")
    return int(value)


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise StudyError(f"{name} = {value!r} is not known", remedy=f"Use {', '.join(known)}.")
    return str(value)
