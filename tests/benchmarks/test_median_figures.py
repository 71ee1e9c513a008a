"""The figures on medians: runs without parties are the product's sums, plots are their tables, everything runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.exponential_runs import SelectedMedian
from benchmarks.quantile_runs import Case

from benchmarks import median_baselines, median_errors, median_figures, median_times
from tallystick.bench import central_draw

CASE = Case(name="small", data=np.sort(np.random.default_rng(1).integers(0, 3000, 4000)), size=10_000)


@pytest.mark.parametrize("case", [CASE, Case(name="few", data=CASE.data[:50], size=10_000)])
def test_sums_read_off_sorted_data_are_those_the_program_makes(case: Case) -> None:
    median = SelectedMedian(case, 1.0)
    features = (case.data[:, None] - (case.size - 1) / 2) / ((case.size - 1) / 2)
    prepared = median.program.prepare(features, None)
    state = median.program.init(median.public)
    for number in range(1, len(median.plan.rounds) + 1):
        part = median.program.map_block(prepared, median.program.query(state))
        made = np.bincount(part.indices, weights=part.values, minlength=part.size)
        totals = median.totals(median.edges(number, state))
        assert np.array_equal(made, totals)
        state = median.program.reduce_in_aggregator(totals.astype(np.float64), state)


def test_the_central_draw_is_the_mechanism_value_by_value() -> None:
    data, size, epsilon = np.array([1, 1, 4, 7, 7, 7]), 9, 0.7
    low = np.searchsorted(data, np.arange(size))
    high = np.searchsorted(data, np.arange(size), side="right")
    distance = np.maximum(0.0, np.maximum(3 - high, low - 3))
    weight = np.exp(-epsilon * distance / 2)
    exact = central_draw.expected_rank_error(data, size, 0.5, epsilon)
    assert exact == pytest.approx(weight @ distance / weight.sum())
    die = np.random.default_rng(2)
    drawn = np.bincount([median_baselines.exponential(data, size, epsilon, die) for _ in range(4000)], minlength=size)
    expected = 4000 * weight / weight.sum()
    assert ((drawn - expected) ** 2 / expected).sum() < 30  # 8 degrees of freedom: beyond it once in 5,000


def test_the_other_baselines_find_the_median_without_privacy() -> None:
    die, data = np.random.default_rng(3), CASE.data
    middle = data[(len(data) - 1) // 2]
    for method in (median_baselines.smooth_sensitivity, median_baselines.recursive_subranges):
        assert abs(method(data, CASE.size, 1e4, die) - middle) <= 1
    assert abs(median_baselines.sample_and_aggregate(data, CASE.size, 1e4, die) - middle) < 200


def test_smooth_sensitivity_is_its_definition() -> None:
    data, size, beta = np.array([0, 3, 5, 6, 9]), 20, 0.4
    padded = [0] * 6 + data.tolist() + [size - 1] * 6
    middle = 6 + 2
    local = [max(padded[middle + t] - padded[middle + t - k - 1] for t in range(k + 2)) for k in range(6)]
    wanted = max(math.exp(-beta * k) * s for k, s in enumerate(local))
    assert median_baselines._smooth(data, size, beta) == pytest.approx(wanted)


def test_a_quick_run_writes_tables_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert median_figures.main(["--quick", "--out", str(tmp_path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 2 * 2 * (len(median_errors.APPROACHES) - 1) + len(median_times.SCHEMES) + 2
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(written) == [
        "median-error.csv", "median-error.svg", "median-rank-error.svg", "median-records.csv", "median-records.svg",
        "median-time-loopback.svg", "median-time.csv",
    ]  # fmt: skip
    median_figures.main(["--quick", "--out", str(tmp_path)])  # nothing is left to run: the same bytes
    assert written == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_the_plots_are_those_of_the_tables(tmp_path: Path) -> None:
    results = median_figures.RESULTS
    median_figures.draw_errors(results / "median-error.csv", tmp_path)
    median_figures.draw_times(results / "median-time.csv", tmp_path)
    median_figures.draw_records(results / "median-records.csv", tmp_path)
    times = ("median-time-loopback.svg", "median-time-wan.svg", "median-records.svg")
    for name in ("median-error.svg", "median-rank-error.svg", *times):
        assert (tmp_path / name).read_bytes() == (results / name).read_bytes(), f"{name}: run `make figures`"
