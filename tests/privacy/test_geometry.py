"""What a group declares beyond its bound: enforced on the grid, brute-forced, and worth what the registry says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims import servers_claim

from tallystick.core.errors import BoundsError
from tallystick.privacy.contribution import Dense, Factored, GridRows, Sparse, densify, total, total_by_person
from tallystick.privacy.grid import Grid, Group
from tallystick.privacy.sensitivity import (
    blocks_sensitivity,
    counts_sensitivity,
    nonnegative_sensitivity,
    vector_sensitivity,
)
from tallystick.privacy.sum_plan import make_plan

NORMS = ("l1", "l2")
RELATIONS = ("add-remove", "replace-one")
BITS = 6


def grid_of(norm, **declared):
    return Grid(groups=(Group(**{"name": "all", "size": 4, "bound": 1.0} | declared),), fraction_bits=BITS, norm=norm)


def length(vector, norm):
    return float(np.abs(vector).sum() if norm == "l1" else math.sqrt(int((vector * vector).sum())))


def moved_most(grid, domain, *, one=total):
    """(added, replaced): the largest change of the sum, over all records and pairs of records of the domain."""
    each = np.array([one(Dense(values=np.array([record], dtype=float)), grid) for record in domain])
    rest = one(Dense(values=np.array(domain[::5], dtype=float)), grid)
    with_one = [one(Dense(values=np.array([*domain[::5], record], dtype=float)), grid) for record in domain]
    assert all(np.array_equal(a - rest, b) for a, b in zip(with_one, each))  # a sum: the other records do not matter
    added = max(length(v, grid.norm) for v in each)
    return added, max(length(a - b, grid.norm) for a, b in itertools.combinations(each, 2))


DOMAIN = [
    (a, b, c, d) for a in (-9.0, 0.0, 0.7, 9.0) for b in (-0.6, 0.0, 5.0) for c in (-3.0, 0.0, 0.8) for d in (0.0, -7.0)
]


@pytest.mark.parametrize("norm", NORMS)
def test_nonnegative_row_by_brute_force(norm):
    grid = grid_of(norm, nonnegative=True)
    bound = grid.integer_bounds[0]
    added, replaced = moved_most(grid, DOMAIN)
    allowed = {r: nonnegative_sensitivity(bound, r, l1=norm == "l1") for r in RELATIONS}
    assert 0.95 * allowed["add-remove"] < added <= allowed["add-remove"]
    assert 0.95 * allowed["replace-one"] < replaced <= allowed["replace-one"]


def test_without_the_clip_at_zero_the_nonnegative_row_does_not_hold():
    """Planted bug: the smaller sensitivity is used and negative coordinates pass."""
    grid = grid_of("l2")
    _, replaced = moved_most(grid, DOMAIN)
    assert replaced > nonnegative_sensitivity(grid.integer_bounds[0], "replace-one", l1=False) * 1.3


def test_rounding_the_root_down_would_break_the_row():
    for bound in (1, 3, 64, 2**31 - 1):
        d = nonnegative_sensitivity(bound, "replace-one", l1=False)
        assert (d - 1) ** 2 < 2 * bound**2 <= d**2
        assert d <= vector_sensitivity(bound, "replace-one")
    assert nonnegative_sensitivity(7, "replace-one", l1=True) == 14
    assert nonnegative_sensitivity(7, "add-remove", l1=False) == 7


@settings(deadline=None, max_examples=150)
@given(st.lists(st.floats(-1e9, 1e9), min_size=4, max_size=4), st.sampled_from(NORMS), st.booleans())
def test_enforced_on_any_vector(values, norm, nonnegative):
    plain = grid_of(norm, nonnegative=nonnegative)
    out = total(Dense(values=np.array([values])), plain)
    assert length(out, norm) <= plain.integer_bounds[0]
    assert not nonnegative or (out >= 0).all()
    blocks = grid_of(norm, nonnegative=nonnegative, one_of=2, count=0.5)
    out = total(Dense(values=np.array([values])), blocks).reshape(2, 2)
    used = out.any(axis=1)
    assert used.sum() <= 1
    assert (out[used, 0] == 32).all()
    assert (np.abs(out[:, 1]) <= 64).all()
    assert not nonnegative or (out >= 0).all()


def as_sparse(dense):
    nonzero = dense != 0
    indptr = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))]).astype(np.int64)
    return Sparse(indptr=indptr, indices=np.nonzero(nonzero)[1], values=dense[nonzero], size=dense.shape[1])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("declared", [{"nonnegative": True}, {"one_of": 3, "count": 0.7}, {"one_of": 2, "count": 3.0}])
def test_dense_sparse_factored_and_a_plain_oracle_agree(norm, declared):
    rng = np.random.default_rng(3)
    groups = (Group(name="a", size=12, bound=1.0, share=0.5, **declared), Group(name="b", size=2, bound=1.0, share=0.5))
    grid = Grid(groups=groups, fraction_bits=20, norm=norm)
    rows = GridRows.make(rng.normal(size=(200, 7)) * 0.4, bits=10, limit=1.0)
    coefficients = rng.normal(size=(200, 2)) * (rng.random((200, 2)) < 0.7)
    factored = Factored(coefficients=coefficients, rows=rows)
    dense = densify(factored, grid) * (rng.random((200, 14)) < 0.5)
    expected = sum(oracle(row, grid) for row in dense)
    assert np.array_equal(total(Dense(values=dense), grid), expected)
    assert np.array_equal(total(as_sparse(dense), grid), expected)
    whole = densify(factored, grid)
    assert np.array_equal(total(factored, grid), sum(oracle(row, grid) for row in whole))


def oracle(row, grid):
    """The same rules in plain Python, one record; norms are verified by the caller's grid through ``total``."""
    u = [round(float(x) * grid.scale) for x in row]
    at = 0
    for group, count in zip(grid.groups, grid.integer_counts):
        inside = range(at, at + group.size)
        sums = list(inside)
        if group.one_of:
            counts = [j for j in inside if (j - at) % group.width == 0]
            chosen = next((j for j in counts if u[j]), None)
            sums = [] if chosen is None else list(range(chosen + 1, chosen + group.width))
            for j in inside:
                if j not in sums:
                    u[j] = 0
            if chosen is not None:
                u[chosen] = count
        for j in sums:
            u[j] = max(0, u[j]) if group.nonnegative else u[j]
        plain = Grid(
            groups=(Group(name="x", size=max(1, len(sums)), bound=group.bound),), fraction_bits=20, norm=grid.norm
        )
        clipped = total(Dense(values=np.array([[u[j] / grid.scale for j in sums] or [0.0]])), plain)
        for j, value in zip(sums, clipped):
            u[j] = int(value)
        at += group.size
    return np.array(u, dtype=np.int64)


BLOCKS = [
    (a, b, c, d) for a in (0.0, 1.0, -4.0) for b in (-9.0, 0.0, 0.6, 9.0) for c in (0.0, 2.0) for d in (-5.0, 0.3, 8.0)
]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("count", [0.25, 1.0, 1.5])
def test_blocks_row_by_brute_force(norm, nonnegative, count):
    grid = grid_of(norm, one_of=2, count=count, nonnegative=nonnegative)
    bound, unit = grid.integer_bounds[0], grid.integer_counts[0]
    added, replaced = moved_most(grid, BLOCKS)
    row = {r: blocks_sensitivity(bound, unit, r, l1=norm == "l1", nonnegative=nonnegative) for r in RELATIONS}
    assert 0.95 * row["add-remove"] < added <= row["add-remove"]
    assert 0.95 * row["replace-one"] < replaced <= row["replace-one"]


def test_a_count_up_to_the_bound_is_free_and_a_larger_one_is_not():
    assert blocks_sensitivity(100, 100, "replace-one", l1=False, nonnegative=False) == 200
    assert blocks_sensitivity(100, 101, "replace-one", l1=False, nonnegative=False) == 202
    assert blocks_sensitivity(100, 100, "replace-one", l1=True, nonnegative=False) == 400
    assert blocks_sensitivity(3, 4, "add-remove", l1=False, nonnegative=False) == 5
    assert blocks_sensitivity(8, 1, "replace-one", l1=False, nonnegative=True) == math.ceil(math.sqrt(130))


def test_planted_bugs_break_the_blocks_row():
    """A record that adds to both blocks, or counts itself twice, moves the sum further than the row allows."""
    grid = grid_of("l2", one_of=2, count=1.0)
    row = blocks_sensitivity(64, 64, "replace-one", l1=False, nonnegative=False)
    both, opposite = np.array([64, 64, 64, 64]), np.array([64, -64, 64, -64])
    assert length(both - opposite, "l2") > row
    assert length(np.array([128, 64, 0, 0]) - np.array([0, 0, 128, 64]), "l2") > row
    # ... which is why the platform does not let them:
    for record in (both, opposite, np.array([128, 64, 0, 0]), np.array([0, 0, -128, 64])):
        out = total(Dense(values=record[None] / 64), grid)
        assert length(out, "l2") <= math.hypot(64, 64)


def test_a_vector_without_a_count_adds_nothing():
    grid = grid_of("l2", one_of=2, count=1.0)
    assert not total(Dense(values=np.array([[0.0, 0.9, 0.0, -0.5]])), grid).any()
    assert np.array_equal(total(Dense(values=np.array([[0.3, 0.5, 1.0, 0.5]])), grid), [64, 32, 0, 0])


def claim(**more):
    return servers_claim(
        **{
            "epsilon": 1.0,
            "delta": 1e-6,
            "neighbours": "replace-one",
            "mechanism": "gaussian",
            "rounds": 1,
            "records": 99,
        }
        | more
    )


def test_the_plan_uses_the_rows():
    plain = Group(name="g", size=4, bound=1.0)
    blocks = Group(name="g", size=4, bound=1.0, one_of=2, count=1.0)
    positive = Group(name="g", size=4, bound=1.0, nonnegative=True)
    variances = {}
    for name, group in (("plain", plain), ("blocks", blocks), ("positive", positive)):
        noise = make_plan(claim(), [(group,)], fraction_bits=20).rounds[0].noise[0]
        variances[name] = noise.variance / 4**20
    assert variances["blocks"] == variances["plain"]  # the counts came for nothing
    assert variances["positive"] == pytest.approx(variances["plain"] / 2, rel=1e-4)
    laplace = make_plan(claim(mechanism="laplace", delta=0.0), [(blocks,)], fraction_bits=20).rounds[0].noise[0]
    assert laplace.sensitivity == 4 * 2**20


def test_a_persons_records_in_several_blocks_are_bounded_as_a_whole():
    group = Group(name="g", size=4, bound=3.0, one_of=2, count=4.0)
    made = make_plan(claim(unit="person", max_records=2, max_institutions=3), [(group,)], fraction_bits=10)
    grid, noise = made.rounds[0].grid, made.rounds[0].noise[0]
    assert grid.groups[0].one_of == 0
    assert grid.integer_bounds[0] == 2 * 5 * 2**10
    assert noise.sensitivity == 3 * 2 * grid.integer_bounds[0]
    domain = [tuple(4.0 * (i == 2 * b) + s * (i == 2 * b + 1) for i in range(4)) for b in (0, 1) for s in (-3, 0, 3)]
    worst = 0.0
    for person, other in itertools.product(itertools.combinations(domain, 2), repeat=2):
        codes = np.zeros(2, dtype=np.int64)
        moved = total_by_person(Dense(values=np.array(person)), grid, codes)
        moved = moved - total_by_person(Dense(values=np.array(other)), grid, codes)
        worst = max(worst, 3 * length(moved, "l2"))
    assert worst <= noise.sensitivity
    with pytest.raises(BoundsError, match="several blocks"):
        total_by_person(
            Dense(values=np.array(domain)), Grid(groups=(group,), fraction_bits=10, norm="l2"), np.zeros(6, int)
        )


def test_a_persons_sum_is_clipped_at_zero():
    grid = grid_of("l2", nonnegative=True)
    out = total_by_person(Dense(values=np.array([[0.5, -0.5, 0, 0], [0.25, 0.25, -9, 0]])), grid, np.array([0, 0]))
    assert np.array_equal(out, [48, 0, 0, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"one_of": 3},
        {"one_of": 4, "count": 1.0},
        {"one_of": -2, "count": 1.0},
        {"one_of": 2},
        {"one_of": 2, "count": math.inf},
        {"count": 1.0},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(BoundsError):
        grid_of("l2", **wrong)


def test_a_count_must_fit_the_grid():
    with pytest.raises(BoundsError, match="does not fit"):
        grid_of("l2", one_of=2, count=2.0**26)
    grid = grid_of("l2", one_of=2, count=3.0)
    assert grid.largest_coordinates == (192,)


SETS = [tuple(float(9 * x) for x in bits) for bits in itertools.product((0, 1, -1), repeat=4)]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("ones", [1, 2, 3, 4])
def test_itemset_row_by_brute_force(norm, ones):
    """At most ``ones`` of 4 candidates a record: √min(2c, I) and min(2c, I) under replace-one, √c and c else."""
    bound = ones if norm == "l1" else math.sqrt(ones)
    grid = grid_of(norm, nonnegative=True, ceiling=1.0, bound=bound)
    added, replaced = moved_most(grid, SETS)
    unit = 2**BITS
    row = {r: counts_sensitivity(grid.integer_bounds[0], unit, 4, r, l1=norm == "l1") for r in RELATIONS}
    assert 0.95 * row["add-remove"] < added <= row["add-remove"]
    assert 0.95 * row["replace-one"] < replaced <= row["replace-one"]
    power = 1 if norm == "l1" else 0.5
    assert row["replace-one"] == pytest.approx(unit * min(2 * ones, 4) ** power, abs=2)


@pytest.mark.parametrize("norm", NORMS)
def test_without_the_ceiling_the_itemset_row_does_not_hold(norm):
    """Planted bug: coordinates above 1 pass, and the smaller sensitivity is used."""
    bound = 4.0 if norm == "l1" else 2.0
    _, replaced = moved_most(grid_of(norm, nonnegative=True, bound=bound), SETS)
    grid = grid_of(norm, nonnegative=True, ceiling=1.0, bound=bound)
    assert replaced > 1.3 * counts_sensitivity(grid.integer_bounds[0], 2**BITS, 4, "replace-one", l1=norm == "l1")


def test_a_ceiling_is_enforced_also_on_a_persons_sum():
    grid = grid_of("l1", nonnegative=True, ceiling=1.0, bound=4.0)
    records = np.array([[0.5, 2.0, -1.0, 1.0], [0.75, 0.0, 0.5, 1.0]])
    assert np.array_equal(total(Dense(values=records), grid), [80, 64, 32, 128])
    assert np.array_equal(total_by_person(Dense(values=records), grid, np.array([0, 0])), [64, 64, 0, 64])
    group = Group(name="g", size=4, bound=4.0, nonnegative=True, ceiling=1.0)
    made = make_plan(claim(unit="person", max_records=3, max_institutions=2), [(group,)], fraction_bits=10)
    assert made.rounds[0].grid.integer_ceilings == (3 * 2**10,)
    assert made.rounds[0].noise[0].sensitivity == 2 * 6 * 2**10  # √(4 · 3²), twice


@pytest.mark.parametrize(
    "wrong", [{"ceiling": -1.0}, {"ceiling": math.inf}, {"nonnegative": False}, {"one_of": 2, "count": 1.0}]
)
def test_a_ceiling_out_of_place_is_refused(wrong):
    with pytest.raises(BoundsError, match="ceiling"):
        Group(**{"name": "g", "size": 4, "bound": 1.0, "nonnegative": True, "ceiling": 1.0} | wrong)
    with pytest.raises(BoundsError, match="does not fit"):
        grid_of("l2", nonnegative=True, ceiling=2.0**-9)


# -- a record that adds zeros ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"nonnegative": True},
        {"nonnegative": True, "ceiling": 1.0, "bound": 2.0},
        {"nonnegative": True, "ceiling": 1.0, "bound": 50.0},
        {"one_of": 2, "count": 1.5},
        {"one_of": 2, "count": 0.25, "nonnegative": True},
    ],
)
def test_replacing_a_record_by_one_that_adds_zeros_is_within_the_row(norm, declared):
    """One with a bad cell: the zero vector belongs to the domain under replace-one, whatever a group declares."""
    grid = grid_of(norm, **declared)
    relation = claim(mechanism="laplace", delta=0.0) if norm == "l1" else claim()
    plan = make_plan(relation, [grid.groups], fraction_bits=BITS)
    allowed = plan.rounds[0].noise[0].sensitivity
    others = Dense(values=np.array(DOMAIN[::7], dtype=float))
    for record in [*DOMAIN, *BLOCKS]:
        with_one = total(Dense(values=np.array([*DOMAIN[::7], record], dtype=float)), grid)
        assert length(with_one - total(others, grid), norm) <= allowed
