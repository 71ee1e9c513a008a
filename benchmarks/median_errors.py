"""The slides' figure of accuracy: mean absolute error of the median over ε, by six ways to find it.

All are ε-differentially private for replacing one record (smooth sensitivity and sample-and-aggregate with δ = 10^-6
besides). What is no value of the domain is moved to the nearest one, which is kind to those that add noise to values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import median_baselines as baselines
from benchmarks.exponential_runs import SelectedMedian
from benchmarks.pem_tables import read_table, write_table
from benchmarks.quantile_data import adult, lognormal
from benchmarks.quantile_runs import Case, budget_of, run
from tallystick.core.errors import StudyError

__all__ = ["APPROACHES", "EPSILONS", "error_table"]

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
Found = Callable[[np.random.Generator], float | None]


def _baseline(method: Callable[..., float], case: Case, epsilon: float) -> Found:
    return partial(method, case.data, case.size, epsilon)


def _exponential(case: Case, epsilon: float) -> Found:
    return SelectedMedian(case, epsilon).index


def _counts(case: Case, epsilon: float) -> Found:
    budget = budget_of(epsilon)
    return lambda die: run(case, (0.5,), budget, die).indices[0]


APPROACHES: dict[str, Callable[[Case, float], Found]] = {
    "smooth sensitivity": partial(_baseline, baselines.smooth_sensitivity),
    "sample and aggregate": partial(_baseline, baselines.sample_and_aggregate),
    "trusted EM": partial(_baseline, baselines.exponential),
    "EM* of the slides": partial(_baseline, baselines.recursive_subranges),
    "ours, exponential (3 parties)": _exponential,
    "ours, counts (2 servers)": _counts,
}


def cases(quick: bool = False) -> list[Case]:
    """Adult's weights, all and the first 200; 10^6 lognormal values; 100 values close together in a wide domain."""
    gauss = np.clip(np.random.default_rng(3).normal(37_000, 3, 100), 0, 99_999).round().astype(np.int64)
    small = Case(name="gauss sd 3, 100, |U| = 1e5", data=np.sort(gauss), size=10**5)
    if quick:
        return [small, lognormal(2000, 10**5)]
    weights = adult("fnlwgt")
    if weights is None:
        raise StudyError("adult.parquet is not here", remedy="Put it into ../shared/data or data, or use --quick.")
    size = 1_500_000
    return [
        Case(name="fnlwgt 48,842, |U| = 1.5e6", data=np.sort(weights), size=size),
        Case(name="fnlwgt 200, |U| = 1.5e6", data=np.sort(weights[:200]), size=size),
        Case(name="lognormal 1e6, |U| = 1e6", data=lognormal(10**6, 10**6).data, size=10**6),
        small,
    ]


def error_table(path: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    """Every cell that is not in the file already is run and added to it."""
    names = list(APPROACHES)
    runs, epsilons = (3, (0.25, 2.0)) if quick else (100, EPSILONS)
    table = read_table(path) if path is not None and path.is_file() else []
    done = {(r["data"], r["approach"], float(r["epsilon"])) for r in table}
    there = cases(quick)
    order = {case.name: n for n, case in enumerate(there)}
    for case in there:
        for epsilon in epsilons:
            for approach, made in APPROACHES.items():
                if (case.name, approach, epsilon) in done:
                    continue
                table.append(_cell(case, approach, epsilon, made(case, epsilon), runs))
                table.sort(key=lambda r: (order.get(r["data"], -1), float(r["epsilon"]), names.index(r["approach"])))
                if path is not None:
                    write_table(path, table)
    return table


def _cell(case: Case, approach: str, epsilon: float, find: Found, runs: int) -> dict[str, Any]:
    die = np.random.default_rng([1, int(1000 * epsilon), *approach.encode()])
    median, wanted = int(case.data[(len(case.data) - 1) // 2]), len(case.data) / 2
    found = [find(die) for _ in range(runs)]
    # no answer is as good as the middle of the domain
    values = [round(min(max(0.0, (case.size - 1) / 2 if v is None else v), case.size - 1)) for v in found]
    below, upto = np.searchsorted(case.data, values), np.searchsorted(case.data, values, side="right")
    ranks = np.maximum(0.0, np.maximum(below - wanted, wanted - upto))
    errors = np.abs(np.array(values) - median)
    return {
        "data": case.name,
        "approach": approach,
        "epsilon": epsilon,
        "runs": runs,
        "mean_absolute_error": float(errors.mean()),
        "standard_error": float(errors.std(ddof=1) / np.sqrt(runs)),
        "mean_rank_error": float(ranks.mean()),
    }
