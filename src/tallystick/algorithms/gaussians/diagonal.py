"""Diagonal Gaussians from noisy moments, and their densities: what naive Bayes and mixtures have in common.

A record's moments v are its centred columns and x² − ½ of its numbers (:mod:`tallystick.algorithms.linear.moments`),
no longer than a public bound. Of each part (a class, a component) a noisy count and a noisy sum of v are known. With
ν = σ/count the noise on a mean moment, deviations from an *anchor* (all classes together; the component before the
step) are multiplied by James and Stein's factor (1 − mν²/‖deviation‖²)₊ [EM73], first and second moments apart: what
drowns in noise stays at the anchor, and so does a part whose count is not two standard deviations above 0. Variances
are never trusted below the noise. All of it is post-processing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.clustering.start import into_domain
from tallystick.algorithms.linear.moments import ColumnShapes

_LEAST = 1e-4
"""Variances of encoded columns are at least this; 1 is the most there can be."""
_INDICATOR = 0.01
_FEWEST = 1.0


class Gaussians(NamedTuple):
    """One per part: its weight, means and variances of the encoded columns."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]


def moments_of(gaussians: Gaussians, shapes: ColumnShapes) -> NDArray[np.float64]:
    """The mean moment vector of every part."""
    numbers = list(shapes.numbers)
    squares = gaussians.variances[:, numbers] + gaussians.means[:, numbers] ** 2
    return np.hstack([gaussians.means - shapes.centre, squares - 0.5])


def from_moments(
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    noise: float,
    count_noise: float,
    anchor: NDArray[np.float64],
    shapes: ColumnShapes,
) -> Gaussians:
    """``counts`` and ``sums`` of moments of every part, with the standard deviations of their noise."""
    told = counts > 2 * count_noise
    counts = np.maximum(counts, max(_FEWEST, count_noise))
    d, numbers = shapes.size, list(shapes.numbers)
    deviation = sums / counts[:, None] - anchor
    error = noise / counts
    for part in (slice(0, d), slice(d, None)):
        own = deviation[:, part]
        square = np.maximum((own**2).sum(axis=1), 1e-300)
        own *= (told * np.maximum(0.0, 1 - own.shape[1] * error**2 / square))[:, None]
    moments = anchor + deviation
    means = into_domain(moments[:, :d] + shapes.centre, shapes)
    variances = np.clip(means * (1 - means), _INDICATOR, 0.25)
    spread = moments[:, d:] + 0.5 - means[:, numbers] ** 2
    variances[:, numbers] = np.clip(spread, np.clip(0.5 * error, _LEAST, 1 / 3)[:, None], 1.0)
    return Gaussians(weights=counts / counts.sum(), means=means, variances=variances)


def score_weights(gaussians: Gaussians) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(weights of (x, x²), constants): the log of weight · density is linear in the columns and their squares."""
    means, variances = gaussians.means, gaussians.variances
    weights = np.hstack([means / variances, -0.5 / variances])
    least = np.log(np.maximum(gaussians.weights, 1e-12))
    constants = least - 0.5 * (np.log(2 * np.pi * variances) + means**2 / variances).sum(axis=1)
    return weights, constants


def log_joint(features: NDArray[np.float64], gaussians: Gaussians) -> NDArray[np.float64]:
    """log(weight · density) of every row under every part."""
    weights, constants = score_weights(gaussians)
    return np.asarray(np.hstack([features, features**2]) @ weights.T + constants)
