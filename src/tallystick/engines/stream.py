"""Which tick of a stream a record belongs to: its own time's, or that of its arrival.

A batch closes when a public clock ticks, never at a size: were it full after so many records, one record more would
push every later one into another batch, and neighbouring data sets would differ in all of them. Here a record's tick
depends on this record alone, so neighbours differ in one batch, and the ticks cost their maximum
(:attr:`tallystick.privacy.plan.Plan.rho`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError
from tallystick.core.randomness import WordSource
from tallystick.data.column_values import python_values
from tallystick.data.encoding import Records
from tallystick.data.sources import read_table
from tallystick.study.sections import StreamSection

OUTSIDE = 0
"""The tick of a record from before the first or after the last one: it is in no batch."""


class Batches:
    """The records of each tick (:class:`tallystick.engines.record_choice.RecordChoice`)."""

    def __init__(self, ticks: NDArray[np.int64]) -> None:
        self._order = np.argsort(ticks, kind="stable").astype(np.int64)
        self._ticks = ticks[self._order]

    def rows(self, round: int) -> NDArray[np.int64]:
        """Positions of the records of this tick, in their own order."""
        first, last = np.searchsorted(self._ticks, [round, round + 1])
        return self._order[first:last]


def simulated_ticks(
    stream: StreamSection, frame: Any, records: Records, source: WordSource, *, party: str
) -> NDArray[np.int64]:
    """The tick of every record of a simulated client: by its time, or an arrival drawn for its row and no other."""
    if stream.time is not None:
        return ticks_of_times(stream, times_of(frame, stream.time, party=party))[records.rows]
    # One word per row of the source: another row at the end changes none of those before.
    words = source.words(records.tallies.records)
    shares = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (np.floor(shares * stream.ticks).astype(np.int64) + 1)[records.rows]


def ticks_of_times(stream: StreamSection, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Tick t is the time from start + (t−1)·tick_seconds until before start + t·tick_seconds; NaN is in none."""
    past = np.floor((seconds - (stream.start or 0.0)) / stream.tick_seconds) + 1
    return np.where((past >= 1) & (past <= stream.ticks), past, OUTSIDE).astype(np.int64)


def times_of(frame: Any, column: str, *, party: str | None = None, lenient: bool = False) -> NDArray[np.float64]:
    """A column of times as unix seconds: numbers, ISO text, or the source's own timestamps (UTC if they name no zone).

    Text is read as a number first; every cell by itself. What is no time is refused, or is NaN where ``lenient``.
    """
    cells = python_values(read_table(frame, [column], party=party, lenient=lenient).column(column))
    seconds = np.fromiter((_seconds(cell) for cell in cells), dtype=np.float64, count=len(cells))
    if lenient:
        return seconds
    if not np.isfinite(seconds).all():
        raise DataError(
            f"column {column!r} has cells that are no time",
            party=party,
            remedy="Give every record unix seconds or an ISO time (2026-11-16T09:30:00Z).",
        )
    return seconds


def _seconds(cell: object) -> float:
    if isinstance(cell, str):
        try:
            return float(cell)
        except ValueError:
            pass
        try:
            cell = datetime.fromisoformat(cell.strip())
        except ValueError:
            return float("nan")
    if isinstance(cell, datetime):
        return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp()
    return float(cell) if isinstance(cell, (int, float)) and not isinstance(cell, bool) else float("nan")
