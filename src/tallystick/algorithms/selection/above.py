"""Which values, or items, at least so many records have: counts that are compared with a threshold and never opened.

One round. A record adds 1 to the count of every value and item it has; a cell that is missing adds nothing. How many
counts a record is in costs nothing here: the comparison charges for the answers above the threshold, of which there are
at most ``most`` (:mod:`tallystick.privacy.sparse_vector`), and not for the counts asked about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget, SelectionDesign
from tallystick.algorithms.keywords import whole
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.algorithms.quantiles.grid import ValueGrid, value_grid
from tallystick.algorithms.quantiles.settings import columns_asked
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.draws import MOST_CELLS
from tallystick.privacy.selection_plan import CompareStep
from tallystick.privacy.sparse_vector import sparse_vector

MOST_THRESHOLD = 1 << 40
_USABLE = 4.0
"""Standard deviations of the noise: a threshold that is no further from 0 does not tell a value from none."""


@dataclass(frozen=True, kw_only=True)
class CountedColumn:
    """One column's counts: of encoded zeros and ones, or of the values of an integer column."""

    name: str
    start: int
    values: tuple[str | int, ...]
    grid: ValueGrid | None = None
    mark: int = -1

    def held(self, features: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(record, place of a value that it has), for all of them."""
        if self.grid is None:
            rows, places = np.nonzero(features[:, self.start : self.start + len(self.values)] > 0)
            return rows, places
        places = self.grid.indices(features[:, self.start])
        there = np.ones(len(features), dtype=bool) if self.mark < 0 else features[:, self.mark] == 0
        return np.flatnonzero(there), places[there]


class AboveProgram(BlockProgram):
    """State: 1 for each count that reaches the threshold and was told, 0 for the others; −1 before."""

    rounds = 1
    block_records = 1 << 14

    def __init__(self, columns: Sequence[CountedColumn], threshold: int, most: int) -> None:
        self.columns, self.threshold, self.most = tuple(columns), threshold, most
        self.size = sum(len(c.values) for c in self.columns)

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.full(self.size, -1.0)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Sparse:
        """Each record's counts, ascending."""
        rows, places, offset = [], [], 0
        for column in self.columns:
            own, at = column.held(features)
            rows.append(own)
            places.append(at + offset)
            offset += len(column.values)
        record, place = np.concatenate(rows).astype(np.int64), np.concatenate(places).astype(np.int64)
        order = np.lexsort((place, record))
        ends = np.cumsum(np.bincount(record, minlength=len(features)))
        return Sparse(
            indptr=np.concatenate([[0], ends]).astype(np.int64),
            indices=place[order],
            values=np.ones(len(place)),
            size=self.size,
        )

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        return prepared  # type: ignore[no-any-return]

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total

    def above(self, state: Any) -> list[tuple[str, str | int]]:
        """(column, value) of every count that was told to reach the threshold, in the public order."""
        names = [(column.name, value) for column in self.columns for value in column.values]
        return [names[i] for i in np.flatnonzero(np.asarray(state) > 0).tolist()]


def design_above(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> SelectionDesign:
    """One comparison of all counts, from public facts alone."""
    if keywords.get("threshold") is None:
        raise StudyError(
            "no threshold is named",
            rule="threshold-is-a-count",
            remedy="Write threshold = 100, say: values that at least so many records have are told.",
        )
    threshold = whole("threshold", keywords["threshold"], 1, MOST_THRESHOLD)
    most = whole("most", keywords.get("most", 1), 1, MOST_CELLS)
    asked = columns_asked(keywords.get("column")) or tuple(dict.fromkeys(b[0] for b in public.columns))
    program = AboveProgram([_column(name, public) for name in asked], threshold, most)
    if not 2 <= program.size <= MOST_CELLS:
        raise StudyError(
            f"{program.size:,} counts are compared with the threshold",
            rule="draw-has-places",
            remedy=f"Name columns with 2 to {MOST_CELLS:,} values and items together.",
        )
    off = _noise(program, budget)
    hopeless = None
    if threshold < _USABLE * off:
        hopeless = (
            f"threshold = {threshold:,} is within {_USABLE:g} standard deviations of the noise, {off:,.0f} records "
            "each: values that no record has would be told"
        )
    return SelectionDesign(
        program=program,
        steps=(CompareStep(cells=program.size, share=Fraction(1), threshold=threshold, most=most),),
        notes=(f"a count is compared with the threshold with noise of {off:,.1f} records (standard deviation)",),
        hopeless=hopeless,
        details={"counts": program.size, "threshold": threshold, "most": min(most, program.size)},
    )


def _noise(program: AboveProgram, budget: PublicBudget) -> float:
    """Standard deviation of a count less the threshold, the noise of all parties together."""
    compared = sparse_vector(
        cells=program.size,
        threshold=program.threshold,
        most=program.most,
        sensitivity=budget.person_factor,
        one_way=budget.neighbours == "add-remove",
        epsilon=Fraction(budget.epsilon),
    )
    return math.sqrt(compared.variance * budget.variance_factor)


def _column(name: str, public: Public) -> CountedColumn:
    block = next((b for b in public.columns if b[0] == name), None)
    if block is None:
        raise StudyError(
            f"column = {name!r}: the study has no such column",
            rule="columns-are-declared",
            remedy=f"Name columns whose values are counted: {', '.join(dict.fromkeys(b[0] for b in public.columns))}.",
        )
    _, start, stop, kind, _ = block
    if kind != "number":
        names = tuple(f.removeprefix(f"{name}=") for f in public.features[start:stop])
        return CountedColumn(name=name, start=start, values=names)
    if any(integer[0] == name for integer in public.integers):
        grid = value_grid(public, name)
        if grid.size <= MOST_CELLS:
            values = tuple(int(grid.value(k)) for k in range(grid.size))
            return CountedColumn(
                name=name, start=start, values=values, grid=grid, mark=stop - 1 if stop - start > 1 else -1
            )
    raise StudyError(
        f"{name!r} has no values to count, or too many",
        rule="mode-of-values",
        remedy="Counted are the values of a category, the items of an items column, an integer column with at most "
        f"{MOST_CELLS:,} values, or a number with bins. Name those as `column`: all columns are meant where it is left "
        "out.",
    )
