"""Empirical risk minimisation in one parameter: the θ of a public grid with the least mean loss Σ ℓ(x, θ)/n.

The losses are convex in θ and bounded on the declared range, so that each is a decomposable utility: the score of θ at
a record is round(B·(1 − ℓ(x, θ)/L)), L the largest loss of any value and θ in the range. What selecting by it loses in
mean loss is at most 2Δ(ln C + t)/(nε)·L/B but with probability e^−t, C candidates, Δ = B add-remove and 2B replace-one
[DR14, Thm. 3.11], and half a step of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget, SelectionDesign
from tallystick.algorithms.keywords import one_of
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Dense
from tallystick.privacy.selection_plan import DrawStep

LOSSES = ("absolute", "squared", "huber")
CANDIDATES, BOUND = 1000, 1000
_KNEE = 0.25
"""Of the huber loss, in half ranges: squared up to there, absolute beyond."""


class RiskProgram(BlockProgram):
    """State: the place of the parameter that was drawn; −1 before. Values and θ are on the scale [−1, 1]."""

    rounds = 1
    block_records = 4096

    def __init__(self, start: int, mark: int | None, loss: str, unit: tuple[float, float]) -> None:
        self.start, self.mark, self.loss, self.unit = start, mark, loss, unit
        self.candidates = np.linspace(-1.0, 1.0, CANDIDATES)

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.full(1, -1.0)

    def query(self, state: Any) -> float:
        return 0.0

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> NDArray[np.float64]:
        there = np.ones(len(features)) if self.mark is None else (features[:, self.mark] == 0).astype(np.float64)
        return np.stack([features[:, self.start], there], axis=1)

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        off = np.abs(prepared[:, :1] - self.candidates[None, :])
        scores = np.rint(BOUND * (1.0 - self.scaled_loss(off)))
        return Dense(values=np.ascontiguousarray(scores * prepared[:, 1:2]))

    def scaled_loss(self, off: NDArray[np.float64]) -> NDArray[np.float64]:
        """ℓ/L for |x − θ| from 0 to 2, element by element: records do not see each other."""
        if self.loss == "absolute":
            return off / 2
        if self.loss == "squared":
            return off * off / 4
        huber = np.where(off <= _KNEE, off * off / 2, _KNEE * (off - _KNEE / 2))
        return huber / (_KNEE * (2 - _KNEE / 2))

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total

    def value(self, state: Any) -> float:
        """The parameter that was drawn, in the column's units."""
        centre, scale = self.unit
        return float(centre + scale * self.candidates[int(state[0])])


def design_risk(keywords: Mapping[str, Any], public: Public, _budget: PublicBudget) -> SelectionDesign:
    """One draw, from public facts alone."""
    column = keywords.get("column")
    block = next((b for b in public.columns if b[0] == column and b[3] == "number"), None)
    units = public.units[block[1]] if block is not None and public.units else ("number", 0.0, 1.0, 0.0)
    if block is None or units[0] == "log":
        raise StudyError(
            "no column is named" if column is None else f"column = {column!r} is no number of the study",
            rule="columns-are-declared",
            remedy="Name a column declared as number (without bins and log) or integer.",
        )
    _, start, stop, _, _ = block
    loss = one_of("loss", keywords.get("loss", "huber"), LOSSES)
    program = RiskProgram(start, stop - 1 if stop - start > 1 else None, loss, (units[1], units[2]))
    step = DrawStep(kind="scores", cells=CANDIDATES, share=Fraction(1), bound=BOUND)
    return SelectionDesign(program=program, steps=(step,), details={"loss": loss, "candidates": CANDIDATES})
