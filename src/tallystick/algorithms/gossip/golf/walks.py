"""One model alone on a random walk: over perturbed or plain examples, or with perturbed gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.golf.examples import Examples
from tallystick.algorithms.gossip.golf.kernels import LOGISTIC, PEGASOS, noisy_walk, walk
from tallystick.algorithms.gossip.golf.network import Over
from tallystick.algorithms.gossip.golf.schedule import below, permutation, stream
from tallystick.algorithms.gossip.golf.settings import GolfSettings
from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.privacy.local.gradient import UNIT, GradientBudget

_ENTRIES_AT_ONCE = 1 << 24
"""Noise that is held in memory: 128 MB."""


def random_visits(peers: int, steps: int, seed: int) -> NDArray[np.int64]:
    """Each step to any peer, as a peer sampling service gives them."""
    return below(stream(seed, "walk"), peers, steps)


def rounds_of_visits(peers: int, rounds: int, seed: int) -> NDArray[np.int64]:
    """Every peer once in each round, in an order drawn anew."""
    words = stream(seed, "rounds")
    return np.concatenate([permutation(words, peers) for _ in range(rounds)] or [np.empty(0, np.int64)])


def use_counts(visits: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often, this time included, the peer of each visit has been visited."""
    order = np.argsort(visits, kind="stable")
    first = np.flatnonzero(np.diff(visits[order], prepend=-1))
    counted = np.arange(len(visits)) - np.repeat(first, np.diff(first, append=len(visits)))
    out = np.empty(len(visits), np.int64)
    out[order] = counted + 1
    return out


class Walk:
    """A model for every problem, begun at zero, that visits peers of ``batch`` examples each and learns from each.

    Peer b holds the examples b·batch to (b + 1)·batch − 1; what is left over belongs to nobody.
    """

    def __init__(self, examples: Examples, settings: GolfSettings, *, batch: int = 1) -> None:
        if not 1 <= batch <= examples.peers:
            raise StudyError(f"{batch} examples at each peer are not there", remedy=f"There are {examples.peers}.")
        self.examples, self.settings, self.batch = examples, settings, batch
        self.peers = examples.peers // batch
        self.weights = np.zeros((examples.problems, examples.columns))
        self.ages = np.zeros(examples.problems, np.int64)

    def visit(self, visits: NDArray[np.int64], *, over: Over = map) -> None:
        """Learn from the examples themselves: they are perturbed already, or nothing is private."""

        def one(problem: int) -> None:
            rows, weights = self.examples.rows_of(problem), self.weights[problem].astype(self.examples.rows.dtype)
            arguments = (self._signs(problem), visits, self.batch, self._learner, 1.0 / self.settings.lambda_)
            self.ages[problem] = walk(weights, self.ages[problem], rows, *arguments)
            self.weights[problem] = weights

        list(over(one, range(self.examples.problems)))

    def _signs(self, problem: int) -> NDArray[np.float64]:
        return np.asarray(self.examples.signs[problem])

    @property
    def _learner(self) -> int:
        return PEGASOS if self.settings.learner == "pegasos" else LOGISTIC


class GradientWalk:
    """A walk on which peers answer with perturbed gradients, as long as their budget lasts.

    ``grid`` holds the records in grid units (:func:`tallystick.privacy.local.gradient.on_grid`), ``signs`` is as in
    :class:`Examples`. A visit to a peer that has spent its budget changes nothing. ``source`` draws the noise, once for
    each answer, before the answer is computed.
    """

    def __init__(
        self,
        grid: NDArray[np.int32],
        signs: NDArray[np.float64],
        settings: GolfSettings,
        budget: GradientBudget,
        *,
        batch: int = 1,
    ) -> None:
        if not 1 <= batch <= len(grid):
            raise StudyError(f"{batch} records at each peer are not there", remedy=f"There are {len(grid)}.")
        if budget.problems != len(signs):
            raise StudyError("the budget is for another number of problems", remedy=f"There are {len(signs)}.")
        if int(np.abs(grid).sum(axis=1).max(initial=0)) > UNIT:
            raise StudyError("a record is longer than the grid's unit", remedy="Put records on the grid by on_grid.")
        self.settings, self.budget, self.batch = settings, budget, batch
        self.peers = len(grid) // batch
        self.weights = np.zeros((len(signs), grid.shape[1]))
        self.uses = np.zeros(self.peers, np.int64)
        """Answers each peer has given, to every problem."""
        self._grid, self._signs = grid, signs
        self._ages = np.zeros(len(signs), np.int64)

    def visit(self, visits: NDArray[np.int64], sources: Sequence[WordSource], *, over: Over = map) -> None:
        """Carry out visits in their order; ``sources`` is one stream of noise for each problem."""
        uses = self.uses[visits] + use_counts(visits)
        paid = uses <= self.budget.answers
        visits, uses = visits[paid], uses[paid]
        np.maximum.at(self.uses, visits, uses)

        def one(problem: int) -> None:
            for few, their_uses in self._parts(visits, uses):
                noise = self.budget.noise(their_uses, self._grid.shape[1], sources[problem])
                self._ages[problem] = noisy_walk(
                    self.weights[problem],
                    self._ages[problem],
                    self._grid,
                    self._signs[problem],
                    few,
                    noise,
                    self.batch,
                    float(UNIT),
                    PEGASOS if self.settings.learner == "pegasos" else LOGISTIC,
                    1.0 / self.settings.lambda_,
                )

        list(over(one, range(len(self._signs))))

    def _parts(
        self, visits: NDArray[np.int64], uses: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        at_once = max(1, _ENTRIES_AT_ONCE // self._grid.shape[1])
        for start in range(0, len(visits), at_once):
            yield visits[start : start + at_once], uses[start : start + at_once]
