"""The keywords of the gossip classifier, checked one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from tallystick.algorithms.gossip.golf.settings import Merging
from tallystick.algorithms.keywords import flag, one_of, whole, whole_or_auto
from tallystick.core.errors import StudyError
from tallystick.privacy.local.gradient import Strategy
from tallystick.privacy.local.plan import RANDOMISERS
from tallystick.privacy.ranges import MAX_COLUMNS

LEARNERS = ("moments", "pegasos", "logistic")
LOSSES = ("square", "logistic", "hinge")
PERTURBED = ("data", "gradient", "none")
LABELS = ("auto", "sign", "randomised", "per-class")
_MOST_CYCLES = 100_000
_MOST_USES = 1000
_MOST_BATCH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class GossipSettings:
    """What a study may say under [program]."""

    learner: str = "moments"
    loss: str = "square"
    perturb: str = "data"
    randomiser: str = "subset"
    cycles: int | None = None
    lambda_: float = 1e-4
    label: str = "auto"
    origin: str = "lower"
    intercept: float = 0.3
    basis: str | None = None
    shape: tuple[int, ...] | None = None
    kept: tuple[int, ...] | None = None
    weak_epsilon: bool = False
    merging: Merging = "update-merge"
    strategy: Strategy = "once"
    uses: int = 1
    batch: int = 1


def gossip_settings(keywords: Mapping[str, Any]) -> GossipSettings:
    """Checked; refused with what to write."""
    basis = keywords.get("basis")
    return GossipSettings(
        learner=one_of("learner", keywords.get("learner", "moments"), LEARNERS),
        loss=one_of("loss", keywords.get("loss", "square"), LOSSES),
        perturb=one_of("perturb", keywords.get("perturb", "data"), PERTURBED),
        randomiser=one_of("randomiser", keywords.get("randomiser", "subset"), RANDOMISERS),
        cycles=whole_or_auto("cycles", keywords.get("cycles", "auto"), _MOST_CYCLES),
        lambda_=_number("lambda_", keywords.get("lambda_", 1e-4), 1e-12, 1e6),
        label=one_of("label", keywords.get("label", "auto"), LABELS),
        origin=one_of("origin", keywords.get("origin", "lower"), ("lower", "centre")),
        intercept=_number("intercept", keywords.get("intercept", 0.3), 0.0, 1e3),
        basis=None if basis in (None, "none") else one_of("basis", basis, ("dct",)),
        shape=_sides("shape", keywords.get("shape")),
        kept=_sides("kept", keywords.get("kept")),
        weak_epsilon=flag("weak_epsilon", keywords.get("weak_epsilon", False)),
        merging=cast(Merging, one_of("merging", keywords.get("merging", "update-merge"), get_args(Merging))),
        strategy=cast(Strategy, one_of("strategy", keywords.get("strategy", "once"), get_args(Strategy))),
        uses=whole("uses", keywords.get("uses", 1), 1, _MOST_USES),
        batch=whole("batch", keywords.get("batch", 1), 1, _MOST_BATCH),
    )


def _number(name: str, value: Any, least: float, most: float) -> float:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or not least <= value <= most:
        raise StudyError(f"{name} = {value!r} is no number for it", remedy=f"Use {least:g} to {most:g}.")
    return float(value)


def _sides(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and 1 <= len(value) <= 4:
        return tuple(whole(name, side, 1, MAX_COLUMNS) for side in value)
    raise StudyError(f"{name} = {value!r} is not the sides of a grid", remedy=f"Write {name} = [28, 28], rows first.")
