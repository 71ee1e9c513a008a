"""Quantiles that computing parties select: noisy counts that narrow a window, if any, then one draw for each quantile.

What a round asks of a record, on the column's public grid of values (:mod:`tallystick.algorithms.quantiles.grid`):

    counts      in which of few cells it lies, by edges that follow from what was released before
    a draw      in which of C equal cells of a window it lies, or below it, or above

With groups of a category each has cells and windows of its own, and all are looked at in the same rounds. A record is
in one group, and so in one coordinate of a round's vector, at 1. The window of a draw is cut into cells of whole grid
values; where it has no more values than there are cells, every cell is one value and ties are as exact as the grid. A
wider cell stands for its middle value: that is a public rule, and what it may be off by is the width of a cell.

The state holds all that was released and nothing else; what is known of the ranks is derived from it anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import BlockProgram, Public
from tallystick.algorithms.quantiles.answers import QuantileAnswer
from tallystick.algorithms.quantiles.program import Series, first_edges, records_doubt
from tallystick.algorithms.quantiles.schedule import FIRST_FAN
from tallystick.algorithms.quantiles.zoom import Zoom
from tallystick.privacy.contribution import Contribution, Sparse

NO_INTERVAL = "No interval: a draw opens one place, and nothing that would say how far off it may be."
TOO_FEW = "No value where there are fewer records than the noise of a count tells from none."
_SURE = 2.5
"""Standard deviations of its noisy size by which a group must stand above none."""
_MASS, _BESIDE = 0.98, 0.75
"""Of the answer's posterior lies in the inner window; and what is added on either side of it, in widths of it: five
standard deviations each way where the posterior is normal. (Its own far tail is a matter of the prior.)"""


class Query(NamedTuple):
    """What clients map at: the round, and for each group the edges of its cells; of a draw, the window."""

    round: float
    edges: NDArray[np.float64]


class Selected(NamedTuple):
    """All that was released, group by group: edges asked at, noisy counts, windows and the places drawn in them."""

    round: float
    edges: NDArray[np.float64]
    asked: NDArray[np.float64]
    totals: NDArray[np.float64]
    windows: NDArray[np.float64]
    places: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Look:
    """One round: of which column; a level of counts with noise of this variance, or the draw of one quantile."""

    column: int
    target: int = -1
    """−1: counts."""
    variance: float = 0.0
    sizes: bool = False
    """Whether the counts are of whole groups, not of cells."""
    refines: bool = False
    """Whether the window is the cell that the draw before has drawn."""


class SelectedQuantiles(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    interim = False

    def __init__(
        self,
        *,
        series: Sequence[Series],
        columns: Sequence[tuple[int, int | None]],
        by: tuple[int, int] | None = None,
        looks: Sequence[Look],
        fan: int,
        cells: Sequence[int],
        records: float,
        public_count: bool,
        guessed: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self.series, self.columns, self.looks = tuple(series), tuple(columns), tuple(looks)
        self.fan, self.cells, self.records = fan, tuple(cells), records
        self.public_count, self.guessed, self.notes = public_count, guessed, tuple(notes)
        """Whether ``records`` is how many there are, not what is expected; whether it is then no more than a guess; and
        what answers repeat of the plan."""
        self.rounds = len(self.looks)
        self.targets, self.by = len(self.series[0].targets), by
        self.per_column = len(self.series) // len(self.columns)
        """Groups; their series follow each other."""
        self.edges = max(FIRST_FAN, (fan + 1) * self.targets)
        self._levels = [r for r, look in enumerate(self.looks) if look.target < 0]
        self._draws = [r for r, look in enumerate(self.looks) if look.target >= 0]
        self._known: dict[tuple[int, int], tuple[bytes, Zoom]] = {}
        """By round, from what releases: worked out once, not again in every round after it."""

    # -- rounds -----------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> Selected:
        levels, draws, groups = max(1, len(self._levels)), len(self._draws), self.per_column
        start = Selected(
            round=0.0,
            edges=np.zeros((groups, self.edges)),
            asked=np.zeros((levels, groups, self.edges)),
            totals=np.zeros((levels, groups, self.edges + 1)),
            windows=np.zeros((draws, groups, 2)),
            places=np.full((draws, groups), -1.0),
        )
        self._salt = public.salt
        return start._replace(edges=self._next_edges(start))

    def query(self, state: Selected) -> Query:
        return Query(round=state.round, edges=state.edges)

    def finished(self, state: Selected) -> bool:
        return int(state.round) >= self.rounds

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Selected) -> Selected:
        at = int(state.round)
        if self.looks[at].target < 0:
            level = self._levels.index(at)
            asked, totals = state.asked.copy(), state.totals.copy()
            asked[level] = state.edges
            totals[level] = total[: self.per_column * (self.edges + 1)].reshape(self.per_column, -1)
            state = state._replace(asked=asked, totals=totals)
        else:
            number = self._draws.index(at)
            windows, places = state.windows.copy(), state.places.copy()
            windows[number], places[number] = state.edges[:, :2], total[: self.per_column]
            state = state._replace(windows=windows, places=places)
        state = state._replace(round=state.round + 1.0)
        return state._replace(edges=self._next_edges(state)) if not self.finished(state) else state

    def _next_edges(self, state: Selected) -> NDArray[np.float64]:
        """Where the next round looks: public, from what was released before."""
        return np.stack([self._edges_of(state, group) for group in range(self.per_column)])

    def _edges_of(self, state: Selected, group: int) -> NDArray[np.float64]:
        look = self.looks[int(state.round)]
        size, out = self._series(look.column, group).grid.size, np.zeros(self.edges)
        if look.target >= 0:
            out[:2] = self._window(state, look, group)
            return out
        first = all(self.looks[r].column != look.column for r in self._levels if r < int(state.round))
        chosen = self.zoom(state, look.column, group).cells(self.fan)[: self.edges] if not first else None
        if chosen is None:
            chosen = np.zeros(0, np.int64) if look.sizes else first_edges(size, self._salt)
        out[: len(chosen)] = chosen
        out[len(chosen) :] = size  # no record lies there
        return out

    def _series(self, column: int, group: int) -> Series:
        return self.series[column * self.per_column + group]

    def zoom(self, state: Selected, column: int, group: int = 0) -> Zoom:
        """What the released counts say of the ranks of this column in this group."""
        series, records = self._series(column, group), self.records / self.per_column
        # Taken for exact, a number that is not public would move every window, and the draw with it.
        doubt = 0.0 if self.public_count else records_doubt(self.records, guessed=self.guessed)
        known = Zoom.start(size=series.grid.size, targets=series.targets, records=records, std=doubt)
        past = b""
        for level, r in enumerate(self._levels):
            if self.looks[r].column == column and not self.looks[r].sizes and r < int(state.round):
                asked, totals = state.asked[level][group], state.totals[level][group]
                past += asked.tobytes() + totals.tobytes()
                if self._known.get((r, group), (b"",))[0] != past:
                    edges = asked.astype(np.int64)
                    used = edges[edges < series.grid.size]
                    told = known.told_cells(used, totals[: len(used) + 1], self.looks[r].variance)
                    self._known[r, group] = past, told
                known = self._known[r, group][1]
        return known

    def records_in(self, state: Selected, column: int, group: int) -> tuple[float | None, float]:
        """How many records there are, or in a group, by what was released, and the standard deviation of that; public:
        0. None where nothing was counted."""
        if self.public_count:
            return self.records, 0.0
        if all(self.looks[r].column != column for r in self._levels):
            return None, 0.0
        for level, r in enumerate(self._levels):
            if self.looks[r].column == column and self.looks[r].sizes:
                return float(state.totals[level][group][0]), math.sqrt(self.looks[r].variance)
        ranks = self.zoom(state, column, group).ranks
        return float(ranks.mean[-1]), math.sqrt(max(0.0, ranks.cov[-1, -1]))

    def _window(self, state: Selected, look: Look, group: int) -> tuple[int, int]:
        """The whole domain where nothing was counted; else where the counts say that the answer lies."""
        size, cells = self._series(look.column, group).grid.size, self.cells[look.column]
        if look.refines:
            number = self._draws.index(int(state.round)) - 1
            before = self._cells_of(state, number, group)
            place = int(state.places[number][group])
            return _widened(int(before[place]), int(before[place + 1]), cells, size)
        if not any(r.column == look.column and r.target < 0 and not r.sizes for r in self.looks):
            return 0, size
        low, high = self.zoom(state, look.column, group).window(_MASS, look.target)
        return _widened(low, high, max(cells, high - low + 2 * math.ceil(_BESIDE * (high - low))), size)

    def _cells_of(self, state: Selected, number: int, group: int) -> NDArray[np.int64]:
        low, high = (int(v) for v in state.windows[number][group])
        return cell_edges(low, high, self.cells[self.looks[self._draws[number]].column])

    # -- records ----------------------------------------------------------------------------------------------------

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        group = np.zeros(len(features), np.int64)
        if self.by is not None:
            values = features[:, self.by[0] : self.by[1]]
            group = np.where(values.max(axis=1, initial=0.0) > 0, values.argmax(axis=1), -1)
        out = []
        for at, (position, mark) in enumerate(self.columns):
            index = self._series(at, 0).grid.indices(features[:, position])
            out.append((index, group if mark is None else np.where(features[:, mark] == 0, group, -1)))
        return out

    def map_block(self, prepared: Any, state: Query) -> Contribution:
        look = self.looks[int(state.round)]
        index, group = prepared[look.column]
        size = self.edges + 1 if look.target < 0 else self.cells[look.column] + 2
        places = np.zeros(len(index), dtype=np.int64)
        for g in range(self.per_column):
            own = group == g
            edges = state.edges[g].astype(np.int64)
            if look.target >= 0:
                edges = cell_edges(int(edges[0]), int(edges[1]), self.cells[look.column])
            places[own] = g * size + np.searchsorted(edges, index[own], side="right")
        return Sparse(
            indptr=np.arange(len(index) + 1, dtype=np.int64),
            indices=places,
            values=np.where(group >= 0, 1.0, 0.0),
            size=self.per_column * size,
        )

    # -- answers ----------------------------------------------------------------------------------------------------

    def answers(self, state: Selected) -> list[QuantileAnswer]:
        """Column by column, group by group, quantile by quantile.

        Each quantile is a draw of its own, and two that lie close may come out crossed: a median below a quartile. They
        are put in order. The true ones are, so exchanging two crossed answers makes neither the sum of their errors
        larger nor the largest of them.
        """
        found: dict[tuple[int, int, int], int] = {}
        for number, r in enumerate(self._draws):
            look = self.looks[r]
            for group in range(self.per_column):
                edges, place = self._cells_of(state, number, group), int(state.places[number][group])
                found[look.column, group, look.target] = int((edges[place] + edges[place + 1] - 1) // 2)
        out = []
        for at, series in enumerate(self.series):
            column, group = divmod(at, self.per_column)
            records, std = self.records_in(state, column, group)
            there = records is None or records > _SURE * std
            ascending = sorted(found[column, group, number] for number in range(self.targets))
            for number, target in enumerate(series.targets):
                index = ascending[number] if there else None
                out.append(
                    QuantileAnswer(
                        q=target.share,
                        index=index,
                        value=None if index is None else series.grid.value(index),
                        interval=None,
                        reason=NO_INTERVAL if there else TOO_FEW,
                        records=records,
                    )
                )
        return out


def _widened(low: int, high: int, wanted: int, size: int) -> tuple[int, int]:
    """[low, high) with as much on either side as makes it ``wanted`` values, within the domain."""
    wanted = min(size, max(wanted, high - low))
    low = max(0, min(low - (wanted - (high - low)) // 2, size - wanted))
    return low, low + wanted


def cell_edges(low: int, high: int, cells: int) -> NDArray[np.int64]:
    """Where equal cells of [low, high) begin, and where the last one ends: cell k is [edge k, edge k + 1)."""
    # Domains have at most 2^45 values and draws 2^17 cells: no product reaches 2^63.
    return low + np.arange(cells + 1, dtype=np.int64) * (high - low) // cells
