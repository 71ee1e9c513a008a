"""The peers' examples as arrays: perturbed records, or in a simulation without privacy the records themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, StudyError

Floats = NDArray[np.float64] | NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """One example a peer and class: ``rows`` of shape (1 or classes, peers, columns), ``signs`` (classes, peers), ±1.

    One block of rows serves all one-vs-rest problems where the same record is published for all. Two classes are one
    problem, whose sign is + for the second class.
    """

    rows: Floats
    signs: NDArray[np.float64]

    def __post_init__(self) -> None:
        blocks, peers, columns = self.rows.shape
        if peers < 2:
            raise StudyError("gossip needs at least two peers", rule="lone-peer", remedy="Let others take part.")
        if columns < 1 or self.signs.shape[0] < 1 or self.signs.shape[1] != peers:
            raise StudyError("rows and labels do not belong together", remedy="Give one label for each row.")
        if blocks not in (1, self.signs.shape[0]):
            raise StudyError("rows are neither one block nor one for each class", remedy="Give one or the other.")
        if not np.isfinite(self.rows).all():
            raise DataError(
                "an example holds NaN or infinity", remedy="Refuse such records before they are learned from."
            )

    @staticmethod
    def labelled(z: Floats, labels: NDArray[np.int64], classes: int) -> Examples:
        """Rows z with the class index of each; a class that no peer has is learned as absent."""
        if classes < 2:
            raise StudyError(
                "a classifier needs two classes",
                rule="two-classes-at-least",
                remedy="Declare all values of the target.",
            )
        labels = np.asarray(labels)
        if z.ndim != 2 or labels.shape != (z.shape[0],):
            raise StudyError("rows and labels do not belong together", remedy="Give one label for each row.")
        if labels.size and not (labels.min() >= 0 and labels.max() < classes):
            raise StudyError("a label is not one of the classes", remedy=f"Labels are 0 to {classes - 1}.")
        own = np.arange(1, 2) if classes == 2 else np.arange(classes)
        return Examples(rows=z[None], signs=np.where(labels[None] == own[:, None], 1.0, -1.0))

    @staticmethod
    def signed(products: Floats) -> Examples:
        """Where y·x was published, all that the updates use: (peers, columns), or one such block for each class."""
        rows = products[None] if products.ndim == 2 else products
        return Examples(rows=rows, signs=np.ones(rows.shape[:2]))

    @property
    def problems(self) -> int:
        """Binary problems: one for each class, or one for two."""
        return len(self.signs)

    @property
    def peers(self) -> int:
        """How many examples there are."""
        return int(self.signs.shape[1])

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return int(self.rows.shape[2])

    def rows_of(self, problem: int) -> Floats:
        """The rows that one problem is learned from."""
        chosen: Floats = self.rows[problem if len(self.rows) > 1 else 0]
        return chosen

    def longest(self) -> float:
        """The norm of the longest example, rounded up a little: sums of squares round."""
        squares = max(float(np.einsum("ij,ij->i", block, block, dtype=np.float64).max()) for block in self.rows)
        return float(np.sqrt(squares)) * (1 + 1e-6)


def problems_of(classes: int) -> int:
    """One-vs-rest problems: two classes are one."""
    return 1 if classes == 2 else classes


def predicted(coef: NDArray[np.float64], features: Floats) -> NDArray[np.int64]:
    """Class indices by the greatest score, the first of equal ones; by the sign where ``coef`` has one row."""
    scores = features @ coef.T.astype(features.dtype)
    return np.asarray(scores[:, 0] > 0 if coef.shape[0] == 1 else np.argmax(scores, axis=1), np.int64)
