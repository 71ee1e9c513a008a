"""Which of many counts reach a threshold: the sparse vector technique, and exactly what it costs.

[LSL17, Alg. 7], in whole numbers. T is public, ρ and ν_1 … ν_k are independent discrete Laplace noise of scales s₁, s₂:

    b_i = [q_i + ν_i ≥ T + ρ], in the public order of the counts, until c of them are 1; all that follow are 0

ρ is drawn ONCE, ν_i for every count, and it halts after c: each of the three is what the proof needs, and variants
without one of them promise nothing [LSL17, §3.4]. No count is released, nor how far it is from T.

THEOREM. If between neighbours no count moves by more than Δ, this costs ε₁ + ε₂ with ε₁ = Δ/s₁ and ε₂ = 2cΔ/s₂; if all
counts move the same way (add-remove: all rise by 0 to Δ, or all fall), ε₂ = cΔ/s₂.

Proof. Let b have its ones in I, |I| ≤ c, and its zeros before the halt in J. Given ρ = z the comparisons are
independent: P(b) = Σ_z p(z) Π_J F_j(z) Π_I G_i(z) with F_j(z) = P(ν < T + z − q_j), G_i(z) = P(ν ≥ T + z − q_i).
Compare term z of D with term z + Δ of D′: p(z) ≤ e^(Δ/s₁) p(z + Δ). F_j(z) ≤ F′_j(z + Δ), as q′_j ≤ q_j + Δ: however
many zeros there are, they cost nothing. G_i(z) ≤ e^(2Δ/s₂) G′_i(z + Δ), because q′_i ≥ q_i − Δ makes the bound on ν
rise by at most 2Δ, and P(ν ≥ x) = Σ_{y ≥ x} p_ν(y) ≤ e^(d/s₂) Σ p_ν(y + d) = e^(d/s₂) P(ν ≥ x + d). There are at most
c such factors. If all counts rise, q′_i ≥ q_i and the bound rises by at most Δ. If all fall, compare with the same z:
F_j(z) ≤ F′_j(z), and the bound rises by at most Δ. Sums over z keep the factor. ∎

*Noise of several makers.* Every party adds noise of its own, of the whole scales, to its share before anything is
compared. Whoever looks knows at most its own and its friends' noise; for each value of that, the rest is the same
mechanism with other fixed q_i and T, whose guarantee does not depend on them. So one honest party's noise carries the
promise, purely; the others' costs accuracy: the variance is m-fold.

*Finite circuits.* Sums are compared in 52 bits, and a comparison that leaves less than 2^20 scales for the noise of
each party is refused: all that the word "purely" leaves out is an event of probability below e^(−1,000,000).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.mechanisms import round_up_scale

ANSWER_BITS = 24
"""Of an answer in one entry of the vector in which a party says it."""
_GRAIN = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """What is compared, by which noise, and the exact ε it costs. Public."""

    cells: int
    """How many counts."""
    threshold: int
    most: int
    """c: after so many ones it halts."""
    sensitivity: int
    """Δ: by how much one count moves between neighbours at most."""
    one_way: bool
    """Whether all counts move the same way between neighbours."""
    threshold_scale: Fraction
    query_scale: Fraction

    @property
    def epsilon(self) -> Fraction:
        """ε₁ + ε₂, as the theorem has them."""
        moves = self.sensitivity if self.one_way else 2 * self.sensitivity
        return self.sensitivity / self.threshold_scale + self.most * moves / self.query_scale

    @property
    def variance(self) -> float:
        """Of one party's noise in one comparison: that of the count and that of the threshold."""
        return sum(2 * math.exp(-1 / float(s)) / math.expm1(-1 / float(s)) ** 2 for s in self.scales)

    @property
    def scales(self) -> tuple[Fraction, Fraction]:
        """Of the threshold's noise and of a count's."""
        return self.threshold_scale, self.query_scale

    @property
    def parameters(self) -> list[Fraction]:
        """What a noise maker attests to."""
        return [*self.scales]

    @property
    def kept_entries(self) -> int:
        """Noise that a party draws and keeps when the round is opened: of every count, then of the threshold."""
        return self.cells + 1

    @property
    def digits(self) -> int:
        """In how many entries a party says the answer."""
        return -(-self.cells // ANSWER_BITS)

    @property
    def largest_digit(self) -> int:
        """No entry of an answer is larger."""
        return 1 << ANSWER_BITS

    @property
    def words(self) -> str:
        """For the plan."""
        return f"tells which of {self.cells:,} counts reach {self.threshold:,}, at most {self.most} of them,"

    def decoded(self, said: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """One 0 or 1 for each count, from what a party said; None if no parties can have said it."""
        if ((said < 1) | (said > self.largest_digit)).any():
            return None
        digits = (said - 1).astype(np.uint64)
        bits = (digits[:, None] >> np.arange(ANSWER_BITS, dtype=np.uint64)) & np.uint64(1)
        flat = bits.reshape(-1).astype(np.int64)
        if flat[self.cells :].any() or int(flat.sum()) > self.most:
            return None
        return flat[: self.cells]

    def as_dict(self) -> dict[str, Any]:
        """As it is proposed, attested and checked: exact."""
        return {
            "kind": "above",
            "cells": self.cells,
            "threshold": self.threshold,
            "most": self.most,
            "moves": self.sensitivity,
            "one_way": self.one_way,
            "threshold_scale": _written(self.threshold_scale),
            "query_scale": _written(self.query_scale),
            "epsilon": _written(self.epsilon),
        }


def _written(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def sparse_vector(
    *, cells: int, threshold: int, most: int, sensitivity: int, one_way: bool, epsilon: Fraction
) -> SparseVector:
    """A comparison that costs at most ε, split as ε₁ : ε₂ = 1 : (2c)^(2/3), or 1 : c^(2/3) one way [LSL17, §4.2].

    That split makes the variance of ν − ρ least; any split is sound, since what is charged follows from the scales.
    """
    if threshold < 1 or most < 1:
        raise PrivacyRefused(
            f"threshold = {threshold}, most = {most}: both are whole numbers from 1 on",
            rule="threshold-is-a-count",
            remedy="Name a number of records as threshold, and how many counts above it are wanted at most.",
        )
    most = min(most, cells)
    factor = most if one_way else 2 * most
    first = Fraction(1) / (1 + Fraction(round(factor ** (2 / 3) * _GRAIN), _GRAIN))
    made = SparseVector(
        cells=cells,
        threshold=threshold,
        most=most,
        sensitivity=sensitivity,
        one_way=one_way,
        threshold_scale=round_up_scale(sensitivity / (epsilon * first)),
        query_scale=round_up_scale(factor * sensitivity / (epsilon * (1 - first))),
    )
    if made.epsilon > epsilon:
        raise PrivacyRefused(
            "the noise of a comparison falls short of its budget", rule="noise-covers-budget", remedy="Raise epsilon."
        )
    return made
