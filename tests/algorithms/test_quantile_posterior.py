"""What released counts say: the update is generalised least squares, the window holds, monotony is kept."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.algorithms.quantiles.posterior import RankPosterior, Target, monotone
from tallystick.algorithms.quantiles.zoom import Zoom

HALF = Target(share=0.5)


def after_cells(edges: list[int], counts: list[float], variance: float, *, size: int = 1000, n: float = 100) -> Zoom:
    zoom = Zoom.start(size=size, targets=(HALF,), records=n)
    return zoom.told_cells(np.array(edges, dtype=np.int64), np.array(counts), variance)


def test_an_update_is_generalised_least_squares() -> None:
    """Against the normal equations with prior and releases stacked: β = (Σ⁻¹ + HᵀR⁻¹H)⁻¹(Σ⁻¹μ + HᵀR⁻¹y)."""
    rng = np.random.default_rng(1)
    start = RankPosterior.start(1000, records=100.0, std=30.0, alpha=2.0)
    edges = np.array([100, 250, 600], dtype=np.int64)
    prior = start.with_edges(edges, 2.0)
    functional, values, noise = prior.of_cells(edges), rng.normal(25, 5, 4), rng.uniform(4, 9, 4)
    made = prior.updated(functional, values, noise)
    free = slice(1, None)  # the rank at 0 is 0
    inverse, h = np.linalg.inv(prior.cov[free, free]), functional[:, free]
    weight = np.diag(1 / noise)
    wanted = np.linalg.solve(inverse + h.T @ weight @ h, inverse @ prior.mean[free] + h.T @ weight @ values)
    assert made.mean[free] == pytest.approx(wanted, rel=1e-8)
    assert made.cov[free, free] == pytest.approx(np.linalg.inv(inverse + h.T @ weight @ h), rel=1e-7)


def test_cells_refine_a_rank_more_than_one_level_alone() -> None:
    one = after_cells([500], [50, 50], 25.0)
    both = one.told_cells(np.array([500]), np.array([50.0, 50.0]), 25.0)
    std = [z.ranks.ranks_at(np.array([500.0]), HALF)[1][0] for z in (one, both)]
    assert std[1] == pytest.approx(std[0] / np.sqrt(2), rel=0.1)


def test_the_window_holds_the_answer_and_narrows() -> None:
    wide = after_cells([250, 500, 750], [10, 70, 10, 10], 400.0)
    narrow = after_cells([250, 500, 750], [10, 70, 10, 10], 0.01)
    for zoom in (wide, narrow):
        low, high = zoom.window(0.99)
        assert low < 250 + 250 * 40 / 70 < high
    assert 250 <= narrow.window(0.9)[0] < narrow.window(0.9)[1] <= 500
    assert wide.spread() > narrow.spread()
    assert narrow.held_between(0.95) == (250, 500)


def test_a_single_value_is_settled_once_its_edges_are_counted() -> None:
    zoom = after_cells([400], [20, 80], 1.0)
    assert zoom.open_targets == (0,)
    zoom = zoom.told_cells(np.array([400, 401]), np.array([20.0, 60.0, 20.0]), 1.0)
    assert zoom.open_targets == ()
    assert zoom.answer() == 400
    assert zoom.held_between(0.99) == (400, 401)


def test_coarse_edges_in_a_gap_are_forgotten() -> None:
    """Levels that were told roughly, then the two ends of the gap exactly: edges in between say nothing any more."""
    zoom = after_cells([200, 400, 600, 800], [50, 0, 0, 0, 50], 2500.0)
    zoom = zoom.told_cells(np.array([100, 900]), np.array([50.0, 0.0, 50.0]), 0.01)
    assert set(zoom.ranks.edges.tolist()) <= {0, 100, 900, 1000}


def test_a_probe_of_a_rank_and_one_centred_at_the_target_say_the_same() -> None:
    plain = after_cells([500], [45, 55], 400.0).told_rank(480, 48.0, 1.0)
    centred = after_cells([500], [45, 55], 400.0).told_rank(480, -2.0, 1.0, 0.5)  # of 100 public records
    assert plain.ranks.mean == pytest.approx(centred.ranks.mean)
    assert abs(plain.ranks.ranks_at(np.array([480.0]), HALF)[0][0] + 2.0) < 0.1


def test_edges_are_distinct_inside_the_domain_and_single_values_at_last() -> None:
    zoom = after_cells([250, 500, 750], [10, 70, 10, 10], 4.0)
    edges = zoom.cells(8)
    assert len(np.unique(edges)) == len(edges) == 9
    assert 0 < edges.min() < edges.max() < 1000
    few = after_cells([3], [30, 70], 0.5, size=6)
    assert few.cells(8).tolist() == list(range(3, 6))


@pytest.mark.parametrize("seed", range(5))
def test_monotone_is_the_nearest_ascending_sequence(seed: int) -> None:
    """Pool-adjacent-violators against its minimax form: max over i ≤ k of min over j ≥ k of the mean of i…j."""
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(0, 1, 12), rng.uniform(0.2, 2, 12)

    def mean(i: int, j: int) -> float:
        return float(values[i : j + 1] @ weights[i : j + 1] / weights[i : j + 1].sum())

    wanted = [max(min(mean(i, j) for j in range(k, 12)) for i in range(k + 1)) for k in range(12)]
    assert monotone(values, weights) == pytest.approx(wanted)


@pytest.mark.parametrize("std", [0.0, 1e-4, 0.1])
def test_noise_that_vanishes_beside_a_billion_records_is_reckoned_with(std: float) -> None:
    """A study that has been paid for must not end in a matrix that float64 takes for singular."""
    counts = np.array([2e8, 4e8, 3e8, 1e8])
    zoom = Zoom.start(size=4, targets=(Target(share=0.5),), records=1e9)
    for _ in range(15):
        zoom = zoom.told_cells(np.array([1, 2, 3]), counts + std, std**2)
        assert np.isfinite(zoom.ranks.mean).all()
        assert np.isfinite(zoom.ranks.cov).all()
    assert zoom.answer() == 1
