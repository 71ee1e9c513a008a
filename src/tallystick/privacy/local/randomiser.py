"""What a peer does to one record before anything of it leaves: its class by a label code, its vector by a mechanism.

``perturb`` is one exact draw; ``perturb_all`` draws for many records of one holder, and gives the bits that ``perturb``
gives one after the other from the same source. ``decode`` is for whoever learns: z with E z = x, and for every class k
a factor t_k with E[t_k z] telling the classes' moments apart (:mod:`tallystick.privacy.local.labels`).

THEOREM. The published record is ε-DP under replace-one on (x, y), for ε = ε_y + ε_x. The label is ε_y-DP in y and does
not see x; given the label's own coins, the vector's mechanism is ε_x-DP for any two inputs, so also where y changes its
input (the sign code). The two draw from words of their own: the joint law is a product, and the ratios multiply. Per
class: c vectors at ε/c each, sequential composition. A record that cannot be read enters as the zero vector of class 0:
it is published like any other, so that what a record holds does not decide whether its peer publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.privacy.local.added_noise import CUT, AddedNoise
from tallystick.privacy.local.coins import places
from tallystick.privacy.local.labels import LabelCode, LabelKind, SignCode
from tallystick.privacy.local.records import PerturbedBatch, PerturbedRecord, RecordShape
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import SubsetMoments


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """What learners see: z (records, copies, coordinates), and the factors t (records, classes)."""

    z: NDArray[np.float64]
    targets: NDArray[np.float64]
    labels: NDArray[np.int64] | None
    """The published classes, where there are any."""
    rows: NDArray[np.int64] | None = None
    """The public rows of a sign code: ±1 for every class."""

    def against_the_rest(self, of: int) -> NDArray[np.float64]:
        """For a learner of one class against the rest, as the paper's are: vectors that stand for y·x, y = ±1."""
        if self.rows is not None:
            return self.rows[:, of, None] * self.z[:, 0]
        if self.labels is not None:
            return np.where(self.labels == of, 1.0, -1.0)[:, None] * self.z[:, 0]
        return self.z[:, of]


@dataclass(frozen=True, kw_only=True)
class Randomiser:
    """A label code and a mechanism for the vector; everything in it is public."""

    label: LabelCode
    vector: SubsetSelection | AddedNoise

    @property
    def name(self) -> str:
        """``subset``, ``laplace`` or ``gaussian``."""
        return self.vector.name

    @property
    def dimension(self) -> int:
        """Coordinates of a record."""
        return self.vector.dimension

    @property
    def classes(self) -> int:
        return self.label.classes

    @property
    def label_kind(self) -> LabelKind:
        return self.label.kind

    @property
    def shape(self) -> RecordShape:
        """Of the published record."""
        if isinstance(self.vector, SubsetSelection):
            chosen = self.vector.subset
            return RecordShape(classes=self.label.published, values=chosen.draws, least=0, most=chosen.candidates - 1)
        size = self.dimension * self.label.copies
        return RecordShape(classes=self.label.published, values=size, least=-CUT, most=CUT)

    @property
    def moments(self) -> SubsetMoments:
        """E z = x and E zzᵀ = a·xxᵀ + b·I, for every copy by itself."""
        return self.vector.moments

    @property
    def pure_epsilon(self) -> Fraction | None:
        """What one record costs, exactly; None for Gaussian noise."""
        if self.vector.epsilon is None:
            return None
        return self.label.epsilon + self.label.copies * self.vector.epsilon

    @property
    def parameters(self) -> list[Fraction]:
        """What a peer vouches for: the exact parameters of its draws."""
        coins = [coin.probability for coin in self.label.draws]
        if isinstance(self.vector, SubsetSelection):
            chosen = self.vector.subset
            sizes = [Fraction(n) for n in (chosen.draws, chosen.candidates, chosen.top)]
            return [*coins, self.vector.draws[0].probability, *sizes]
        return [*coins, self.vector.parameter, Fraction(self.label.copies)]

    def perturb(self, vector: NDArray[np.int64], label: int, identity: bytes, source: WordSource) -> PerturbedRecord:
        """One record, drawn once: the caller keeps what comes back before a byte of it leaves."""
        rows = np.asarray(vector, np.int64)[None, :]
        return self.perturb_all(rows, np.array([label], np.int64), [identity], source).records()[0]

    def perturb_all(
        self,
        vectors: NDArray[np.int64],
        labels: NDArray[np.int64],
        identities: Sequence[bytes],
        source: WordSource,
    ) -> PerturbedBatch:
        """The records of one holder, each by itself."""
        vectors, labels = np.asarray(vectors, np.int64), np.asarray(labels, np.int64)
        n = len(vectors)
        if vectors.shape != (n, self.dimension) or labels.shape != (n,) or len(identities) != n:
            raise LocalProtocolError("vectors, classes and identities are not of the same records")
        if n and not ((labels >= 0) & (labels < self.classes)).all():
            raise LocalProtocolError("a record is of a class that the study does not have")
        signs = self.label.signs(labels, identities)
        coins = list(self.label.draws)
        if isinstance(self.vector, SubsetSelection):
            drawn = places(coins + self.vector.draws, n, source)
            published = self.label.publish(labels, drawn[:, : len(coins)])
            values = self.vector.publish(vectors * signs, identities, drawn[:, len(coins) :])
            return PerturbedBatch(published, values)
        clipped = self.vector.clipped(vectors)
        size = self.dimension * self.label.copies
        published, values = np.zeros(n, np.int64), np.empty((n, size), np.int64)
        for i in range(n):  # the number of words that noise takes depends on what is drawn: record by record
            drawn = places(coins, 1, source)
            published[i] = self.label.publish(labels[i : i + 1], drawn)[0]
            values[i] = (signs[i][:, None] * clipped[i][None, :]).reshape(size) + self.vector.noise(size, source)
        return PerturbedBatch(published, np.clip(values, -CUT, CUT))

    def decode(self, identities: Sequence[bytes], batch: PerturbedBatch) -> Decoded:
        """What was published, as learners take it."""
        n = len(batch)
        z = self.vector.decode(identities, batch.values).reshape(n, self.label.copies, self.dimension)
        return Decoded(
            z=z,
            targets=self.label.targets(batch.labels, identities),
            labels=batch.labels if self.label.published else None,
            rows=self.label.rows(identities) if isinstance(self.label, SignCode) else None,
        )
