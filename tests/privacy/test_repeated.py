"""Few distinct vectors counted as often as they are held: the bits of one row per record, also where they are cut."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.core.errors import BoundsError, DataError
from tallystick.privacy.contribution import Dense, Repeated, densify, total, total_by_person
from tallystick.privacy.grid import Grid, Group, Norm

SIZE, KINDS, RECORDS = 5, 7, 400


def grid(norm: Norm, *, nonnegative: bool = False) -> Grid:
    groups = (Group(name="a", size=3, bound=0.7, nonnegative=nonnegative), Group(name="b", size=2, bound=1.3))
    return Grid(groups=groups, fraction_bits=12, norm=norm)


def both(seed: int) -> tuple[Repeated, Dense]:
    rng = np.random.default_rng(seed)
    vectors, which = rng.normal(0, 1, (KINDS, SIZE)), rng.integers(0, KINDS, RECORDS)
    return Repeated(vectors=vectors, which=which), Dense(values=vectors[which])


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_sums_are_those_of_the_rows(norm: Norm, nonnegative: bool) -> None:
    for seed in range(4):
        few, rows = both(seed)
        at = grid(norm, nonnegative=nonnegative)
        assert total(few, at).tolist() == total(rows, at).tolist()
        persons = np.random.default_rng(seed).integers(0, 60, RECORDS)
        codes = np.unique(persons, return_inverse=True)[1].astype(np.int64)
        assert total_by_person(few, at, codes).tolist() == total_by_person(rows, at, codes).tolist()
        assert (densify(few, at) == rows.values).all()


def test_no_records_add_nothing_and_unheld_vectors_do_not_matter() -> None:
    none = Repeated(vectors=np.full((2, SIZE), np.nan), which=np.zeros(0, dtype=np.int64))
    assert total(none, grid("l1")).tolist() == [0] * SIZE
    with pytest.raises(DataError):
        total(Repeated(vectors=none.vectors, which=np.ones(1, dtype=np.int64)), grid("l1"))


def test_a_wrong_width_is_refused() -> None:
    with pytest.raises(BoundsError):
        total(Repeated(vectors=np.zeros((1, SIZE + 1)), which=np.zeros(3, dtype=np.int64)), grid("l2"))
