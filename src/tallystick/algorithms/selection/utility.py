"""Utilities that add up over records: what can be selected from by the exponential mechanism among parties.

A *decomposable utility* gives every public candidate c a whole number u(x, c) for one record x, from 0 to a declared
bound B, and wants the candidate with the largest Σ u(x, c) over all records of all institutions. The platform enforces
the bound, candidate by candidate and record by record, on whole numbers: a wrong utility costs accuracy, never privacy.
Sums are exact, so the split of records over institutions changes nothing, and the draw costs what its table does.

    ranks       a record is in one cell of a domain; the distance is that of the cell's ranks to the wanted one
                (:mod:`tallystick.algorithms.selection.quantiles`)
    counts      1 for the candidate that a record has, 0 for the others: the mode
                (:mod:`tallystick.algorithms.selection.mode`)
    losses      B minus the scaled loss of candidate parameter θ at the record: empirical risk minimisation in one
                parameter (:mod:`tallystick.algorithms.selection.risk`)
    your own    a subclass of :class:`DecomposableUtility` in a session, or a program file: under trust "parties" the
                vector that ``map_in_client`` returns is read as the candidates' scores, ``bound`` as B, and
                ``reduce_in_aggregator`` is given the one place that was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import SelectionDesign
from tallystick.algorithms.program import Program, Public, State
from tallystick.core.errors import StudyError
from tallystick.privacy.draws import MOST_CELLS
from tallystick.privacy.selection_plan import DrawStep

MOST_SCORE = 1 << 20
"""Scores of one record go up to here: a finer one would not be told apart by any ε that protects."""


class DecomposableUtility(Program):
    """Base of a user's own utility: set ``candidates`` and ``bound``, write ``map_in_client``.

    ``map_in_client(self, record, state)`` returns one score for each candidate, whole numbers from 0 to ``bound``;
    fractions are rounded, what lies outside is cut off. It sees one record, as in every program.
    """

    candidates: Sequence[Any] = ()
    """What is chosen from, in the order of the scores."""
    interim = False

    def init(self, public: Public) -> State:
        """The place that was drawn; −1 before."""
        return np.full(1, -1.0)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: State) -> State:
        """The place that was drawn is all there is."""
        return total

    def candidate(self, state: State) -> Any:
        """The candidate that was drawn."""
        return self.candidates[int(state[0])]


def design_utility(program: Program, size: int) -> SelectionDesign:
    """A user's program whose ``size`` numbers are scores: as many draws as it has rounds, each with an equal part."""
    if isinstance(program, DecomposableUtility) and len(program.candidates) != size:
        raise StudyError(
            f"map_in_client returns {size} scores for {len(program.candidates)} candidates",
            rule="vector-length",
            remedy="Return one score for each candidate.",
        )
    bound = program.bound
    if bound is None or program.groups is not None or not 1 <= bound <= MOST_SCORE or bound != int(bound):
        raise StudyError(
            f"bound = {bound}: the largest score of one record is a whole number, and scores have no groups",
            rule="scores-are-whole-numbers",
            remedy=f"Set bound to a whole number from 1 to {MOST_SCORE:,} and leave groups out; scale scores to it.",
        )
    if not 2 <= size <= MOST_CELLS:
        raise StudyError(
            f"a choice among {size} candidate(s)",
            rule="draw-has-places",
            remedy=f"Let there be from 2 to {MOST_CELLS:,} candidates.",
        )
    rounds = int(program.rounds)
    step = DrawStep(kind="scores", cells=size, share=Fraction(1, rounds), bound=int(bound))
    return SelectionDesign(program=program, steps=(step,) * rounds, details={"candidates": size, "bound": int(bound)})
