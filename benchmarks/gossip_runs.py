"""One run of each method of the paper on gossip learning: perturbed records, perturbed gradients, walks and Golf.

Noise is exact and discrete, seeded by the run: the figures can be made again. Budgets are for each record, replace-one,
and are shared by one-vs-rest problems (ε/c each) as in the paper; two classes are one problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gossip_data import GossipSet
from tallystick.algorithms.gossip.golf.examples import Examples, predicted
from tallystick.algorithms.gossip.golf.network import GolfNetwork, Over
from tallystick.algorithms.gossip.golf.schedule import stream
from tallystick.algorithms.gossip.golf.settings import GolfSettings, Learner
from tallystick.algorithms.gossip.golf.walks import GradientWalk, Walk, random_visits, rounds_of_visits
from tallystick.privacy.local.gradient import UNIT, GradientBudget, on_grid
from tallystick.privacy.mechanisms import discrete_laplace
from tallystick.privacy.mechanisms.rational_scale import round_up_scale

SAMPLED = 100
"""Peers whose models are looked at."""
Points = list[tuple[int, float]]


def signs_of(data: GossipSet) -> NDArray[np.float64]:
    """±1 for each problem and record."""
    return Examples.labelled(data.rows[:, :1], data.labels, data.classes).signs


def perturbed(data: GossipSet, epsilon: float | None, run: int, problem: int) -> NDArray[np.float32]:
    """y·x + N of one problem, drawn once for every record: what the paper publishes at ε/c for each problem.

    y·x has L1 norm ≤ U on the grid, so replacing a record moves it by at most 2U and noise of scale 2Uc/ε pays ε/c.
    """
    grid = on_grid(data.rows)
    values = signs_of(data)[problem][:, None] * grid
    if epsilon is not None:
        scale = round_up_scale(Fraction(2 * UNIT * data.problems) / Fraction(epsilon))
        source = stream(run, f"data {data.name} {epsilon} {problem}")
        values = values + discrete_laplace.sample(scale, grid.size, source).reshape(grid.shape)
    return np.asarray(values / UNIT, np.float32)


def accuracy(weights: NDArray[Any], data: GossipSet) -> float:
    """Of one model (problems, columns) on the test part."""
    return float((predicted(weights, data.test_rows) == data.test_labels).mean())


def converged_on_perturbed(
    data: GossipSet, learners: Sequence[Learner], epsilon: float | None, run: int, rounds: int, over: Over
) -> list[float]:
    """Accuracy of a walk of ``rounds`` rounds over the perturbed records (of the records, where ε is None)."""
    weights = np.zeros((len(learners), data.problems, data.rows.shape[1]))
    visits = rounds_of_visits(len(data.rows), rounds, run)

    def one(problem: int) -> None:
        examples = Examples.signed(perturbed(data, epsilon, run, problem))
        for at, learner in enumerate(learners):
            walk = Walk(examples, GolfSettings(learner=learner))
            walk.visit(visits)
            weights[at, problem] = walk.weights[0]

    list(over(one, range(data.problems)))
    return [accuracy(w, data) for w in weights]


def batches_without_noise(
    data: GossipSet, learners: Sequence[Learner], batch: int, rounds: int, run: int
) -> list[float]:
    """The walks of :func:`gradients` where nothing is private."""
    examples, out = Examples(rows=data.rows[None].astype(np.float32), signs=signs_of(data)), []
    for learner in learners:
        walk = Walk(examples, GolfSettings(learner=learner), batch=batch)
        walk.visit(rounds_of_visits(walk.peers, rounds, run))
        out.append(accuracy(walk.weights, data))
    return out


class _SharedNoise(GradientBudget):
    """The same noise for one walk after the other: each alone is a run as it would be, and drawing is what costs."""

    def noise(self, uses: NDArray[np.int64], columns: int, source: Any) -> NDArray[np.int64]:
        """Drawn for the first walk that asks, handed on to the next."""
        found: NDArray[np.int64] = source.rows(lambda: super(_SharedNoise, self).noise(uses, columns, source.words_of))
        return found


class _Kept:
    """A stream of noise and what was drawn from it for other walks."""

    def __init__(self, words: Any, walks: int) -> None:
        self.words_of, self._walks = words, walks
        self._drawn: list[NDArray[np.int64]] = []
        self._asked = 0

    def rows(self, draw: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        if self._asked % self._walks == 0:
            self._drawn = [draw()]
        self._asked += 1
        return self._drawn[0]


def _gradient_walks(
    data: GossipSet, learners: Sequence[Learner], budget: dict[str, Any], batch: int, what: str, run: int, over: Over
) -> tuple[list[GradientWalk], Callable[[NDArray[np.int64]], None]]:
    """Walks of several learners over the same visits, and what lets them make some."""
    made = _SharedNoise(problems=data.problems, **budget)
    grid, signs = on_grid(data.rows), signs_of(data)
    walks = [GradientWalk(grid, signs, GolfSettings(learner=at), made, batch=batch) for at in learners]
    streams = (stream(run, f"gradient {data.name} {what} {problem}") for problem in range(data.problems))
    kept: list[Any] = [_Kept(words, len(walks)) for words in streams]
    at_once = max(1, 2_000_000 // grid.shape[1])

    def visit(visits: NDArray[np.int64]) -> None:
        for start in range(0, len(visits), at_once):
            for walk in walks:
                walk.visit(visits[start : start + at_once], kept, over=over)

    return walks, visit


def gradients(
    data: GossipSet, learners: Sequence[Learner], epsilon: float, batch: int, uses: int, run: int, over: Over
) -> list[float]:
    """Every peer of ``batch`` records answers ``uses`` times, with ε/uses each; one round after the other."""
    budget = {"epsilon": epsilon, "strategy": "once" if uses == 1 else "uses", "uses": uses}
    walks, visit = _gradient_walks(data, learners, budget, batch, f"{epsilon} {batch} {uses}", run, over)
    visit(rounds_of_visits(walks[0].peers, uses, run))
    return [accuracy(walk.weights, data) for walk in walks]


def strategies(
    data: GossipSet,
    learners: Sequence[Learner],
    budget: dict[str, Any] | None,
    times: Sequence[int],
    run: int,
    over: Over,
) -> dict[str, Points]:
    """Accuracy of one walk at several numbers of visits; a peer that has spent its budget lets the model pass."""
    out: dict[str, Points] = {learner: [] for learner in learners}
    visits = random_visits(len(data.rows), times[-1], run)
    walks: Sequence[Walk | GradientWalk]
    visit: Callable[[NDArray[np.int64]], None]
    if budget is None:
        examples = Examples(rows=data.rows[None].astype(np.float32), signs=signs_of(data))
        plain = [Walk(examples, GolfSettings(learner=learner)) for learner in learners]
        walks, visit = plain, partial(_visit_all, plain, over)
    else:
        walks, visit = _gradient_walks(data, learners, budget, 1, f"{budget}", run, over)
    for part, time in _parts(visits, times):
        visit(part)
        for at, learner in enumerate(learners):
            out[learner].append((time, accuracy(walks[at].weights, data)))
    return out


def _visit_all(walks: Sequence[Walk], over: Over, part: NDArray[np.int64]) -> None:
    for walk in walks:
        walk.visit(part, over=over)


def walked(
    data: GossipSet, learners: Sequence[Learner], epsilon: float, batch: int, times: Sequence[int], run: int, over: Over
) -> dict[str, Points]:
    """Accuracy of a single model that goes one step a cycle over perturbed records, ``batch`` at every peer."""
    found = np.zeros((len(learners), len(times), data.problems, data.rows.shape[1]))

    def one(problem: int) -> None:
        examples = Examples.signed(perturbed(data, epsilon, run, problem))
        for at, learner in enumerate(learners):
            walk = Walk(examples, GolfSettings(learner=learner), batch=batch)
            for i, (part, _) in enumerate(_parts(random_visits(walk.peers, times[-1], run), times)):
                walk.visit(part)
                found[at, i, problem] = walk.weights[0]

    list(over(one, range(data.problems)))
    return {
        learner: [(time, accuracy(w, data)) for time, w in zip(times, found[at])] for at, learner in enumerate(learners)
    }


def golf(
    data: GossipSet, learners: Sequence[Learner], epsilon: float, times: Sequence[int], run: int, over: Over
) -> dict[str, Points]:
    """Mean accuracy of sampled peers at several cycles; problem after problem, with the same messages."""
    seen = min(SAMPLED, len(data.rows))
    found = np.zeros((len(learners), len(times), seen, data.problems, data.rows.shape[1]), np.float32)

    def one(problem: int) -> None:
        examples = Examples.signed(perturbed(data, epsilon, run, problem))
        for at, learner in enumerate(learners):
            network, passed = GolfNetwork(examples, GolfSettings(learner=learner), seed=run, dtype=np.float32), 0
            for i, time in enumerate(times):
                network.run(time - passed)
                passed = time
                found[at, i, :, problem] = network.models[0, network.sampled(seen)]

    list(over(one, range(data.problems)))
    test = data.test_rows.astype(np.float32)
    return {
        learner: [
            (time, float(np.mean([(predicted(w, test) == data.test_labels).mean() for w in models])))
            for time, models in zip(times, found[at])
        ]
        for at, learner in enumerate(learners)
    }


def _parts(visits: NDArray[np.int64], times: Sequence[int]) -> Iterator[tuple[NDArray[np.int64], int]]:
    for start, stop in zip([0, *times], times):
        yield visits[start:stop], stop
