"""Every registry row in use, brute-forced: all databases of up to 3 records over tiny domains, both relations.

The vectors that are summed are the ones the platform really sums: gridded and clipped by ``contribution.total``.
"""

import itertools

import numpy as np
import pytest

from tallystick.privacy.contribution import Dense, total, total_by_person
from tallystick.privacy.grid import Grid, Group
from tallystick.privacy.sensitivity import count_sensitivity, person_multiplier, vector_sensitivity

DOMAIN = [(x, y) for x in (-9.0, -0.6, 0.0, 0.8, 9.0) for y in (-1.0, 0.0, 7.0)]


def grid_for(norm):
    return Grid(groups=(Group(name="all", size=2, bound=1.0),), fraction_bits=6, norm=norm)


def size(vector, norm):
    return int(np.abs(vector).sum()) if norm == "l1" else float(np.sqrt((vector * vector).sum()))


def sums(norm, records):
    return total(Dense(values=np.array(records, dtype=float).reshape(-1, 2)), grid_for(norm))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_vector_row(norm):
    bound = grid_for(norm).integer_bounds[0]
    added, replaced = 0.0, 0.0
    for rest in itertools.combinations_with_replacement(DOMAIN[::4], 2):
        base = sums(norm, rest)
        ones = [sums(norm, [*rest, record]) for record in DOMAIN]
        added = max(added, *(size(one - base, norm) for one in ones))
        replaced = max(replaced, *(size(a - b, norm) for a, b in itertools.combinations(ones, 2)))
    assert added <= vector_sensitivity(bound, "add-remove")
    assert replaced <= vector_sensitivity(bound, "replace-one")
    # Attained up to the grid: half of either would be a planted bug that this test catches.
    assert added > 0.95 * vector_sensitivity(bound, "add-remove")
    assert replaced > 0.95 * vector_sensitivity(bound, "replace-one")


def test_wrong_norm_is_caught():
    """An L1 bound does not bound... the other way round: vectors clipped in L2 break the L1 row."""
    bound = grid_for("l2").integer_bounds[0]
    moved = max(size(sums("l2", [r]), "l1") for r in [*DOMAIN, (5.0, 5.0)])
    assert moved > vector_sensitivity(bound, "add-remove")


def test_without_clipping_the_row_does_not_hold():
    bound = grid_for("l2").integer_bounds[0]
    unclipped = np.rint(np.array([9.0, 7.0]) * 64)
    assert size(unclipped, "l2") > vector_sensitivity(bound, "replace-one")


def test_count_row():
    for n in range(5):
        assert abs((n + 1) - n) == count_sensitivity("add-remove")
        assert abs(n - n) == count_sensitivity("replace-one")


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_person_row(norm):
    """A person with any number of records at k institutions moves the sum of sums by at most k bounds (twice, R1)."""
    grid = grid_for(norm)
    bound = grid.integer_bounds[0]
    k = 2
    worst = 0.0
    cells = DOMAIN[::2]
    for person, other in itertools.product(itertools.combinations(cells, 3), repeat=2):
        moved = np.zeros(2, dtype=np.int64)
        for _ in range(k):  # the same worst case at each institution
            codes = np.zeros(3, dtype=np.int64)
            moved += total_by_person(Dense(values=np.array(person)), grid, codes)
            moved -= total_by_person(Dense(values=np.array(other)), grid, codes)
        worst = max(worst, size(moved, norm))
    limit = vector_sensitivity(bound, "replace-one") * person_multiplier(k)
    assert 0.9 * limit < worst <= limit
