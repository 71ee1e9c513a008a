"""Sine and cosine, element by element, with the same bits on every machine: +, − and × alone.

The argument is brought to |r| ≤ π/4 by taking off n quarter turns in three pieces (Cody and Waite; the pieces, and the
polynomials, are those of fdlibm's rem_pio2 and k_sin/k_cos). The first two pieces have 33 bits, so n times them is
exact for |n| < 2^20; beyond :data:`LARGEST` nobody may ask.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LARGEST = 2.0**20
"""The largest argument whose quarter turns are taken off exactly."""
_TURNS = 0.6366197723675814  # 2/π
_FIRST = 1.57079632673412561417e00
_SECOND = 6.07710050630396597660e-11
_THIRD = 2.02226624879595063154e-21


@njit(cache=True, nogil=True, inline="always")
def sine_cosine(x):  # type: ignore[no-untyped-def]
    """(sin x, cos x) for |x| < 2^20, within one unit of the last place of 1."""
    n = np.rint(x * _TURNS)
    r = ((x - n * _FIRST) - n * _SECOND) - n * _THIRD
    q = r * r
    s = 1.58969099521155010221e-10
    s = s * q - 2.50507602534068634195e-08
    s = s * q + 2.75573137070700676789e-06
    s = s * q - 1.98412698298579493134e-04
    s = s * q + 8.33333333332248946124e-03
    s = s * q - 1.66666666666666324348e-01
    s = r + r * q * s
    c = -1.13596475577881948265e-11
    c = c * q + 2.08757232129817482790e-09
    c = c * q - 2.75573143513906633035e-07
    c = c * q + 2.48015872894767294178e-05
    c = c * q - 1.38888888888741095749e-03
    c = c * q + 4.16666666666666019037e-02
    c = 1.0 - (0.5 * q - q * q * c)
    quarter = int(n) & 3
    if quarter == 0:
        return s, c
    if quarter == 1:
        return c, -s
    if quarter == 2:
        return -s, -c
    return -c, s
