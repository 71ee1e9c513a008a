"""Integer totals in and out of the field, and the room they need there.

Contributions are integers on a public grid of 2^-f; sums of them are exact as long as they do not wrap. A wrap
is post-processing and never harms privacy, only the result, so room is checked once, when a study is admitted,
from public facts alone: n·B + 40·s < (p−1)/2, with B the bound of one record on the grid and s the
standard deviation of all noise together. Forty deviations are beyond reach for Gaussian and Laplace noise alike
(e^-56 for the latter).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.crypto.field import HALF

NOISE_DEVIATIONS = 40
_MAX_FRACTION_BITS = 1000  # 2^-1000 · 2^63 is still a normal float64, so the scaling is exact


def check_headroom(
    *, records: int, bound: float | Fraction, noise_std_total: float | Fraction, party: str | None = None
) -> None:
    """Raise unless the records, each at most ``bound`` on the grid, and the noise fit the field; reckoned exactly."""
    for name, value in (("records", records), ("bound", bound), ("noise_std_total", noise_std_total)):
        if not math.isfinite(value) or value < 0:
            raise StudyError(
                f"{name} is not a finite number of zero or more", remedy="Declare finite public bounds.", party=party
            )
    needed = Fraction(records) * Fraction(bound) + NOISE_DEVIATIONS * Fraction(noise_std_total)
    if needed >= HALF:
        raise StudyError(
            f"the sum needs {math.ceil(math.log2(needed)) + 1} bits and may wrap around in the 64-bit field",
            remedy="Use fewer fraction bits, a smaller bound, or less noise (a larger epsilon).",
            rule="headroom",
            party=party,
        )


def to_real(totals: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
    """totals · 2^-fraction_bits: totals beyond 2^53 round once to float64, the scaling itself is exact."""
    if totals.dtype != np.int64:
        raise LocalProtocolError("integer totals are 64-bit signed integers", remedy="Decode them first.")
    if abs(fraction_bits) > _MAX_FRACTION_BITS - 64:
        raise StudyError(f"{fraction_bits} fraction bits are beyond float64", remedy="Use at most 60 or so.")
    return np.ldexp(totals.astype(np.float64), -fraction_bits)
