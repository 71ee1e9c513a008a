"""A user's keywords for k-means, checked: the same for the estimator and for a study's [program]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.algorithms.keywords import one_of, whole, whole_or_auto
from tallystick.core.errors import StudyError

__all__ = ["KMeansSettings", "kmeans_settings"]

_MOST_CLUSTERS = 10_000
_FARTHEST = 1e6


@dataclass(frozen=True, kw_only=True)
class KMeansSettings:
    """The user's own parameters; None stands for ``"auto"``."""

    n_clusters: int = 8
    rounds: int | None = None
    start: str | tuple[tuple[float, ...], ...] = "auto"
    method: str = "auto"
    seed: int = 0


def kmeans_settings(keywords: Mapping[str, Any]) -> KMeansSettings:
    """What the keywords mean; one that is left out has its default."""
    return KMeansSettings(
        n_clusters=whole("n_clusters", keywords.get("n_clusters", 8), 1, _MOST_CLUSTERS),
        rounds=whole_or_auto("rounds", keywords.get("rounds", "auto"), 100_000),
        start=_start(keywords.get("start", "auto")),
        method=one_of("method", keywords.get("method", "auto"), ("auto", "plain")),
        seed=whole("seed", keywords.get("seed", 0), -(2**62), 2**62),
    )


def _start(value: Any) -> str | tuple[tuple[float, ...], ...]:
    if isinstance(value, str):
        if value not in ("auto", "random"):
            raise StudyError(f"start = {value!r} is not known", remedy='Use "auto", "random", or the centres.')
        return value
    remedy = "Give one list of numbers per cluster, in the encoded columns (numbers scaled to [-1, 1])."
    if not isinstance(value, (Sequence, np.ndarray)) or len(value) == 0:
        raise StudyError("start is not a list of centres", remedy=remedy)
    try:
        centres = np.array([[float(x) for x in row] for row in value], dtype=np.float64)
    except (TypeError, ValueError):
        raise StudyError("start is not a table of numbers", remedy=remedy) from None
    if centres.ndim != 2 or not np.all(np.abs(centres) <= _FARTHEST):
        raise StudyError("start is not a table of numbers", remedy=remedy)
    return tuple(tuple(row) for row in centres.tolist())
