"""Models on a walk between the peers of a study: what a peer trains on, where honest models are, how long they walk.

PRIVACY. A peer trains on its own publication and on nothing else: the perturbed records that it has kept, signed and
vouched for (:class:`~tallystick.protocol.gossip.PeerMachine` says nothing of a model before). It measures others'
models by publications, too. So its model is a function of what was published, of what others have sent, and of an
order drawn from words of its own: post-processing. With a publication M(X) that is ε-DP, f(M(X), others, words) is
ε-DP for every f, however often it is computed, and also if others choose what they send in view of all that was sent
before [DR14, Prop. 2.1]. It charges nothing. Nothing here is handed a record that was not published.

BALL. A walk minimises F(w) = λ/2·‖w‖² + mean ℓ(y w·x). With ℓ ≥ 0, λ/2·‖w*‖² ≤ F(w*) ≤ F(0) = ℓ(0): for the logistic
loss ‖w*‖² ≤ 2 ln 2/λ, whatever the records are. For the hinge duality gives ‖w*‖² ≤ 1/λ [SSSC11, §2.2]. Taking a step
back into a convex set that holds w* brings it no farther from w*, so honest models lose nothing by it; what it shortens
is first steps, of length ‖x‖/λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.golf.examples import Examples, problems_of
from tallystick.algorithms.gossip.golf.kernels import LOGISTIC, PEGASOS, walk
from tallystick.algorithms.gossip.golf.learning import CYCLES, examples_of
from tallystick.algorithms.gossip.moments import GossipModel
from tallystick.core.randomness import WordSource
from tallystick.protocol.gossip import Ball, Model, ModelWalks
from tallystick.protocol.gossip.publications import Publications
from tallystick.trust.gossip.publishing import Publishing

LEAST_CYCLES = 30
"""Where the study names none: fewer do not bring a model about."""
MOST_STEPS = 4096
"""Of one visit."""
MOST_EXAMPLES = 1 << 14
"""Of one peer's records so many are trained on, spread over all of them: three seconds to decode, once."""

MEASURED = 1024
"""Records, of all peers together, by which a stranger's model is measured."""


@dataclass(frozen=True, kw_only=True)
class Walking:
    """One study's walks; everything in it is public."""

    publishing: Publishing
    ball: Ball

    @classmethod
    def of(cls, publishing: Publishing) -> Walking | None:
        """None where the study's learner is no walk."""
        settings, program = publishing.program.settings, publishing.program
        if settings.learner == "moments":
            return None
        at_zero = 1.0 if settings.learner == "pegasos" else 2 * math.log(2)
        blocks = problems_of(program.classes)
        ball = Ball(blocks * program.dimension, math.sqrt(at_zero / settings.lambda_), blocks)
        return cls(publishing=publishing, ball=ball)

    def cycles(self, peers: int, records: int | None) -> int:
        """The study's; or, from public facts, as many as let a model be trained as often as it is in a simulation,
        where every record is a peer."""
        stated = self.publishing.program.settings.cycles
        if stated is not None:
            return stated
        return CYCLES if not records else max(LEAST_CYCLES, min(CYCLES, math.ceil(CYCLES * peers / records)))

    def walks(self, name: str, publications: Callable[[], Publications], source: WordSource) -> ModelWalks:
        """The model of the peer ``name``, which trains on its own publication and measures others by all it holds."""
        update_first = self.publishing.program.settings.merging == "update-merge"
        return ModelWalks(
            self.ball.size,
            self.ball.radius,
            _Training(self, name, publications, source),
            blocks=self.ball.blocks,
            update_first=update_first,
            objective=Measure(self, publications),
        )

    def model(self, weights: NDArray[np.float64]) -> GossipModel:
        """What a walk has learnt, as learners give it."""
        rows = weights.reshape(self.ball.blocks, -1)
        return GossipModel(rows, np.zeros(len(rows)))

    def examples(self, name: str, body: bytes, most: int = MOST_EXAMPLES) -> Examples | None:
        """A publication, or so many records spread over it, as one-vs-rest examples; None of one without records."""
        count = len(self.publishing.unpack(body))
        if not count:
            return None
        chosen = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
        decoded = self.publishing.decode(name, body, of=chosen)
        return examples_of(
            [decoded] * (2 if len(chosen) == 1 else 1), self.publishing.program.classes
        )  # one alone stands twice


class _Training:
    """A visit: a step for each of the peer's published records, in an order drawn anew."""

    def __init__(
        self, walking: Walking, name: str, publications: Callable[[], Publications], source: WordSource
    ) -> None:
        self._walking, self._name, self._publications, self._source = walking, name, publications, source
        self._examples: Examples | None = None
        self._read = False

    def __call__(self, model: Model) -> Model:
        if not self._read:
            self._read_own()
        examples = self._examples
        if examples is None:
            return model
        settings = self._walking.publishing.program.settings
        learner = PEGASOS if settings.learner == "pegasos" else LOGISTIC
        order = np.argsort(self._source.words(examples.peers), kind="stable")[:MOST_STEPS]
        rows = model.weights.reshape(self._walking.ball.blocks, -1).copy()
        age = model.age
        for problem in range(len(rows)):
            signs = np.ascontiguousarray(examples.signs[problem])
            own_rows = np.ascontiguousarray(examples.rows_of(problem))
            age = int(walk(rows[problem], model.age, own_rows, signs, order, 1, learner, 1.0 / settings.lambda_))
        return Model(age, rows.ravel())

    def _read_own(self) -> None:
        books = self._publications()
        own = books.get(books.names.index(self._name))
        if own is not None:
            self._examples, self._read = self._walking.examples(self._name, own.body), True


class Measure:
    """F of a model over some of the records that are held here: of every peer's publication as many."""

    def __init__(self, walking: Walking, publications: Callable[[], Publications]) -> None:
        self._walking, self._publications = walking, publications
        self._held: frozenset[int] = frozenset()
        self._known: dict[int, NDArray[np.float64] | None] = {}
        self._products: NDArray[np.float64] | None = None

    def __call__(self, weights: NDArray[np.float64]) -> float:
        settings, blocks = self._walking.publishing.program.settings, self._walking.ball.blocks
        products, rows = self._all(), weights.reshape(blocks, -1)
        penalty = settings.lambda_ / 2 * float(np.square(rows).sum())
        if products is None:
            return penalty
        margins = np.einsum("pij,pj->pi", products, rows)
        loss = np.maximum(0.0, 1.0 - margins) if settings.learner == "pegasos" else np.logaddexp(0.0, -margins)
        return penalty + float(loss.mean(axis=1).sum())

    def _all(self) -> NDArray[np.float64] | None:
        """y·x of the chosen records, for each problem."""
        books = self._publications()
        if books.held != self._held:
            self._held = books.held
            for peer in self._held - self._known.keys():
                self._known[peer] = self._products_of(books, peer)
            parts = [one for peer in sorted(self._held) if (one := self._known[peer]) is not None]
            self._products = np.concatenate(parts, axis=1) if parts else None
        return self._products

    def _products_of(self, books: Publications, peer: int) -> NDArray[np.float64] | None:
        found = books.get(peer)
        most = math.ceil(MEASURED / len(books.names))
        examples = None if found is None else self._walking.examples(books.names[peer], found.body, most)
        if examples is None:
            return None
        return np.stack([examples.signs[p][:, None] * examples.rows_of(p) for p in range(examples.problems)])
