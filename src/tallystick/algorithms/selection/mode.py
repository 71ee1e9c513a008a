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
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Dense
from tallystick.privacy.draws import MOST_CELLS
from tallystick.privacy.selection_plan import DrawStep


class ModeProgram(BlockProgram):
    """State: the place of the value that was drawn; −1 before."""

    rounds = 1
    block_records = 1 << 14

    def __init__(self, start: int, labels: tuple[str, ...]) -> None:
        self.start, self.labels = start, labels

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.full(1, -1.0)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return features[:, self.start : self.start + len(self.labels)]

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        return Dense(values=np.ascontiguousarray(prepared))

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total


def design_mode(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> SelectionDesign:
    """One draw, from public facts alone."""
    column = keywords.get("column")
    block = next((b for b in public.columns if b[0] == column), None)
    if block is None:
        known = ", ".join(dict.fromkeys(b[0] for b in public.columns))
        raise StudyError(
            f"column = {column!r}: the study has no such column",
            rule="columns-are-declared",
            remedy=f"Name the column whose mode is wanted: {known}.",
        )
    name, start, stop, kind, _ = block
    if kind != "onehot":
        raise StudyError(
            f"{name!r} has no values to choose from",
            rule="mode-of-values",
            remedy="The mode is that of a category, or of an integer column with at most "
            f"{MOST_CELLS:,} values; for a number, declare bins.",
        )
    labels = tuple(f.removeprefix(f"{name}=") for f in public.features[start:stop])
    program = ModeProgram(start, labels)
    step = DrawStep(kind="scores", cells=len(labels), share=Fraction(1))
    return SelectionDesign(program=program, steps=(step,), details={"values": len(labels)})
