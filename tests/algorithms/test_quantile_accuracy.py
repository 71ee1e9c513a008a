"""How close the search comes: fixed seeds, against the exponential mechanism at a trusted curator in the same run.

The whole table is ``python -m benchmarks.quantile_accuracy``; bounds here leave room for the mean of few runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.quantile_accuracy import Cell, measure
from benchmarks.quantile_data import adult, lognormal, other_cases
from benchmarks.quantile_runs import FIVE, Case, central_exponential

from tallystick.algorithms.quantiles.schedule import MOST_ROUNDS

OTHERS = {case.name.split(" 48")[0]: case for case in other_cases()}


def sound(cell: Cell) -> bool:
    return cell.most_rounds <= MOST_ROUNDS and not cell.coverage < 0.93


@pytest.mark.parametrize("epsilon", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("size", [10**6, 10**9])
def test_a_median_is_within_two_and_a_half_times_a_trusted_curators(size: int, epsilon: float) -> None:
    cells = [measure(lognormal(48_842, size, seed), (0.5,), epsilon, runs=12, seed=seed) for seed in (1, 2, 3)]
    ratio = sum(c.error for c in cells) / sum(c.reference for c in cells)
    assert ratio < 2.5
    assert all(c.most_rounds <= MOST_ROUNDS for c in cells)
    assert np.mean([c.coverage for c in cells]) >= 0.93


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_five_quantiles_together_are_better_than_five_trusted_draws(epsilon: float) -> None:
    cell = measure(lognormal(48_842, 10**9), FIVE, epsilon, runs=12)
    assert cell.ratio < 1.0
    assert sound(cell)


def test_gaussian_noise_works_as_well_if_not_as_closely() -> None:
    cell = measure(lognormal(48_842, 10**9), (0.5,), 1.0, runs=12, mechanism="gaussian")
    assert cell.error < 15
    assert sound(cell)


@pytest.mark.parametrize("name", ["two modes", "half spikes", "gaps", "pareto", "narrow normal", "uniform"])
def test_unseen_shapes_are_found_and_covered(name: str) -> None:
    cell = measure(OTHERS[name], (0.5,), 0.25, runs=15)
    assert cell.error < 60  # of 48,842 records
    assert sound(cell)


@pytest.mark.parametrize("name", ["37 spikes", "at the lower end", "at the upper end", "constant"])
def test_ties_are_exact(name: str) -> None:
    cell = measure(OTHERS[name], (0.5,), 1.0, runs=10)
    assert cell.error == 0.0
    assert sound(cell)


def test_few_records_stay_near_the_reference_and_intervals_hold() -> None:
    cell = measure(Case(name="few", data=lognormal(200, 10**6).data, size=10**6), (0.5,), 1.0, runs=30)
    assert sound(cell)
    assert cell.error < 10


@pytest.mark.data
@pytest.mark.parametrize(("column", "size"), [("hours_per_week", 100), ("capital_gain", 100_000)])
def test_the_medians_of_adult_are_exact_at_epsilon_one(column: str, size: int) -> None:
    values = adult(column)
    if values is None:
        pytest.skip("adult.parquet is not beside the project")
    case = Case(name=column, data=np.sort(values), size=size)
    assert measure(case, (0.5,), 1.0, runs=20).error == 0.0
    assert measure(case, FIVE, 1.0, runs=5).error < 12


def test_the_reference_is_the_law_of_the_exponential_mechanism() -> None:
    """Against all values of a small domain, one by one."""
    rng = np.random.default_rng(4)
    case = Case(name="", data=np.sort(rng.integers(0, 30, 12)), size=40)
    values = np.arange(40)
    below, upto = np.searchsorted(case.data, values), np.searchsorted(case.data, values, side="right")
    errors = np.maximum(0.0, np.maximum(below - 6.0, 6.0 - upto))
    weights = np.exp(-0.7 * errors / 2)
    assert central_exponential(case, 0.5, 0.7) == pytest.approx(weights @ errors / weights.sum())
