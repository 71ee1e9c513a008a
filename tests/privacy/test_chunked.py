"""A contribution in parts: the same bits as all at once, by record and by person."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tallystick.privacy import contribution
from tallystick.privacy.contribution import Chunked, Dense, Sparse, total, total_by_person
from tallystick.privacy.grid import Grid, Group

RECORDS, SIZE = 41, 6
VALUES = np.random.default_rng(3).normal(size=(RECORDS, SIZE)) * (
    np.random.default_rng(4).random((RECORDS, SIZE)) < 0.5
)


def sparse(values: np.ndarray) -> Sparse:
    rows, columns = np.nonzero(values)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(values)))]).astype(np.int64)
    return Sparse(indptr=indptr, indices=columns.astype(np.int64), values=values[rows, columns], size=values.shape[1])


def chunked(cuts: list[int]) -> Chunked:
    def parts() -> Iterator[Dense | Sparse]:
        for at, part in enumerate(np.split(VALUES, cuts)):
            yield sparse(part) if at % 2 else Dense(values=part)

    return Chunked(parts=parts)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("cuts", [[], [0], [7, 7, 20], list(range(RECORDS))])
def test_parts_sum_to_the_bits_of_the_whole(norm: str, cuts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(groups=(Group(name="a", size=SIZE, bound=1.0, nonnegative=True),), fraction_bits=20, norm=norm)  # type: ignore[arg-type]
    whole = Dense(values=VALUES)
    assert np.array_equal(total(chunked(cuts), grid), total(whole, grid))
    persons = np.random.default_rng(5).permutation(np.arange(RECORDS) % 9).astype(np.int64)
    expected = total_by_person(whole, grid, persons)
    for cells in (1, 4 * SIZE, 2**24):  # one person at a time, a few, all
        monkeypatch.setattr(contribution, "_PERSON_CELLS", cells)
        assert np.array_equal(total_by_person(chunked(cuts), grid, persons), expected)


def test_a_person_cut_in_two_would_be_seen() -> None:
    """The control: clipping a person's records part by part is another sum."""
    grid = Grid(groups=(Group(name="a", size=SIZE, bound=1.0),), fraction_bits=20, norm="l2")
    persons = (np.arange(RECORDS) % 9).astype(np.int64)
    parts = [total_by_person(Dense(values=VALUES[i::2]), grid, persons[i::2]) for i in (0, 1)]
    assert not np.array_equal(parts[0] + parts[1], total_by_person(Dense(values=VALUES), grid, persons))
