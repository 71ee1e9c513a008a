"""One search for quantiles in noisy counts: what was released so far, and where to look next.

A :class:`Zoom` is one column's (one group's) search. It is immutable: ``told`` gives the next one. Used so::

    zoom = Zoom.start(size=10**9, targets=(Target(share=0.5),), records=48_842)
    edges = zoom.cells(fan=8)                                 # where to cut the domain next: public, from releases only
    zoom = zoom.told_cells(edges, counts, variance)           # noisy counts of the len(edges) + 1 cells
    low, high = zoom.window(0.999)                            # grid indices between which the answer lies, so likely

That is also what a first stage on a tenth of the budget needs before one draw of the exponential mechanism over equal
cells of ``window(mass)``: counts of cells in, a window out. ``spread`` says how many ranks the answer is still
uncertain by, from which a schedule (:mod:`tallystick.algorithms.quantiles.schedule`) takes the next price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tallystick.algorithms.quantiles.posterior import Floats, Indices, Location, RankPosterior, Target
from tallystick.algorithms.quantiles.sightings import Sightings
from tallystick.algorithms.quantiles.sparse_counts import expected_counts

UNIT_WINDOW = 8
"""A window of so few values is cut into single values."""
_STEPS = (0, -2, -4, -6, -10)
"""Powers of two by which cells may be less flat than a smooth density's."""
_GROWTH = 4.0
"""A window of a level has about a quarter of the ranks of the one before: a smooth density is so much flatter in it."""
_INFORMED = 4.0
"""Only if counts can tell: their standard deviation is at most so small a part of the ranks in doubt."""
_LEAST_FLAT, _FLATTEST = 0.25, 2048.0
_RELUCTANCE = 0.5
_ROUGH = 4.0
_SPIKY = 0.5
_IN_DOUBT = 2.0
"""Standard deviations of the rank at an edge that count as ranks in doubt."""
SETTLED = 0.99
SURE = 0.95
"""What intervals promise."""
_OUTER = 0.02
"""Of the posterior of an answer lies below the first cell cut for it, and as much above the last."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Zoom:
    """What is known of one column's ranks, and of the answers to all its quantiles."""

    ranks: RankPosterior
    targets: tuple[Target, ...]
    seen: tuple[Sightings, ...]
    """For each target, what the releases say without any assumption about the records."""
    records: float | None
    """Where their number is public."""
    laplace: bool

    @classmethod
    def start(
        cls, *, size: int, targets: tuple[Target, ...], records: float, std: float = 0.0, laplace: bool = True
    ) -> Zoom:
        """Before anything was released; ``std`` > 0 where the number of records is itself not public."""
        return cls(
            ranks=RankPosterior.start(size, records=records, std=std, alpha=1.0),
            targets=targets,
            seen=(Sightings(),) * len(targets),
            records=None if std else records,
            laplace=laplace,
        )

    @cached_property
    def locations(self) -> tuple[Location, ...]:
        return tuple(self.ranks.location(t) for t in self.targets)

    # -- where to look ----------------------------------------------------------------------------------------------

    def window(self, mass: float, target: int = 0) -> tuple[int, int]:
        """Grid indices [low, high) that hold the answer with posterior probability ``mass``."""
        location = self.locations[target]
        low = math.floor(location.at((1 - mass) / 2))
        high = math.ceil(location.at((1 + mass) / 2))
        return low, max(high, low + 1)

    def spread(self, target: int = 0, mass: float = 0.9) -> float:
        """Ranks between the ends of the window that holds ``mass`` of the answer's posterior."""
        location = self.locations[target]
        low, high = location.at((1 - mass) / 2), location.at((1 + mass) / 2)
        # Within one value there is nothing to be told apart: of its records only the noise at its inner edge counts.
        inner, outer = math.ceil(low), math.floor(high)
        ends = [e for end, e in ((low, inner), (high, outer)) if inner <= outer and self._is_one_value(end)]
        low, high = inner if inner in ends else low, outer if outer in ends else high
        ranks = max(0.0, location.rank_at(high) - location.rank_at(low))
        return max([ranks, *(_IN_DOUBT * s for s in self._stds(ends, target))])

    def doubt(self, target: int = 0) -> float:
        """Standard deviation of the rank at the answer itself; of a single value, at the edge that is less sure."""
        crossing = self.locations[target].crossing
        if not self._is_one_value(crossing):
            return self._stds([crossing], target)[0]
        edges = np.floor(crossing) + np.array([0.0, 1.0])
        mean, std = self.ranks.ranks_at(edges, self.targets[target])
        return float(std[np.argmin(np.abs(mean) / np.maximum(std, 1e-9))])

    def _is_one_value(self, position: float) -> bool:
        """Whether both edges of the value there were counted."""
        return bool(np.isin([math.floor(position), math.floor(position) + 1], self.ranks.edges).all())

    def _stds(self, positions: Sequence[float], target: int) -> list[float]:
        """Standard deviations of the ranks there."""
        return list(map(float, self.ranks.ranks_at(np.array(positions, dtype=np.float64), self.targets[target])[1]))

    @cached_property
    def typical_spread(self) -> float:
        """Geometric mean over the answers."""
        logs = [math.log(max(1.0, self.spread(t))) for t in range(len(self.targets))]
        return math.exp(sum(logs) / len(logs))

    @cached_property
    def open_targets(self) -> tuple[int, ...]:
        """The answers that are not yet one value, almost surely, with its two edges counted."""
        every = range(len(self.targets))
        spans = [max(high - low for low, high in (self.window(SETTLED, t), self.held_between(SURE, t))) for t in every]
        return tuple(t for t, span in zip(every, spans) if span > 1)

    @property
    def widest_spread(self) -> float:
        """Of the answers that are still open."""
        return max((self.spread(t) for t in self.open_targets), default=0.0)

    @property
    def widest_doubt(self) -> float:
        """Of the answers that are still open."""
        return max((self.doubt(t) for t in self.open_targets), default=0.0)

    @property
    def rough(self) -> bool:
        """Whether records have shown to be in spikes: a level then finds a spike's cell, and ranks stay as they are."""
        return self.ranks.alpha <= _ROUGH

    @property
    def spiky(self) -> bool:
        """Whether they have shown so clearly."""
        return self.ranks.alpha <= _SPIKY

    def cells(self, fan: int) -> Indices:
        """Edges of the next cells: ``fan`` of equal posterior probability around each answer."""
        edges: list[int] = []
        for t, location in enumerate(self.locations):
            low, high = self.window(1 - _OUTER, t)
            if high - low <= max(UNIT_WINDOW, fan):
                edges += range(low, high + 1)
            else:
                edges += [round(e) for e in location.cut(_OUTER, fan)]
        chosen = np.unique(np.array(edges, dtype=np.int64))
        return chosen[(chosen > 0) & (chosen < self.ranks.size)]

    def probes(self) -> Indices:
        """One edge for each answer: where it most likely is."""
        edges = np.unique([round(location.crossing) for location in self.locations]).astype(np.int64)
        return np.clip(edges, 1, self.ranks.size - 1)

    # -- what was released ------------------------------------------------------------------------------------------

    def told_cells(self, edges: Indices, counts: Floats, variance: float, *, sparse: bool = False) -> Zoom:
        """After the counts of all ``len(edges) + 1`` cells were released with noise of this variance.

        ``sparse``: of a wide look for spikes, where most cells are likely empty.
        """
        noise = np.full(len(counts), variance)
        informed = _INFORMED * math.sqrt(variance) < self.typical_spread
        flat = self.ranks.alpha * (_GROWTH if informed else 1.0)
        best, most = self.ranks, -math.inf
        for steps in _STEPS:
            # How flat the density is at this scale is itself taken from the release (empirical Bayes): spikes and gaps
            # show as counts that a flat density does not foresee.
            alpha = min(max(_LEAST_FLAT, flat * 2.0**steps), _FLATTEST)
            ranks = self.ranks.with_edges(edges, alpha)
            functional = ranks.of_cells(edges)
            evidence = ranks.evidence(functional, counts, noise) - _RELUCTANCE * abs(steps)
            if evidence > most:
                best, most = ranks, evidence
        values = counts
        if sparse and best.alpha <= _ROUGH:
            values, noise = expected_counts(counts, math.sqrt(variance), laplace=self.laplace)
        best = best.updated(best.of_cells(edges), values, noise)
        seen = tuple(
            s.with_cells(edges, counts, variance, target=t, records=self.records, laplace=self.laplace)
            for s, t in zip(self.seen, self.targets)
        )
        return replace(self, ranks=best.thinned(), seen=seen)

    def told_rank(self, edge: int, rank: float, variance: float, share: float = 0.0) -> Zoom:
        """After F(edge) − share·N was released with noise of this variance."""
        edges = np.array([edge], dtype=np.int64)
        ranks = self.ranks.with_edges(edges, self.ranks.alpha)
        functional = ranks.of_prefixes(edges)
        functional[0, -1] -= share
        known = ranks.updated(functional, np.array([rank]), np.array([variance]))
        seen = tuple(
            s.with_rank(edge, rank - self._told_of(t, share), variance, laplace=self.laplace)
            for s, t in zip(self.seen, self.targets)
        )
        return replace(self, ranks=known.thinned(), seen=seen)

    def _told_of(self, target: Target, share: float) -> float:
        """What the target is, where F − share·N is told: (q − share)·N + shift, with N public unless q is the share."""
        return (target.share - share) * (self.records or 0.0) + target.shift

    def held_between(self, level: float, target: int = 0, *, most: int | None = None) -> tuple[int, int]:
        """Counted edges [low, high) that hold the answer with probability ``level``, whatever the records are.

        ``most``: how many rounds the search may have, for an interval that is promised.
        """
        return self.seen[target].between(level, self.ranks.size, most=most)

    # -- the answers ------------------------------------------------------------------------------------------------

    def answer(self, target: int = 0) -> int:
        """The grid index at which the expected rank reaches the target, within what counts leave possible."""
        low, high = self.held_between(SURE, target)
        return min(max(math.floor(self.locations[target].crossing), low), high - 1)
