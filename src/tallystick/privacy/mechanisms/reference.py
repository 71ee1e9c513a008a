"""The samplers in plain Python rationals: this file DEFINES which random word decides what.

The compiled kernels (``kernels.py``) must give the same draws from the same words; whenever one of their
double-precision comparisons comes too close to call they hand that draw to the functions here, which are exact.

Three parts, each exact given uniform 64-bit words:

* ``uniform_below``: multiply-shift with rejection, Lemire (2019), "Fast Random Integer Generation in an
  Interval", Algorithm 5.
* ``bernoulli_exp``: a word is the leading 64 bits of a uniform real R; the answer is R < exp(-γ), and further words
  extend R only while its interval still straddles exp(-γ).
* ``geometric_and_sign``: the low bit is the sign; the other 63 are the leading bits of R, and V is the number of
  k >= 1 with R < e^-k, so P(V >= k) = e^-k.

From these, after Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy" [CKS20]:
``laplace`` is Algorithm 2, ``gaussian`` Algorithm 3 with its two rejections merged (see ``discrete_gaussian.md``).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from tallystick.privacy.mechanisms.exponential import exp_bounds
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

_MASK = (1 << 64) - 1
_FIRST_PRECISION = 40


class _UniformReal:
    """A uniform real of [0, 1), known to ``bits`` leading bits: it lies in [value, value + 1) / 2^bits."""

    __slots__ = ("bits", "value")

    def __init__(self, value: int, bits: int) -> None:
        self.value = value
        self.bits = bits

    def below_exp(self, gamma: Fraction, words: WordBuffer) -> bool:
        """Whether the real is below exp(-gamma), revealing 64 more of its bits at a time while that is open."""
        if gamma == 0:
            return True
        precision = _FIRST_PRECISION
        while True:
            # gamma is rational and not 0, so exp(-gamma) is irrational (Lindemann): one of the three cases comes true.
            lo, hi = exp_bounds(gamma, precision)
            left, right = self.value << precision, (self.value + 1) << precision
            if right <= lo << self.bits:
                return True
            if left >= hi << self.bits:
                return False
            if left < lo << self.bits and hi << self.bits < right:  # exp(-gamma) lies inside: R must be known better
                self.value = (self.value << 64) | words.next()
                self.bits += 64
            else:
                precision *= 2


def uniform_below(bound: int, words: WordBuffer) -> int:
    """Uniform on {0, ..., bound - 1}, 1 <= bound <= 2^64.

    word * bound = value * 2^64 + low. Over all words each value occurs floor(2^64 / bound) times with
    low >= 2^64 mod bound; the others are rejected [Lemire 2019, Lemma 4.1].
    """
    rejected = (1 << 64) % bound
    while True:
        product = words.next() * bound
        if product & _MASK >= rejected:
            return product >> 64


def bernoulli_exp(gamma: Fraction, words: WordBuffer) -> bool:
    """True with probability exp(-gamma), gamma >= 0; reads one word, more with probability 2^-64."""
    return _UniformReal(words.next(), 64).below_exp(gamma, words)


def geometric_and_sign(words: WordBuffer) -> tuple[int, bool]:
    """V with P(V >= k) = e^-k, and a fair coin (true: negative)."""
    word = words.next()
    real = _UniformReal(word >> 1, 63)
    v = 0
    while real.below_exp(Fraction(v + 1), words):
        v += 1
    return v, bool(word & 1)


def laplace(scale: Fraction, words: WordBuffer) -> int:
    """One discrete Laplace draw, P(y) proportional to exp(-|y| / scale): [CKS20] Algorithm 2."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = uniform_below(t, words)
        if not bernoulli_exp(Fraction(u, t), words):
            continue
        v, negative = geometric_and_sign(words)
        magnitude = (u + t * v) // s
        if not (negative and magnitude == 0):  # else zero would count twice
            return -magnitude if negative else magnitude


@lru_cache(maxsize=64)
def strip_width(variance: Fraction) -> int:
    """The smallest power of two t with t² >= 2σ²/3: at least 0.48 of the proposals are then accepted at large σ."""
    t = 1
    while 3 * t * t < 2 * variance:
        t *= 2
    return t


@lru_cache(maxsize=64)
def strip_offset(variance: Fraction, width: int) -> Fraction:
    """c = max over integers V >= 0 of V - (tV)²/(2σ²), so that γ below is never negative.

    With t² >= 2σ²/3 the maximum is at V = 0 or V = 1: the step from V to V + 1 adds 1 - (2V + 1) t²/(2σ²),
    which is at most 0 for V >= 1.
    """
    return max(Fraction(0), 1 - width * width / (2 * variance))


def gaussian(variance: Fraction, words: WordBuffer) -> int:
    """One discrete Gaussian draw, P(x) proportional to exp(-x² / (2 variance)): [CKS20] Algorithm 3, merged."""
    t = strip_width(variance)
    c = strip_offset(variance, t)
    while True:
        v, negative = geometric_and_sign(words)
        x = uniform_below(t, words) + t * v
        if bernoulli_exp(x * x / (2 * variance) - v + c, words) and not (negative and x == 0):
            return -x if negative else x
