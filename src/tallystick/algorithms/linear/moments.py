"""Private standardisation: one round that learns every column's mean and spread, so that all later rounds fit the data.

Each record contributes, for an indicator column (one-hot, items, missing mark), its value minus a public centre, and
for a number x in [−1, 1] the pair (x, x² − ½). The public centres make the vector short: a one-hot block of k columns
centred at 1/k has squared length 1 − 1/k (or 1/k if the value is unknown), and max over x of x² + (x² − ½)² = 5/4.
Under Laplace, where the L1 norm counts, indicators are not centred: a block has one 1, and |x| + |x² − ½| ≤ 3/2.

What comes back is noisy, with known standard deviation ν per coordinate of the mean, and is used with that in mind:
means are shrunk by the positive-part factor (1 − ν²/m²)₊, variances are never trusted below their standard error and
never above a uniform column's 1/3. All of it is post-processing of a release; it costs nothing further.

Where there is no public number of complete records (add-remove, persons, missing = drop) the vector gets one more
coordinate, the constant 1: the round counts them too, with its noise. ‖(v, 1)‖² ≤ bound² + 1, and in L1 bound + 1
(registry row "vector").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.elementwise import inner
from tallystick.algorithms.linear.descent import MOMENT_SHARE, noise_of_mean
from tallystick.algorithms.program import Public
from tallystick.privacy.contribution import Dense
from tallystick.privacy.grid import Group

SMALLEST_SCALE = 2.0**-12
"""No column is blown up further than this: a constant one would be nothing but rounding."""
_UNIFORM_VARIANCE = 1 / 3


def _one_hot_square(k: int) -> float:
    """Largest Σ (x_j − centre)² of k columns with at most one 1: 1 − 1/k around 1/k, ¼ for a lone column around ½."""
    return 1 - 1 / k if k > 1 else 0.25


@dataclass(frozen=True, kw_only=True)
class ColumnShapes:
    """The public shape of the encoded columns: which are numbers, which blocks of indicators, where to centre."""

    size: int
    numbers: tuple[int, ...]
    blocks: tuple[tuple[int, int, int], ...]
    """(start, stop, most ones a record can have there) of every block of indicators."""
    marks: tuple[tuple[int, int], ...]
    """(number, its missing mark) of every number that may be missing."""
    l1: bool

    @classmethod
    def of(cls, public: Public, *, l1: bool) -> ColumnShapes:
        """From the layout."""
        numbers: list[int] = []
        blocks: list[tuple[int, int, int]] = []
        marks: list[tuple[int, int]] = []
        for _, start, stop, kind, ones in public.columns:
            if kind == "number":
                numbers.append(start)
                if stop - start > 1:
                    marks.append((start, start + 1))
            else:
                blocks.append((start, stop, min(ones, stop - start)))
        return cls(size=len(public.features), numbers=tuple(numbers), blocks=tuple(blocks), marks=tuple(marks), l1=l1)

    @property
    def centre(self) -> NDArray[np.float64]:
        """Public centre of every column: 1/k in a one-hot block (½ for a lone column), 0 elsewhere and under L1."""
        out = np.zeros(self.size)
        if not self.l1:
            for start, stop, ones in self.blocks:
                if ones == 1:
                    out[start:stop] = 1 / max(2, stop - start)
        return out

    @property
    def spread(self) -> NDArray[np.float64]:
        """Largest squared length (L1: length) of each block's centred indicators, in the order of ``blocks``."""
        return np.array([float(n) if self.l1 or n > 1 else _one_hot_square(b - a) for a, b, n in self.blocks])

    @property
    def moment_bound(self) -> float:
        """Largest norm of a record's moment vector.

        A missing number is 0 with its mark at 1: 0² + ¼ + 1 = 5/4, and 0 + ½ + 1 = 3/2: the same as a number present.
        """
        if self.l1:
            return float(self.spread.sum() + 1.5 * len(self.numbers))
        return math.sqrt(float(self.spread.sum() + 1.25 * len(self.numbers)))

    @property
    def moment_size(self) -> int:
        """Coordinates of the moment vector: every column, then the second moments of numbers."""
        return self.size + len(self.numbers)

    def longest_row(self, shift: NDArray[np.float64], scale: NDArray[np.float64], intercept: float) -> float:
        """The largest L2 norm a standardised row can have: public, given the released shift and scale."""
        total = intercept**2
        for start, stop, ones in self.blocks:
            p = shift[start:stop]
            gains = np.sort(1 - 2 * p)[::-1][:ones]
            total += inner(p, p) + float(np.maximum(gains, 0).sum())
        marked = dict(self.marks)
        for j in self.numbers:
            present = ((1 + abs(shift[j])) / scale[j]) ** 2
            if j in marked:
                p = shift[marked[j]]
                present = max(present + p**2, (shift[j] / scale[j]) ** 2 + max(p**2, (1 - p) ** 2))
            total += present
        return math.sqrt(total)


def moment_vectors(features: NDArray[np.float64], shapes: ColumnShapes) -> NDArray[np.float64]:
    """One vector per record: centred columns, then x² − ½ of the numbers. Elementwise, so row-independent."""
    numbers = list(shapes.numbers)
    return np.hstack([features - shapes.centre, features[:, numbers] ** 2 - 0.5])


@dataclass(frozen=True, kw_only=True)
class Standardisation:
    """Released: subtract ``shift``, divide by ``scale``; ``trace`` estimates E‖row‖² of the result, intercept apart."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    trace: float


def standardise(
    mean: NDArray[np.float64], noise: float, shapes: ColumnShapes, *, centred: bool = True
) -> Standardisation:
    """From the noisy mean of the moment vectors, whose noise has standard deviation ``noise`` per coordinate.

    Without an intercept nothing may be centred (a shift *is* an intercept): columns are then scaled by their root mean
    square, and ``shift`` is 0.
    """
    d, numbers = shapes.size, np.array(shapes.numbers, dtype=np.int64)
    centre = replace(shapes, l1=False).centre  # also under L1: deviations from 1/k are small, so shrink towards it
    raw = mean[:d] - (centre if shapes.l1 else 0.0)
    kept = np.maximum(0.0, 1 - noise**2 / np.maximum(raw**2, 1e-300))
    shift = np.clip(raw * kept, -1, 1) if centred else -centre
    # E‖z − m‖² = E‖z‖² − 2m·E z + ‖m‖², with E‖z‖² = 1 − 1/k for a one-hot block and Σ E z for 0/1 columns.
    whole = sum(float(np.clip(raw[mark], 0, 1)) for _, mark in shapes.marks)
    for start, stop, ones in shapes.blocks:
        whole += _one_hot_square(stop - start) if ones == 1 else float(np.clip(raw[start:stop].sum(), 0.1, ones))
    indicators = [j for start, stop, _ in shapes.blocks for j in range(start, stop)] + [j for _, j in shapes.marks]
    m, r = shift[indicators], raw[indicators]
    square = inner(m, m)
    estimate = whole + square - 2 * inner(r, m) + 2 * noise * math.sqrt(square)  # one standard error more
    most = whole if centred else float(sum(ones for *_, ones in shapes.blocks) + len(shapes.marks))
    trace = float(np.clip(estimate, 0.1 * whole, most))
    scale = np.ones(d)
    if len(numbers):
        m, r = shift[numbers], raw[numbers]
        variance = mean[d:] + 0.5 - 2 * r * m + m**2
        error = noise * np.sqrt(1 + 4 * m**2)
        widest = _UNIFORM_VARIANCE if centred else 1.0
        squares = np.clip(np.maximum(variance, 0) + error, SMALLEST_SCALE**2, widest)
        scale[numbers] = np.sqrt(squares)
        relative = error / squares
        estimate = math.fsum((variance / squares).tolist()) + math.sqrt(inner(relative, relative))
        trace += float(np.clip(estimate, 0.1 * len(numbers), len(numbers)))
    return Standardisation(shift=shift + centre, scale=scale, trace=trace)


class MomentRound:
    """The round that fits a program to its columns. Made from public facts; records arrive as arguments."""

    def __init__(self, public: Public, budget: PublicBudget, shapes: ColumnShapes) -> None:
        self.budget, self.shapes = budget, shapes
        self.counts = public.counts_records
        self.records = public.records
        bound = shapes.moment_bound
        self.bound = bound if not self.counts else bound + 1 if shapes.l1 else math.hypot(bound, 1)

    def group(self) -> Group:
        """What the plan is told: the vectors travel divided by their bound."""
        return Group(name="moments", size=self.shapes.moment_size + int(self.counts), bound=1.0)

    def weights(self, steps: int) -> tuple[float, ...]:
        """The budget over this round and as many equal ones after it."""
        return (MOMENT_SHARE, *((1 - MOMENT_SHARE) / steps for _ in range(steps)))

    def contribution(self, features: NDArray[np.float64]) -> Dense:
        """One vector per record."""
        vectors = moment_vectors(features, self.shapes)
        if self.counts:
            vectors = np.hstack([vectors, np.ones((len(vectors), 1))])
        return Dense(values=vectors / self.bound)

    def means(self, total: NDArray[np.float64], records: float) -> tuple[NDArray[np.float64], float, float]:
        """(means, the standard deviation of their noise, how many records they are of) from the noisy total."""
        sums = total * self.bound
        if self.counts:
            most = math.inf if self.records is None else float(self.records)
            records, sums = min(max(1.0, float(sums[-1])), most), sums[:-1]
        noise = noise_of_mean(self.budget, self.budget.share_of_one(MOMENT_SHARE), self.bound, records)
        return np.clip(sums / records, -2, 2), noise, records  # a count drowned in noise must not blow up the means
