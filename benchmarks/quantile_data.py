"""The data sets that quantiles are measured on: those of the issue, and shapes that a search may stumble over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantile_runs import Case

_FOLDERS = (Path("../shared/data"), Path("data"))


def adult(column: str) -> NDArray[np.int64] | None:
    """A column of Adult, in the order of the file; None where it is not there."""
    path = data_file("adult.parquet")
    if path is None:
        return None
    import polars as pl

    return pl.read_parquet(path, columns=[column])[column].to_numpy().astype(np.int64)


def data_file(name: str) -> Path | None:
    """Where the file lies; None where it does not."""
    return next((folder / name for folder in _FOLDERS if (folder / name).is_file()), None)


def lognormal(records: int, size: int, seed: int = 1) -> Case:
    values = np.exp(np.random.default_rng(seed).normal(0, 1, records)) * size / 20
    return case_of(f"lognormal {records:,}, {size:.0e}", values, size)


def issue_cases() -> list[Case]:
    """The rows of the issue."""
    out = []
    weights = adult("fnlwgt")
    if weights is not None:
        out.append(case_of("fnlwgt 48,842, 1.5e6", weights, 1_500_000))
    out += [lognormal(48_842, 10**5), lognormal(48_842, 10**9), lognormal(10**6, 10**6), lognormal(10**6, 10**9)]
    if weights is not None:
        out.append(case_of("fnlwgt 200", weights[:200], 1_500_000))
    return out


def tied_cases() -> list[Case]:
    """Columns with heavy ties."""
    out = []
    for column, size in (("hours_per_week", 100), ("capital_gain", 100_000), ("age", 101)):
        values = adult(column)
        if values is not None:
            out.append(case_of(column, values, size))
    return out


def other_cases(records: int = 48_842, seed: int = 2) -> list[Case]:
    """Shapes that a search may stumble over."""
    rng = np.random.default_rng(seed)
    n, size = records, 10**9
    modes = np.where(rng.random(n) < 0.5, rng.normal(1e8, 1e6, n), rng.normal(9e8, 1e6, n))
    shapes = {
        "two modes": modes,
        "37 spikes": rng.integers(0, 37, n) * 27_000_001 + 13,
        "half spikes": np.where(rng.random(n) < 0.5, rng.integers(0, 9, n) * 1e8, rng.random(n) * 1e9),
        "gaps": rng.integers(0, 5, n) * 2e8 + rng.random(n) * 1e6,
        "pareto": rng.pareto(1.1, n) * 1000,
        "narrow normal": rng.normal(5e8, 1000, n),
        "at the lower end": rng.exponential(3.0, n),
        "at the upper end": 1e9 - 1 - rng.exponential(3.0, n),
        "constant": np.full(n, 123_456_789),
        "uniform": rng.random(n) * 1e9,
    }
    return [case_of(f"{name} {n:,}, 1e9", values, size) for name, values in shapes.items()]


def case_of(name: str, values: NDArray[np.float64] | NDArray[np.int64], size: int) -> Case:
    """Values as grid indices of a domain of ``size`` values."""
    return Case(name=name, data=np.sort(np.clip(values, 0, size - 1).astype(np.int64)), size=size)


def small_cases(sizes: tuple[int, ...] = (10**5, 10**6, 10**9), seed: int = 7) -> list[Case]:
    """Few records in wide domains, of shapes that nobody tuned for."""
    out = []
    for size in sizes:
        for n in (50, 100, 200, 500):
            rng = np.random.default_rng(seed)
            modes = rng.random(n) < 0.45
            shapes = {
                "normal, sd 1/10": rng.normal(0.5, 0.1, n),
                "normal, sd 1/100": rng.normal(0.37, 0.01, n),
                "normal, sd 1/1000": rng.normal(0.61, 0.001, n),
                "uniform": rng.random(n),
                "lognormal": np.exp(rng.normal(0, 1, n)) / 20,
                "pareto": rng.pareto(1.1, n) / 1000,
                "two modes": np.where(modes, rng.normal(0.1, 0.01, n), rng.normal(0.9, 0.01, n)),
                "at the lower end": rng.exponential(1 / 500, n),
                "17 spikes": rng.integers(0, 17, n) / 18,
            }
            out += [case_of(f"{name} {n}, {size:.0e}", values * size, size) for name, values in shapes.items()]
    return out
