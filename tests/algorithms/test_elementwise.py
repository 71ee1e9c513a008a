"""Scores and nonlinear functions: right to the last units, and the same bits everywhere."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.algorithms.elementwise import grid_scores, logistic_residuals, sigmoid, softmax_residuals
from tallystick.privacy.contribution import GridRows

EDGES = [0.0, -0.0, 5e-324, -5e-324, 1e-300, 1e-16, -1e-16, 0.5 * math.log(2), 1.0, 36.7, 37.0, 100.0, 700.0, 707.9]
EDGES += [708.0, 708.1, 745.0, 746.0, 1e4, 1.7e308]
EDGES += [-x for x in EDGES]


def oracle_exp(x: float) -> float:
    """The kernel's own operations in plain Python: IEEE arithmetic leaves no room for another result."""
    if x < -708.0:
        return 0.0
    n = float(np.rint(x * 1.4426950408889634))
    r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
    s = 0.0
    for k in range(13, -1, -1):
        s = s * r + 1.0 / math.factorial(k)
    return math.ldexp(s, int(n))


def oracle_sigmoid(z: float) -> float:
    e = oracle_exp(-abs(z))
    return 1.0 / (1.0 + e) if z >= 0 else e / (1.0 + e)


def oracle_softmax(scores: list[float], target: int, clip: float, l1: bool) -> list[float]:
    top = max(scores)
    parts = [oracle_exp(s - top) for s in scores]
    whole = 0.0
    for part in parts:
        whole += part
    out = [part / whole - (1.0 if c == target else 0.0) for c, part in enumerate(parts)]
    size = 0.0
    for value in out:
        size += abs(value) if l1 else value * value
    size = size if l1 else math.sqrt(size)
    return [value * (clip / size) for value in out] if size > clip else out


def sweep() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate(
        [EDGES, rng.uniform(-40, 40, 3000), rng.uniform(-750, 750, 1000), rng.standard_normal(500) * 1e-8]
    )


def ulps(value: float, exact: mpmath.mpf) -> float:
    return float(abs(mpmath.mpf(value) - exact) / math.ulp(float(exact)))


def test_sigmoid_is_within_a_few_ulps_of_mpmath() -> None:
    z = sweep()
    with mpmath.workdps(60):
        for x, got in zip(z, sigmoid(z)):
            exact = 1 / (1 + mpmath.exp(-mpmath.mpf(float(x))))
            if x < -708.0:
                assert got == 0.0
                assert exact < 4e-308
            else:
                assert ulps(float(got), exact) <= (2 if x >= 0 else 3), x


def test_sigmoid_is_the_plain_python_one_to_the_bit() -> None:
    z = sweep()
    assert sigmoid(z).tolist() == [oracle_sigmoid(float(x)) for x in z]


def test_sigmoid_at_its_edges() -> None:
    got = dict(zip(EDGES, sigmoid(np.array(EDGES)).tolist()))
    assert got[0.0] == got[-0.0] == 0.5
    assert got[745.0] == got[1e4] == got[1.7e308] == 1.0
    assert got[-745.0] == got[-1e4] == got[-1.7e308] == 0.0
    assert got[-708.0] > 0.0
    for x in EDGES:  # σ(z) + σ(−z) = 1
        assert got[x] + got[-x] == pytest.approx(1.0, abs=2**-52)


def test_sigmoid_is_monotone() -> None:
    z = np.concatenate([np.linspace(-709, 709, 200_001), np.linspace(-2, 2, 100_001)])
    z = np.unique(np.concatenate([z, *(np.log(2) * (np.arange(-60, 60) + 0.5) + e for e in (-1e-9, 0.0, 1e-9))]))
    assert (np.diff(sigmoid(z)) >= 0).all()


@given(
    st.lists(st.floats(-800, 800), min_size=2, max_size=6),
    st.integers(0, 5),
    st.sampled_from([0.1, 0.5, 1.0, 1.5, 2.0]),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_softmax_residuals_are_the_plain_python_ones(scores: list[float], target: int, clip: float, l1: bool) -> None:
    target = target % len(scores)
    got = softmax_residuals(np.array([scores]), np.array([float(target)]), clip, l1)[0]
    assert got.tolist() == oracle_softmax(scores, target, clip, l1)
    size = math.fsum(map(abs, got)) if l1 else math.sqrt(math.fsum(v * v for v in got))
    assert size <= clip * (1 + 1e-15)


def test_softmax_is_within_a_few_ulps_of_mpmath() -> None:
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.normal(0, 3, (200, 4)), rng.normal(0, 200, (50, 4)), np.zeros((1, 4))])
    # With the target outside, residuals are the probabilities themselves.
    got = softmax_residuals(scores, np.full(len(scores), 9.0), 2.0, False)
    with mpmath.workdps(50):
        for row, values in zip(scores, got):
            e = [mpmath.exp(mpmath.mpf(float(s))) for s in row]
            for score, part, value in zip(row, e, values):
                exact = part / mpmath.fsum(e)
                allowed = 5 + (row.max() - score)  # score − top is itself rounded, to half an ulp of the difference
                assert abs(value - exact) <= allowed * math.ulp(float(exact)) + 1e-300
    assert got[-1].tolist() == [0.25] * 4


def test_logistic_residuals_are_cut_at_the_clip() -> None:
    z = sweep()
    y = (np.arange(len(z)) % 2).astype(float)
    plain = sigmoid(z) - y
    assert np.array_equal(logistic_residuals(z, y, 1.0), plain)
    cut = logistic_residuals(z, y, 0.3)
    assert np.array_equal(cut, np.clip(plain, -0.3, 0.3))
    assert np.abs(cut).max() == 0.3


# -- scores on the grid -----------------------------------------------------------------------------------------------


def exact_scores(rows: GridRows, weights: np.ndarray) -> tuple[list[list[float]], int]:
    """The scores in Python integers, on the weights' grid found by the stated rule, with the largest partial sum."""
    norm = mpmath.sqrt(max(mpmath.fsum(mpmath.mpf(float(w)) ** 2 for w in row) for row in weights))
    bits = 40 if norm == 0 else min(40, int(mpmath.floor(mpmath.log(mpmath.mpf(2) ** 52 / (rows.limit * norm), 2))))
    on_grid = [[int(mpmath.nint(mpmath.ldexp(mpmath.mpf(float(w)), bits))) for w in row] for row in weights]
    out, largest = [], 0
    for x in rows.values:
        scores = []
        for w in on_grid:
            partial = np.cumsum([int(a) * b for a, b in zip(x, w)], dtype=object)
            largest = max(largest, *(abs(p) for p in partial), sum(abs(int(a) * b) for a, b in zip(x, w)))
            scores.append(float(mpmath.ldexp(mpmath.mpf(int(partial[-1])), -(bits + rows.bits))))
        out.append(scores)
    return out, largest


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-9, 0.7, 30.0, 1e6, 2.0**100, 1e300])
@pytest.mark.parametrize("limit", [1.0, 3.3, 500.0])
def test_grid_scores_are_exact_integers(size: float, limit: float) -> None:
    rng = np.random.default_rng(2)
    rows = GridRows.make(rng.normal(0, limit, (20, 33)), bits=15, limit=limit)
    weights = rng.normal(0, 1, (3, 33)) * size
    with mpmath.workdps(60):
        expected, largest = exact_scores(rows, weights)
    assert largest < 2**53  # no partial sum in any order leaves the range where float64 is exact
    assert grid_scores(rows, weights).tolist() == expected
    plain = np.ldexp(rows.values, -15) @ weights.T
    assert np.abs(grid_scores(rows, weights) - plain).max() <= 1e-7 * max(1e-2, size * limit)


def test_grid_scores_reach_the_worst_case_exactly() -> None:
    """Row and weights parallel, the row at its limit: Cauchy-Schwarz with equality."""
    rows = GridRows.make(np.full((1, 64), 1.0), bits=15, limit=1.0)
    for factor in (1.0, 1.0 + 2**-40, 2.0 - 2**-40, 3.0):
        weights = np.full((1, 64), factor)
        with mpmath.workdps(60):
            expected, largest = exact_scores(rows, weights)
        assert 2**50 < largest < 2**53
        assert grid_scores(rows, weights).tolist() == expected


def test_grid_scores_do_not_depend_on_the_block() -> None:
    rng = np.random.default_rng(3)
    plain = rng.normal(0, 1, (40, 61))
    weights = rng.normal(0, 2, (4, 61))
    whole = grid_scores(GridRows.make(plain, bits=15, limit=20.0), weights)
    for i in range(40):
        alone = grid_scores(GridRows.make(plain[i : i + 1], bits=15, limit=20.0), weights)
        assert alone.tobytes() == whole[i : i + 1].tobytes()
