"""The samplers compiled: the draws of ``reference.py`` from the same words, tens of millions a second.

A kernel works through a block of words until the output is full (``DONE``), the words run out (``MORE_WORDS``) or a
comparison is too close for double precision (``UNDECIDED``). In the last two cases it goes back to the first word of
the draw it was in; the caller brings more words, or has the reference make that one draw, and calls again.

Exactness. Only ``R < exp(-γ)`` is decided in floating point, and only outside a guard band. R lies in
[w, w + 1] / 2^64. The computed w·2^-64 is off by at most 2^-54 (one rounding), the computed exp(-γ) by at most
e^-γ |δγ| + 2^-40, where |δγ| is the error of the computed γ (derived at its line; its part stays below 2^-43) and 2^-40
is what we ask of ``exp`` (any libm in use is better than 2^-50). Together below 2^-38. The band is ``GUARD`` = 2^-32 on
either side, 64 times the proven error, and is entered by one comparison in 2^31: an honest margin costs nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

DONE, MORE_WORDS, UNDECIDED = 0, 1, 2
GUARD = 2.0**-32

_TO_UNIT = 2.0**-64
_LOW32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _multiply_high(a: np.uint64, b: np.uint64) -> np.uint64:
    """floor(a b / 2^64) by 32-bit halves; no partial sum exceeds 2^64 - 1."""
    a_low, a_high = a & _LOW32, a >> _S32
    b_low, b_high = b & _LOW32, b >> _S32
    middle = a_high * b_low + ((a_low * b_low) >> _S32)
    cross = a_low * b_high + (middle & _LOW32)
    return a_high * b_high + (middle >> _S32) + (cross >> _S32)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _geometric(leading: np.uint64, thresholds: NDArray[np.uint64]) -> int:
    """The number of k >= 1 with R < e^-k from R's 63 leading bits, or -1 if they do not decide it.

    ``thresholds[k - 1]`` = floor(e^-k 2^63): smaller bits mean R < e^-k, larger ones R > e^-k, equal ones neither. The
    last threshold is 0, so the search ends; and bits 0 and 1 always meet equality, hence a decided V is at most 42.
    """
    v = int(leading < thresholds[0]) + int(leading < thresholds[1]) + int(leading < thresholds[2])
    if v == 3:
        while leading < thresholds[v]:
            v += 1
    if leading == thresholds[v]:
        return -1
    return v


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def laplace_kernel(
    words: NDArray[np.uint64],
    out: NDArray[np.int64],
    filled: int,
    t: np.uint64,
    s: np.uint64,
    rejected: np.uint64,
    inverse_t: float,
    guard: float,
    thresholds: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Discrete Laplace of scale t/s, t <= 2^56; returns (words read, draws made, status). ``rejected`` = 2^64 mod t."""
    position = 0
    available = len(words)
    while filled < len(out):
        first = position
        while True:
            if position + 3 > available:
                return first, filled, MORE_WORDS
            word = words[position]
            position += 1
            if word * t < rejected:  # low half of the product, modulo 2^64 [Lemire 2019, Alg. 5]
                continue
            u = _multiply_high(word, t)
            # γ = u/t in [0, 1): u rounded to double, 1/t rounded, their product rounded: |δγ| <= 3.01 · 2^-53 < 2^-51.
            distance = np.float64(words[position]) * _TO_UNIT - math.exp(-(np.float64(u) * inverse_t))
            position += 1
            if distance > guard:
                continue
            if not distance < -guard:
                return first, filled, UNDECIDED
            word = words[position]
            position += 1
            v = _geometric(word >> _ONE, thresholds)
            if v < 0:
                return first, filled, UNDECIDED
            magnitude = (u + t * np.uint64(v)) // s  # u + t v < 43 · 2^56 < 2^62: no overflow
            if word & _ONE == _ZERO:
                out[filled] = np.int64(magnitude)
                break
            if magnitude > _ZERO:
                out[filled] = -np.int64(magnitude)
                break
        filled += 1
    return position, filled, DONE


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def gaussian_kernel(
    words: NDArray[np.uint64],
    out: NDArray[np.int64],
    filled: int,
    log2_t: np.uint64,
    inverse_double_variance: float,
    offset: float,
    guard: float,
    thresholds: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Discrete Gaussian with strips of width t = 2^log2_t, log2_t <= 56; returns (words read, draws made, status)."""
    position = 0
    available = len(words)
    down = np.uint64(63) - log2_t
    while filled < len(out):
        first = position
        while True:
            if position + 3 > available:
                return first, filled, MORE_WORDS
            word = words[position]
            v = _geometric(word >> _ONE, thresholds)
            if v < 0:
                return first, filled, UNDECIDED
            # floor(word t / 2^64); t divides 2^64, so nothing is rejected. x < 43 · 2^56 < 2^62: no overflow.
            x = (np.uint64(v) << log2_t) + ((words[position + 1] >> _ONE) >> down)
            # γ = x²/(2σ²) - V + c. Five roundings in the first term q, two for the sums, one for c, and
            # q = γ + V - c <= γ + 42: |δγ| <= 9 · 2^-53 (γ + 44), so e^-γ |δγ| <= 9 · 2^-53 · 45 < 2^-44 (and for
            # γ > 64, where |δγ| might matter to that estimate, both exponentials are below 2^-80).
            x_double = np.float64(x)
            gamma = x_double * x_double * inverse_double_variance - np.float64(v) + offset
            distance = np.float64(words[position + 2]) * _TO_UNIT - math.exp(-gamma)
            position += 3
            if distance > guard:
                continue
            if not distance < -guard:
                return first, filled, UNDECIDED
            if word & _ONE == _ZERO:
                out[filled] = np.int64(x)
                break
            if x > _ZERO:
                out[filled] = -np.int64(x)
                break
        filled += 1
    return position, filled, DONE
