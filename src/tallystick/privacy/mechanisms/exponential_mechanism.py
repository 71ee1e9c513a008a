"""The exponential mechanism in integers: a table of weights, and exactly what drawing by it costs.

A cell at distance d from the best answer is drawn with probability w(min(d, clamp)) / W, W the sum over all cells
[MT07]. Weights are positive integers, so every cell is possible under every database and the guarantee is pure;
clamping is 1-Lipschitz and changes no sensitivity. What is charged is computed from the table as it is, in rationals
rounded up, never from the real function that the table approximates.

**What a draw costs.** Let U(x) = max over d of w(d) / w(min(d + x, clamp)). If between neighbours D, D′ no cell's
distance rises by more than ``up`` nor falls by more than ``down``, then for every cell c

    P(c) / P′(c) = w(d)/w(d′) · W′/W ≤ U(up) · U(down)

since d′ ≤ d + up bounds the first factor, and d ≤ d′ + down, cell by cell, the ratio of the two sums. *Ranks*: |Δd| ≤
Δ, so ε = 2 ln U(Δ). *Scores*, d = max(s) − s: if every score moves within [l, l + spread], so does their maximum, by m
say, and every distance within [m − l − spread, m − l], an interval of that length with 0 in it: up + down = spread for
some split of it, and ε = max over x of ln(U(x) · U(spread − x)). (Scores that move by at most D either way have spread
2D; counts under add-remove move one way only, spread 1.)

**What the joint draw adds.** r = floor(R · W / 2^L) for R uniform on L bits, W < 2^(L − 64). A cell with weight w has
the R in [P·2^L/W, (P + w)·2^L/W): their number differs from w·2^L/W by less than 1, so its probability is w/W · (1 ± h)
with h ≤ W / (w·2^L) < 2^-64 because w ≥ 1. Two such probabilities: ln((1 + h)/(1 − h)) < 2.01 h < 2^-62, the ``BIAS``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from tallystick.core.errors import BoundsError
from tallystick.privacy.mechanisms.exponential import exp_bounds

BIAS = Fraction(1, 1 << 62)
SLACK_BITS = 64
"""A draw has this many bits more than the largest sum of weights: what ``BIAS`` is the price of."""
MAX_TABLE_BITS = 13
MAX_WEIGHT_BITS = 64
_LOST_BITS = 20  # cells at or beyond the clamp have at most 2^-20 of the probability together, where the table can
_GRAIN = 1 << 11  # the least weight is _GRAIN / ε: rounding to integers then costs less than 1/1024 of ε
_PRECISION = 160


@dataclass(frozen=True)
class WeightTable:
    """``weights[d]`` is the weight at distance d; the last one holds for every distance beyond."""

    weights: tuple[int, ...] = field(repr=False)

    def __post_init__(self) -> None:
        w = self.weights
        if len(w) < 2 or len(w) & (len(w) - 1) or len(w) > 1 << MAX_TABLE_BITS:
            raise BoundsError(
                f"a table of {len(w)} weights; their number is a power of two from 2 to {1 << MAX_TABLE_BITS}",
                remedy="Repeat the last weight up to the next power of two.",
            )
        if any(a < b for a, b in pairwise(w)) or w[-1] < 1:
            raise BoundsError("weights fall with the distance and are 1 or more", remedy="Use weight_table().")
        if self.bits > MAX_WEIGHT_BITS:
            raise BoundsError(f"a weight has {self.bits} bits; at most {MAX_WEIGHT_BITS}", remedy="Divide the weights.")

    @property
    def clamp(self) -> int:
        """The largest distance that is told from the ones beyond it."""
        return len(self.weights) - 1

    @property
    def bits(self) -> int:
        """How many bits the largest weight has."""
        return self.weights[0].bit_length()

    @property
    def index_bits(self) -> int:
        """How many bits a clamped distance has."""
        return self.clamp.bit_length()

    def total_bits(self, cells: int) -> int:
        """Bits of the largest sum of the weights of so many cells."""
        return (cells * self.weights[0]).bit_length()

    def draw_bits(self, cells: int) -> int:
        """L, in whole bytes: the bits of the uniform word of a draw."""
        return -(-(SLACK_BITS + self.total_bits(cells)) // 8) * 8

    def ratio(self, x: int) -> Fraction:
        """U(x): the most by which a weight falls over x steps, exactly."""
        if x < 0:
            raise ValueError("distances are compared over zero steps or more")
        places = np.arange(len(self.weights))
        values = np.array(self.weights, dtype=np.float64)
        quotients = values / values[np.minimum(places + x, self.clamp)]
        # each quotient is within three roundings of its value: the largest one is among those this close to the top
        close = np.flatnonzero(quotients >= quotients.max() * (1 - 2.0**-48))
        return max(Fraction(self.weights[d], self.weights[min(int(d) + x, self.clamp)]) for d in close)


def charged(table: WeightTable, up: int, down: int) -> Fraction:
    """The pure ε of one draw, rounded up, if no distance rises by more than ``up`` nor falls by more than ``down``."""
    return log_above(table.ratio(up) * table.ratio(down)) + BIAS


def charged_spread(table: WeightTable, spread: int) -> Fraction:
    """The pure ε of one draw by d = max(s) − s, if all scores move within one interval of this length."""
    ratios = [table.ratio(x) for x in range(min(spread, table.clamp) + 1)]
    ratios += [ratios[-1]] * (spread + 1 - len(ratios))  # beyond the clamp nothing falls any further
    return log_above(max(a * b for a, b in zip(ratios, reversed(ratios)))) + BIAS


def weight_table(epsilon: Fraction, up: int, down: int, *, cells: int) -> WeightTable:
    """A table whose draw costs at most ``epsilon``, bias included, for these moves, and for a spread of up + down.

    w(d) = floor(w₀ · e^(−λd)), at least g, with λ a little under ε / (up + down). Where both weights of U are above g,
    rounding changes their ratio by less than 1/(1 − 1/g), and below a ratio only gets smaller: so U(x) ≤ e^(λx) / (1 −
    1/g) for every x, and the product of two of them at most e^ε by the choice of λ and g; checked at the end, exactly.
    """
    if epsilon <= 0 or up < 0 or down < 0 or up + down < 1 or cells < 1:
        raise BoundsError(
            "a table of weights needs a positive epsilon, a distance that moves, and cells",
            remedy="Distances move by 1 or more between neighbours.",
        )
    rate = epsilon * Fraction(511, 512) / (up + down)
    grain = math.ceil(_GRAIN / min(epsilon, Fraction(1)))
    fall = Fraction(cells.bit_length() + _LOST_BITS) * Fraction(694, 1000)  # ln 2 rounded up: at most 2^-20 is lost
    reach = min(math.ceil(fall / rate), (1 << MAX_TABLE_BITS) - 1)
    size = max(2, 1 << reach.bit_length())
    top = grain
    while not grain <= _scaled(top, reach * rate):  # the smallest power of two above g · e^(λ·reach), less one
        top = 2 * top + 1
    top = (1 << top.bit_length()) - 1
    weights = [max(grain, _scaled(top, d * rate)) for d in range(size)]
    table = WeightTable(tuple(accumulate(weights, min)))  # bounds this sharp fall anyway; it must not hang on them
    if charged_spread(table, up + down) > epsilon:
        raise BoundsError(
            f"no table of weights below 2^{MAX_WEIGHT_BITS} costs at most {float(epsilon):.3g}",
            remedy="Use a larger epsilon, or coarser distances.",
        )
    return table


def coarseness(epsilon: Fraction, up: int, down: int, *, cells: int) -> int:
    """By how many bits distances should be coarsened (floor(d / 2^shift)) so that the longest table still reaches.

    A distance that moves by at most Δ moves by at most ceil(Δ / 2^shift) when every value behind it was so divided.
    """
    shift = 0
    while shift < 40:
        moves = -(-up >> shift) + -(-down >> shift)
        reach = Fraction(cells.bit_length() + _LOST_BITS // 2) * Fraction(694, 1000) * moves / epsilon
        if reach < 1 << MAX_TABLE_BITS or moves <= 2:
            break
        shift += 1
    return shift


def _scaled(top: int, gamma: Fraction) -> int:
    """floor(top · e^-gamma), or one less where the bound is not sharp enough to tell."""
    if gamma == 0:
        return top
    return (top * exp_bounds(gamma, _PRECISION)[0]) >> _PRECISION


def log_above(x: Fraction) -> Fraction:
    """ln x rounded up, for x >= 1, as a multiple of 2^-64 that exceeds it by less than 2^-63."""
    if x < 1:
        raise ValueError("logarithms are kept for 1 and more")
    twos = max(0, x.numerator.bit_length() - x.denominator.bit_length() - 1)
    rest = x / (1 << twos)
    while rest >= 2:
        rest, twos = rest / 2, twos + 1
    scaled = _double_atanh((rest - 1) / (rest + 1)) + (twos * _double_atanh(Fraction(1, 3)) if twos else 0)
    return Fraction(-(-scaled >> (_PRECISION - 64)), 1 << 64)


def _double_atanh(z: Fraction) -> int:
    """2 artanh z · 2^160 rounded up, 0 <= z <= 1/3: ln y with z = (y − 1)/(y + 1), every term rounded up.

    Terms fall by 9 or more each, so what follows the last one is at most an eighth of it: a unit covers it.
    """
    term = -(-(z.numerator << _PRECISION) // z.denominator)
    square = -(-(z.numerator**2 << _PRECISION) // z.denominator**2)
    total, odd = 0, 1
    while term > 1:
        total += -(-term // odd)
        term = -(-(term * square) >> _PRECISION)
        odd += 2
    return 2 * (total + 2)
