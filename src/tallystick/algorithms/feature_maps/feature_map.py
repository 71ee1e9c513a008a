"""What a feature map is: public, made without any record, row by row to the bit, and no row longer than it says.

A kernel k(x, y) is replaced by the product φ(x)·φ(y) of vectors that can be written down, so that a kernel machine is a
linear model of φ: the model is weights alone, carries no record, and can be handed on. φ is made from the study (a
kernel, its constants, a seed, public landmarks), so the study's hash covers it, every party makes the same one, and
no budget is spent on it.

Two things are promised of every map, and tested for each:

* *Row independence*: φ of a record depends on that record alone, to the bit. A BLAS product rounds differently with the
  shape of its block, so rows are made one at a time by loops of a fixed order, and nonlinear functions element by
  element with +, ×, ÷ and √ (:mod:`…waves`, :mod:`tallystick.algorithms.elementwise`).
* *A known length*: ‖φ(x)‖ ≤ ``norm`` for every x whatever, so that a clipping bound is known before any record is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.errors import StudyError

WITHIN = 1 - 2.0**-40
"""Rows aim this much below their norm: the rounding of some thousand sums of squares is far smaller."""
_PART_NUMBERS = 1 << 23


class FeatureMap(ABC):
    """A map of encoded records. Fields are public facts; records arrive as arguments."""

    kernel: str
    columns: int
    """Encoded columns that it reads."""
    size: int
    """Features that it makes."""
    norm: float
    """No row is longer."""
    typical_square: float
    """E‖φ(x)‖² for records spread evenly over what the schema allows: a public guess, for steps and clipping."""

    @abstractmethod
    def _rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """One row per record; the caller has checked the width."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """All that is needed to make the same map again, as plain values: what a model's document carries."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the plan."""

    def rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """φ of every record: each by itself, none longer than ``norm``."""
        if features.ndim != 2 or features.shape[1] != self.columns:
            raise StudyError(
                f"the feature map reads {self.columns} encoded columns, and these records have "
                f"{features.shape[-1] if features.ndim else 0}",
                rule="map-fits-columns",
                remedy="Declare the columns exactly as they were for the fit.",
            )
        return self._rows(np.ascontiguousarray(features, dtype=np.float64))

    def parts(self, features: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """φ of the records in order, some at a time: at once, those of many records would fill the memory."""
        each = max(64, _PART_NUMBERS // self.size)
        for first in range(0, max(1, len(features)), each):  # one part at least, if there is no record
            yield self.rows(features[first : first + each])

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features, in order."""
        return tuple(f"{self.kernel} feature {i + 1}" for i in range(self.size))


@njit(cache=True, nogil=True)
def project_row(row, matrix, out):  # type: ignore[no-untyped-def]
    """out = row @ matrix, summed in one fixed order: the inner loop runs over outputs, which are independent."""
    for j in range(matrix.shape[1]):
        out[j] = 0.0
    for k in range(matrix.shape[0]):
        x = row[k]
        for j in range(matrix.shape[1]):
            out[j] += x * matrix[k, j]


@njit(cache=True, nogil=True)
def shorten_row(row, most):  # type: ignore[no-untyped-def]
    """Scale a row to the length ``most`` if it is longer."""
    square = 0.0
    for j in range(row.shape[0]):
        square += row[j] * row[j]
    if square > most * most:
        shrink = most / np.sqrt(square)
        for j in range(row.shape[0]):
            row[j] *= shrink
