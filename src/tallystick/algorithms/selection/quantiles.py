"""Quantiles that computing parties select: noisy counts that narrow a window, if any, then one draw for each quantile.

What a round asks of a record, on the column's public grid of values (:mod:`tallystick.algorithms.quantiles.grid`):

    counts      in which of few cells it lies, by edges that follow from what was released before
    a draw      in which of C equal cells of a window it lies, or below it, or above

A record is in one coordinate of a round's vector, at 1. The window of a draw is cut into cells of whole grid values;
where it has no more values than there are cells, every cell is one value and ties are as exact as the grid. A wider
cell stands for its middle value: that is a public rule, and what it may be off by is the width of a cell.

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
from tallystick.algorithms.quantiles.program import Series, first_edges
from tallystick.algorithms.quantiles.schedule import FIRST_FAN
from tallystick.algorithms.quantiles.zoom import Zoom
from tallystick.privacy.contribution import Contribution, Sparse

NO_INTERVAL = "No interval: a draw opens one place, and nothing that would say how far off it may be."
_MASS, _BESIDE = 0.98, 0.75
"""Of the answer's posterior lies in the inner window; and what is added on either side of it, in widths of it: five
standard deviations each way where the posterior is normal. (Its own far tail is a matter of the prior.)"""


class Query(NamedTuple):
    """What clients map at: the round, and the edges of its cells; of a draw, the window."""

    round: float
    edges: NDArray[np.float64]


class Selected(NamedTuple):
    """All that was released: edges asked at, noisy counts, windows and the places that were drawn in them."""

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
        looks: Sequence[Look],
        fan: int,
        cells: Sequence[int],
        records: float,
    ) -> None:
        self.series, self.columns, self.looks = tuple(series), tuple(columns), tuple(looks)
        self.fan, self.cells, self.records = fan, tuple(cells), records
        self.rounds = len(self.looks)
        self.targets, self.per_column, self.by = len(self.series[0].targets), 1, None
        self.edges = max(FIRST_FAN, (fan + 1) * self.targets)
        self._levels = [r for r, look in enumerate(self.looks) if look.target < 0]
        self._draws = [r for r, look in enumerate(self.looks) if look.target >= 0]
        self._known: dict[int, tuple[bytes, Zoom]] = {}
        """By round, from what releases: worked out once, not again in every round after it."""

    # -- rounds -----------------------------------------------------------------------------------------------------

    def init(self, public: Public) -> Selected:
        start = Selected(
            round=0.0,
            edges=np.zeros(self.edges),
            asked=np.zeros((max(1, len(self._levels)), self.edges)),
            totals=np.zeros((max(1, len(self._levels)), self.edges + 1)),
            windows=np.zeros((len(self._draws), 2)),
            places=np.full(len(self._draws), -1.0),
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
            asked[level], totals[level] = state.edges, total[: self.edges + 1]
            state = state._replace(asked=asked, totals=totals)
        else:
            number = self._draws.index(at)
            windows, places = state.windows.copy(), state.places.copy()
            windows[number], places[number] = state.edges[:2], total[0]
            state = state._replace(windows=windows, places=places)
        state = state._replace(round=state.round + 1.0)
        return state._replace(edges=self._next_edges(state)) if not self.finished(state) else state

    def _next_edges(self, state: Selected) -> NDArray[np.float64]:
        """Where the next round looks: public, from what was released before."""
        look = self.looks[int(state.round)]
        series, out = self.series[look.column], np.zeros(self.edges)
        size = series.grid.size
        if look.target >= 0:
            out[:2] = self._window(state, look)
            return out
        zoom = self.zoom(state, look.column)
        first = all(self.looks[r].column != look.column for r in self._levels if r < int(state.round))
        chosen = first_edges(size, self._salt) if first else zoom.cells(self.fan)[: self.edges]
        out[: len(chosen)] = chosen
        out[len(chosen) :] = size  # no record lies there
        return out

    def zoom(self, state: Selected, column: int) -> Zoom:
        """What the released counts say of this column's ranks."""
        series = self.series[column]
        known, past = Zoom.start(size=series.grid.size, targets=series.targets, records=self.records), b""
        for level, r in enumerate(self._levels):
            if self.looks[r].column == column and r < int(state.round):
                past += state.asked[level].tobytes() + state.totals[level].tobytes()
                if self._known.get(r, (b"",))[0] != past:
                    edges = state.asked[level].astype(np.int64)
                    used = edges[edges < series.grid.size]
                    told = known.told_cells(used, state.totals[level][: len(used) + 1], self.looks[r].variance)
                    self._known[r] = past, told
                known = self._known[r][1]
        return known

    def _window(self, state: Selected, look: Look) -> tuple[int, int]:
        """The whole domain where nothing was counted; else where the counts say that the answer lies."""
        size, cells = self.series[look.column].grid.size, self.cells[look.column]
        if look.refines:
            number = self._draws.index(int(state.round)) - 1
            before = cell_edges(int(state.windows[number][0]), int(state.windows[number][1]), cells)
            place = int(state.places[number])
            return _widened(int(before[place]), int(before[place + 1]), cells, size)
        if not any(r.column == look.column and r.target < 0 for r in self.looks):
            return 0, size
        low, high = self.zoom(state, look.column).window(_MASS, look.target)
        return _widened(low, high, max(cells, high - low + 2 * math.ceil(_BESIDE * (high - low))), size)

    # -- records ----------------------------------------------------------------------------------------------------

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        out = []
        for series, (position, mark) in zip(self.series, self.columns):
            index = series.grid.indices(features[:, position])
            there = np.zeros(len(features), np.int64) if mark is None else np.where(features[:, mark] == 0, 0, -1)
            out.append((index, there))
        return out

    def map_block(self, prepared: Any, state: Query) -> Contribution:
        at = int(state.round)
        look = self.looks[at]
        index, there = prepared[look.column]
        if look.target < 0:
            places = np.searchsorted(state.edges.astype(np.int64), index, side="right")
            size = self.edges + 1
        else:
            low, high = int(state.edges[0]), int(state.edges[1])
            cells = self.cells[look.column]
            places, size = np.searchsorted(cell_edges(low, high, cells), index, side="right"), cells + 2
        return Sparse(
            indptr=np.arange(len(index) + 1, dtype=np.int64),
            indices=places.astype(np.int64),
            values=np.where(there == 0, 1.0, 0.0),
            size=size,
        )

    # -- answers ----------------------------------------------------------------------------------------------------

    def answers(self, state: Selected) -> list[QuantileAnswer]:
        """Column by column, quantile by quantile."""
        found = {}
        for number, r in enumerate(self._draws):
            look = self.looks[r]
            low, high = (int(v) for v in state.windows[number])
            edges = cell_edges(low, high, self.cells[look.column])
            place = int(state.places[number])
            index = int((edges[place] + edges[place + 1] - 1) // 2)
            found[look.column, look.target] = index
        return [
            QuantileAnswer(
                q=target.share,
                index=found[column, at],
                value=series.grid.value(found[column, at]),
                interval=None,
                reason=NO_INTERVAL,
                records=self.records,
            )
            for column, series in enumerate(self.series)
            for at, target in enumerate(series.targets)
        ]


def _widened(low: int, high: int, wanted: int, size: int) -> tuple[int, int]:
    """[low, high) with as much on either side as makes it ``wanted`` values, within the domain."""
    wanted = min(size, max(wanted, high - low))
    low = max(0, min(low - (wanted - (high - low)) // 2, size - wanted))
    return low, low + wanted


def cell_edges(low: int, high: int, cells: int) -> NDArray[np.int64]:
    """Where equal cells of [low, high) begin, and where the last one ends: cell k is [edge k, edge k + 1)."""
    return np.array([low + k * (high - low) // cells for k in range(cells + 1)], dtype=np.int64)
