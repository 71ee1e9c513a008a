"""Clipping on the integer grid: the bound holds in exact integers, the three forms agree to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import BoundsError, DataError
from tallystick.privacy.clipping import MAX_BOUND, clip_record
from tallystick.privacy.contribution import Dense, Factored, GridRows, Sparse, densify, total, total_by_person
from tallystick.privacy.grid import Grid, Group, fraction_bits_for

NORMS = ("l1", "l2")


def make_grid(norm="l2", bounds=(1.0,), sizes=(4,), bits=20):
    share = 1 / len(bounds)
    groups = tuple(Group(name=f"g{i}", size=s, bound=b, share=share) for i, (b, s) in enumerate(zip(bounds, sizes)))
    return Grid(groups=groups, fraction_bits=bits, norm=norm)


def exact_norm_ok(vector, bound, norm):
    values = [int(x) for x in vector]
    return sum(map(abs, values)) <= bound if norm == "l1" else sum(v * v for v in values) <= bound * bound


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
    st.sampled_from(NORMS),
    st.floats(1e-3, 1000),
)
def test_no_record_exceeds_the_bound(values, norm, bound):
    grid = make_grid(norm, (bound,), (4,), bits=fraction_bits_for(bound))
    out = total(Dense(values=np.array([values])), grid)
    assert exact_norm_ok(out, grid.integer_bounds[0], norm)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(-0.2, 0.2), min_size=4, max_size=4))
def test_short_vectors_pass_unchanged(values):
    grid = make_grid("l2", (1.0,), (4,))
    out = total(Dense(values=np.array([values])), grid)
    assert np.array_equal(out, np.rint(np.array(values) * 2**20).astype(np.int64))


def test_direction_is_kept_and_little_is_lost():
    grid = make_grid("l2", (1.0,), (4,))
    v = np.array([[3.0, -4.0, 12.0, 0.0]])
    out = total(Dense(values=v), grid) / 2**20
    assert np.allclose(out, v[0] / 13.0, atol=2e-6)
    assert exact_norm_ok(out * 2**20, 2**20, "l2")


def test_rounding_up_would_break_the_bound():
    """Planted bug: rounding to nearest after scaling exceeds the integer bound that truncation keeps."""
    rng = np.random.default_rng(1)
    grid = make_grid("l1", (1.0,), (64,), bits=10)
    broken = 0
    for v in rng.normal(size=(200, 64)):
        scaled = np.rint(v / np.abs(v).sum() * 2**10)
        broken += not exact_norm_ok(scaled, 2**10, "l1")
        assert exact_norm_ok(total(Dense(values=v[None]), grid), 2**10, "l1")
    assert broken > 20


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_before_any_share(value):
    grid = make_grid()
    rows = np.zeros((3, 4))
    rows[1, 2] = value
    with pytest.raises(DataError, match="NaN or infinity"):
        total(Dense(values=rows), grid)
    with pytest.raises(DataError):
        GridRows.make(rows, bits=10, limit=1.0)
    indptr = np.array([0, 1])
    with pytest.raises(DataError):
        total(Sparse(indptr=indptr, indices=np.array([2]), values=np.array([value]), size=4), grid)


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, -0.0])
def test_extreme_but_finite_values_are_clipped(value):
    grid = make_grid()
    out = total(Dense(values=np.full((1, 4), value)), grid)
    assert exact_norm_ok(out, 2**20, "l2")
    assert (out != 0).all() == (abs(value) > 1)


def test_wrong_width_is_refused():
    with pytest.raises(BoundsError, match="5 coordinates"):
        total(Dense(values=np.zeros((1, 5))), make_grid())
    with pytest.raises(BoundsError):
        make_grid(sizes=(0,))


def random_factored(rng, n, d, k, clip_scale):
    rows = GridRows.make(rng.normal(size=(n, d)) * 0.3, bits=10, limit=1.0)
    coefficients = np.rint(rng.normal(size=(n, k)) * clip_scale * 2**10) / 2**10
    return Factored(coefficients=coefficients, rows=rows)


def as_sparse(dense):
    nonzero = dense != 0
    indptr = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))]).astype(np.int64)
    return Sparse(indptr=indptr, indices=np.nonzero(nonzero)[1], values=dense[nonzero], size=dense.shape[1])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("clip_scale", [0.1, 1.0, 40.0])
@pytest.mark.parametrize("groups", [((1.0,), (12,)), ((0.5, 2.0), (5, 7))])
def test_dense_sparse_and_factored_give_the_same_bits(norm, clip_scale, groups):
    rng = np.random.default_rng(7)
    grid = make_grid(norm, *groups, bits=20)
    factored = random_factored(rng, 300, 6, 2, clip_scale)
    dense = densify(factored, grid)
    expected = total(Dense(values=dense), grid)
    assert np.array_equal(total(factored, grid), expected)
    assert np.array_equal(total(as_sparse(dense), grid), expected)
    oracle = np.zeros(12, dtype=np.int64)
    for row in dense:
        oracle += plain_python_clip(row, grid)
    assert np.array_equal(oracle, expected)


def plain_python_clip(row, grid):
    """The oracle: the same rule in Python integers and floats, one record."""
    out = []
    starts, stops, rules = grid.edges()
    for start, stop, bound in zip(starts, stops, rules[:, 0]):
        u = [round(float(x) * grid.scale) for x in row[start:stop]]
        if not exact_norm_ok(u, int(bound), grid.norm):
            size = 0.0
            for x in u:
                size += abs(float(x)) if grid.norm == "l1" else float(x) * float(x)
            factor = float(bound) / (size if grid.norm == "l1" else size**0.5)
            clipped = [int(float(x) * factor) for x in u]
            while not exact_norm_ok(clipped, int(bound), grid.norm):
                factor *= 1 - 2.0**-30
                clipped = [int(float(x) * factor) for x in u]
            u = clipped
        out += u
    return np.array(out, dtype=np.int64)


@pytest.mark.parametrize("pieces", [1, 7, 100, 300])
def test_sums_are_exact_however_split_and_shuffled(pieces):
    rng = np.random.default_rng(11)
    factored = random_factored(rng, 300, 6, 1, 3.0)
    grid = make_grid("l2", (1.0,), (6,), bits=20)
    whole = total(factored, grid)
    order = rng.permutation(300)
    parts = np.zeros(6, dtype=np.int64)
    for index in np.array_split(order, pieces):
        rows = GridRows(
            values=factored.rows.values[index],
            bits=10,
            limit=factored.rows.limit,
            squares=factored.rows.squares[index],
            sums=factored.rows.sums[index],
        )
        parts += total(Factored(coefficients=factored.coefficients[index], rows=rows), grid)
    assert np.array_equal(parts, whole)


def test_large_products_are_summed_in_exact_blocks():
    """Coefficients and rows near their limits would lose bits in one float64 product; blocks keep every one."""
    n = 3000
    rows = GridRows.make(np.full((n, 1), 1.0), bits=30, limit=1.0)
    factored = Factored(coefficients=np.full(n, 1.0), rows=rows)
    grid = make_grid("l2", (1.0,), (1,), bits=30)
    assert total(factored, grid)[0] == n * 2**30
    odd = Factored(
        coefficients=np.full(n, 1 - 2.0**-13), rows=GridRows.make(np.full((n, 1), 1 - 2.0**-17), bits=17, limit=1.0)
    )
    assert total(odd, grid)[0] == n * (2**13 - 1) * (2**17 - 1)


def test_a_persons_sum_is_clipped_once():
    grid = make_grid("l2", (1.0,), (2,))
    values = np.array([[0.9, 0.0], [0.9, 0.0], [0.0, 0.5], [-0.3, 0.0]])
    out = total_by_person(Dense(values=values), grid, np.array([0, 0, 1, 1]))
    assert out[0] == 2**20 + round(-0.3 * 2**20)
    assert out[1] == 2**19
    shuffled = total_by_person(Dense(values=values[[2, 0, 3, 1]]), grid, np.array([1, 0, 1, 0]))
    assert np.array_equal(shuffled, out)


def test_the_kernel_adds_nothing_when_it_refuses():
    acc = np.zeros(2, dtype=np.int64)
    edges = np.array([0]), np.array([2]), np.array([[100, 0, 0, 0]])
    assert not clip_record(np.array([1.0, np.nan]), *edges, False, 1.0, acc)
    assert (acc == 0).all()


def test_bounds_fit_the_grid():
    for bound in (1e-6, 1.0, 3.7, 1e6):
        bits = fraction_bits_for(bound)
        assert bound * 2.0**bits <= MAX_BOUND < bound * 2.0 ** (bits + 1)
    with pytest.raises(BoundsError):
        make_grid(bits=31)
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(BoundsError):
            Group(name="g", size=1, bound=bad)
