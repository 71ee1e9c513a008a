"""Unbiased moments of records from what was published of them, and the classifier that follows from them.

    G = (Σ zzᵀ/n − b·I)/a          of E xxᵀ             b and a are the randomiser's, public
    B_k = Σ t_k z/n                of E 1[y = k]·x, less a term that all classes share if the label is a sign code

Two classes: with B = B_1 − B_0 the ridge solution w = (G + λI)⁻¹B, whose sign is the class. More: the discriminant of
classes with means M_k = B_k/π_k and one covariance S = G − Σ π_k M_k M_kᵀ, that is w_k = (S + λI)⁻¹M_k with the offset
ln π_k − ½ M_kᵀw_k. Negative eigenvalues are noise and become 0. λ = s·b·√(d/n) is the size of the noise in G: its
entries have variance about b²/n, a symmetric matrix of such noise has spectral norm of about 2b√(d/n). s is 1 for the
ridge solution, 2 for the discriminant, and grows where n is small by itself. Where labels are not published, classes
are taken to be equally frequent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.privacy.local.randomiser import Decoded
from tallystick.privacy.local.subset_moments import SubsetMoments

EXACT = SubsetMoments(mean=1.0, a=1.0, b=0.0)
"""Of records that were not perturbed."""
_FLOOR = 1e-6
_BLOCK = 4096


class GossipModel(NamedTuple):
    """One score per class (one for two classes): offsets + weights·φ/‖φ‖."""

    weights: NDArray[np.float64]
    offsets: NDArray[np.float64]


class RecordLaw(NamedTuple):
    """Classes' frequencies and means, and one covariance by its eigenvalues and eigenvectors (in columns)."""

    frequency: NDArray[np.float64]
    centres: NDArray[np.float64]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]


@dataclass
class RecordMoments:
    """Sums over published records; adding more of them in any order is what peers do as records reach them."""

    classes: int
    dimension: int
    count: int = 0
    gram: NDArray[np.float64] = field(init=False)
    sums: NDArray[np.float64] = field(init=False)
    labels: NDArray[np.float64] = field(init=False)
    has_labels: bool = False

    def __post_init__(self) -> None:
        self.gram = np.zeros((self.dimension, self.dimension))
        self.sums = np.zeros((self.classes, self.dimension))
        self.labels = np.zeros(self.classes)

    def add(self, decoded: Decoded) -> None:
        """Take in some records."""
        z, t = decoded.z, decoded.targets
        copies = z.shape[1]
        for start in range(0, len(z), _BLOCK):
            part, factors = z[start : start + _BLOCK], t[start : start + _BLOCK]
            flat = part.reshape(-1, self.dimension)
            self.gram += flat.T @ flat / copies
            if copies == 1:
                self.sums += factors.T @ part[:, 0]
            else:
                self.sums += np.einsum("nk,nkd->kd", factors, part)
        self.count += len(z)
        if decoded.labels is not None:
            self.has_labels = True
            self.labels += t.sum(axis=0)

    def fit(self, moments: SubsetMoments, least: float = 0.0) -> GossipModel:
        """The classifier; ``least`` is a penalty that it has in any case."""
        n, d = max(1, self.count), self.dimension
        noise = moments.b * math.sqrt(d / n)
        if self.classes == 2:
            weights = _solve(self._second(moments), self._difference()[None, :], max(noise, least, _FLOOR))
            return GossipModel(weights, np.zeros(1))
        frequency, centres, within = self._classes(moments)
        weights = _solve(within, centres, max(2 * noise, least, _FLOOR))
        offsets = np.log(frequency) - 0.5 * np.einsum("kd,kd->k", weights, centres)
        return GossipModel(weights, offsets)

    def law(self, moments: SubsetMoments) -> RecordLaw:
        """How records are spread, as far as these moments tell: with the penalty of :meth:`fit` in every direction.

        Of two classes without labels it is the law of y·x, y = ±1.
        """
        noise = moments.b * math.sqrt(self.dimension / max(1, self.count))
        if self.classes == 2 and not self.has_labels:
            centre = self._difference()
            frequency, centres, scale = np.ones(1), centre[None, :], 1.0
            within = self._second(moments) - np.outer(centre, centre)
        else:
            frequency, centres, within = self._classes(moments)
            scale = 2.0
        values, vectors = np.linalg.eigh((within + within.T) / 2)
        return RecordLaw(frequency, centres, np.maximum(values, 0) + max(scale * noise, _FLOOR), vectors)

    def _second(self, moments: SubsetMoments) -> NDArray[np.float64]:
        n = max(1, self.count)
        return np.asarray((self.gram / n - moments.b * np.eye(self.dimension)) / moments.a)

    def _difference(self) -> NDArray[np.float64]:
        return np.asarray((self.sums[1] - self.sums[0]) / max(1, self.count))

    def _classes(self, moments: SubsetMoments) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """How frequent they are, their means, and the covariance that they share."""
        n = max(1, self.count)
        frequency = np.full(self.classes, 1 / self.classes)
        if self.has_labels:
            floor = 1 / (10 * self.classes)
            frequency = np.maximum(self.labels / n, floor)
            frequency /= frequency.sum()
        centres = self.sums / n / frequency[:, None]
        within = self._second(moments) - (centres * frequency[:, None]).T @ centres
        return frequency, centres, within


def _solve(matrix: NDArray[np.float64], rows: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
    """rows·(matrix₊ + penalty·I)⁻¹, with the negative eigenvalues at 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((rows @ vectors / (np.maximum(values, 0) + penalty)) @ vectors.T)
