"""Counts of many cells of which a few hold all the records: what they say of the runs of empty ones between.

Where the answer is known to lie in a spike, a level has many cells to find the spike's place quickly. The noise of all
the empty ones would add up in every rank to the right of them; but that they are empty is plain to see: none stands
above its noise, nor does the sum of the run. A run is then one cell with no records, up to half of one count's noise.
Post-processing: only where to look depends on it; intervals (:mod:`tallystick.algorithms.quantiles.sightings`) do not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallystick.algorithms.quantiles.posterior import Floats, Indices
from tallystick.algorithms.quantiles.sightings import tail_quantiles

_FALSE = 0.3
"""So many empty cells of a level are expected to stand above the noise: then one more is looked into, no harm done."""
_SUM = 2.5
"""Standard deviations that the sum of an empty run may be off nothing."""
_RUN = 0.5
"""Standard deviation left to the records of an empty run, in that of one count."""
_FEW = 3
"""With records in more cells than these the level shows no spikes."""


class MergedCells(NamedTuple):
    """A level whose runs of empty cells are one cell each."""

    edges: Indices
    counts: Floats
    variances: Floats


def merged_cells(edges: Indices, counts: Floats, variance: float, *, laplace: bool) -> MergedCells | None:
    """The ``len(edges) + 1`` cells with empty runs merged; None where records are not in a few of the inner cells."""
    std = math.sqrt(variance)
    reach = std * float(tail_quantiles(_FALSE / len(counts), np.array([3.0 if laplace else 0.0]))[0])
    full = counts > reach
    if not 1 <= full[1:-1].sum() <= _FEW:
        return None
    full[[0, -1]] = True  # what lies outside the window is not looked into
    starts = np.concatenate([[0], np.flatnonzero(np.diff(full.astype(np.int64))) + 1, [len(counts)]])
    first: list[int] = []
    merged: list[float] = []
    variances: list[float] = []
    for low, high in zip(starts[:-1].tolist(), starts[1:].tolist()):
        if full[low] or abs(float(counts[low:high].sum())) > _SUM * std * math.sqrt(high - low):
            first += range(low, high)
            merged += counts[low:high].tolist()
            variances += [variance] * (high - low)
        else:
            first.append(low)
            merged.append(0.0)
            variances.append(variance * _RUN**2)
    return MergedCells(edges[np.array(first[1:], dtype=np.int64) - 1], np.array(merged), np.array(variances))
