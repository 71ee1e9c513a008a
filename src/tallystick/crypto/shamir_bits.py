"""Shamir shares of bits over GF(16): dealing, multiplying among an honest majority, opening.

A bit is the value at 0 of a polynomial of degree t; party j (from 0) holds its value at the point j + 1. Any t values
are uniform and independent of the bit [Sha79]. XOR, and adding a public bit, are done by everybody on its own. The
product of two shares lies on a polynomial of degree 2t < m; to come back to degree t each party deals its product
anew with fresh coefficients and everybody combines what it was dealt with the public Lagrange weights, which is
linear [BGW88], [GRR98]: the result's polynomial has coefficients that are uniform given the view of any t parties,
since at least one honest party's fresh ones are among them. The same step reduces any sum of products: an inner
product costs one dealing.

Opening a sharing of degree t tells a coalition of t nothing but the value: t shares and the value are t + 1 points of
the polynomial, so all other shares follow from what the coalition had.
"""

from __future__ import annotations

import numpy as np

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto import gf16
from tallystick.crypto import gf16_kernels as kernels
from tallystick.crypto.gf16 import Elements, Words


def weights_at_zero(parties: int) -> tuple[int, ...]:
    """Lagrange's λ_j = Π over i ≠ j of x_i / (x_i − x_j), x_j = j + 1: f(0) = Σ λ_j f(x_j) for degree < ``parties``."""
    if not 1 <= parties < gf16.ORDER:
        raise LocalProtocolError(f"shares for {parties} parties have no points in GF(16)")
    weights = []
    for j in range(parties):
        weight = 1
        for i in range(parties):
            if i != j:
                weight = gf16.product(weight, gf16.product(i + 1, gf16.inverse((i + 1) ^ (j + 1))))
        weights.append(weight)
    return tuple(weights)


def deal(values: Elements, degree: int, parties: int, source: WordSource) -> Elements:
    """Fresh shares of a flat vector, one row a party."""
    secrets = gf16.to_words(values)
    random = gf16.uniform(8 * degree * secrets.size, source).reshape(degree, secrets.size)
    out: Words = np.empty((parties, secrets.size), dtype=np.uint64)
    for party in range(parties):
        kernels.evaluate(secrets, random, party + 1, out[party])
    return out.view(np.uint8)[:, : values.size]


def combine(shares: Elements, weights: tuple[int, ...]) -> Elements:
    """Σ weights[j] · shares[j]: the values at zero, or new shares of them if the rows are shares of shares."""
    words = [gf16.to_words(row) for row in shares]
    out: Words = np.zeros(words[0].size, dtype=np.uint64)
    for row, weight in zip(words, weights, strict=True):
        kernels.add_scaled(out, row, weight)
    return gf16.from_words(out, (shares.shape[1],))


def open_bits(shares: Elements, degree: int, weights: tuple[int, ...]) -> Elements | None:
    """The bits of which these are all parties' shares; None if they are on no polynomial of this degree, or no bits.

    Every value beyond the first degree + 1 is compared with what those say: a wrong share of a faulty party shows.
    """
    values = combine(shares, weights)
    first = degree + 1
    for point in range(first, shares.shape[0]):
        if not np.array_equal(combine(shares[:first], _weights_at(point + 1, first)), shares[point]):
            return None
    return values if not (values & np.uint8(0xFE)).any() else None


def _weights_at(x: int, count: int) -> tuple[int, ...]:
    """Lagrange's weights at the point x, from the points 1 … count."""
    weights = []
    for j in range(count):
        weight = 1
        for i in range(count):
            if i != j:
                weight = gf16.product(weight, gf16.product((i + 1) ^ x, gf16.inverse((i + 1) ^ (j + 1))))
        weights.append(weight)
    return tuple(weights)
