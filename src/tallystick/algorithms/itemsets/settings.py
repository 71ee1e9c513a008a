"""A user's keywords for frequent itemsets, checked: the same for the estimator and for a study's [program]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.keywords import flag, one_of, whole, whole_or_auto
from tallystick.core.errors import StudyError

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
        max_length=whole("max_length", keywords.get("max_length", 4), 1, MAX_LENGTH),
        method=one_of("method", keywords.get("method", "auto"), ("auto", "levels", "basis")),
        singles=flag("singles", keywords.get("singles", True)),
        cap=whole_or_auto("cap", keywords.get("cap", "auto"), _LARGEST),
        max_candidates=whole_or_auto("max_candidates", keywords.get("max_candidates", "auto"), _LARGEST),
        exclusive=flag("exclusive", keywords.get("exclusive", True)),
        split=one_of("split", keywords.get("split", "auto"), ("auto", "uniform")),
        consistent=flag("consistent", keywords.get("consistent", True)),
        classes=whole_or_auto("classes", keywords.get("classes", "auto"), 256),
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
