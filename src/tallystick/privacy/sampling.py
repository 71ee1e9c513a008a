"""Record sampling by private coins: what a round costs when each record takes part only with probability q.

Every client tosses its own coins, afresh in every round, and tells nobody which records came up or how many. For
add-remove neighbours the released sum is then, at the one record that differs, the mixture M = (1−q)·P₀ + q·P₁ of the
mechanism without and with it. At a whole order α

    D_α(M ‖ P₀) = 1/(α−1) · ln Σ_l C(α,l) (1−q)^(α−l) q^l E_{P₀}[(P₁/P₀)^l]                      [MTZ19, §3.3]

and for a discrete Gaussian of variance s² shifted by a whole vector v,  E_{P₀}[(P₁/P₀)^l] = e^{(l²−l)‖v‖²/(2s²)}
exactly: the sum over the lattice of e^{−‖x−lv‖²/(2s²)} does not depend on the whole shift lv. With ‖v‖²/(2s²) ≤ ρ,

    ε(α) = 1/(α−1) · ln Σ_l C(α,l) (1−q)^(α−l) q^l e^{(l²−l)ρ}                                      (one honest server)

The other direction, D_α(P₀ ‖ M), is never larger, because x ↦ v − x swaps P₀ and P₁ [MTZ19, Thm. 5]; both directions
are computed by brute force in the tests. For h > 1 honest servers the noise is a sum of discrete Gaussians, known only
by its curve ε(l) ≤ ρl; then the bound for any mechanism is used [ZW19, Thm. 5]:

    ε(α) ≤ 1/(α−1) · ln{ (1−q)^(α−1) (αq − q + 1) + C(α,2) q² (1−q)^(α−2) e^{2ρ}
                          + 3 Σ_{l≥3} C(α,l) (1−q)^(α−l) q^l e^{(l−1)lρ} }

Orders between whole ones take the next whole one (Rényi divergence grows with the order), orders above
:data:`LARGEST` the unsampled ρα, which always holds (M is a mixture of P₀ and P₁; divergence is quasi-convex). A record
whose own rate is lower than q (class balancing) costs less: ε(α) grows with q.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from tallystick.core.errors import PrivacyRefused

__all__ = ["LARGEST", "curve_epsilon", "sampled_budget", "sampled_curve"]

LARGEST = 256
_SLACK = 1e-9
"""Relative slack, upwards, for the last bits of float64 logarithms."""


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_sum(terms: Sequence[float]) -> float:
    most = max(terms)
    return most + math.log(math.fsum(math.exp(t - most) for t in terms))


def sampled_curve(rho: float, rate: float, order: int, *, honest: int = 1) -> float:
    """ε at a whole order α ≥ 2 of one round of ρ-zCDP noise on records sampled at ``rate``."""
    if not (0 < rate <= 1) or order < 2 or rho < 0:
        raise PrivacyRefused(f"no sampled round has rate {rate}, order {order}", rule="sampling-rate")
    if rate == 1 or order > LARGEST:
        return rho * order
    stay, take = math.log1p(-rate), math.log(rate)

    def term(count: int, moment: float) -> float:
        return _log_binomial(order, count) + (order - count) * stay + count * take + moment

    if honest == 1:
        terms = [term(count, (count * count - count) * rho) for count in range(order + 1)]
    else:
        terms = [(order - 1) * stay + math.log(order * rate - rate + 1), term(2, 2 * rho)]
        terms += [math.log(3) + term(count, (count - 1) * count * rho) for count in range(3, order + 1)]
    sampled = _log_sum(terms) / (order - 1)
    return min(rho * order, max(0.0, sampled) * (1 + _SLACK) + _SLACK * _SLACK)


def round_curve(rho: float, rate: float, orders: Sequence[Fraction], *, honest: int) -> list[float]:
    """ε of one sampled round at every one of these orders."""
    known: dict[int, float] = {}
    out = []
    for order in orders:
        whole = max(2, math.ceil(order))
        if whole > LARGEST:
            out.append(rho * float(order) * (1 + _SLACK))
            continue
        if whole not in known:
            known[whole] = sampled_curve(rho, rate, whole, honest=honest)
        out.append(min(known[whole], rho * float(order) * (1 + _SLACK)))
    return out


def curve_epsilon(curve: Sequence[float], orders: Sequence[Fraction], delta: float) -> float:
    """The smallest ε that a Rényi curve at these orders promises at δ [CKS20, Prop. 12]."""
    best = math.inf
    for value, order in zip(curve, orders):
        a = float(order)
        shift = (math.log(1 / delta) + (a - 1) * math.log1p(-1 / a) - math.log(a)) / (a - 1)
        best = min(best, value + shift)
    return max(0.0, best) * (1 + 1e-12)


def sampled_budget(
    epsilon: float, delta: float, *, rate: float, shares: Sequence[Fraction], orders: Sequence[Fraction], honest: int
) -> Fraction:
    """The largest Σρ, split over rounds by ``shares`` (they sum to 1), whose sampled rounds together promise (ε, δ)."""
    return _sampled_budget(epsilon, delta, rate, tuple(Counter(shares).items()), tuple(orders), honest)


@lru_cache(maxsize=64)
def _sampled_budget(
    epsilon: float,
    delta: float,
    rate: float,
    counts: tuple[tuple[Fraction, int], ...],
    orders: tuple[Fraction, ...],
    honest: int,
) -> Fraction:
    """A function of public numbers; kept, because the designer, the plan and every fit of a study ask for the same."""

    def promised(rho: float) -> float:
        total = [0.0] * len(orders)
        for share, count in counts:
            curve = round_curve(rho * float(share), rate, orders, honest=honest)
            total = [t + count * c for t, c in zip(total, curve)]
        return curve_epsilon(total, orders, delta)

    low, high = 0.0, 1.0
    while promised(high) <= epsilon and high < 2.0**60:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if promised(middle) <= epsilon:
            low = middle
        else:
            high = middle
    if low == 0.0:
        raise PrivacyRefused(
            f"no noise on a sample of {rate:g} promises epsilon = {epsilon:g} at delta = {delta:g}",
            rule="sampling-rate",
            remedy="Raise epsilon, or leave sampling out.",
        )
    return Fraction(math.floor(Fraction(low) * (1 - Fraction(1, 10**9)) * 2**80), 2**80)
