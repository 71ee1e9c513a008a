"""From what charges add up to, to one promise (ε, δ): by Rényi curves, by Σε, or by the exact Gaussian curve.

Each of the three is valid whatever the others say, so the best of those that apply is taken.

* *Rényi*: Σρ, or the summed curve, at δ [CKS20, Prop. 12]. Applies to everything.
* *Pure*: Σε, with δ = 0, if every charge is pure.
* *Gaussian*: if every charge that is not pure is Gaussian noise on whole records (mechanisms/rounded_gaussian.md,
  Corollary), the exact curve of the Gaussian charges' Σρ, with Σε of the pure ones on top.

Total variations are paid for last. Where the whole is within D of what the conversion is about, (1 + e^ε)·D of δ is
used up (:func:`tallystick.privacy.gaussian_curve.distance_delta`). D is what trust models set aside, and on the
Gaussian curve the distances from rounded Gaussians besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon, rounded_up
from tallystick.privacy.gaussian_curve import distance_delta, gaussian_delta, gaussian_epsilon, gaussian_rho

_NEARER, _NEAR = 8, 1 - 1e-13


@dataclass(frozen=True, kw_only=True)
class Composed:
    """The sums of charges that all say something about one unit, for one relation."""

    rho: Fraction
    pure_epsilon: Fraction
    """Of the pure charges."""
    all_pure: bool
    gaussian_rho: Fraction | None
    """Of the Gaussian charges, if all that are not pure are Gaussian; otherwise None."""
    distance: Fraction
    aside: Fraction

    def promise(self, delta: float) -> tuple[float, float]:
        """The least ε that can be promised, and the δ with it: the one asked for (0 where ε is pure), or a larger one
        if the distances alone are as much as that."""
        found = [_paid(lambda left: epsilon_from_rho(self.rho, _below(left)), self.aside, delta)]
        if self.all_pure and self.pure_epsilon and not self.aside:
            found.append((rounded_up(self.pure_epsilon), 0.0))
        elif self.gaussian_rho is not None:
            found.append(_paid(self._curve_epsilon, self.aside + self.distance, delta))
        return min(found, key=lambda one: (one[1] > delta, *one))

    def _curve_epsilon(self, delta: Fraction) -> float:
        curve = Fraction(gaussian_epsilon(self.gaussian_rho or Fraction(0), delta))
        return rounded_up(curve + self.pure_epsilon)

    def delta_left(self, epsilon: float, delta: float) -> float:
        """What of δ is left for the noise, at this ε; rounded down, and at most 0 if nothing is."""
        return delta if not self.aside else _below(Fraction(delta) - distance_delta(self.aside, Fraction(epsilon)))

    def on_curve(self, epsilon: Fraction, delta: float) -> bool:
        """Whether the exact Gaussian curve keeps the whole within (ε, δ)."""
        left = self._curve_delta(epsilon, delta)
        if left is None or self.gaussian_rho is None:
            return False
        return gaussian_delta(self.gaussian_rho, epsilon - self.pure_epsilon) <= left

    def _curve_delta(self, epsilon: Fraction, delta: float) -> Fraction | None:
        if self.gaussian_rho is None or epsilon <= self.pure_epsilon:
            return None
        left = Fraction(delta) - distance_delta(self.aside + self.distance, epsilon)
        return left if left > 0 else None

    def share(self, after: Composed, epsilon: float, exact: Fraction, delta: float, *, on_account: bool) -> float:
        """Of what is left in (ε, δ), as much as the step from here to ``after`` takes, by the conversion that has most
        left; above 1 if it does not fit. What is left is counted without the step where it is ``on_account``."""
        steps = []
        if delta <= 0:
            if not after.all_pure:
                return math.inf
            steps.append((after.pure_epsilon - self.pure_epsilon, exact - self.pure_epsilon))
        else:
            noise = self.delta_left(epsilon, delta)
            if noise > 0:
                steps.append((after.rho - self.rho, rho_from_epsilon(epsilon, noise) - self.rho))
            curve = after._curve_delta(exact, delta)
            if curve is not None and self.gaussian_rho is not None and after.gaussian_rho is not None:
                taken = after.gaussian_rho - self.gaussian_rho
                if taken:
                    steps.append((taken, gaussian_rho(exact - self.pure_epsilon, curve) - self.gaussian_rho))
                else:
                    used = self.pure_epsilon + Fraction(gaussian_epsilon(self.gaussian_rho, curve))
                    steps.append((after.pure_epsilon - self.pure_epsilon, exact - used))
        lefts = [(taken, left + taken if on_account else left) for taken, left in steps]
        return min((float(taken / left) if left > 0 else math.inf for taken, left in lefts), default=math.inf)

    def rho_left(self, epsilon: float, exact: Fraction, delta: float) -> Fraction:
        """The largest ρ of Gaussian noise that still fits into (ε, δ), by whichever conversion; 0 or less if none."""
        noise = self.delta_left(epsilon, delta)
        left = rho_from_epsilon(epsilon, noise) - self.rho if noise > 0 else Fraction(-1)
        curve = self._curve_delta(exact, delta)
        if curve is not None and self.gaussian_rho is not None:
            left = max(left, gaussian_rho(exact - self.pure_epsilon, curve) - self.gaussian_rho)
        return left


def _paid(convert: Callable[[Fraction], float], distance: Fraction, delta: float) -> tuple[float, float]:
    """ε at δ with (1 + e^ε)·distance inside δ where half of it is enough for that, and beside it otherwise.

    A first ε from half of δ bounds e^ε from above, and so what is needed; the next has all of the rest. It is smaller,
    so that the same can be said of it: each is a promise that holds, and a few of them come to what was planned.
    """
    whole = Fraction(delta)
    if not distance:
        return convert(whole), delta
    epsilon = convert(whole / 2)
    needed = distance_delta(distance, Fraction(epsilon)) if math.isfinite(epsilon) else Fraction(1)
    if needed <= whole / 2:
        for _ in range(_NEARER):
            epsilon, before = min(epsilon, convert(whole - needed)), epsilon
            if epsilon >= before * _NEAR:
                break
            needed = distance_delta(distance, Fraction(epsilon))
        return epsilon, delta
    epsilon = convert(whole)
    return epsilon, min(1.0, rounded_up(whole + distance_delta(distance, Fraction(epsilon))))


def _below(value: Fraction) -> float:
    """The largest float64 that is not above it."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)
