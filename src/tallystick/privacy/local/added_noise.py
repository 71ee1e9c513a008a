"""Noise added to every coordinate of a record: discrete Laplace (L1-clipped, pure ε) or discrete Gaussian (L2-clipped).

A record of whole numbers, 2^f to the unit, is shortened to norm 2^f at most, in exact integers
(:mod:`tallystick.privacy.clipping`). Two such records differ by at most 2·2^f in that norm (spec: replace-one, norm
≤ B gives 2B), attained by x and −x; so scale 2·2^f/ε is ε-DP, and variance (2·2^f)²/(2ρ) is ρ-zCDP. Shortening, never
lengthening: a record of length 0 stays 0. What is published is cut to ±2^48, far beyond any noise, as post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.privacy.accountant import pure_rho, rho_for
from tallystick.privacy.clipping import clip_group
from tallystick.privacy.local.subset_moments import SubsetMoments
from tallystick.privacy.mechanisms import discrete_gaussian, discrete_laplace, round_up_scale
from tallystick.privacy.mechanisms.rational_scale import round_up_variance

CUT = 1 << 48


@dataclass(frozen=True, kw_only=True)
class AddedNoise:
    """The mechanism on vectors of ``dimension`` whole numbers, 2^fraction_bits to the unit; ε or ρ is of one vector."""

    dimension: int
    fraction_bits: int
    epsilon: Fraction | None
    """Of Laplace noise; None: Gaussian."""
    budget: Fraction = Fraction(0)
    """ρ of Gaussian noise."""

    @property
    def name(self) -> str:
        return "gaussian" if self.epsilon is None else "laplace"

    @property
    def bound(self) -> int:
        """The largest norm of a record on the grid."""
        return 1 << self.fraction_bits

    @property
    def parameter(self) -> Fraction:
        """The scale of the Laplace noise, or the variance of the Gaussian: rounded up."""
        if self.epsilon is not None:
            return round_up_scale(2 * self.bound / self.epsilon)
        return round_up_variance(Fraction((2 * self.bound) ** 2) / (2 * self.budget))

    @property
    def rho(self) -> Fraction:
        """What it costs in zCDP."""
        if self.epsilon is not None:
            return pure_rho(self.epsilon)
        return rho_for(2 * self.bound, self.parameter)

    @property
    def moments(self) -> SubsetMoments:
        """a = 1, b the noise's variance; in units of the bound."""
        if self.epsilon is not None:
            std = discrete_laplace.standard_deviation(self.parameter)
        else:
            std = float(self.parameter) ** 0.5
        return SubsetMoments(mean=1.0, a=1.0, b=(std / self.bound) ** 2)

    def clipped(self, vectors: NDArray[np.int64]) -> NDArray[np.int64]:
        """A copy whose rows are within the bound."""
        out = np.array(vectors, np.int64)
        _clip_rows(out, self.bound, self.epsilon is not None)
        return out

    def noise(self, size: int, source: WordSource) -> NDArray[np.int64]:
        """Of so many coordinates."""
        sampler = discrete_gaussian if self.epsilon is None else discrete_laplace
        return np.asarray(sampler.sample(self.parameter, size, source), dtype=np.int64)

    def decode(self, identities: Sequence[bytes], values: NDArray[np.int64]) -> NDArray[np.float64]:
        """z in units of the bound."""
        return values / float(self.bound)


@njit(cache=True, nogil=True)
def _clip_rows(rows, bound, norm_is_l1):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        clip_group(rows[i], 0, rows.shape[1], bound, norm_is_l1)
