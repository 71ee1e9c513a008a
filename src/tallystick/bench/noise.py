"""``tallystick bench noise``: exact discrete noise per second, keystream included, beside opendp's in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tallystick.bench.measuring import row
from tallystick.crypto.prg import system_stream
from tallystick.privacy.mechanisms import discrete_gaussian, discrete_laplace

_SCALES = (("1.5", Fraction(3, 2)), ("1e3", Fraction(10**3)), ("1e6", Fraction(10**6)))
_NO_OPENDP = "opendp is not installed (pip install 'tallystick[dev]'), so there is nothing to compare with"


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """One row per law and scale: M samples/s, opendp's M samples/s (null if absent, with a note), and the ratio."""
    size, reference_size = (200_000, 2_000) if quick else (4_000_000, 20_000)
    table = []
    for law in ("laplace", "gaussian"):
        for name, scale in _SCALES:
            ours = _rate(_ours(law, scale), size, repeat=2 if quick else 3)
            theirs = _opendp(law, float(scale))
            reference = _rate(theirs, reference_size, repeat=2) if theirs is not None else None
            case, unit = f"{law}-{name}", "M samples/s (CPU)"
            if reference is None:
                table.append(row(case, round(ours, 3), unit, None, None) | {"note": _NO_OPENDP})
            else:
                table.append(row(case, round(ours, 3), unit, round(reference, 4), round(ours / reference, 1)))
    return table


def _rate(draw: Callable[[int], object], size: int, *, repeat: int) -> float:
    """Best of ``repeat`` runs, in million draws a second of CPU time: other work on the machine is not counted."""
    draw(16)  # compile, or build the mechanism
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        draw(size)
        best = min(best, time.process_time() - start)
    return size / max(best, 1e-9) / 1e6


def _ours(law: str, scale: Fraction) -> Callable[[int], object]:
    stream = system_stream()
    if law == "laplace":
        return lambda size: discrete_laplace.sample(scale, size, stream)
    return lambda size: discrete_gaussian.sample(scale * scale, size, stream)


def _opendp(law: str, scale: float) -> Callable[[int], object] | None:
    """opendp's exact sampler of the same law on a vector of zeros, or None without opendp."""
    try:
        import opendp.prelude as dp  # takes seconds, and is a test oracle, never a dependency
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if law == "laplace":
        mechanism = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale)
    else:
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    return lambda size: mechanism([0] * size)
