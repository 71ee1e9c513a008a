"""The keywords of a pipeline: two steps, each with its own program's keywords, and how they share the budget."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.components.settings import ComponentSettings, component_settings
from tallystick.algorithms.linear.descent import DescentSettings, settings_from
from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.core.readable_text import did_you_mean
from tallystick.privacy.ranges import MAX_ROUNDS

REDUCTIONS = ("pca", "truncated_svd")
MODELS = ("logistic_regression", "linear_svc")
_KEYS = {
    **dict.fromkeys(REDUCTIONS, frozenset(ComponentSettings.__dataclass_fields__)),
    **dict.fromkeys(MODELS, frozenset(DescentSettings.__dataclass_fields__)),
}
DEFAULT_STEPS: tuple[dict[str, Any], ...] = ({"program": "pca"}, {"program": "logistic_regression"})


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What a study may say under [program]."""

    reduction: str
    components: ComponentSettings
    model: str
    descent: DescentSettings
    share: float | None = None
    """The first step's part of the budget; None is left to the plan."""


def pipeline_settings(keywords: Mapping[str, Any]) -> PipelineSettings:
    """Checked; refused with what to write."""
    given = keywords.get("steps")
    steps = list(DEFAULT_STEPS if given is None else given) if given is None or _listed(given) else []
    if len(steps) != 2 or not all(isinstance(step, Mapping) for step in steps):
        raise _not_two_steps()
    (reduction, first), (model, second) = (_step(step, names) for step, names in zip(steps, (REDUCTIONS, MODELS)))
    descent = settings_from(second)
    if descent.rounds is not None and descent.rounds > MAX_ROUNDS:
        # As of a program by itself (``engines.designs``), and as soon: a billion of them would not fit into memory.
        raise PrivacyRefused(
            f"{descent.rounds} rounds cannot be run",
            rule="rounds-are-bounded",
            remedy=f"Use between 1 and {MAX_ROUNDS} rounds.",
        )
    return PipelineSettings(
        reduction=reduction,
        components=component_settings(first),
        model=model,
        descent=descent,
        share=_share(keywords.get("share", "auto")),
    )


def _listed(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _not_two_steps() -> StudyError:
    return StudyError(
        "a pipeline has two steps: one that finds components, then a model of them",
        rule="pipeline-steps",
        remedy='Write [[program.steps]] twice, with program = "pca" and program = "logistic_regression"; in Python '
        "ts.Pipeline([ts.PCA(10), ts.LogisticRegression()]).",
    )


def _step(step: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """(name, own keywords) of a step."""
    own = {str(key): value for key, value in step.items()}
    name = own.pop("program", None)
    if name not in names:
        raise StudyError(
            f"{str(name)[:80]!r} is not a step that can stand here",
            rule="pipeline-steps",
            remedy=f"First {' or '.join(REDUCTIONS)}, then {' or '.join(MODELS)}.{did_you_mean(str(name), names)}",
        )
    known = sorted(_KEYS[name])
    for key in own:
        if key not in known:
            raise StudyError(
                f"unknown key 'program.steps.{key[:80]}' of {name}",
                rule="unknown-key",
                remedy=did_you_mean(key, known).strip() or f"{name} takes: {', '.join(known)}.",
            )
    return str(name), own


def _share(value: Any) -> float | None:
    if isinstance(value, str) and value == "auto":
        return None
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or not 0.01 <= value <= 0.99:
        raise StudyError(
            f"share = {str(value)[:80]!r} is not a part of the budget",
            rule="wrong-value",
            remedy='Use "auto", or a number from 0.01 to 0.99: what the first step has of the budget.',
        )
    return float(value)
