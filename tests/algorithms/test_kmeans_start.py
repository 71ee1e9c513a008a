"""The start of k-means: noisy moments used with care, made-up records, projections on where means can lie."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from block_runs import mixed, numbers, random_records
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tallystick.algorithms.clustering.start import (
    _Draws,
    _made_up,
    condensed,
    free_coordinates,
    into_domain,
    public_spread,
    random_centres,
    spread_from_moments,
    start_centres,
    without_block_sums,
)
from tallystick.algorithms.linear.moments import ColumnShapes, moment_vectors
from tallystick.algorithms.program import Public

MIXED = mixed(records=100)


@pytest.mark.parametrize("l1", [False, True])
def test_without_noise_the_moments_are_the_datas(l1: bool) -> None:
    shapes = ColumnShapes.of(MIXED, l1=l1)
    records, _ = random_records(MIXED, 4000, np.random.default_rng(1))
    empty = records[:, :3].sum(axis=1) == 0
    records[empty, 1] = 1.0  # no undeclared value
    found = spread_from_moments(moment_vectors(records, shapes).mean(axis=0), 0.0, shapes)
    assert np.allclose(found.mean, records.mean(axis=0))
    assert np.allclose(found.variance[:8], (records.mean(axis=0) * (1 - records.mean(axis=0)))[:8])
    capped = np.minimum(records[:, [8, 9]].var(axis=0), 1 / 3)
    assert np.allclose(found.variance[[8, 9]], capped)


def test_moments_that_are_all_noise_leave_the_public_facts() -> None:
    shapes = ColumnShapes.of(numbers(40, records=10), l1=False)
    rng = np.random.default_rng(2)
    moved = []
    for _ in range(20):
        noisy = np.concatenate([np.zeros(40), np.full(40, 1 / 3 - 0.5)]) + 0.3 * rng.normal(size=80)
        found = spread_from_moments(noisy, 0.3, shapes)
        moved.append(float((found.mean**2).sum()))
        assert np.all(found.variance <= 1 / 3)
    assert np.mean(moved) < 0.15 * 40 * 0.3**2  # an unshrunk mean would have all of it


def test_free_coordinates() -> None:
    assert free_coordinates(ColumnShapes.of(MIXED, l1=False)) == 10  # one block of three; the lone flag is free
    assert free_coordinates(ColumnShapes.of(numbers(7, records=1), l1=False)) == 7


def test_differences_of_records_lose_nothing_by_the_projection() -> None:
    shapes = ColumnShapes.of(MIXED, l1=False)
    records, _ = random_records(MIXED, 50, np.random.default_rng(3))
    records[records[:, :3].sum(axis=1) == 0, 0] = 1.0
    differences = records[:25] - records[25:]
    assert np.allclose(without_block_sums(differences, shapes), differences)
    noise = np.random.default_rng(4).normal(size=(2000, 11))
    kept = (without_block_sums(noise, shapes) ** 2).sum(axis=1).mean()
    assert kept == pytest.approx(10, rel=0.05)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_the_projection_on_proportions_is_the_nearest(values: list[float]) -> None:
    row = np.zeros((1, 11))
    row[0, :3] = values
    found = into_domain(row, ColumnShapes.of(MIXED, l1=False))[0, :3]
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    best = minimize(
        lambda p: ((p - values) ** 2).sum(),
        np.full(3, 1 / 3),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
    )
    assert ((found - values) ** 2).sum() <= best.fun + 1e-5


def test_made_up_records_have_the_moments_and_are_encodable() -> None:
    shapes = ColumnShapes.of(MIXED, l1=False)
    spread = public_spread(shapes)
    records = _made_up(spread, shapes, 20_000, _Draws("test", 1))
    assert set(np.unique(records[:, :8])) <= {0.0, 1.0}
    assert (records[:, :3].sum(axis=1) == 1).all()
    assert np.abs(records).max() <= 1
    assert np.allclose(records.mean(axis=0), spread.mean, atol=0.02)


def test_draws_are_public_and_reproducible() -> None:
    shapes = ColumnShapes.of(MIXED, l1=False)
    spread = public_spread(shapes)
    assert np.array_equal(start_centres(spread, shapes, 4, 7), start_centres(spread, shapes, 4, 7))
    assert not np.array_equal(start_centres(spread, shapes, 4, 7), start_centres(spread, shapes, 4, 8))
    a, b = random_centres(shapes, 1000, 1), random_centres(shapes, 1000, 2)
    assert not np.array_equal(a, b)
    assert a[:, :8].min() >= 0
    assert a[:, 8].min() < -0.9
    normal = _Draws("normal", 3).normal(50_000)
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02


def test_the_start_is_a_good_quantiser_of_its_domain() -> None:
    """Eight categories of Nursery's sizes: five centres can take a loss of 1.0 off the 5.47 of one."""
    sizes = np.array([0, 3, 8, 12, 16, 19, 21, 24, 27])
    blocks = tuple((f"c{i}", int(a), int(b), "onehot", 1) for i, (a, b) in enumerate(itertools.pairwise(sizes)))
    public = Public(features=tuple(map(str, range(27))), records=1, blocks=blocks)
    shapes = ColumnShapes.of(public, l1=False)
    records = _made_up(public_spread(shapes), shapes, 4000, _Draws("other", 5))
    for seed in range(3):
        centres = start_centres(public_spread(shapes), shapes, 5, seed)
        found = ((records[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1).mean()
        assert found < public_spread(shapes).total - 0.85
    assert start_centres(public_spread(shapes), shapes, 1, 0).shape == (1, 27)


def test_fine_centres_are_condensed_by_their_weight() -> None:
    shapes = ColumnShapes.of(numbers(1, records=1), l1=False)
    fine = np.array([[-0.9], [-0.8], [0.0], [0.7], [0.9]])
    found = condensed(fine, np.array([10.0, 30.0, 0.0, 20.0, 20.0]), shapes, 2, 0)
    assert np.allclose(np.sort(found[:, 0]), [-0.825, 0.8])
    assert np.isfinite(condensed(fine, np.zeros(5), shapes, 3, 0)).all()
    assert np.isfinite(condensed(fine, np.array([0.0, 5.0, 0.0, 0.0, 0.0]), shapes, 4, 0)).all()


def test_more_centres_than_different_records() -> None:
    public = mixed(records=10)
    shapes = ColumnShapes.of(public, l1=False)
    spread = public_spread(shapes)
    constant = type(spread)(mean=np.round(spread.mean), variance=np.zeros(11), indicators=spread.indicators)
    assert np.isfinite(start_centres(constant, shapes, 30, 0)).all()
