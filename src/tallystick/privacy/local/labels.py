"""How a record's class is published beside its vector, and what a learner makes of it (``labels.md``).

    sign code          a public row r of ±1 of a Hadamard matrix; the vector r_y·x is published at the whole ε, the
                       class not at all: E[r_k z] tells the classes' moments apart, up to a term they all share
    randomised label   the class by randomised response [Warner65] at ε_y, the vector at ε − ε_y
    per class          c vectors ±x, one for each class against the rest, at ε/c each: the published way

For two classes the sign code is M(y·x), y = ±1, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tallystick.privacy.local.coins import Draw

LabelKind = Literal["sign", "randomised", "per-class"]
_LABELS_FROM = 8
"""ε from which a class of its own pays (measured on 7 and 10 classes)."""


def hadamard(size: int) -> NDArray[np.int64]:
    """Sylvester's matrix of ±1, size a power of two; its first row is constant."""
    out = np.ones((1, 1), np.int64)
    while len(out) < size:
        out = np.block([[out, out], [out, -out]])
    return out


def label_epsilon(epsilon: Fraction, classes: int) -> Fraction:
    """What of ε a randomised label has: ln(c − 1) + 3/2, so that it is kept four times of five; more where ε is huge.

    Rounded up to 1/64; a choice, not a promise: the vector has the rest, whatever it is.
    """
    odds = math.log(max(1, classes - 1))
    wanted = max(odds + 1.5, min(float(epsilon) / 4, odds + 6))
    return Fraction(math.ceil(wanted * 64), 64)


def choose_label(epsilon: Fraction, classes: int) -> LabelKind:
    """The sign code for two classes or a small ε, a randomised label from 8 on, if it leaves the vector the half."""
    if classes == 2 or epsilon < _LABELS_FROM or 2 * label_epsilon(epsilon, classes) > epsilon:
        return "sign"
    return "randomised"


@dataclass(frozen=True, kw_only=True)
class SignCode:
    """The class as a sign of the vector, by a public row of the code."""

    classes: int
    kind: LabelKind = "sign"
    published = 0
    """Classes of the label that is published: none is."""
    copies = 1
    draws: tuple[Draw, ...] = ()
    epsilon = Fraction(0)

    @property
    def length(self) -> int:
        """Of the code: the power of two from the number of classes on."""
        return 1 << (self.classes - 1).bit_length()

    def rows(self, identities: Sequence[bytes]) -> NDArray[np.int64]:
        """The public row of every record, never the constant one; by 62 bits of its id, which is as good as uniform."""
        drawn = np.frombuffer(b"".join(i[:8] for i in identities), dtype="<u8") >> np.uint64(2)
        at = 1 + (drawn % np.uint64(self.length - 1)).astype(np.int64)
        return hadamard(self.length)[at, : self.classes]

    def signs(self, labels: NDArray[np.int64], identities: Sequence[bytes]) -> NDArray[np.int64]:
        """By what each record's vector is multiplied: (records, copies)."""
        return np.take_along_axis(self.rows(identities), labels[:, None], axis=1)

    def publish(self, labels: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.zeros(len(labels), np.int64)

    def targets(self, labels: NDArray[np.int64], identities: Sequence[bytes]) -> NDArray[np.float64]:
        """t with E[t_k z] = (1[y = k] − 1/C)·x. Over the C − 1 rows r_k r_y is 1 for k = y, else −1/(C − 1) on average:
        the columns of the whole matrix are orthogonal, and the constant row is left out."""
        return np.asarray(self.rows(identities) * ((self.length - 1) / self.length), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class RandomisedLabel:
    """The class by randomised response: kept, or one of the others with equal probability."""

    classes: int
    epsilon: Fraction
    kind: LabelKind = "randomised"
    copies = 1

    @property
    def published(self) -> int:
        return self.classes

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Place 0 keeps the class, place s is the s-th after it, around the circle."""
        return (Draw.of(self.epsilon, 1, self.classes - 1),)

    def signs(self, labels: NDArray[np.int64], identities: Sequence[bytes]) -> NDArray[np.int64]:
        return np.ones((len(labels), 1), np.int64)

    def publish(self, labels: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        return (labels + places[:, 0]) % self.classes

    def targets(self, labels: NDArray[np.int64], identities: Sequence[bytes]) -> NDArray[np.float64]:
        """t with E t_k = 1[y = k], independent of z: (1[published = k] − q)/(p − q)."""
        kept = float(self.draws[0].probability)
        other = (1 - kept) / (self.classes - 1)
        hit = labels[:, None] == np.arange(self.classes)[None, :]
        return np.asarray((hit - other) / (kept - other), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class PerClass:
    """One vector for each class against the rest: x if the record is of it, −x if not."""

    classes: int
    kind: LabelKind = "per-class"
    published = 0
    draws: tuple[Draw, ...] = ()
    epsilon = Fraction(0)

    @property
    def copies(self) -> int:
        return self.classes

    def signs(self, labels: NDArray[np.int64], identities: Sequence[bytes]) -> NDArray[np.int64]:
        return np.where(labels[:, None] == np.arange(self.classes)[None, :], 1, -1).astype(np.int64)

    def publish(self, labels: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.zeros(len(labels), np.int64)

    def targets(self, labels: NDArray[np.int64], identities: Sequence[bytes]) -> NDArray[np.float64]:
        """t with E[t_k z_k] = (1[y = k] − ½)·x for the copy z_k."""
        return np.full((len(labels), self.classes), 0.5)


LabelCode = SignCode | RandomisedLabel | PerClass


def label_code(kind: LabelKind, epsilon: Fraction, classes: int) -> LabelCode:
    """The code of this kind, with its part of ε."""
    if kind == "randomised":
        return RandomisedLabel(classes=classes, epsilon=min(label_epsilon(epsilon, classes), epsilon / 2))
    return SignCode(classes=classes) if kind == "sign" else PerClass(classes=classes)
