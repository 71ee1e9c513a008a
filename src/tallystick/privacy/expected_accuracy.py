"""What accuracy to expect of a classifier under a trust model: a formula on public facts, before anything is read.

The question is what trusting nobody, or fewer, costs; so all else is held equal: one made-up problem of the study's
shape, one linear rule learned from one noisy mean. c classes lie around c means that are equally far apart, x ~ N(M_k,
σ²I_d) in d coordinates, scaled to records of length about 1: σ² = 1/(d + m²). m is such that the best rule of all would
be right with :data:`REFERENCE`. The rule is learned from n records as the means' estimates, each coordinate of half the
difference of two of them with variance

    c/2 · σ²/n  +  g(c) · v         sampling, and noise;  g(2) = 1 (y·x is summed),  g(c) = c²/2 (a sum for each class)

where v is the variance of the noise on one coordinate of a mean over all records:

    a sum with noise     v = f · Δ² / (2ρ n²)     Δ = 2 (replace-one) or 1 (add-remove) for records of length 1, ρ the
                                                  whole budget, f the trust model's price over a curator's variance
    local noise          v = b / n                b of the randomiser (``local/subset_moments``)

Then, the noise being spread over all d directions, the learned direction is at an angle to the best one with
cos² = m² / (m² + d·variance/σ²), and with D = √2·m·cos the rule is right with probability

    A(D) = ∫ φ(t − D) Φ(t)^(c−1) dt          = Φ(m·cos) for two classes.

It is not the accuracy on anybody's data: real classes are easier or harder than the reference, features are not
isotropic, and programs take many rounds. It orders trust models, and says where noise drowns the signal. On Spambase
(n = 4,140, d = 57; measured without noise .93) it has .74, .88, .89 for local noise at ε = 1, 5, 10, and .90 for sums
at 1; measured are .79, .90, .90 and .93 (docs/results).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tallystick.core.errors import StudyError
from tallystick.privacy.local.subset_moments import choose_subset, subset_moments

REFERENCE = 0.9
"""Accuracy of the best rule of all on the made-up problem."""
_GRID = np.linspace(-9.0, 18.0, 2701)
_BELOW = np.array([0.5 * math.erfc(-t / math.sqrt(2)) for t in _GRID])


def sum_variance(*, rho: float, records: int, factor: float, sensitivity: float = 2.0) -> float:
    """v of a mean of records of length 1 that are summed with noise; ``factor`` is the trust model's price."""
    return factor * sensitivity**2 / (2 * rho * records**2)


def local_variance(*, epsilon: float, records: int, features: int) -> float:
    """v of a mean of records that were each perturbed by subset selection."""
    share = Fraction(epsilon)
    return subset_moments(choose_subset(share, features), share).b / records


def expected_accuracy(variance: float, *, records: int, features: int, classes: int = 2) -> float:
    """The formula above for noise of this variance on a coordinate of a mean."""
    if min(records, features) < 1 or classes < 2 or variance < 0:
        raise StudyError("an accuracy is expected of records with features, and two classes or more")
    far = _distance(classes)
    m2 = far * far / 2
    sigma2 = 1 / (features + m2)
    many = 1.0 if classes == 2 else classes**2 / 2
    noise = features * (classes / (2 * records) + many * variance / sigma2)
    return _right(far * math.sqrt(m2 / (m2 + noise)), classes)


def _right(distance: float, classes: int) -> float:
    """A(D)."""
    density = np.exp(-((_GRID - distance) ** 2) / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(density * _BELOW ** (classes - 1)) * (_GRID[1] - _GRID[0]))


def _distance(classes: int) -> float:
    """D at which the best rule is right with :data:`REFERENCE`, by halving."""
    low, high = 0.0, 9.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _right(middle, classes) < REFERENCE else (low, middle)
    return high
