"""How much noise drowns the error of a summed BFV ciphertext, and what is left to see.

THEORY. Whoever holds the secret key sees not only the plaintext of a ciphertext but also its error,
c0 + c1·s − ⌊q·m/t⌉. The error of a sum is a function of every owner's randomness and, by its rounding, of every owner's
plaintext: so the data user would see more than the noised sum it is meant to see. An integer uniform in [−F, F) added
to each coefficient of c0 hides an error of absolute value at most V up to a statistical distance of V/(2F) per
coefficient ("noise flooding", [Gentry09; AJLTVW12, Lemma 1]): shifting a uniform law over 2F integers by k moves
k/(2F) of it.

The bound V is worst case and needs no heuristic. SEAL encrypts at the level of all primes and switches the last one, P,
away: its key-level error |e·u + e1 + e2·s| ≤ 21·(2N + 1) is divided by P > 2^50 (centred binomial, |e| ≤ 21; u, s
ternary), switching rounds both polynomials, |δ0 + δ1·s| ≤ (N + 1)/2, and scaling the plaintext rounds once more: all
together below N/2 + 2 per owner, and the same again for the proxy's fresh encryption of zero and for its own plaintext.
An owner that deviates knows its own error; that of the others is drowned all the same.

If a mechanism lies within statistical distance D of one that is (ε, δ')-DP, it is (ε, δ' + (1 + e^ε)·D)-DP. So with

    coefficients × rounds × V/(2F) × (1 + e^ε) ≤ δ/1,000

a thousandth of δ is set aside for it, and the noise is planned with the other 999.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

SHARE = Fraction(1, 1000)
"""The part of δ that is set aside for what drowned errors may still tell."""


def error_bound(degree: int, owners: int) -> int:
    """V: no coefficient of the summed error is larger, the proxy's own encryption of zero and plaintext included."""
    return (owners + 2) * (degree // 2 + 2)


@dataclass(frozen=True, kw_only=True)
class Flooding:
    """Uniform in ±2^bits on every coefficient, and the bound of what is left to see."""

    bits: int
    coefficients: int
    rounds: int
    error: int
    epsilon: float
    delta: float

    @property
    def left(self) -> float:
        """coefficients × rounds × distance × (1 + e^ε): what is charged to δ, at most."""
        distance = Fraction(self.error, 2 << self.bits)
        return float(self.coefficients * self.rounds * distance) * (1 + math.exp(self.epsilon))

    @property
    def words(self) -> str:
        """The bound, for people."""
        return (
            f"Errors of summed ciphertexts, at most {self.error:,} per coefficient, are drowned by uniform noise in "
            f"±2^{self.bits}: {self.coefficients:,} coefficients × {self.rounds} round(s) × distance × (1 + e^epsilon) "
            f"= {self.left:.3g}, charged to delta (at most a thousandth of it, {self.delta * float(SHARE):.3g})."
        )


def flooding_for(*, coefficients: int, rounds: int, degree: int, owners: int, epsilon: float, delta: float) -> Flooding:
    """The least flooding that leaves no more than a thousandth of δ to see."""
    error = error_bound(degree, owners)
    wanted = Fraction(delta) * SHARE
    told = coefficients * rounds * error * Fraction(1 + math.exp(epsilon)) * (1 + Fraction(1, 1 << 40))
    bits = max(0, math.ceil(told / wanted / 2) - 1).bit_length()
    return Flooding(bits=bits, coefficients=coefficients, rounds=rounds, error=error, epsilon=epsilon, delta=delta)
