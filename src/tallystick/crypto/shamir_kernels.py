"""The inner loops of Shamir sharing in the field mod p = 2^64 − 2^32 + 1, compiled once and cached.

No branch and no address depends on a secret: every step is arithmetic and a select. Products are reduced by
2^64 ≡ 2^32 − 1 and 2^96 ≡ −1 (mod p). A product with a point x < 2^16 needs no 128-bit arithmetic:

    a = h·2^32 + l,  h·x = u·2^32 + v   ⇒   a·x ≡ v·2^32 + l·x + u·(2^32 − 1),   the last two together below 2^50.

Called by :mod:`tallystick.crypto.shamir` alone, which checks shapes, points and canonical form first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_F = TypeVar("_F", bound=Callable[..., object])


def _compiled(function: _F) -> _F:
    """Compiled on first call, cached on disk, run without the interpreter's lock; no fastmath."""
    return cast(_F, njit(cache=True, nogil=True)(function))


_P = np.uint64(2**64 - 2**32 + 1)
_LOW = np.uint64(2**32 - 1)
_HALF_BITS = np.uint64(32)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@_compiled
def _canonical(a: np.uint64) -> np.uint64:
    return a - _P if a >= _P else a


@_compiled
def _times_point(a: np.uint64, x: np.uint64) -> np.uint64:
    """a·x mod p for a < p and x < 2^16."""
    high = (a >> _HALF_BITS) * x
    rest = (a & _LOW) * x + (high >> _HALF_BITS) * _LOW
    total = (high << _HALF_BITS) + rest
    return _canonical(total + (_LOW if total < rest else _ZERO))


@_compiled
def _plus(a: np.uint64, b: np.uint64) -> np.uint64:
    t = _P - b
    s = a - t
    return s + _P if a < t else s


@_compiled
def _minus(a: np.uint64, b: np.uint64) -> np.uint64:
    s = a - b
    return s + _P if a < b else s


@_compiled
def times(a: np.uint64, b: np.uint64) -> np.uint64:
    """a·b mod p for a, b < p: the 128-bit product from four of 32 bits, then 2^64 ≡ 2^32 − 1 and 2^96 ≡ −1."""
    a_low, a_high = a & _LOW, a >> _HALF_BITS
    b_low, b_high = b & _LOW, b >> _HALF_BITS
    low = a_low * b_low
    cross = a_high * b_low + (low >> _HALF_BITS)  # at most (2^32 − 1)^2 + 2^32 − 1 < 2^64
    other = a_low * b_high + (cross & _LOW)
    high = a_high * b_high + (cross >> _HALF_BITS) + (other >> _HALF_BITS)
    low = (other << _HALF_BITS) + (low & _LOW)
    difference = low - (high >> _HALF_BITS)
    difference -= _LOW if low < (high >> _HALF_BITS) else _ZERO  # a borrow is 2^64 ≡ 2^32 − 1 too much
    more = (high & _LOW) * _LOW
    total = difference + more
    return _canonical(total + (_LOW if total < more else _ZERO))


@_compiled
def _inverse(a: np.uint64) -> np.uint64:
    """a^(p − 2), by Fermat: p − 2 in binary is 31 ones, a zero, 32 ones."""
    result = _ONE
    for bit in range(64):
        result = times(result, result)
        if bit != 31:
            result = times(result, a)
    return result


@_compiled
def evaluate(coefficients: Words, out: Words) -> None:
    """``out[s, j, l]`` = the polynomial with ``coefficients[s, :, l]``, constant first, at the point j + 1 (Horner)."""
    secrets, points, limbs = out.shape
    degree = coefficients.shape[1] - 1
    for s in range(secrets):
        for j in range(points):
            x = np.uint64(j + 1)
            for limb in range(limbs):
                value = coefficients[s, degree, limb]
                for power in range(degree - 1, -1, -1):
                    value = _plus(_times_point(value, x), coefficients[s, power, limb])
                out[s, j, limb] = value


@_compiled
def values_at_zero(points: Words, values: Words, out: Words) -> None:
    """Lagrange: ``out[s, l]`` = Σ_j values[s, j, l] · Π_{i≠j} x_i / (x_i − x_j), the x the distinct ``points[s]``."""
    secrets, count, limbs = values.shape
    for s in range(secrets):
        for limb in range(limbs):
            out[s, limb] = _ZERO
        for j in range(count):
            above, below = _ONE, _ONE
            for i in range(count):
                if i != j:
                    above = times(above, points[s, i])
                    below = times(below, _minus(points[s, i], points[s, j]))
            weight = times(above, _inverse(below))
            for limb in range(limbs):
                out[s, limb] = _plus(out[s, limb], times(weight, values[s, j, limb]))
