"""From what peers have published, or say to a walking model, to the classifier that a peer ends with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.golf.examples import Examples, problems_of
from tallystick.algorithms.gossip.golf.network import GolfNetwork, Over
from tallystick.algorithms.gossip.golf.settings import GolfSettings, Learner, Merging
from tallystick.algorithms.gossip.golf.walks import GradientWalk, rounds_of_visits
from tallystick.algorithms.gossip.moments import GossipModel
from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.privacy.local.gradient import GradientBudget, on_grid
from tallystick.privacy.local.randomiser import Decoded

CYCLES = 300
"""Where none are given: Spambase without noise then is within a percent of where it ends."""
_ROUNDS_OF_HALVING = 5
_MANY = 1 << 26
"""Numbers in all models together from which on they are held in single precision."""


class WalkSettings(Protocol):
    """What of a gossip study's settings is for walks."""

    @property
    def learner(self) -> str: ...
    @property
    def lambda_(self) -> float: ...
    @property
    def cycles(self) -> int | None: ...
    @property
    def merging(self) -> Merging: ...
    @property
    def batch(self) -> int: ...


class WalkedProgram(Protocol):
    """What of a gossip program is for walks."""

    @property
    def classes(self) -> int: ...
    @property
    def settings(self) -> WalkSettings: ...


def examples_of(parts: Sequence[Decoded], classes: int) -> Examples:
    """Published records as one-vs-rest examples: one block of rows if signs tell classes apart, else one each."""
    own = np.arange(1, 2) if classes == 2 else np.arange(classes)
    z = np.concatenate([part.z for part in parts])
    if all(part.rows is not None for part in parts):
        rows = np.concatenate([part.rows for part in parts if part.rows is not None])
        return Examples(rows=z[None, :, 0], signs=np.ascontiguousarray(rows.T[own], np.float64))
    if all(part.labels is not None for part in parts):
        labels = np.concatenate([part.labels for part in parts if part.labels is not None])
        return Examples.labelled(np.ascontiguousarray(z[:, 0]), labels, classes)
    return Examples.signed(np.ascontiguousarray(z[:, own].transpose(1, 0, 2)))


def walk_over_published(program: WalkedProgram, parts: Sequence[Decoded], *, seed: int, over: Over) -> GossipModel:
    """Golf among peers of one record each."""
    examples = examples_of(parts, program.classes)
    many = examples.problems * examples.peers * examples.columns > _MANY
    network = GolfNetwork(examples, _settings(program), seed=seed, dtype=np.float32 if many else np.float64)
    network.run(program.settings.cycles or CYCLES, over=over)
    return _model(network.model_of(0))


def walk_with_gradients(
    program: WalkedProgram,
    budget: GradientBudget,
    records: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    sources: Callable[[int], WordSource],
    *,
    seed: int,
    over: Over,
) -> GossipModel:
    """One model that comes to all peers in turn, ``batch`` records of a holder being a peer.

    ``records`` are (vectors on the grid, classes) of each holder. Each vector is taken to an L1 norm of 1 by itself;
    where a holder's last peer would have fewer than ``batch`` records, zero vectors stand for those missing.
    """
    size = program.settings.batch
    vectors = np.concatenate([_padded(v, size) for v, _ in records])
    labels = np.concatenate([_padded(c, size) for _, c in records])
    if len(vectors) < 2 * size:
        raise StudyError("gossip needs at least two peers", rule="lone-peer", remedy="Let others take part.")
    norms = np.abs(vectors).sum(axis=1, keepdims=True)
    grid = on_grid(vectors / np.where(norms > 0, norms, 1))
    signs = Examples.labelled(grid[:, :1].astype(np.float64), labels, program.classes).signs
    walk = GradientWalk(grid, signs, _settings(program), budget, batch=size)
    lasting = budget.answers if budget.strategy != "halving" else _ROUNDS_OF_HALVING
    rounds = min(program.settings.cycles or lasting, budget.answers)
    visits = rounds_of_visits(walk.peers, rounds, seed)
    walk.visit(visits, [sources(problem) for problem in range(problems_of(program.classes))], over=over)
    return _model(walk.weights)


def _padded(rows: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    missing = -len(rows) % size
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), np.int64)])


def _settings(program: WalkedProgram) -> GolfSettings:
    chosen = program.settings
    learner: Learner = "pegasos" if chosen.learner == "pegasos" else "logistic"
    return GolfSettings(learner=learner, lambda_=chosen.lambda_, merging=chosen.merging)


def _model(weights: NDArray[np.float64]) -> GossipModel:
    return GossipModel(weights, np.zeros(len(weights)))
