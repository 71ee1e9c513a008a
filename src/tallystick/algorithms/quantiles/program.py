"""Quantiles as a sum program: one record is in one cell of each column, or above or below one edge.

The vector of a round is, for every column and within it for every group, ``edges + 1`` coordinates. A record adds to
one coordinate of each column, that of its own group and cell:

    Laplace     ½ in its cell; or, in a probe of one rank, c·(1[x < e] − q) in the first coordinate, |…| ≤ ½
    Gaussian    1 in its cell; a probe is two cells, below the edge and from it on

Sensitivity, per column (brute-forced in tests/algorithms/test_quantile_program.py):

* Laplace: every vector has L1 norm ≤ ½. Add-remove ½; replace-one ‖v − v'‖₁ ≤ ½ + ½ = 1. In
  records: cells 2 and one prefix 1 under replace-one. That is the histogram's 2, and a lone prefix's 1: a count that
  moves by one at most is told with half the noise of a cell.
* Gaussian: one 1, nothing negative: add-remove 1, replace-one √2 (row "histogram, one bucket"). Two cells of known
  total tell a prefix with variance s²/2, as good as a lone prefix of sensitivity 1: (√2)²/2 = 1.
* Groups are disjoint coordinates of the same vector, so they cost once under add-remove. Under replace-one a record may
  leave one group and enter another: ½ + ½, the price of both under add-remove, and no third group is touched.
* C columns: a record is in all of them, each has 1/C of the price (a grid group of its own).

Where the number of records is not public (add-remove, groups, records that may be left out) the probe of quantile q
sums 1[x < e] − q, which says by itself on which side of e the quantile lies: no count of records is needed for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import BlockProgram, Public
from tallystick.algorithms.quantiles.grid import ValueGrid
from tallystick.algorithms.quantiles.posterior import Target
from tallystick.algorithms.quantiles.schedule import FIRST_FAN, LEAST_PRICE, MOST_ROUNDS, Known, Look, Schedule
from tallystick.algorithms.quantiles.zoom import Zoom
from tallystick.privacy.contribution import Contribution, Repeated, Sparse
from tallystick.privacy.open_budget import PARTS

UNKNOWN_RECORDS = 10_000.0
"""What a study that states no number of records is first looked at with."""


def records_doubt(records: float, *, guessed: bool) -> float:
    """The standard deviation before anything is counted; of a guess as wide as if none were made: one that is far too
    small would else outweigh the counts."""
    return 10 * (max(records, UNKNOWN_RECORDS) if guessed else records)


_MOST_DISTINCT = 512
"""Coordinates up to which records are counted by their few distinct vectors."""


class Query(NamedTuple):
    """What clients map at: the price first (:mod:`tallystick.privacy.open_budget`), then what is counted."""

    price: float
    probe: float
    """1 where each series' first edge alone is asked for."""
    edges: NDArray[np.float64]
    """Grid indices, ascending, one row for every series; what is not used stands at the size of the domain."""


class QuantileState(NamedTuple):
    """The next question, and all that was asked and released so far."""

    price: float
    probe: float
    edges: NDArray[np.float64]
    rounds: float
    asked: NDArray[np.float64]
    """(price, probe) of each round."""
    edges_asked: NDArray[np.float64]
    totals: NDArray[np.float64]
    done: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """One column in one group (of several, or of all records)."""

    grid: ValueGrid
    group: int
    label: str | None
    targets: tuple[Target, ...]


class QuantileProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    rounds = MOST_ROUNDS
    interim = True  # what was counted so far answers already, with wider intervals

    def __init__(
        self,
        *,
        series: Sequence[Series],
        columns: Sequence[tuple[int, int | None]],
        by: tuple[int, int] | None,
        schedule: Schedule,
        records: float | None,
        public_count: bool,
        guessed: bool = False,
    ) -> None:
        self.series = tuple(series)
        self.columns = tuple(columns)
        """(position of the encoded number, position of its missing mark) of each column."""
        self.by = by
        """Encoded features of the grouping category."""
        self.schedule = schedule
        self.records = records
        self.public_count, self.guessed = public_count, guessed
        """Whether ``records`` is how many there are; or nobody may know that, and it is what somebody states."""
        self.targets = len(self.series[0].targets)
        self.edges = max(FIRST_FAN, (schedule.wide + 1) * self.targets)
        self._most_narrow = max(FIRST_FAN, (schedule.fan + 1) * self.targets)
        self.per_column = len(self.series) // len(self.columns)
        self._known: tuple[bytes, tuple[Zoom, ...]] | None = None

    @property
    def laplace(self) -> bool:
        return self.schedule.noise.laplace

    @property
    def lone(self) -> bool:
        """Whether a probe is of one rank alone."""
        return self.laplace and self.targets == 1

    # -- rounds -----------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> QuantileState:
        look = self.schedule.first(self._expected)
        edges = np.array([self._padded(s, first_edges(s.grid.size, public.salt)) for s in self.series])
        return QuantileState(
            price=float(look.price),
            probe=0.0,
            edges=edges,
            rounds=0.0,
            asked=np.zeros((MOST_ROUNDS, 2)),
            edges_asked=np.zeros((MOST_ROUNDS, len(self.series), self.edges)),
            totals=np.zeros((MOST_ROUNDS, len(self.series), self.edges + 1)),
            done=0.0,
        )

    def query(self, state: QuantileState) -> Query:
        return Query(price=state.price, probe=state.probe, edges=state.edges)

    def finished(self, state: QuantileState) -> bool:
        return bool(state.done)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: QuantileState) -> QuantileState:
        at = int(state.rounds)
        asked, edges_asked, totals = state.asked.copy(), state.edges_asked.copy(), state.totals.copy()
        asked[at] = state.price, state.probe
        edges_asked[at] = state.edges
        totals[at] = total.reshape(len(self.series), self.edges + 1)
        told = state._replace(rounds=at + 1.0, asked=asked, edges_asked=edges_asked, totals=totals)
        zooms = self.zooms(told)
        look = self._next(told, zooms)
        if look is None:
            return told._replace(done=1.0)
        wanted = [z.cells(look.fan) if look.fan else z.probes() for z in zooms]
        edges = np.array([self._padded(s, e) for s, e in zip(self.series, wanted)])
        return told._replace(price=float(look.price), probe=float(not look.fan), edges=edges)

    def _next(self, state: QuantileState, zooms: Sequence[Zoom]) -> Look | None:
        done, left = int(state.rounds), PARTS - int(state.asked[:, 0].sum())
        probed = bool(state.asked[:, 1].any())
        settled = not any(z.open_targets for z in zooms)
        if done == MOST_ROUNDS or left < LEAST_PRICE or settled:
            return None
        unsettled = [z for z in zooms if z.open_targets]
        # Where a count at the whole price could not tell more, as in a group without records, nothing is waited for.
        told = [z for z in unsettled if z.widest_spread > self.schedule.noise.whole]
        spread = math.exp(sum(math.log(z.widest_spread) for z in told) / len(told)) if told else 0.0
        cells = self.schedule.fan * self.targets + 2
        known = Known(
            spread=spread,
            doubt=max((z.widest_doubt for z in told), default=0.0),
            rough=all(z.rough for z in unsettled),
            spiky=all(z.spiky for z in unsettled),
        )
        return self.schedule.next(known, cells=cells, left=left, round=done, probed=probed)

    def _padded(self, series: Series, edges: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.full(self.edges, float(series.grid.size))
        out[: len(edges)] = edges[: self.edges]
        return out

    # -- what was released ------------------------------------------------------------------------------------------

    @property
    def _expected(self) -> float:
        return (UNKNOWN_RECORDS if self.records is None else max(1.0, self.records)) / self.per_column

    def zooms(self, state: QuantileState) -> tuple[Zoom, ...]:
        """What all releases so far say about each series."""
        rounds = int(state.rounds)
        key = state.totals[:rounds].tobytes()
        if self._known is not None and self._known[0] == key:
            return self._known[1]
        start, known = 0, self._start()
        if self._known is not None and rounds and self._known[0] == state.totals[: rounds - 1].tobytes():
            start, known = rounds - 1, self._known[1]
        for at in range(start, rounds):
            price, probe = int(state.asked[at, 0]), bool(state.asked[at, 1])
            parts = zip(known, self.series, state.edges_asked[at], state.totals[at])
            known = tuple(self._told(z, s, price, probe, edges, total) for z, s, edges, total in parts)
        self._known = (key, known)
        return known

    def _start(self) -> tuple[Zoom, ...]:
        records = self._expected
        std = 0.0 if self.public_count else records_doubt(records * self.per_column, guessed=self.guessed)
        return tuple(
            Zoom.start(size=s.grid.size, targets=s.targets, records=records, std=std, laplace=self.laplace)
            for s in self.series
        )

    def _told(
        self, zoom: Zoom, series: Series, price: int, probe: bool, edges: NDArray[np.float64], total: NDArray[Any]
    ) -> Zoom:
        std = self.schedule.noise.std(price)
        used = edges[edges < series.grid.size].astype(np.int64)
        if probe and self.lone:
            share = self.probe_share(series)
            most = max(share, 1 - share)
            rank, edge = float(total[0]) * 2 * most, int(used[0])
            if self.public_count:  # ½-centred: F − N/2, and N is public
                return zoom.told_rank(edge, rank + self._expected * share, (std * most) ** 2)
            return zoom.told_rank(edge, rank, (std * most) ** 2, share)
        counts = total[: len(used) + 1] * (2.0 if self.laplace else 1.0)
        return zoom.told_cells(used, counts, std**2, sparse=len(used) > self._most_narrow)

    def probe_share(self, series: Series) -> float:
        """q of 1[x < e] − q: the quantile's own where the number of records is not public, else what costs least."""
        return 0.5 if self.public_count else series.targets[0].share

    # -- records ----------------------------------------------------------------------------------------------------

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        if self.by is None:
            group = np.zeros(len(features), dtype=np.int64)
        else:
            cells = features[:, self.by[0] : self.by[1]]
            group = np.where(cells.max(axis=1) > 0, cells.argmax(axis=1), -1)
        out = []
        for at, (position, mark) in enumerate(self.columns):
            index = self.series[at * self.per_column].grid.indices(features[:, position])
            present = group >= 0 if mark is None else (group >= 0) & (features[:, mark] == 0)
            out.append((index, np.where(present, group, -1)))
        return out

    def map_block(self, prepared: Any, state: Query) -> Contribution:
        width = self.per_column * (self.edges + 1)
        places, amounts = zip(*(self._placed(at, index, group, state) for at, (index, group) in enumerate(prepared)))
        if len(places) == 1 and width <= _MOST_DISTINCT:
            return _distinct(places[0], amounts[0], width)
        n = len(places[0])
        indices = np.stack([place + at * width for at, place in enumerate(places)], axis=1)
        return Sparse(
            indptr=np.arange(n + 1, dtype=np.int64) * len(places),
            indices=indices.reshape(-1),
            values=np.stack(amounts, axis=1).reshape(-1),
            size=len(self.series) * (self.edges + 1),
        )

    def _placed(
        self, column: int, index: NDArray[np.int64], group: NDArray[np.int64], state: Query
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Each record's one coordinate within its column's part of the vector, and what it adds there."""
        place = np.zeros(len(index), dtype=np.int64)
        amount = np.zeros(len(index))
        probe = bool(state.probe) and self.lone
        for g in range(self.per_column):
            own = group == g
            s = column * self.per_column + g
            edges = state.edges[s].astype(np.int64)
            first = g * (self.edges + 1)
            if probe:
                share = self.probe_share(self.series[s])
                place[own] = first
                amount[own] = ((index[own] < edges[0]) - share) / (2 * max(share, 1 - share))
            else:
                place[own] = first + np.searchsorted(edges, index[own], side="right")
                amount[own] = 0.5 if self.laplace else 1.0
        return place, amount


def _distinct(place: NDArray[np.int64], amount: NDArray[np.float64], width: int) -> Repeated:
    """The few vectors that records of one column can have: at each place one below 0, none, or one above."""
    which = 3 * place + np.sign(amount).astype(np.int64) + 1
    vectors = np.zeros((3 * width, width))
    vectors[which, place] = amount  # records of one kind are equal: whichever comes last
    return Repeated(vectors=vectors, which=which)


def first_edges(size: int, salt: int) -> NDArray[np.int64]:
    """Equal cells over the domain, moved by a public part of a cell, so that nobody can place data at their edges."""
    if size <= FIRST_FAN:
        return np.arange(1, size, dtype=np.int64)
    moved = (np.arange(FIRST_FAN) * 2**32 + (salt % 2**32)) * size // (FIRST_FAN * 2**32) if size < 2**26 else None
    if moved is None:  # in whole numbers of any length
        moved = np.array([(k * 2**32 + salt % 2**32) * size // (FIRST_FAN * 2**32) for k in range(FIRST_FAN)])
    edges = np.unique(moved.astype(np.int64))
    return edges[(edges > 0) & (edges < size)]
