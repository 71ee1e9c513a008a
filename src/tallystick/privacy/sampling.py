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

Both sums are 1 + something that may be far below float64's last digit, so only that something is added up. Σ_l of the
weights w_l = C(α,l) (1−q)^(α−l) q^l is 1, and (1−q)^(α−1) (αq − q + 1) = w_0 + w_1, so the two are 1 + S with

    S = Σ_{l≥2} w_l (e^{(l²−l)ρ} − 1)    and    S = w_2 (e^{2ρ} − 1) + Σ_{l≥3} w_l (3e^{(l²−l)ρ} − 1).

Every term of S is positive: nothing cancels, and a relative slack covers what float64 makes of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import confirmed

LARGEST = 256
_SLACK = 1e-9
"""Relative slack, upwards, for float64 logarithms: a weight's is up to 2,000 and so known to 10⁻¹²."""
_TERMS = 2.0**-48
"""Slack where terms do cancel: of the modulus of each (:mod:`tallystick.privacy.accountant`)."""
_Curve = Callable[..., float]


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
    if rho == 0:
        return 0.0
    stay, take = math.log1p(-rate), math.log(rate)

    def term(count: int, excess: float) -> float:
        return _log_binomial(order, count) + (order - count) * stay + count * take + excess

    if honest == 1:
        terms = [term(count, _log_expm1((count * count - count) * rho)) for count in range(2, order + 1)]
    else:
        terms = [term(2, _log_expm1(2 * rho))]
        for count in range(3, order + 1):
            y = (count - 1) * count * rho
            terms.append(term(count, y + math.log(3 - math.exp(-y))))
    log_s = _log_sum(terms)
    whole = log_s + math.log1p(math.exp(-log_s)) if log_s > 0 else math.log1p(math.exp(log_s))  # ln(1 + S)
    return min(rho * order, whole / (order - 1) * (1 + _SLACK) + _SLACK * _SLACK)


def _log_expm1(y: float) -> float:
    """ln(e^y − 1) for y > 0."""
    return y + math.log1p(-math.exp(-y)) if y > 30 else math.log(math.expm1(y))


def _estimated_curve(rho: float, rate: float, order: int, *, honest: int) -> float:
    """The same by the sums as they stand: what the noise of studies is searched by, and wrong where they are near 1."""
    if rate == 1:
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


def round_curve(
    rho: float, rate: float, orders: Sequence[Fraction], *, honest: int, curve: _Curve = sampled_curve
) -> list[float]:
    """ε of one sampled round at every one of these orders."""
    known: dict[int, float] = {}
    out = []
    for order in orders:
        whole = max(2, math.ceil(order))
        if whole > LARGEST:
            out.append(rho * float(order) * (1 + _SLACK))
            continue
        if whole not in known:
            known[whole] = curve(rho, rate, whole, honest=honest)
        out.append(min(known[whole], rho * float(order) * (1 + _SLACK)))
    return out


def curve_epsilon(curve: Sequence[float], orders: Sequence[Fraction], delta: float) -> float:
    """The smallest ε that a Rényi curve at these orders promises at δ [CKS20, Prop. 12]; never below the true one."""
    best = math.inf
    log_delta = -math.log(delta)
    for value, order in zip(curve, orders):
        a = float(order)
        terms = (value, log_delta / (a - 1), math.log1p(-1 / a), -math.log(a) / (a - 1))
        best = min(best, math.fsum(terms) + _TERMS * math.fsum(map(abs, terms)))
    return max(0.0, best)


def _estimated_epsilon(curve: Sequence[float], orders: Sequence[Fraction], delta: float) -> float:
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
    """A function of public numbers; kept, because the designer, the plan and every fit of a study ask for the same.

    As :func:`tallystick.privacy.accountant.rho_from_epsilon`: searched by an estimate, and taken once it is confirmed.
    """

    def summed(rho: float, curve: _Curve) -> list[float]:
        total = [0.0] * len(orders)
        for share, count in counts:
            one = round_curve(rho * float(share), rate, orders, honest=honest, curve=curve)
            total = [t + count * c for t, c in zip(total, one)]
        return total

    def estimated(rho: float) -> float:
        return _estimated_epsilon(summed(rho, _estimated_curve), orders, delta)

    def holds(rho: Fraction) -> bool:
        inflated = float(rho) * (1 + 1e-12)  # as the plan charges it
        return curve_epsilon(summed(inflated, sampled_curve), orders, delta) <= epsilon

    low, high = 0.0, 1.0
    while estimated(high) <= epsilon and high < 2.0**60:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if estimated(middle) <= epsilon:
            low = middle
        else:
            high = middle
    found = confirmed(Fraction(low) * (1 - Fraction(1, 10**9)), holds)
    if found == 0:
        raise PrivacyRefused(
            f"no noise on a sample of {rate:g} promises epsilon = {epsilon:g} at delta = {delta:g}",
            rule="sampling-rate",
            remedy="Raise epsilon, or leave sampling out.",
        )
    return found
