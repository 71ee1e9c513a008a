"""Quantiles by draws, without the parties: the program's own rounds, Laplace noise and the ideal function of the draws.

What the parties compute equals the ideal function on the same words (tests/protocol), so its law is theirs; a run here
takes milliseconds. Beside it the central exponential mechanism over the whole domain, its mean rank error exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.design import SelectionDesign
from tallystick.algorithms.selection.quantiles import cell_edges
from tallystick.engines.planning import layout_of, public_budget, public_facts
from tallystick.privacy.draws import DrawRound
from tallystick.protocol.selection.ideal import weights
from tallystick.study import Study
from tallystick.trust.parties.questions import question_of


class Rehearsal:
    """One column of integers 0 … upper, with one study's plan."""

    def __init__(
        self, values: NDArray[np.int64], upper: int, epsilon: float, *, q: float = 0.5, neighbours: str = "replace-one"
    ) -> None:
        self.values, self.upper, self.epsilon, self.q, self.neighbours = np.sort(values), upper, epsilon, q, neighbours
        self.study = Study.from_dict(
            {
                "study": {"name": "rehearsal", "program": "quantiles"},
                "program": {"q": [q], "column": ["x"], "method": "exponential"},
                "privacy": {"epsilon": epsilon, "mechanism": "exponential", "neighbours": neighbours},
                "trust": {"model": "parties"},
                "data": {
                    "records": len(values),
                    "columns": {"x": {"type": "integer", "lower": 0, "upper": upper}},
                },
            }
        )
        self.public = public_facts(self.study, layout_of(self.study))
        design = BUILT_IN["quantiles"].design(self.study.program, self.public, public_budget(self.study))
        assert isinstance(design, SelectionDesign)
        self.plan = design.plan(self.study.claim(rounds=design.rounds))
        self.program: Any = design.program
        self._sums: tuple[bytes, list[int]] | None = None

    def error(self, rng: np.random.Generator) -> float:
        """The rank error of one run."""
        state, m = self.program.init(self.public), 3
        for number, r in enumerate(self.plan.rounds, start=1):
            if isinstance(r, DrawRound):
                question = question_of(self.study, self.plan, number)
                low, high = (int(v) for v in state.edges[0][:2])
                edges = cell_edges(low, high, r.choice.cells)
                counts = np.diff(np.concatenate([[0], np.searchsorted(self.values, edges), [len(self.values)]]))
                word = int.from_bytes(rng.bytes(question.word_bytes), "little")
                total = np.array([float(self._place(question, counts, word))])
            else:
                edges = state.edges[0].astype(np.int64)
                counts = np.diff(np.concatenate([[0], np.searchsorted(self.values, edges), [len(self.values)]]))
                p = 1 - np.exp(-1 / float(r.noise[0].parameter))
                noise = (rng.geometric(p, (m, len(counts))) - rng.geometric(p, (m, len(counts)))).sum(axis=0)
                total = (counts + noise).astype(np.float64)
            state = self.program.reduce_in_aggregator(total, state)
        return self.rank_error(self.program.answers(state)[0].index)

    def _place(self, question: Any, counts: np.ndarray, word: int) -> int:
        """As ``ideal.draw``; the running sums are kept, which where nothing was counted are the same in every run."""
        if self._sums is None or self._sums[0] != counts.tobytes():
            self._sums = counts.tobytes(), list(accumulate(weights(question, counts.tolist())))
        sums = self._sums[1]
        return bisect_right(sums, (word * sums[-1]) >> question.draw_bits)

    def rank_error(self, index: int) -> float:
        wanted = self.q * len(self.values)
        low, high = np.searchsorted(self.values, index), np.searchsorted(self.values, index, side="right")
        return float(max(0.0, low - wanted, wanted - high))

    def central(self) -> float:
        """Mean rank error of the exponential mechanism over all values, by one trusted curator, exactly."""
        n, exact = len(self.values), Fraction(repr(self.q))
        points = np.concatenate([[0], np.unique(self.values), np.unique(self.values) + 1, [self.upper + 1]])
        starts = np.unique(points[points <= self.upper + 1])
        widths = np.diff(starts).astype(np.float64)
        low = np.searchsorted(self.values, starts[:-1])
        high = np.searchsorted(self.values, starts[:-1], side="right")
        d = np.maximum(0.0, np.maximum(low - self.q * n, self.q * n - high))
        moved = float(max(exact, 1 - exact)) if self.neighbours == "add-remove" else 1.0
        weight = widths * np.exp(-self.epsilon * d / (2 * moved))
        return float((weight * d).sum() / weight.sum())
