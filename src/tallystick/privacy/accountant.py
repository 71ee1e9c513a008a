"""Zero-concentrated differential privacy: the currency of plans, and its conversion to (ε, δ).

A discrete Gaussian of variance s² on a statistic of L2 sensitivity D satisfies ρ-zCDP with ρ = D²/(2s²)
[CKS20, Thm. 14]; any ε-DP step satisfies ε²/2-zCDP [BS16, Prop. 1.4]; ρ adds up under adaptive composition, and a cap
on Σρ is a valid filter when the steps are chosen fully adaptively [WRRW23, Thm. 1].

The (ε, δ) we *promise* comes from the tight conversion [CKS20, Cor. 13]:

    ε(δ) = min over α > 1 of  ρα + [ln(1/δ) + (α−1) ln(1−1/α) − ln α] / (α−1)

Every α gives a valid bound, so a numerical minimum is always on the safe side; the last bits of float64 are covered by
rounding ε up and ρ down by 10⁻¹².
"""

from __future__ import annotations

import math
from fractions import Fraction

from tallystick.core.errors import PrivacyRefused

__all__ = ["ORDERS", "epsilon_from_rho", "pure_rho", "rho_for", "rho_from_epsilon", "rounded_up"]

ORDERS: tuple[Fraction, ...] = (
    *(Fraction(n, 16) for n in range(17, 48)),
    *(Fraction(n, 2) for n in range(6, 64)),
    *(Fraction(2**k) for k in range(5, 24)),
    *(Fraction(3 * 2**k) for k in range(4, 22)),
)
"""The fixed public orders of Rényi curves, in ledgers and for sampled rounds."""
_SLACK = 1e-12


def epsilon_from_rho(rho: float | Fraction, delta: float) -> float:
    """The smallest ε this conversion can promise for ρ-zCDP at δ (0 for ρ = 0)."""
    _check_delta(delta)
    rho = float(rho)
    if rho < 0 or not math.isfinite(rho):
        raise PrivacyRefused(f"a zCDP budget of {rho} does not exist", rule="rho-is-finite")
    if rho == 0:
        return 0.0

    def bound(log_excess: float) -> float:
        x = math.exp(log_excess)  # α − 1
        a = 1.0 + x
        return rho * a + (math.log(1 / delta) - math.log(a)) / x + math.log(x / a)

    # bound() is unimodal in ln(α−1): it falls from +∞ as α → 1 and grows like ρα. Golden section on a wide bracket.
    low, high = -40.0, 60.0
    ratio = (math.sqrt(5) - 1) / 2
    c, d = high - ratio * (high - low), low + ratio * (high - low)
    fc, fd = bound(c), bound(d)
    for _ in range(200):
        if fc < fd:
            high, d, fd = d, c, fc
            c = high - ratio * (high - low)
            fc = bound(c)
        else:
            low, c, fc = c, d, fd
            d = low + ratio * (high - low)
            fd = bound(d)
    return max(0.0, min(fc, fd)) * (1 + _SLACK) + _SLACK * rho


def rho_from_epsilon(epsilon: float, delta: float) -> Fraction:
    """The largest ρ whose promise is at most (ε, δ), rounded down to a rational: the whole budget of a study."""
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyRefused(f"epsilon = {epsilon} promises nothing", rule="epsilon-is-positive-and-finite")
    low, high = 0.0, 1.0
    while epsilon_from_rho(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if epsilon_from_rho(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    rho = Fraction(low) * (1 - Fraction(1, 10**12))
    # A short rational at or below it: ρ is kept exact, and exact rationals should stay readable.
    return Fraction(math.floor(rho * 2**80), 2**80)


def rho_for(sensitivity: int | Fraction, variance: Fraction) -> Fraction:
    """ρ of one discrete Gaussian of that variance: D²/(2s²) [CKS20, Thm. 14]; exact."""
    return Fraction(sensitivity) ** 2 / (2 * variance)


def pure_rho(epsilon: Fraction) -> Fraction:
    """ρ of any ε-DP step: ε²/2 [BS16, Prop. 1.4]."""
    return epsilon**2 / 2


def rounded_up(value: Fraction) -> float:
    """The smallest float64 that is not below it."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _check_delta(delta: float) -> None:
    if not (0 < delta < 1):
        raise PrivacyRefused(
            f"delta = {delta} is not a probability in (0, 1)",
            rule="delta-is-a-small-probability",
            remedy="Use a value well below 1/records, for example 1e-6.",
        )
