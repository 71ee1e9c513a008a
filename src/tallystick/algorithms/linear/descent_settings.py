"""A user's keywords for a private descent, checked: the same for the estimator and for a study's [program]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.algorithms.keywords import flag
from tallystick.core.errors import StudyError

__all__ = ["DescentSettings", "settings_from"]


@dataclass(frozen=True, kw_only=True)
class DescentSettings:
    """The user's own parameters; None stands for ``"auto"``."""

    rounds: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    l2: float | None = None
    fit_intercept: bool = True
    standardise: bool = True
    schedule: str = "auto"
    """``constant``, ``inverse-sqrt`` (step η/√t, as PEM has it) or ``auto``: constant with momentum by rule."""
    average: bool = True


def settings_from(keywords: Mapping[str, Any]) -> DescentSettings:
    """What the keywords mean; one that is left out is "auto", or true."""
    rounds = _auto("rounds", keywords.get("rounds", "auto"))
    if rounds is not None and rounds != int(rounds):
        raise StudyError(f"rounds = {keywords['rounds']} is not a whole number")
    return DescentSettings(
        rounds=None if rounds is None else int(rounds),
        clip=_auto("clip", keywords.get("clip", "auto")),
        learning_rate=_auto("learning_rate", keywords.get("learning_rate", "auto")),
        l2=_auto("l2", keywords.get("l2", "auto"), least=0.0),
        fit_intercept=flag("fit_intercept", keywords.get("fit_intercept", True)),
        standardise=flag("standardise", keywords.get("standardise", True)),
        schedule=keywords.get("schedule", "auto"),
        average=flag("average", keywords.get("average", True)),
    )


def _auto(name: str, value: Any, least: float | None = None) -> float | None:
    """None for "auto", else a positive number."""
    if isinstance(value, str):
        if value == "auto":
            return None
        raise StudyError(f'{name} = "{value}" is not known', remedy=f'Use "auto" or a number for {name}.')
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
        raise StudyError(f"{name} = {value!r} is not a number", remedy=f'Use "auto" or a number for {name}.')
    if float(value) < (0.0 if least is not None else 1e-300):
        raise StudyError(f"{name} = {value} must be positive", remedy=f'Use "auto" or a positive number for {name}.')
    return float(value)
