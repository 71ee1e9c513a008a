"""Shamir shares of which some are wrong: which ones, where more have come than are needed [RS60], [McESar81].

The shares of one secret at m points are a codeword of a (generalised) Reed-Solomon code of dimension t: with
v_i = 1 / Π_{k≠i} (x_i − x_k), the sum Σ_i v_i x_i^j g(x_i) is the coefficient of x^(m−1) in the polynomial through the
values of x^j g(x), and so 0 for every g of degree below t and every j < m − t. Of values f(x_i) + e_i these *syndromes*
are therefore

    S_j = Σ_i (v_i e_i) x_i^j,        j = 0 … m − t − 1,

a sum of as many geometric series as there are errors. Up to (m − t)/2 of them, the shortest linear recurrence of the
syndromes is unique, and its roots are the points with errors [Massey69]. More errors than that cannot be found from
the shares alone; whoever can check a secret may leave some out and try again.

Plain integers, and branches on the values: for the one who has been told the shares, after they are open.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto import field
from tallystick.crypto import shamir_kernels as kernels
from tallystick.crypto.shamir import LIMBS, SHARE_BYTES, Share

_P = (1 << 64) - (1 << 32) + 1


def wrong_points(shares: Sequence[Share], *, threshold: int) -> frozenset[int] | None:
    """The points whose shares are wrong, if at most half of those beyond the threshold are; None if it is more.

    Where more are wrong it may also be a set that happens to explain the shares: a secret is to be checked.
    """
    surplus = len(shares) - threshold
    points = [point for point, _ in shares]
    weights = _weights(points)
    found: set[int] = set()
    for limb in range(LIMBS):
        rows = [int.from_bytes(share[8 * limb : 8 * limb + 8], "little") for _, share in shares]
        terms = [weight * value % _P for weight, value in zip(weights, rows)]
        syndromes = []
        for _ in range(surplus):
            syndromes.append(sum(terms) % _P)
            terms = [term * point % _P for term, point in zip(terms, points)]
        recurrence = _shortest_recurrence(syndromes)
        errors = len(recurrence) - 1
        roots = [x for x in points if _value(recurrence, x) == 0] if errors else []
        if 2 * errors > surplus or len(roots) != errors:
            return None
        found.update(roots)
    return frozenset(found)


def extended(shares: Sequence[Share], points: Sequence[int], *, threshold: int) -> tuple[bytes, ...]:
    """The shares at further points, on the polynomials through the first ``threshold`` shares."""
    used = shares[:threshold]
    values = field.from_bytes(b"".join(share for _, share in used), LIMBS * threshold)
    rows: NDArray[np.uint64] = np.broadcast_to(
        values.reshape(1, threshold, LIMBS), (len(points), threshold, LIMBS)
    ).copy()
    # Lagrange at 0 of the points moved by −x is Lagrange at x
    moved = [[(point - x) % _P for point, _ in used] for x in points]
    shifted: NDArray[np.uint64] = np.array(moved, dtype=np.uint64).reshape(len(points), threshold)
    out: NDArray[np.uint64] = np.empty((len(points), LIMBS), dtype=np.uint64)
    kernels.values_at_zero(shifted, rows, out)
    written = out.astype("<u8", copy=False).tobytes()
    return tuple(written[at : at + SHARE_BYTES] for at in range(0, len(written), SHARE_BYTES))


def _weights(points: Sequence[int]) -> list[int]:
    weights = []
    for x in points:
        product = 1
        for other in points:
            if other != x:
                product = product * (x - other) % _P
        weights.append(pow(product, -1, _P))
    return weights


def _shortest_recurrence(terms: Sequence[int]) -> list[int]:
    """The coefficients 1, c_1, …, c_L of the shortest recurrence Σ_k c_k s_(j−k) = 0, j ≥ L (Berlekamp and Massey)."""
    current, last = [1], [1]
    length, gap, last_discrepancy = 0, 1, 1
    for j, term in enumerate(terms):
        known = min(length, len(current) - 1)
        discrepancy = (term + sum(current[k] * terms[j - k] for k in range(1, known + 1))) % _P
        if discrepancy == 0:
            gap += 1
            continue
        factor = discrepancy * pow(last_discrepancy, -1, _P) % _P
        before, shifted = current, [0] * gap + [factor * c % _P for c in last]
        size = max(len(current), len(shifted))
        pairs = zip(current + [0] * (size - len(current)), shifted + [0] * (size - len(shifted)))
        current = [(a - b) % _P for a, b in pairs]
        if 2 * length <= j:
            length, last, last_discrepancy, gap = j + 1 - length, before, discrepancy, 1
        else:
            gap += 1
    return (current + [0] * (length + 1 - len(current)))[: length + 1]


def _value(recurrence: Sequence[int], x: int) -> int:
    """x^L + c_1 x^(L−1) + … + c_L: zero where x is the base of one of the geometric series."""
    value = 0
    for coefficient in recurrence:
        value = (value * x + coefficient) % _P
    return value
