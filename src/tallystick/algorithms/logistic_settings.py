"""A user's keywords for logistic regression, checked: the same for the estimator and for a study's [program]."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.logistic import LogisticSettings, design_logistic
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError

__all__ = ["LOGISTIC_KEYS", "design_from_keywords", "logistic_settings"]

LOGISTIC_KEYS = frozenset(f.name for f in dataclasses.fields(LogisticSettings))


def logistic_settings(keywords: Mapping[str, Any]) -> LogisticSettings:
    """What the keywords mean; one that is left out is "auto", or true."""
    rounds = _auto("rounds", keywords.get("rounds", "auto"))
    if rounds is not None and rounds != int(rounds):
        raise StudyError(f"rounds = {keywords['rounds']} is not a whole number")
    return LogisticSettings(
        rounds=None if rounds is None else int(rounds),
        clip=_auto("clip", keywords.get("clip", "auto")),
        learning_rate=_auto("learning_rate", keywords.get("learning_rate", "auto")),
        l2=_auto("l2", keywords.get("l2", "auto"), least=0.0),
        fit_intercept=bool(keywords.get("fit_intercept", True)),
        standardise=bool(keywords.get("standardise", True)),
        schedule=keywords.get("schedule", "auto"),
        average=bool(keywords.get("average", True)),
    )


def design_from_keywords(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> Design:
    """The design of a logistic regression with these keywords."""
    return design_logistic(public, budget, logistic_settings(keywords))


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
