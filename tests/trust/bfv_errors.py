"""What the holder of a BFV key can see beside the plaintext: the error of a ciphertext, coefficient by coefficient."""

from __future__ import annotations

from typing import Any

import numpy as np
import seal

from tallystick.crypto.homomorphic.bfv_parameters import DEGREE, PRIME_BITS

_DATA = len(PRIME_BITS) - 1


def modulus_of(scheme: Any) -> int:
    q = 1
    for prime in scheme.moduli[0].primes[:_DATA]:
        q *= prime
    return q


def phase(scheme: Any, secret: Any, block: bytes) -> list[int]:
    """c0 + c1·s modulo q, by coefficient."""
    modulus = scheme.moduli[0]
    made = modulus.ciphertext(block)
    modulus.evaluator.transform_to_ntt_inplace(made)
    raw = made.to_string()
    head, words = raw[: len(raw) - 16 * _DATA * DEGREE], raw[len(raw) - 16 * _DATA * DEGREE :]
    pair = np.frombuffer(words, dtype="<u8").reshape(2, _DATA, DEGREE).astype(object)
    key = np.frombuffer(secret._words[0], dtype="<u8").reshape(len(PRIME_BITS), DEGREE)[:_DATA].astype(object)
    primes = np.array(modulus.primes[:_DATA], dtype=object)[:, None]
    summed = (pair[0] + pair[1] * key) % primes
    pair[0] = summed
    again = modulus.context.from_cipher_str(head + pair.astype(np.uint64).astype("<u8").tobytes())
    modulus.evaluator.transform_from_ntt_inplace(again)
    tail = again.to_string()[-16 * _DATA * DEGREE :]
    residues = np.frombuffer(tail, dtype="<u8").reshape(2, _DATA, DEGREE)[0].astype(object)
    q, found = modulus_of(scheme), np.zeros(DEGREE, dtype=object)
    for row, prime in zip(residues, modulus.primes):
        rest = q // prime
        found = found + row * (rest * pow(rest, -1, prime))
    return [int(value) % q for value in found]


def scaled(q: int, t: int, coefficient: int) -> int:
    """⌊q·m/t⌉, as SEAL takes it."""
    return (q * coefficient + (t + 1) // 2) // t


def polynomial(scheme: Any, values: np.ndarray) -> list[int]:
    """The plaintext polynomial that carries these integers."""
    plain: seal.Plaintext = scheme.moduli[0].encode(values)
    found = [0] * DEGREE
    for term in plain.to_string().split(" + "):
        number, _, power = term.partition("x^")
        found[int(power) if power else 0] = int(number, 16)
    return found


def errors(scheme: Any, secret: Any, block: bytes) -> tuple[list[int], list[int]]:
    """The plaintext's coefficients, and the error of each."""
    q, t = modulus_of(scheme), scheme.moduli[0].t
    seen, plain, found = phase(scheme, secret, block), [], []
    for value in seen:
        m = (2 * t * value + q) // (2 * q) % t
        error = (value - scaled(q, t, m)) % q
        plain.append(m)
        found.append(error - q if error > q // 2 else error)
    return plain, found
