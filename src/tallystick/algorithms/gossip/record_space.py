"""Where records live that are to be perturbed: encoded columns from a public origin, in a public basis, as integers.

    origin = "lower"     a number at its lower bound is 0, at its upper bound 1 (one-hot columns are 0 or 1 anyway):
                         what is mostly at its bound, as counts are, then has most of its coordinates at 0
    origin = "centre"    from −1 to 1, as everywhere else
    basis = "dct"        the first ``kept`` cosines of columns that are a grid of sides ``shape``
    intercept            a constant coordinate, where there are two classes, which the sign code tells apart by a
                         hyperplane through the origin; more classes have offsets of their own

Row-independent to the bit: columns are put on the grid one by one, and the basis is a matrix of whole numbers, whose
product with whole numbers is exact in float64 below 2^53, in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.components.basis import cosines
from tallystick.algorithms.gossip.settings import GossipSettings
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.privacy.local.plan import FRACTION_BITS
from tallystick.privacy.local.subset import MOST_COORDINATES

COLUMN_BITS = FRACTION_BITS
"""2^12 grid units are a column's whole width from its lower bound to its upper one, and the unit of every norm."""
_BASIS_BITS = 14


@dataclass(frozen=True, eq=False)
class RecordSpace:
    """φ(x) = (P(Dx + o), e): D and o move the origin, P is the basis, e the constant coordinate."""

    factor: NDArray[np.float64]
    """Of every encoded column: 1 or ½."""
    shift: NDArray[np.float64]
    """o: 0 or ½."""
    basis: NDArray[np.float64] | None
    """Rows of whole numbers, 2^14 to the unit."""
    constant: float

    @classmethod
    def of(cls, public: Public, settings: GossipSettings) -> RecordSpace:
        """From public facts; refuses a grid that does not fit the columns."""
        kinds = [unit[0] for unit in public.units] or ["number"] * len(public.features)
        number = np.array([kind in ("number", "log") for kind in kinds])
        half = np.where(number & (settings.origin == "lower"), 0.5, 0.0)
        basis = None
        if settings.basis is None and (settings.shape is not None or settings.kept is not None):
            raise StudyError("shape and kept are of a basis, and none is named", remedy='Write basis = "dct".')
        if settings.basis is not None:
            shape = (len(public.features),) if settings.shape is None else settings.shape
            if math.prod(shape) != len(public.features):
                raise StudyError(
                    f"shape = {list(shape)} has {math.prod(shape)} places for {len(public.features)} columns",
                    remedy="Let the sides of the grid multiply to the number of encoded columns.",
                )
            kept = shape if settings.kept is None else settings.kept
            if len(kept) != len(shape) or any(k > side for k, side in zip(kept, shape)):
                raise StudyError(
                    f"kept = {list(kept)} does not fit shape = {list(shape)}",
                    remedy="Give as many sides, none longer: kept = [8, 8] of shape = [28, 28].",
                )
            basis = np.rint(first_cosines(shape, kept) * (1 << _BASIS_BITS))
        space = cls(
            factor=np.where(half > 0, 0.5, 1.0),
            shift=half,
            basis=basis,
            constant=settings.intercept if len(public.classes) == 2 else 0.0,
        )
        if space.dimension > MOST_COORDINATES:
            raise StudyError(
                f"a record of {space.dimension} coordinates cannot be perturbed usefully",
                rule="vector-size",
                remedy=f"Use at most {MOST_COORDINATES}: fewer columns or categories, or a basis with `kept` sides.",
            )
        return space

    @property
    def dimension(self) -> int:
        """Coordinates of φ."""
        return (len(self.factor) if self.basis is None else len(self.basis)) + (self.constant > 0)

    def integers(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """φ of encoded rows on the grid, 2^12 units to a column's width (2^13 where the origin is the centre)."""
        scale = float(1 << COLUMN_BITS)
        grid = np.rint(features * (self.factor * scale)) + self.shift * scale
        if self.basis is not None:
            # |entries| < 2^13·2^14·columns: exact. Divided by a power of two, and rounded, element by element.
            grid = np.rint((grid @ self.basis.T) / float(1 << _BASIS_BITS))
        out = grid.astype(np.int64)
        if self.constant > 0:
            out = np.hstack([out, np.full((len(out), 1), round(self.constant * scale), np.int64)])
        return out

    def coordinates(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """φ of encoded rows, as numbers, for predictions."""
        return self.integers(features) / float(1 << COLUMN_BITS)

    def columns(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercept, weights of the encoded columns) of functions that are linear in φ."""
        own = weights[:, : self.dimension - (self.constant > 0)]
        if self.basis is not None:
            own = own @ (self.basis / float(1 << _BASIS_BITS))
        intercept = own @ self.shift
        if self.constant > 0:
            intercept = intercept + self.constant * weights[:, -1]
        return intercept, own * self.factor


def first_cosines(shape: tuple[int, ...], kept: tuple[int, ...]) -> NDArray[np.float64]:
    """The rows of the cosine basis of the lowest frequencies along every side."""
    out: NDArray[np.float64] = np.ones((1, 1))
    for side, first in zip(shape, kept):
        out = np.asarray(np.kron(out, cosines((side,))[:first]), dtype=np.float64)
    return out
