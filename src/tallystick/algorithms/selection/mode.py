"""The most frequent value of a column: a candidate's score is how many records have it.

One draw. A record adds 1 to the score of its value and 0 to every other, which the platform enforces; a record without
a value of the column adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget, SelectionDesign
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.algorithms.quantiles.grid import ValueGrid, value_grid
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.draws import MOST_CELLS
from tallystick.privacy.selection_plan import DrawStep


class ModeProgram(BlockProgram):
    """State: the place of the value that was drawn; −1 before."""

    rounds = 1
    block_records = 1 << 14

    def __init__(
        self, start: int, values: tuple[str | int, ...], grid: ValueGrid | None = None, mark: int = -1
    ) -> None:
        self.start, self.values, self.grid, self.mark = start, values, grid, mark

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.full(1, -1.0)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> NDArray[np.int64]:
        """The place of each record's value; −1 for none."""
        if self.grid is None:
            ones = features[:, self.start : self.start + len(self.values)]
            return np.where(ones.max(axis=1, initial=0.0) > 0, ones.argmax(axis=1), -1)
        places = self.grid.indices(features[:, self.start])
        return places if self.mark < 0 else np.where(features[:, self.mark] > 0, -1, places)

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        return Sparse(
            indptr=np.arange(len(prepared) + 1, dtype=np.int64),
            indices=np.maximum(prepared, 0).astype(np.int64),
            values=np.where(prepared >= 0, 1.0, 0.0),
            size=len(self.values),
        )

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total


def design_mode(keywords: Mapping[str, Any], public: Public, _budget: PublicBudget) -> SelectionDesign:
    """One draw, from public facts alone."""
    program = _program(keywords.get("column"), public)
    step = DrawStep(kind="scores", cells=len(program.values), share=Fraction(1))
    return SelectionDesign(program=program, steps=(step,), details={"values": len(program.values)})


def _program(column: Any, public: Public) -> ModeProgram:
    block = next((b for b in public.columns if b[0] == column), None)
    if block is None:
        known = ", ".join(dict.fromkeys(b[0] for b in public.columns))
        raise StudyError(
            "no column is named" if column is None else f"column = {column!r}: the study has no such column",
            rule="columns-are-declared",
            remedy=f"Name the column whose mode is wanted: {known}.",
        )
    name, start, stop, kind, _ = block
    if kind == "onehot":
        return ModeProgram(start, tuple(f.removeprefix(f"{name}=") for f in public.features[start:stop]))
    if any(integer[0] == name for integer in public.integers):
        grid = value_grid(public, name)
        if grid.size <= MOST_CELLS:
            values = tuple(int(grid.value(k)) for k in range(grid.size))
            return ModeProgram(start, values, grid, stop - 1 if stop - start > 1 else -1)
    raise StudyError(
        f"{name!r} has no values to choose from, or too many",
        rule="mode-of-values",
        remedy="The mode is that of a category, of an integer column with at most "
        f"{MOST_CELLS:,} values, or of a number with bins.",
    )
