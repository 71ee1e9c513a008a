"""What a k-means does by public facts alone: how noisy a round is, how many rounds, how fine, how long differences are.

Nothing here sees a record or a total; the plan is made from it before anything is spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.algorithms.clustering.start import free_coordinates, public_spread
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.keywords import one_of, whole, whole_or_auto
from tallystick.algorithms.linear.descent import MOMENT_SHARE
from tallystick.algorithms.linear.moments import ColumnShapes, MomentRound
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError

_MOST_CLUSTERS = 10_000
_FARTHEST = 1e6
_COUNT = 1.0
"""What a record counts, in units of R. In L2, replace-one, anything up to 1 is free; less would be noisier."""
_COUNT_L1 = 0.25
"""In L1 sums and counts share the sensitivity 2(1 + c); a sum's noise is d times as long as a count's."""
_FEWEST, _MOST = 4, 20
_AMPLE = 0.01
"""R grows while the noise of a round's centres stays below this part of their spread."""
_FINE_ROUNDS = 2
_FINEST = 4
_FINE_NOISE = 0.3
"""Fine clusters are made while the noise on one of their centres stays below this part of the records' spread."""


class KMeansRules:
    """The public half of :class:`tallystick.algorithms.clustering.kmeans.KMeansProgram`."""

    def __init__(self, public: Public, budget: PublicBudget, settings: KMeansSettings) -> None:
        self.budget = budget
        self.settings = settings
        self.records = public.records
        self.l1 = budget.mechanism == "laplace"
        self.shapes = ColumnShapes.of(public, l1=self.l1)
        self.clusters = settings.n_clusters
        self.plain = settings.method == "plain"
        self.moments = MomentRound(public, budget, self.shapes) if settings.start == "auto" else None
        if self.plain and self.moments is not None:
            raise StudyError(
                'method = "plain" has no start of its own', remedy='Give start = "random" or the centres themselves.'
            )
        self.counts = public.counts_records
        self.count = _COUNT_L1 if self.l1 else _COUNT
        self.free = free_coordinates(self.shapes)
        self.share = 1 - budget.share_of_one(MOMENT_SHARE) if self.moments is not None else 1.0
        self.public = public_spread(self.shapes)
        self.steps = settings.rounds or self._choose_rounds()
        self.longest = self._longest()
        self.ample = self._ample()
        self.fine = self._finest() * self.clusters
        self.rounds = self.steps + int(self.moments is not None)

    @property
    def _sensitivity(self) -> float:
        """Of a cluster's group, in units of R: the registry's row, as the plan has it."""
        b, c = self.budget, self.count
        if (b.neighbours == "replace-one" and self.records is None) or b.person_factor > 1:  # persons: the norm alone
            return b.sensitivity_factor * b.person_factor * (1 + c if self.l1 else math.hypot(1, c))
        if self.l1:
            return b.sensitivity_factor * (1 + c)
        return math.hypot(1, c) if b.neighbours == "add-remove" else max(2.0, math.sqrt(2 + 2 * c * c))

    def _noise(self, share: float) -> float:
        """Standard deviation of one coordinate of a total, in units of R, when ``share`` of the budget buys it."""
        return self.budget.noise(self._sensitivity, share)

    def noise_on_a_centre(self) -> float:
        """Noise power over signal power of one centre, if the whole budget bought one round: m σ² (k/n)² / R²."""
        if self.records is None:
            return math.nan
        ratio = self.public.length / math.sqrt(self.public.total) if self.l1 else 1.0
        return self.free * (ratio * self._noise(self.share) * self.clusters / self.records) ** 2

    def _choose_rounds(self) -> int:
        """T = 2.2 q^-0.35 within [4, 20] for the noise q of one centre; its root for Laplace, where T rounds cost T².

        Measured: docs/decisions. More rounds converge further, fewer are less noisy.
        """
        q = self.noise_on_a_centre()
        if math.isnan(q):
            return 2 * _FEWEST
        wanted = 2.2 * math.pow(max(q, 1e-9), -0.35)
        if self.l1:
            return round(min(max(math.sqrt(wanted), 2), _MOST))
        return round(min(max(wanted, _FEWEST), _MOST))

    def _finest(self) -> int:
        """m: how many fine clusters to a cluster. Their noise is m² that of a cluster."""
        q = self.noise_on_a_centre()
        if self.moments is None or self.steps < 2 * _FINE_ROUNDS or math.isnan(q):
            return 1
        return int(min(max(math.sqrt(_FINE_NOISE / max(q, 1e-9)), 1), _FINEST))

    def parts_at(self, stage: float) -> int:
        """How many clusters the round at this stage sums over."""
        return self.fine if stage <= _FINE_ROUNDS else self.clusters

    def _longest(self) -> float:
        """The longest difference there can be between a record and a centre within the bounds."""
        numbers = (2.0 if self.l1 else 4.0) * len(self.shapes.numbers)
        indicators = sum(stop - start if ones > 1 else 1 for start, stop, ones in self.shapes.blocks)
        others = 2.0 * indicators + len(self.shapes.marks)
        return numbers + others if self.l1 else math.sqrt(numbers + others)

    @property
    def round_noise(self) -> float:
        """Noise power over signal power of one centre in one of the T rounds: q·T (Laplace q·T²)."""
        return self.noise_on_a_centre() * (self.steps**2 if self.l1 else self.steps)

    def _ample(self) -> float:
        """How many times the typical length R may be."""
        q = self.round_noise
        return 1.0 if math.isnan(q) else max(1.0, math.sqrt(_AMPLE / max(q, 1e-30)))

    def hopeless(self) -> str | None:
        """Noise on the mean of all records beyond their spread: not even one centre can be found."""
        q = self.noise_on_a_centre() / self.clusters**2
        if math.isnan(q) or q <= 1:
            return None
        return (
            f"the noise on the mean of all {self.records} records is {math.sqrt(q):.1f} times their spread over "
            f"{self.shapes.size} columns"
        )

    def notes(self) -> tuple[str, ...]:
        q = self.noise_on_a_centre()
        if math.isnan(q) or q <= 1:
            return ()
        return (f"Noise on a centre is {math.sqrt(q):.1f} times the records' spread: the centres will tell little.",)

    def details(self) -> dict[str, Any]:
        q = self.noise_on_a_centre()
        noise = None if math.isnan(q) or self.plain else math.sqrt(q)
        return {"steps": self.steps, "fine_clusters": self.fine, "noise_on_a_centre": noise}


@dataclass(frozen=True, kw_only=True)
class KMeansSettings:
    """The user's own parameters, the same for the estimator and for a study's [program]; None stands for ``"auto"``."""

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
