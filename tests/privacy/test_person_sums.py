"""A person's sum is exact before it is clipped, at every edge of int64: against Python's own integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import BoundsError
from tallystick.privacy.clipping import clip_group
from tallystick.privacy.contribution import Chunked, Dense, GridRows, total_by_person
from tallystick.privacy.grid import Grid, Group
from tallystick.privacy.person_sums import _joined

MOST = 2**40
"""What one record adds to a coordinate of a person's sum at most, in grid units."""
LARGEST = 2**62
INT64 = (-(2**63), 2**63 - 1)


def grid_of(norm="l2", *, size=1, nonnegative=False, ceiling=0.0, bits=30):
    group = Group(name="all", size=size, bound=1.0, nonnegative=nonnegative, ceiling=ceiling)
    return Grid(groups=(group,), fraction_bits=bits, norm=norm)


def within(vector, bound, norm):
    values = [int(x) for x in vector]
    return sum(map(abs, values)) <= bound if norm == "l1" else sum(v * v for v in values) <= bound**2


def clipped(u, bound, norm):
    """The rule of clipping, in Python integers and floats."""
    if within(u, bound, norm):
        return u
    size = 0.0
    for x in u:
        size += abs(float(x)) if norm == "l1" else float(x) * float(x)
    factor = float(bound) / (size if norm == "l1" else size**0.5)
    out = [int(float(x) * factor) for x in u]
    while not within(out, bound, norm):
        factor *= 1 - 2.0**-30
        out = [int(float(x) * factor) for x in u]
    return out


def oracle(rows, grid):
    """One person's rows: each on the grid and cut at ±2^40, added without any limit, cut at ±2^62, clipped."""
    group, bound, ceiling = grid.groups[0], grid.integer_bounds[0], grid.integer_ceilings[0]
    sums = [0] * group.size
    for row in rows:
        for j, x in enumerate(row):
            sums[j] += round(min(max(float(x) * grid.scale, -float(MOST)), float(MOST)))
    sums = [min(max(s, -LARGEST), LARGEST) for s in sums]
    if group.nonnegative:
        sums = [max(s, 0) for s in sums]
    if ceiling:
        sums = [min(s, ceiling) for s in sums]
    return clipped(sums, bound, grid.norm)


def test_two_to_the_23_saturated_records_stay_within_the_bound():
    """They added −2^63, unclipped: the running sum wrapped to the one integer whose modulus is negative."""
    grid = grid_of()
    values = np.full((2**23 + 1, 1), -1e9)
    for n in (2**23 - 1, 2**23, 2**23 + 1):
        out = total_by_person(Dense(values=values[:n]), grid, np.zeros(n, np.int64))
        assert out.tolist() == [-(2**30)], n


def test_planted_running_sums_that_wrap_or_saturate_step_by_step():
    """The planted bugs: a plain int64 sum leaves the bound; one that saturates as it goes depends on the order."""
    wrapped = np.full(2**23, -MOST, np.int64).sum(keepdims=True)
    assert wrapped.tolist() == [INT64[0]]
    assert np.abs(wrapped)[0] <= 2**30  # which a test of the modulus takes for a short vector

    def stepwise(steps, limit):
        total = 0
        for x in steps:
            total = min(max(total + x, -limit), limit)
        return total

    steps = [MOST] * 5 + [-MOST] * 5
    assert stepwise(steps, 3 * MOST) != stepwise(steps[::-1], 3 * MOST)
    grid = grid_of()
    rows = np.array(steps, dtype=np.float64)[:, None]
    codes = np.zeros(len(steps), np.int64)
    assert total_by_person(Dense(values=rows), grid, codes).tolist() == [0]
    assert total_by_person(Dense(values=rows[::-1].copy()), grid, codes).tolist() == [0]


@settings(deadline=None, max_examples=200)
@given(st.integers(-(2**62), 2**62), st.integers(0, 2**62))
def test_the_two_parts_of_a_sum_are_joined_exactly_or_cut_at_two_to_the_62(high, low):
    exact = high * 2**20 + low
    assert int(_joined(high, low)) == min(max(exact, -LARGEST), LARGEST)


EDGES = st.sampled_from(
    [0.0, -0.0, 5e-324, 1.0, -1.0, 1e-9, 1023.999, 1024.0, -1024.0, 1e9, -1e9, 1e300, -1e300, 1.7e308]
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.lists(EDGES | st.floats(-3, 3), min_size=3, max_size=3), min_size=1, max_size=12),
    st.sampled_from(["l1", "l2"]),
    st.booleans(),
    st.sampled_from([0.0, 0.25]),
    st.randoms(use_true_random=False),
)
def test_a_persons_sum_is_that_of_python_integers_in_any_order_and_any_parts(rows, norm, nonnegative, ceiling, random):
    grid = grid_of(norm, size=3, nonnegative=nonnegative, ceiling=ceiling if nonnegative else 0.0)
    expected = oracle(rows, grid)
    values, codes = np.array(rows), np.zeros(len(rows), np.int64)
    assert total_by_person(Dense(values=values), grid, codes).tolist() == expected
    assert within(expected, grid.integer_bounds[0], norm)
    mixed = list(range(len(rows)))
    random.shuffle(mixed)
    assert total_by_person(Dense(values=values[mixed]), grid, codes).tolist() == expected
    parts = [Dense(values=values[i : i + 2]) for i in range(0, len(rows), 2)]
    assert total_by_person(Chunked(parts=lambda: iter(parts)), grid, codes).tolist() == expected


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([*INT64, INT64[0] + 1, -(2**31), 2**31, 0, 1, -1]) | st.integers(*INT64), max_size=6),
    st.sampled_from(["l1", "l2"]),
    st.sampled_from([0, 1, 2**30, 2**31 - 1]),
)
def test_no_int64_vector_whatever_passes_the_bound(values, norm, bound):
    """Also −2^63, whose modulus is not an int64, and vectors whose squares or moduli would wrap when added."""
    u = np.array(values, dtype=np.int64)
    clip_group(u, 0, len(u), bound, norm == "l1")
    assert within(u, bound, norm)
    if within(values, bound, norm):
        assert u.tolist() == values


def test_rows_whose_squares_could_wrap_are_refused():
    GridRows.make(np.ones((1, 2)), bits=20, limit=2.0**11 - 1)
    with pytest.raises(BoundsError, match="fraction bits"):
        GridRows.make(np.ones((1, 2)), bits=20, limit=2.0**11)
