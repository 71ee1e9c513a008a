"""Private gradient descent whose every setting follows from public facts: the rule, and its derivation.

Each round releases the sum of the records' clipped gradients plus noise. Writing ν for the standard deviation of one
coordinate of the *mean* gradient if the whole budget sat in one round,

    ν = κ_s · C·R / n · √(v/(2ρ))          (κ_s = 2 for replace-one, 1 for add-remove; v: noise variance over ideal)

the noise of T equal rounds is ν√T each, and any equal-weight combination of them has noise ν whatever T is: under zCDP
rounds are free, as long as they are averaged evenly. What remains to choose is *how far* to descend.

Descent time. In a direction of curvature h, descending for a total time S = Σ steps applies the spectral filter
(1 − e^{−hS})/h to the gradient: signal is kept where h ≫ 1/S, and the noise it lets through is at most νS. The Wiener
cut-off for weights of standard deviation τ lies at h = ν/τ, hence S = τ/ν; weights that make log-odds of standard
deviation κ on rows of squared length tr have τ = κ/√tr. So S = κ/(ν√tr), κ = 1.5.

Steps. Steps of at most 1/L are stable, L = curvature × tr ≥ the largest eigenvalue of the Hessian. If S needs more than
T such steps, Nesterov momentum β with effective step 1/(L(1−β)) delivers exactly S in T rounds: 1 − β = T/(S·L).
T = 2√(S·L) within [128, 256] (Laplace, where rounds cost √T of noise: [4, 64]). The last quarter is averaged.

Clipping. At w = 0 every logistic residual is ±½, so C = ½ loses nothing there and halves the noise of a bound of 1 (for
softmax √(1−1/K)); R = √tr, the typical row. When the budget is ample, B = C·R grows until the noise is a small fraction
of the sampling error 0.5/√n, first C to its worst case, then R to the longest possible row: then nothing is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.feature_maps.settings import MapSettings, map_settings
from tallystick.algorithms.keywords import flag
from tallystick.core.errors import StudyError

MOMENT_SHARE = 0.1
"""Share of the budget for the round of moments."""
_TAIL = 0.25
_SLACK = 0.02
_MIN_ROUNDS, _MAX_ROUNDS = 128, 256
_MIN_ROUNDS_L1, _MAX_ROUNDS_L1 = 4, 64


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Everything the descent needs, fixed after the round of moments."""

    clip: float
    row_limit: float
    step: float
    momentum: float
    tail: int


def residual_bounds(classes: int, *, l1: bool) -> tuple[float, float, float]:
    """(norm of the residual at w = 0, its worst case, curvature of the loss per unit of score)."""
    if classes <= 2:
        return 0.5, 1.0, 0.25
    if l1:
        return 2 * (1 - 1 / classes), 2.0, 0.5
    return math.sqrt(1 - 1 / classes), math.sqrt(2), 0.5


@dataclass(frozen=True, kw_only=True)
class Loss:
    """All that the rule asks of a loss: the sizes of its residuals, and the spread κ of the scores that it wants."""

    residual_bounds: Callable[..., tuple[float, float, float]]
    """(classes, l1=…) → (norm of the residual at the start, its worst case, curvature per unit of score)."""
    spread: float


LOGISTIC = Loss(residual_bounds=residual_bounds, spread=1.5)
"""Log-odds of standard deviation 1.5."""


def noise_of_mean(budget: PublicBudget, share: float, bound: float, records: float) -> float:
    """Standard deviation of one coordinate of the mean when ``share`` of the budget buys one round of this bound."""
    return budget.noise(budget.sensitivity_factor * budget.person_factor * bound, share) / records


def choose_rounds(
    budget: PublicBudget,
    share: float,
    *,
    classes: int,
    records: float | None,
    trace: float,
    typical_row: float,
    loss: Loss = LOGISTIC,
) -> int:
    """T from public facts alone; ``trace`` is the public guess before the moments are known.

    For the Gaussian the guess does not matter: ν carries √tr and L carries tr, so that S·L is free of it.
    """
    l1 = budget.mechanism == "laplace"
    low, _, curvature = loss.residual_bounds(classes, l1=l1)
    if budget.mechanism == "none":
        return _MAX_ROUNDS
    if records is None:
        return 4 * _MIN_ROUNDS_L1 if l1 else _MIN_ROUNDS
    noise = noise_of_mean(budget, share, low * typical_row, records)
    if l1:
        wanted = (4 * loss.spread * curvature * math.sqrt(trace) / noise) ** 0.4
        return int(min(max(math.ceil(wanted), _MIN_ROUNDS_L1), _MAX_ROUNDS_L1))
    wanted = 2 * math.sqrt(loss.spread * curvature * math.sqrt(trace) / noise)
    return int(min(max(math.ceil(wanted), _MIN_ROUNDS), _MAX_ROUNDS))


def choose_schedule(
    budget: PublicBudget,
    share: float,
    *,
    classes: int,
    records: float,
    rounds: int,
    trace: float,
    typical_row: float,
    longest_row: float,
    clip: float | None = None,
    step: float | None = None,
    loss: Loss = LOGISTIC,
) -> Schedule:
    """The schedule for rows of E‖row‖² = ``trace``; ``clip`` (a bound on C·R) and ``step`` override the rule."""
    l1 = budget.mechanism == "laplace"
    low, high, curvature = loss.residual_bounds(classes, l1=l1)
    unit = noise_of_mean(budget, share, 1.0, records)  # noise per unit of bound
    if clip is not None:
        residual, row_limit = high, clip / high
    elif l1:
        residual, row_limit = low, typical_row
    else:
        ample = math.inf if unit == 0 else _SLACK / (math.sqrt(records) * unit)
        bound = max(low * typical_row, ample)
        residual = min(max(bound / typical_row, low), high)
        row_limit = max(typical_row, min(bound / residual, longest_row))
    noise = unit * residual * row_limit * (math.sqrt(rounds) if l1 else 1.0)
    lipschitz = curvature * trace
    time = math.inf if noise == 0 else loss.spread / (noise * math.sqrt(trace))
    wanted = time * lipschitz / rounds
    if step is not None:
        size, momentum = step, 0.0
    elif wanted < 1:
        size, momentum = time / rounds, 0.0
    else:
        size, momentum = 1 / lipschitz, max(0.0, min(1 - 1 / wanted, 1 - 4 / rounds))
    return Schedule(
        clip=residual, row_limit=row_limit, step=size, momentum=momentum, tail=max(1, math.floor(_TAIL * rounds))
    )


@dataclass(frozen=True, kw_only=True)
class DescentSettings:
    """The user's own parameters, the same for the estimator and for a study's [program]; None stands for ``"auto"``."""

    rounds: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    l2: float | None = None
    fit_intercept: bool = True
    standardise: bool = True
    schedule: str = "auto"
    """``constant``, ``inverse-sqrt`` (step η/√t, as PEM has it) or ``auto``: constant with momentum by rule."""
    average: bool = True
    feature_map: MapSettings | None = None
    """The kernel whose features the model is linear in."""


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
        feature_map=map_settings(keywords),
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
