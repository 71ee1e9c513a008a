"""Noisy moments to better ones, by what is known of the noise: all of it post-processing of a release.

* A mean is multiplied by James and Stein's factor (1 − mσ²/‖t‖²)₊ [EM73], band by band where there are bands.
* Squares are pulled towards the mean of their band (of all, without bands) by v/(v + σ²), v the spread beyond noise.
* An entry S_ij of the scatter has, before it is seen, variance κ·D_i·D_j, D the squares: |S_ij| ≤ √(S_ii S_jj), and
  κ says how much of that is usual. With noise of variance σ_ij² the best linear estimate is S_ij·κD_iD_j/(κD_iD_j +
  σ_ij²) (Wiener); on the diagonal it lies between D_i and S_ii.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KAPPA = 0.1
"""Tried from 0.003 to 1 on optdigits and MNIST: flat between 0.03 and 0.3."""
_ORDER = 0.05
"""Squares keep at least so much of their differences: also where they drown in noise, their order is the best guess."""
_LEAST = 0.02
"""No coordinate's square is taken below this part of the average: a noisy zero must not silence a row for good."""


def shrunken_mean(
    total: NDArray[np.float64], std: float, band: NDArray[np.int64] | None, *, nonnegative: bool
) -> NDArray[np.float64]:
    """A noisy sum of rows; ``nonnegative``: the true one has no negative coordinate (and no bands)."""
    if std == 0:
        return total
    if band is None:
        if nonnegative:
            # Cutting at 0 halves the noise where nothing is: E max(e, 0)² = σ²/2.
            total = np.maximum(total, 0.0)
        power = len(total) * std**2 * (0.5 if nonnegative else 1.0)
        return total * max(0.0, 1 - power / max(float(total @ total), 1e-300))
    out = np.zeros_like(total)
    for b in np.unique(band):
        part = total[band == b]
        out[band == b] = part * max(0.0, 1 - len(part) * std**2 / max(float(part @ part), 1e-300))
    return out


def shrunken_squares(total: NDArray[np.float64], std: float, band: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """A noisy sum of squares, still in the order of size that the noise allows to tell."""
    out = np.empty_like(total)
    for b in np.unique(band) if band is not None else [None]:
        own = slice(None) if b is None else band == b
        part = total[own]
        middle = max(float(part.mean()), 0.0)
        beyond = max(float(part.var()) - std**2, 0.0) if len(part) > 2 else 0.0
        out[own] = middle + (part - middle) * max(beyond / (beyond + std**2) if std else 1.0, _ORDER)
    return out


def prior_squares(squares: NDArray[np.float64], trace: float) -> NDArray[np.float64]:
    """D: positive, adding up to the scatter's trace."""
    average = max(float(squares.mean()), 1e-300)
    positive = np.maximum(squares, _LEAST * average)
    return np.asarray(positive * (trace / positive.sum()))


def shrunken_scatter(
    scatter: NDArray[np.float64], prior: NDArray[np.float64], diagonal: float, beside: float
) -> NDArray[np.float64]:
    """``diagonal``, ``beside``: variances of the noise."""
    size = KAPPA * np.outer(prior, prior)
    out = scatter * (size / (size + beside))
    own = np.arange(len(prior))
    kept = size[own, own] / (size[own, own] + diagonal)
    out[own, own] = prior + (scatter[own, own] - prior) * kept
    return out
