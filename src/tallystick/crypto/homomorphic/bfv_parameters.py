"""The parameters of BFV, and what fits them: by public facts alone, without the library that carries it out."""

from __future__ import annotations

from tallystick.crypto.homomorphic.flooding import error_bound
from tallystick.crypto.homomorphic.scheme import Extent, no_room

DEGREE = 8192
PRIME_BITS = (54, 54, 55, 55)
"""218 bits in all; the last prime is switched away by encryption."""
MOST_PLAIN_BITS, LEAST_PLAIN_BITS = 60, 20
_Q_BITS = sum(bits - 1 for bits in PRIME_BITS[:-1])  # a prime of b bits is above 2^(b − 1)


def plain_bits(limit: int) -> list[int]:
    """How many bits each plaintext modulus has: one where 60 bits hold the sum, two of equal size otherwise."""
    bits = (2 * limit + 1).bit_length() + 1  # a prime of so many bits may lie just above half of that
    if bits in PRIME_BITS:  # never one of q's own primes
        bits = max(PRIME_BITS) + 1
    if bits <= MOST_PLAIN_BITS:
        return [max(LEAST_PLAIN_BITS, bits)]
    return [(bits + 1) // 2 + 1] * 2


def ciphertext_bytes(limit: int) -> int:
    """Of one block: two polynomials of three primes' words, for each plaintext modulus."""
    return 2 * (len(PRIME_BITS) - 1) * DEGREE * 8 * len(plain_bits(limit))


def coefficients(size: int, limit: int) -> int:
    """Coefficients of all ciphertexts that carry a vector of this size."""
    return -(-size // DEGREE) * DEGREE * len(plain_bits(limit))


def budget_left(extent: Extent) -> int:
    """Bits by which the error of a finished total could still grow, at least: t·|error|/q < 1/2 lets it decrypt."""
    error = error_bound(DEGREE, extent.owners) + (1 << extent.flood_bits)
    return _Q_BITS - plain_bits(extent.limit)[0] - error.bit_length() - 1


def check_budget(extent: Extent) -> None:
    """Refuse a sum that would use up the noise budget of a ciphertext."""
    if budget_left(extent) < 1:
        no_room(
            f"the noise budget of a BFV ciphertext does not hold the sum: ±2^{extent.flood_bits} to drown the errors "
            f"of {extent.owners} clients beside plaintexts of {plain_bits(extent.limit)[0]} bits",
            'Use scheme = "paillier" under [trust], a smaller max_clients, fewer rounds, or a larger delta.',
        )
