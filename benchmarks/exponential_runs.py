"""Many runs of ``Quantiles(method="exponential")`` without parties: the product's program and plan, the ideal function.

What clients would sum is read off sorted data, Laplace noise is drawn by NumPy at the plan's own scales, and a draw is
the ideal function on a random word: what the parties compute on the same words, bit for bit (tests/protocol). So a run
takes milliseconds. ``tests/benchmarks`` compares the sums with those that the program makes of records.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantile_runs import Case
from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.design import SelectionDesign
from tallystick.algorithms.selection.quantiles import cell_edges
from tallystick.core.errors import LocalProtocolError
from tallystick.engines.planning import layout_of, public_budget, public_facts
from tallystick.privacy.draws import DrawRound
from tallystick.protocol.selection import Question
from tallystick.protocol.selection.ideal import weights
from tallystick.study import Study
from tallystick.trust.parties.questions import question_of

__all__ = ["SelectedMedian"]


class SelectedMedian:
    """The median of one data set as ``parties`` select it, planned once, run as often as you like."""

    def __init__(self, case: Case, epsilon: float, *, parties: int = 3, **program: Any) -> None:
        self.case, self._parties = case, parties
        self.study = Study.from_dict(
            {
                "study": {"name": "median", "program": "quantiles"},
                "program": {"q": [0.5], "column": ["x"], "method": "exponential", **program},
                "privacy": {"epsilon": epsilon, "mechanism": "exponential"},
                "trust": {"model": "parties", "parties": parties},
                "data": {
                    "records": len(case.data),
                    "columns": {"x": {"type": "integer", "lower": 0, "upper": case.size - 1}},
                },
            }
        )
        self.public = public_facts(self.study, layout_of(self.study))
        design = BUILT_IN["quantiles"].design(self.study.program, self.public, public_budget(self.study))
        if not isinstance(design, SelectionDesign):
            raise LocalProtocolError("the median is not drawn")
        self.plan = design.plan(self.study.claim(rounds=design.rounds))
        self.program: Any = design.program
        drawn = [number for number, r in enumerate(self.plan.rounds, start=1) if isinstance(r, DrawRound)]
        asked = {number: question_of(self.study, self.plan, number) for number in drawn}
        self._sums: tuple[bytes, list[int]] | None = None
        self._questions = {number: question for number, question in asked.items() if isinstance(question, Question)}

    def question(self, number: int) -> Question:
        """Of a round that draws."""
        return self._questions[number]

    def totals(self, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many records lie below the first edge, between each two, and from the last on."""
        ranks = np.searchsorted(self.case.data, edges)
        return np.diff(np.concatenate([[0], ranks, [len(self.case.data)]]))

    def edges(self, number: int, state: Any) -> NDArray[np.int64]:
        """Of the cells of this round."""
        if number not in self._questions:
            return np.asarray(state.edges[0], dtype=np.int64)
        low, high = (int(v) for v in state.edges[0][:2])
        return cell_edges(low, high, self._questions[number].cells)

    def _place(self, question: Question, counts: NDArray[np.int64], word: int) -> int:
        """As ``ideal.draw``; the running sums are kept, which where nothing was counted are the same in every run."""
        key = counts.tobytes()
        if self._sums is None or self._sums[0] != key:
            self._sums = key, list(accumulate(weights(question, counts.tolist())))
        sums = self._sums[1]
        return bisect_right(sums, (word * sums[-1]) >> question.draw_bits)

    def index(self, die: np.random.Generator) -> int:
        """One run: the grid index that is answered."""
        state = self.program.init(self.public)
        for number, r in enumerate(self.plan.rounds, start=1):
            counts = self.totals(self.edges(number, state))
            if number in self._questions:
                question = self._questions[number]
                word = int.from_bytes(die.bytes(question.word_bytes), "little")
                total = np.array([float(self._place(question, counts, word))])
            else:
                # every party adds discrete Laplace noise of the whole scale
                p = 1 - np.exp(-1 / float(r.noise[0].parameter))
                size = (self._parties, len(counts))
                total = counts + (die.geometric(p, size) - die.geometric(p, size)).sum(axis=0).astype(np.float64)
            state = self.program.reduce_in_aggregator(total, state)
        return int(self.program.answers(state)[0].index)
