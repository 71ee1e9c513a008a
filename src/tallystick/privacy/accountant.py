"""Zero-concentrated differential privacy: the currency of plans, and its conversion to (ε, δ).

A discrete Gaussian of variance s² on a statistic of L2 sensitivity D satisfies ρ-zCDP with ρ = D²/(2s²)
[CKS20, Thm. 14]; any ε-DP step satisfies ε²/2-zCDP [BS16, Prop. 1.4]; ρ adds up under adaptive composition, and a cap
on Σρ is a valid filter when the steps are chosen fully adaptively [WRRW23, Thm. 1].

The (ε, δ) we *promise* comes from the tight conversion [CKS20, Cor. 13]:

    ε(δ) = min over α > 1 of  ρα + [ln(1/δ) + (α−1) ln(1−1/α) − ln α] / (α−1)

Every α gives a valid bound, so a numerical minimum is always on the safe side, once float64's own errors are covered.
The terms cancel: ε may be far smaller than any of them, so the slack is a fraction of the *terms*, not of ε. With
x = α − 1 each of

    ρ,   ρx,   −ln δ / x,   −ln(1+x) / x,   −ln(1+1/x)

is computed by functions that are accurate to the last bits of their value (log, log1p), so to less than 2⁻⁴⁹ of its
modulus, and their sum (fsum) is correctly rounded; 2⁻⁴⁸ of the sum of the moduli, added on top, bounds all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from tallystick.core.errors import PrivacyRefused

ORDERS: tuple[Fraction, ...] = (
    *(Fraction(n, 16) for n in range(17, 48)),
    *(Fraction(n, 2) for n in range(6, 64)),
    *(Fraction(2**k) for k in range(5, 24)),
    *(Fraction(3 * 2**k) for k in range(4, 22)),
)
"""The fixed public orders of Rényi curves, in ledgers and for sampled rounds."""
_ESTIMATE = 1e-12
_SLACK = 2.0**-48
"""Of the modulus of every term that is added up."""


def epsilon_from_rho(rho: float | Fraction, delta: float) -> float:
    """The smallest ε this conversion can promise for ρ-zCDP at δ (0 for ρ = 0); never below the true one."""
    check_delta(delta)
    return _epsilon(_as_float(rho), delta)


@lru_cache(maxsize=4096)
def _epsilon(rho: float, delta: float) -> float:
    if rho == 0:
        return 0.0
    log_delta = -math.log(delta)

    def bound(log_excess: float) -> float:
        x = math.exp(log_excess)  # α − 1; whatever float this is, it is taken as it is
        terms = (rho, rho * x, log_delta / x, -math.log1p(x) / x, -math.log1p(1 / x))
        return math.fsum(terms) + _SLACK * math.fsum(map(abs, terms))

    return max(0.0, _least(bound))


def rho_from_epsilon(epsilon: float, delta: float) -> Fraction:
    """The largest ρ whose promise is at most (ε, δ), rounded down to a rational: the whole budget of a study.

    The search goes by an estimate, which every study so far has its noise from; what it finds is taken if
    :func:`epsilon_from_rho` confirms it, as it does for ε from 10⁻⁴ on, and made smaller until it does otherwise.
    """
    check_delta(delta)
    check_epsilon(epsilon)
    return _rho(epsilon, delta)


@lru_cache(maxsize=4096)  # a role asks for the same few again and again: each takes some 10,000 logarithms
def _rho(epsilon: float, delta: float) -> Fraction:
    low, high = 0.0, 1.0
    while _estimate(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _estimate(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return confirmed(Fraction(low) * (1 - Fraction(1, 10**12)), lambda rho: epsilon_from_rho(rho, delta) <= epsilon)


def confirmed(rho: Fraction, holds: Callable[[Fraction], bool]) -> Fraction:
    """ρ as a short rational at or below it (exact rationals should stay readable), made smaller until it ``holds``."""
    less = Fraction(0)
    while True:
        found = Fraction(math.floor(rho * (1 - less) * 2**80), 2**80)
        if found == 0 or holds(found):
            return found
        less = min(Fraction(1), max(Fraction(1, 2**40), 2 * less))


def _estimate(rho: float, delta: float) -> float:
    """ε(δ) by the formula as it stands: good to 12 digits, but for ε below 10⁻⁴, where its logarithms cancel."""

    def bound(log_excess: float) -> float:
        x = math.exp(log_excess)  # α − 1
        a = 1.0 + x
        return rho * a + (math.log(1 / delta) - math.log(a)) / x + math.log(x / a)

    return max(0.0, _least(bound)) * (1 + _ESTIMATE) + _ESTIMATE * rho


def _least(bound: Callable[[float], float]) -> float:
    """The minimum over ln(α−1): the bound falls from +∞ as α → 1 and grows like ρα. Golden section, wide bracket."""
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
    return min(fc, fd)


def _as_float(rho: float | Fraction) -> float:
    """ρ in float64, rounded up."""
    if rho < 0 or not math.isfinite(rho):
        raise PrivacyRefused(f"a zCDP budget of {rho} does not exist", rule="rho-is-finite")
    return rounded_up(rho) if isinstance(rho, Fraction) else float(rho)


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


def check_epsilon(epsilon: float | Fraction) -> None:
    """Refuse an ε that promises nothing."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyRefused(
            f"epsilon = {epsilon} promises nothing",
            rule="epsilon-is-positive-and-finite",
            remedy="Use a positive number; 1 is a common choice, below 0.1 needs many records.",
        )


def check_delta(delta: float | Fraction) -> None:
    """Refuse a δ that is no probability."""
    if not (0 < delta < 1):
        raise PrivacyRefused(
            f"delta = {delta} is not a probability in (0, 1)",
            rule="delta-is-a-small-probability",
            remedy="Use a value well below 1/records, for example 1e-6.",
        )
