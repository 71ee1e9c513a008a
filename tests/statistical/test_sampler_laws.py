"""Do the draws follow the law? Chi-square against the exact probabilities, with controls that must fail.

Seeds are fixed, so a test that passes always passes. Every p-value is compared with ALPHA = 1e-6: over the fewer than
100 comparisons here a correct sampler with fresh seeds would fail one with probability below 1e-4. A control (wrong
scale, wrong law, wrong grid) must come out below ALPHA by the very same check.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc, chdtrc, erf

from tallystick.crypto.prg import AesStream
from tallystick.privacy.mechanisms import discrete_gaussian, discrete_laplace, round_up_scale, round_up_variance

ALPHA = 1e-6
DRAWS = 200_000
SCALES = [Fraction(2, 5), Fraction(3, 2), Fraction(10), Fraction(10**3), Fraction(10**6), Fraction(2**40)]

Cdf = Callable[[int], float]


def stream(seed: int) -> AesStream:
    return AesStream(seed.to_bytes(32, "little"))


# ---- the laws -------------------------------------------------------------------------------------------------------
def laplace_cdf(scale: float) -> Cdf:
    """P(Y <= y), in closed form: a^-y / (1 + a) below zero, 1 - a^(y + 1) / (1 + a) from zero on; a = exp(-1/scale)."""
    a = math.exp(-1 / scale)

    def cdf(y: int) -> float:
        return math.exp(y / scale) / (1 + a) if y < 0 else 1 - math.exp(-(y + 1) / scale) / (1 + a)

    return cdf


def gaussian_cdf(sigma: float) -> Cdf:
    """P(X <= x): summed up to sigma = 2000, above by the normal law at x + 1/2 (off by less than 1e-8)."""
    if sigma > 2000:
        return lambda x: 0.5 + 0.5 * float(erf((x + 0.5) / (sigma * math.sqrt(2))))
    reach = int(14 * sigma) + 14
    cumulative = np.cumsum(np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2)))
    cumulative /= cumulative[-1]
    return lambda x: float(cumulative[min(max(x + reach, 0), 2 * reach)])


def bin_edges(cdf: Cdf, scale: float) -> list[int]:
    """Right ends of bins of about 1/60 of the mass each, and finer ones in the tails, found by bisection."""
    levels = sorted({1e-3, 3e-3, 0.997, 0.999, *np.linspace(0.01, 0.99, 59).tolist()})
    edges = []
    for level in levels:
        low, high = -int(40 * scale) - 40, int(40 * scale) + 40
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if cdf(middle) >= level else (middle + 1, high)
        edges.append(low)
    return sorted(set(edges))


def p_value(draws: np.ndarray, cdf: Cdf, scale: float) -> float:
    """Chi-square goodness of fit; the bins depend on the law only."""
    edges = bin_edges(cdf, scale)
    mass = np.diff([0.0, *(cdf(edge) for edge in edges), 1.0])
    counts = np.bincount(np.searchsorted(np.array(edges), draws, side="left"), minlength=len(mass))
    expected = mass * len(draws)
    keep = expected >= 5
    expected = np.append(expected[keep], expected[~keep].sum())
    counts = np.append(counts[keep], counts[~keep].sum())
    if expected[-1] < 5:
        expected, counts = np.append(expected[:-2], expected[-2:].sum()), np.append(counts[:-2], counts[-2:].sum())
    return float(chdtrc(len(expected) - 1, ((counts - expected) ** 2 / expected).sum()))


def two_sided(count: int, trials: int, probability: float) -> float:
    """Binomial test: twice the smaller tail."""
    return min(1.0, 2 * min(float(bdtr(count, trials, probability)), float(bdtrc(count - 1, trials, probability))))


def laplace(scale: Fraction, size: int = DRAWS, seed: int = 1) -> np.ndarray:
    return discrete_laplace.sample(scale, size, stream(seed))


def gaussian(sigma: Fraction, size: int = DRAWS, seed: int = 1) -> np.ndarray:
    return discrete_gaussian.sample(sigma * sigma, size, stream(seed))


LAWS = {"laplace": (laplace, laplace_cdf), "gaussian": (gaussian, gaussian_cdf)}
both = pytest.mark.parametrize("law", LAWS)


# ---- the draws follow it --------------------------------------------------------------------------------------------
@both
@pytest.mark.parametrize("scale", SCALES)
def test_fits(law: str, scale: Fraction) -> None:
    sample, cdf = LAWS[law]
    assert p_value(sample(scale), cdf(float(scale)), float(scale)) > ALPHA


@both
@pytest.mark.parametrize("scale", [0.37, 12.345, 7.7e7])
def test_fits_at_a_rounded_scale(law: str, scale: float) -> None:
    if law == "laplace":
        draws = discrete_laplace.sample(round_up_scale(scale), DRAWS, stream(2))
    else:
        draws = discrete_gaussian.sample(round_up_variance(scale**2), DRAWS, stream(2))
    assert p_value(draws, LAWS[law][1](scale), scale) > ALPHA


@both
@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(10**3), Fraction(2**40)])
@pytest.mark.parametrize("multiple", [2, 3, 4])
def test_tails_on_both_sides(law: str, scale: Fraction, multiple: int) -> None:
    sample, cdf = LAWS[law]
    draws, beyond = sample(scale, seed=3), int(multiple * scale)
    tail = cdf(float(scale))(-beyond - 1)
    for count in (int((draws > beyond).sum()), int((draws < -beyond).sum())):
        assert two_sided(count, DRAWS, tail) > ALPHA


def test_the_far_tail_of_the_laplace_is_there() -> None:
    """A sampler that truncates (say, at V = 8) would leave this empty: 2e-4 of the mass lies beyond 8.5 scales."""
    draws = laplace(Fraction(1000), seed=4)
    expected = DRAWS * 2 * laplace_cdf(1000.0)(-8501)
    assert two_sided(int((abs(draws) > 8500).sum()), DRAWS, expected / DRAWS) > ALPHA
    assert expected > 30


@both
@pytest.mark.parametrize("scale", SCALES[1:])
def test_mean_and_variance(law: str, scale: Fraction) -> None:
    """Within 5 standard errors; the variance of a square is at most 5 (Laplace) or 2 (Gaussian) variances squared."""
    draws = LAWS[law][0](scale, seed=5).astype(float)
    if law == "laplace":
        deviation = discrete_laplace.standard_deviation(scale)
    else:
        deviation = discrete_gaussian.standard_deviation(scale * scale)
    assert abs(draws.mean()) < 5 * deviation / math.sqrt(DRAWS)
    assert abs((draws**2).mean() / deviation**2 - 1) < 5 * math.sqrt(6 / DRAWS)


# ---- and nothing else does ------------------------------------------------------------------------------------------
@both
@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(10**3), Fraction(10**6)])
@pytest.mark.parametrize("factor", [Fraction(2, 3), Fraction(3, 2), Fraction(24, 25)])
def test_control_wrong_scale_fails(law: str, scale: Fraction, factor: Fraction) -> None:
    """4 % is what 200,000 draws can see for certain: it adds n (0.04)² = 320 (Laplace) to a chi-square of 60 ± 11."""
    sample, cdf = LAWS[law]
    assert p_value(sample(scale * factor), cdf(float(scale)), float(scale)) < ALPHA


@pytest.mark.parametrize("law", LAWS)
def test_control_the_other_law_fails(law: str) -> None:
    """Same standard deviation, other shape."""
    scale = Fraction(1000)
    if law == "laplace":
        draws = gaussian(Fraction(1414))
    else:
        draws = laplace(Fraction(707))
    assert p_value(draws, LAWS[law][1](1000.0), float(scale)) < ALPHA


def test_control_rounded_float_noise_fails() -> None:
    rng = np.random.default_rng(1)
    assert p_value(np.rint(rng.laplace(0, 1.5, DRAWS)).astype(np.int64), laplace_cdf(1.5), 1.5) < ALPHA
    truncated = np.trunc(rng.normal(0, 1.5, DRAWS)).astype(np.int64)
    assert p_value(truncated, gaussian_cdf(1.5), 1.5) < ALPHA


def test_control_zero_counted_twice_fails() -> None:
    """Planted bug: [CKS20] Algorithm 2 without its rejection of minus zero."""
    rng = np.random.default_rng(2)
    magnitude = rng.geometric(1 - math.exp(-1 / 1.5), DRAWS) - 1
    assert p_value(magnitude * rng.choice([-1, 1], DRAWS), laplace_cdf(1.5), 1.5) < ALPHA


def test_control_one_sided_noise_fails() -> None:
    assert p_value(abs(laplace(Fraction(1000))), laplace_cdf(1000.0), 1000.0) < ALPHA
    assert p_value(abs(gaussian(Fraction(1000))), gaussian_cdf(1000.0), 1000.0) < ALPHA


# ---- low bits, shares, streams --------------------------------------------------------------------------------------
def low_bits_p(draws: np.ndarray, cdf: Cdf, scale: float) -> float:
    """Chi-square of the three lowest bits against the law folded modulo 8."""
    reach = int(45 * scale) + 8
    if reach < 100_000:
        folded = np.zeros(8)
        for y in range(-reach, reach + 1):
            folded[y % 8] += cdf(y) - cdf(y - 1)
    else:
        folded = np.full(8, 1 / 8)  # equal to within exp(-2π² scale² / 64) or 1/scale² for the Laplace: below 1e-8 here
    expected = folded * len(draws)
    counts = np.bincount(draws & 7, minlength=8)
    return float(chdtrc(7, ((counts - expected) ** 2 / expected).sum()))


@both
@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(10), Fraction(10**6), Fraction(2**40)])
def test_low_bits(law: str, scale: Fraction) -> None:
    """The noise lives on the whole integer grid: its low bits are as the law says, which coarser noise would not be."""
    sample, cdf = LAWS[law]
    draws = sample(scale, seed=6)
    assert draws.dtype == np.int64
    assert low_bits_p(draws, cdf(float(scale)), float(scale)) > ALPHA
    coarse = 2 * sample(scale / 2, seed=6)  # control: half the scale, doubled
    assert low_bits_p(coarse, cdf(float(scale)), float(scale)) < ALPHA


def test_low_bits_control_float_noise_at_scale_2_to_the_56() -> None:
    """A double has 53 bits: float noise of scale 2^56 has even low bits too often; ours has not."""
    scale = Fraction(2**56)
    assert low_bits_p(laplace(scale, seed=7), laplace_cdf(2.0**56), 2.0**56) > ALPHA
    assert low_bits_p(gaussian(scale, seed=7), gaussian_cdf(2.0**56), 2.0**56) > ALPHA
    floats = np.random.default_rng(3).laplace(0, 2.0**56, DRAWS).astype(np.int64)
    assert low_bits_p(floats, laplace_cdf(2.0**56), 2.0**56) < ALPHA


@pytest.mark.parametrize("honest", [2, 3, 5])
def test_gaussian_shares_sum_to_the_planned_noise(honest: int) -> None:
    """h shares of variance s²/h, each at least 4: the sum is as good as a discrete Gaussian of variance s²."""
    sigma = 30.0
    shares = [discrete_gaussian.sample(Fraction(900, honest), DRAWS, stream(10 + j)) for j in range(honest)]
    assert p_value(np.sum(shares, axis=0), gaussian_cdf(sigma), sigma) > ALPHA
    assert p_value(np.sum(shares[1:], axis=0), gaussian_cdf(sigma), sigma) < ALPHA  # a missing share is seen
    reused = honest * shares[0]  # the same share from every server is seen
    assert p_value(reused, gaussian_cdf(sigma), sigma) < ALPHA


@both
def test_streams_are_independent(law: str) -> None:
    """Correlation between streams, and between neighbours in one, within 5 / sqrt(n); a reused stream is seen."""
    sample, _ = LAWS[law]
    streams = [sample(Fraction(1000), seed=20 + j).astype(float) for j in range(4)]
    limit = 5 / math.sqrt(DRAWS)
    correlation = np.corrcoef(streams) - np.eye(4)
    assert np.abs(correlation).max() < limit
    assert np.abs(np.corrcoef(np.abs(streams)) - np.eye(4)).max() < limit
    for draws in streams:
        for lag in (1, 2, 3):
            assert abs(np.corrcoef(draws[:-lag], draws[lag:])[0, 1]) < limit
            assert abs(np.corrcoef(np.abs(draws[:-lag]), np.abs(draws[lag:]))[0, 1]) < limit
    again = sample(Fraction(1000), seed=20).astype(float)
    assert np.corrcoef(streams[0], again)[0, 1] > limit


def test_size_does_not_change_the_draws() -> None:
    assert np.array_equal(laplace(Fraction(1000), 10), laplace(Fraction(1000), 100_000)[:10])
    assert np.array_equal(gaussian(Fraction(1000), 10), gaussian(Fraction(1000), 100_000)[:10])


# ---- large versions -------------------------------------------------------------------------------------------------
@pytest.mark.audit
@both
@pytest.mark.parametrize("scale", [*SCALES, Fraction(3, 10), Fraction(100_003, 64), Fraction(2**56)])
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_audit_fits_over_five_million(law: str, scale: Fraction, seed: int) -> None:
    sample, cdf = LAWS[law]
    draws = sample(scale, 5_000_000, seed)
    assert p_value(draws, cdf(float(scale)), float(scale)) > ALPHA
    if scale >= 1:  # control: 1 % off adds n (0.01)² = 500 or more to a chi-square of 60 ± 11
        wrong = sample(round_up_scale(scale * Fraction(99, 100)), 5_000_000, seed)
        assert p_value(wrong, cdf(float(scale)), float(scale)) < ALPHA


@pytest.mark.audit
@pytest.mark.parametrize("scale", [1.5, 20.0, 1000.0])
@both
def test_audit_agrees_with_opendp(law: str, scale: float) -> None:
    """Two-sample chi-square with opendp's exact sampler, 50,000 draws each; opendp at another scale must differ."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    size = 50_000
    ours = LAWS[law][0](Fraction(scale), size, 200)

    def theirs(at: float) -> np.ndarray:
        domain = dp.vector_domain(dp.atom_domain(T=int))
        if law == "laplace":
            mechanism = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=at)
        else:
            mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=at)
        return np.array(mechanism([0] * size))

    edges = np.array(bin_edges(LAWS[law][1](scale), scale))

    def compare(other: np.ndarray) -> float:
        a, b = (np.bincount(np.searchsorted(edges, x, side="left"), minlength=len(edges) + 1) for x in (ours, other))
        seen = a + b > 0
        return float(chdtrc(seen.sum() - 1, ((a - b)[seen] ** 2 / (a + b)[seen]).sum()))

    assert compare(theirs(scale)) > ALPHA
    assert compare(theirs(scale * 1.1)) < ALPHA
