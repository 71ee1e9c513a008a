"""The exact curve of Gaussian noise, (ε, δ) for ρ and back, in decimal arithmetic that only ever errs to the safe side.

Gaussian rounds, however adaptively chosen, whose shifts between two neighbouring data sets have Σ‖Δᵢ‖²/vᵢ ≤ μ² = 2ρ,
are as hard to tell apart as N(μ, 1) and N(0, 1) (mechanisms/rounded_gaussian.md). So they are (ε, δ)-DP for

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)                                                     [BW18, Thm. 8]
         = ½ [erfc(x) − e^ε erfc(y)],   x = (ε − ρ)/(2√ρ),   y = (ε + ρ)/(2√ρ),

exactly, where the conversion from zCDP needs 5 to 19 % more noise. As y² − x² = ε, both terms have the factor e^{−x²}:
e^ε erfc(y) = e^{−x²} erfcx(y), with erfcx(z) = e^{z²} erfc(z).

Rounding. Every operation of ``decimal`` is correctly rounded, to the same digits on every machine; :data:`_DIGITS` are
kept. δ grows with ρ and falls with ε, so ρ is rounded up and ε down on the way in. Both terms are then known to a
relative 10⁻³⁶ (at :func:`_erfcx`), which is added to the one and taken from the other: the result is never below δ(ε).
What is searched for is taken only where this bound confirms it, and so is the same for every party.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.accountant import check_delta, check_epsilon

RESERVED = Fraction(1, 10**6)
"""Of δ, for the distance between what is drawn and a rounded Gaussian; nearly always far more than it needs."""
_DIGITS = 50
_UNSURE = Decimal("1e-36")
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_LEAST = Decimal("1e-400")
"""No δ is told that is smaller: a fraction of it would take all the memory there is."""
_GRID = 2**80
"""ρ is found in whole steps of 2^-80, as by :func:`tallystick.privacy.accountant.rho_from_epsilon`."""
_KEPT = 44
"""Bits to which ρ and ε are searched."""
_SERIES_BELOW = 3
_MOST_ODDS = 1000
"""Beyond this ε the factor 1 + e^ε lets no distance through that can be written down."""


def _context(rounding: str | None = None) -> Context:
    return Context(prec=_DIGITS, Emax=10**12, Emin=-(10**12), rounding=rounding)


def _up(value: Fraction) -> Decimal:
    return _context(ROUND_CEILING).divide(Decimal(value.numerator), Decimal(value.denominator))


def _down(value: Fraction) -> Decimal:
    return _context(ROUND_FLOOR).divide(Decimal(value.numerator), Decimal(value.denominator))


def gaussian_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """δ(ε) of Gaussian rounds of that ρ, never below the true one."""
    if rho < 0 or epsilon < 0:
        raise PrivacyRefused(f"no curve has rho = {float(rho):g}, epsilon = {float(epsilon):g}", rule="rho-is-finite")
    return Fraction(max(_delta(_up(rho), _down(epsilon)), _LEAST)) if rho else Fraction(0)


def _delta(rho: Decimal, epsilon: Decimal) -> Decimal:
    if not rho:
        return Decimal(0)
    with localcontext(_context()):
        twice_root = 2 * rho.sqrt()
        x, y = (epsilon - rho) / twice_root, (epsilon + rho) / twice_root
        common = (-x * x).exp()
        first = common * _erfcx(abs(x))
        first = first if x >= 0 else 2 - first
        second = common * _erfcx(y)
        return min(Decimal(1), (first * (1 + _UNSURE) - second * (1 - _UNSURE)) / 2)


def _erfcx(z: Decimal) -> Decimal:
    """e^{z²}·erfc(z) for z ≥ 0, to a relative 10⁻³⁸; u = 10⁻⁴⁹ is the largest relative error of an operation.

    Below 3: e^{z²} − (2/√π) Σ 2ⁿ z^{2n+1}/(1·3·…·(2n+1)) [DLMF 7.6.2]. Terms are positive, some 80 matter, each is off
    by n·3u at most, so the sum by 300u. e⁹ = 8,100 and erfcx(3) = 0.18: the difference is off by less than 10⁻⁴¹.

    From 3 on: (1/√π)/(z + (1/2)/(z + (2/2)/(z + (3/2)/(z + …)))) [DLMF 7.9.2]. All parts are positive: the fractions
    that are cut off after an even and after an odd number of terms lie on both sides of the whole, and they are
    computed by sums of positive products, off by n·3u. It is cut off where the two agree to 10⁻⁴⁰.

    z itself is known to 4u. |z·erfcx'(z)/erfcx(z)| ≤ 1 and the exponent is −x²: with x² ≤ 10⁶ that is 10⁷u at most.
    """
    if z < _SERIES_BELOW:
        square, term, n = z * z, z, 0
        total = term
        while term > Decimal("1e-60"):
            n += 1
            term = term * 2 * square / (2 * n + 1)
            total += term
        return square.exp() - 2 / _PI.sqrt() * total
    before, now = (Decimal(1), Decimal(0)), (z, Decimal(1))
    n = 0
    while True:
        for _ in range(8):
            n += 1
            part = Decimal(n) / 2
            before, now = now, (z * now[0] + part * before[0], z * now[1] + part * before[1])
        if abs(now[0] * before[1] - before[0] * now[1]) <= Decimal("1e-40") * now[0] * before[1]:
            return now[1] / now[0] / _PI.sqrt()


def distance_delta(distance: Fraction, epsilon: Fraction) -> Fraction:
    """(1 + e^ε)·distance, rounded up: the δ that a total variation of ``distance``, from either side, costs at most.

    If P, P* and Q, Q* are within D of each other and P*(S) ≤ e^ε Q*(S) + δ, then
    P(S) ≤ P*(S) + D ≤ e^ε Q*(S) + δ + D ≤ e^ε Q(S) + δ + (1 + e^ε) D.
    """
    if not distance:
        return Fraction(0)
    if epsilon > _MOST_ODDS:
        return Fraction(1)
    with localcontext(_context(ROUND_CEILING)):  # exp is rounded to the nearest whatever is asked for: hence the factor
        return min(Fraction(1), Fraction((1 + _up(epsilon).exp()) * (1 + _UNSURE) * _up(distance)))


def gaussian_rho(epsilon: float | Fraction, delta: float | Fraction) -> Fraction:
    """The largest ρ (to :data:`_KEPT` bits) whose Gaussian rounds promise (ε, δ); 0 if none does."""
    check_delta(delta)
    check_epsilon(epsilon)
    return _rho(Fraction(epsilon), Fraction(delta))


@lru_cache(maxsize=4096)
def _rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    limit, at = _down(delta), _down(epsilon)

    def over(steps: int) -> Decimal:
        return _excess(_delta(_up(Fraction(steps, _GRID)), at), limit)

    low, high = 0, _GRID
    while over(high) <= 0:
        low, high = high, 2 * high
    low, _ = _crossing(over, low, high, least=lambda steps: max(1, steps >> _KEPT))
    return Fraction(low, _GRID)


def gaussian_epsilon(rho: float | Fraction, delta: float | Fraction) -> float:
    """The smallest ε (to :data:`_KEPT` bits, rounded up) that Gaussian rounds of this ρ promise at δ; 0 for ρ = 0."""
    check_delta(delta)
    if rho < 0:
        raise PrivacyRefused(f"a zCDP budget of {float(rho):g} does not exist", rule="rho-is-finite")
    return _epsilon(_up(Fraction(rho)), _down(Fraction(delta)))


@lru_cache(maxsize=4096)
def _epsilon(rho: Decimal, limit: Decimal) -> float:
    def under(steps: int) -> Decimal:
        return _excess(_delta(rho, _down(Fraction(steps, _GRID))), limit).copy_negate()

    if under(0) >= 0:
        return 0.0
    low, high = 0, _GRID
    while under(high) < 0:
        low, high = high, 2 * high
    _, found = _crossing(under, low, high, least=lambda steps: max(1, steps >> _KEPT))
    near = found / _GRID
    return near if Fraction(near) >= Fraction(found, _GRID) else math.nextafter(near, math.inf)


def _excess(value: Decimal, limit: Decimal) -> Decimal:
    """How far above the limit, as a ratio's logarithm; only its sign decides anything."""
    if value <= 0:
        return Decimal(-1000)
    with localcontext(_context()):
        return (value / limit).ln()


def _crossing(excess: Callable[[int], Decimal], low: int, high: int, *, least: Callable[[int], int]) -> tuple[int, int]:
    """Neighbours (``least`` apart) where a growing function of integers passes 0: excess(low) < 0 (≤ 0) < excess(high).

    By secants that are kept honest by halving whenever three steps have not made the interval eight times smaller.
    """
    below: Decimal | None = None if low == 0 else excess(low)
    above = excess(high)
    while high - low > least(low):
        width = high - low
        for step in range(4):
            middle = (low + high) // 2
            if step < 3 and below is not None and above > 0 and below < 0:
                with localcontext(_context()):
                    inner = int(Decimal(low) + Decimal(width_now := high - low) * (-below / (above - below)))
                # Off the middle of the guess by a little, towards the far end, so that both ends move in.
                nudge = max(1, width_now >> 20)
                inner += nudge if inner - low < high - inner else -nudge
                middle = min(max(inner, low + 1), high - 1)
            value = excess(middle)
            if value <= 0:
                low, below = middle, value
            else:
                high, above = middle, value
            if high - low <= least(low):
                break
        if 8 * (high - low) > width and high - low > least(low):
            middle = (low + high) // 2
            value = excess(middle)
            low, below, high, above = (middle, value, high, above) if value <= 0 else (low, below, middle, value)
    return low, high
