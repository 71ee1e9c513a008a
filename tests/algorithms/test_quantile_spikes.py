"""Spikes and gaps: what a level of many cells says of empty runs, when a search asks for places and when for sides."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.quantile_accuracy import measure
from benchmarks.quantile_data import case_of

from tallystick.algorithms.quantiles.posterior import RankPosterior, Target
from tallystick.algorithms.quantiles.schedule import MOST_ROUNDS, Known, Noise, Schedule
from tallystick.algorithms.quantiles.sparse_counts import merged_cells
from tallystick.algorithms.quantiles.zoom import Zoom
from tallystick.privacy.open_budget import PARTS

HALF = Target(share=0.5)
EDGES = np.arange(1, 64, dtype=np.int64) * 10


def noise_of(rng: np.random.Generator, laplace: bool, size: int = 64) -> np.ndarray:
    return rng.laplace(0, 50, size) + rng.laplace(0, 50, size) if laplace else rng.normal(0, 100, size)


@pytest.mark.parametrize("laplace", [True, False])
def test_runs_of_empty_cells_are_one_cell_each(laplace: bool) -> None:
    true = np.zeros(64)
    true[[0, 40, 63]] = 5_000, 900, 5_000
    counts = true + noise_of(np.random.default_rng(6), laplace)
    merged = merged_cells(EDGES, counts, 100.0**2, laplace=laplace)
    assert merged is not None
    assert {400, 410} <= set(merged.edges.tolist())  # the cell of the spike, as it was counted
    at = merged.edges.tolist().index(400) + 1
    assert (merged.counts[at], merged.variances[at]) == (counts[40], 100.0**2)
    empty = merged.variances < 100.0**2
    assert empty.sum() >= 2
    assert (merged.counts[empty] == 0).all()
    assert len(merged.counts) == len(merged.edges) + 1 <= 9


def test_records_in_many_cells_or_in_none_are_no_spikes() -> None:
    noise = noise_of(np.random.default_rng(7), True)
    assert merged_cells(EDGES, noise + 700, 100.0**2, laplace=True) is None
    assert merged_cells(EDGES, noise / 10, 100.0**2, laplace=True) is None


def test_a_run_whose_sum_is_not_nothing_stays_as_it_was_counted() -> None:
    true = np.full(64, 60.0)  # no cell stands above the noise, all of them together do
    true[[0, 40, 63]] = 5_000, 2_000, 5_000
    merged = merged_cells(EDGES, true, 100.0**2, laplace=True)
    assert merged is not None
    assert len(merged.counts) == 64
    assert (merged.variances == 100.0**2).all()


def zoom_after(edges: list[int], counts: list[float], variance: float) -> Zoom:
    start = Zoom.start(size=1000, targets=(HALF,), records=float(sum(counts)))
    return start.told_cells(np.array(edges, dtype=np.int64), np.array(counts), variance)


def test_a_spike_a_gap_and_a_slope_are_told_apart() -> None:
    spike = zoom_after([300, 450, 500, 650], [100, 5, 800, 5, 90], 1.0)
    gap = zoom_after([350, 400, 600, 650], [5, 495, 0, 495, 5], 1.0)
    slope = zoom_after([200, 400, 600, 800], [150, 200, 300, 200, 150], 1.0)
    assert [(z.in_spike, z.in_gap) for z in (spike, gap, slope)] == [(True, False), (False, True), (False, False)]
    unsure = zoom_after([300, 450, 500, 650], [100, 5, 800, 5, 90], 300.0**2)
    assert not unsure.in_spike  # not before the counts are clear
    few = zoom_after([496, 498, 500], [400, 5, 205, 390], 1.0)
    assert few.step == pytest.approx(205, abs=5)
    assert spike.step == slope.step == 0.0


def test_records_between_are_differences_of_ranks_with_their_noise() -> None:
    ranks = RankPosterior.start(1000, records=100.0, std=0.0, alpha=2.0).with_edges(np.array([400]), 2.0)
    mean, std = ranks.records_between(np.array([0.0, 200.0, 400.0, 1000.0]))
    assert mean == pytest.approx([20, 20, 60])
    of_edge = np.sqrt(ranks.cov[1, 1])
    assert std == pytest.approx([of_edge / 2, of_edge / 2, of_edge])


def known(**own: float | bool) -> Known:
    given = {"spread": 1000.0, "doubt": 200.0, "spike": False, "gap": False, "places": 1e6, "step": 0.0, **own}
    return Known(**given)  # type: ignore[arg-type]


def test_a_spike_is_worth_many_cells_a_gap_one_rank_and_neither_takes_all() -> None:
    schedule = Schedule(noise=Noise(whole=4.0, laplace=True), fan=8, wide=64, lone=0.5)

    def look(left: int = PARTS, round: int = 4, **own: float | bool) -> tuple[int, int]:
        made = schedule.next(known(**own), cells=10, left=left, round=round, probed=False)
        assert 0 < made.price <= left
        return made.price, made.fan

    price, fan = look(spike=True)
    assert fan == 64
    assert schedule.noise.std(price) < 1000 / 7.9  # so that the spike's cell stands out
    assert look(spike=True, spread=4.0, left=PARTS // 10)[0] <= PARTS // 10 / 4  # four looks and the rank
    price, fan = look(gap=True)
    assert fan == 0
    assert schedule.noise.std(price) * schedule.lone == pytest.approx(200 / 4, rel=0.01)
    assert look(step=400.0, spread=20.0)[1] == 8  # few values are counted one by one
    assert look(spread=20.0)[1] == 0
    assert look(spread=1e6)[1] == 64  # what costs next to nothing has many cells
    assert look(spike=True, round=MOST_ROUNDS - 1) == (PARTS, 64)


def test_a_median_in_a_spike_among_many_is_exact() -> None:
    """61 spikes in a domain of 10^9: a thousand records in a value, half of them on either side of the target."""
    rng = np.random.default_rng(3)
    places = np.sort(rng.integers(0, 10**9, 61))
    values = places[np.minimum(60, rng.geometric(0.05, 50_000) - 1)]
    cell = measure(case_of("spikes", values, 10**9), (0.5,), 1.0, runs=5)
    assert cell.error == 0.0
    assert cell.most_rounds <= MOST_ROUNDS
