"""More data for quantiles: shapes and columns that were looked at while the search was worked on, and those kept back.

``kept_back_cases`` are for measuring only: no constant of the search was chosen with them in sight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantile_data import case_of, data_file
from benchmarks.quantile_runs import Case


def looked_at_cases(seed: int = 11) -> list[Case]:
    """In sight while the search was worked on."""
    rng = np.random.default_rng(seed)
    made = {
        "two modes 49:51": (_modes(rng, 20_000, 0.49, 1e8, 8e8, 3e6), 10**9),
        "two boxes, even": (np.where(np.arange(30_000) % 2, 2e8 + rng.random(30_000) * 1e7, 7e8), 10**9),
        "5 spikes": (rng.integers(0, 5, 10_000) * 180_000_007 + 17, 10**9),
        "200 spikes by rank": (rng.permutation(200)[rng.zipf(1.3, 50_000) % 200] * 4_000_037, 10**9),
        "exponential 10^6, 10^12": (rng.exponential(1e9, 10**6), 10**12),
        "cauchy": (5e8 + rng.standard_cauchy(50_000) * 1e6, 10**9),
        "seven values": (rng.integers(0, 7, 3_000), 7),
        "normal 1,000": (rng.normal(5e5, 1e5, 1_000), 10**6),
        "normal 5,000": (rng.normal(5e5, 1e5, 5_000), 10**6),
        "normal 200": (rng.normal(5e8, 1e7, 200), 10**9),
        "rounded to thousands": (np.round(np.exp(rng.normal(10.5, 0.7, 40_000)), -3), 10**7),
    }
    out = [case_of(f"{name}", values, size) for name, (values, size) in made.items()]
    out += _columns("adult", {"education_num": (1, 17), "capital_loss": (1, 5_000)})
    out += _columns("higgs_sample", {"lepton_pT": (1e5, 10**6), "jet_1_btag": (1e5, 10**6)})
    return out + _columns("spambase", {"capital_run_length_total": (1, 20_000), "word_freq_you": (100, 2_000)})


def kept_back_cases(seed: int = 99) -> list[Case]:
    """Run when the search was done."""
    rng = np.random.default_rng(seed)
    three = np.array([1e8, 4.2e8, 8.8e8])[rng.integers(0, 3, 60_000)]
    spikes = np.sort(rng.integers(0, 10**9, 61))
    slope = np.where(rng.random(80_000) < 0.3, spikes[rng.integers(0, 61, 80_000)], rng.beta(2, 5, 80_000) * 1e9)
    made = {
        "two modes, gap at the median": (_modes(rng, 40_000, 0.5, 2.2e8, 6.1e8, 2e7), 10**9),
        "two narrow modes 50.2:49.8": (_modes(rng, 100_000, 0.502, 3e8, 3.3e8, 1e5), 10**9),
        "three modes": (three + rng.normal(0, 4e6, 60_000), 10**9),
        "61 spikes, uneven": (spikes[np.minimum(60, rng.geometric(0.05, 50_000) - 1)], 10**9),
        "12 spikes": (spikes[rng.integers(20, 32, 30_000)], 10**9),
        "spikes on a slope": (slope, 10**9),
        "exponential 10^6": (rng.exponential(3e4, 10**6), 10**6),
        "exponential 20,000, 10^12": (rng.exponential(2e8, 20_000), 10**12),
        "cauchy, clipped": (2e5 + rng.standard_cauchy(200_000) * 500, 10**6),
        "laplace at one end": (np.abs(rng.laplace(0, 50, 100_000)), 10**9),
        "uniform on 12 values": (rng.integers(0, 12, 5_000) * 83_333, 10**6),
        "beta 10^6": (rng.beta(0.4, 0.3, 10**6) * 1e9, 10**9),
        "normal 500": (rng.normal(3e5, 5e4, 500), 10**6),
        "gamma 2,000": (rng.gamma(1.5, 4e4, 2_000), 10**6),
        "normal 200": (rng.normal(3e5, 5e4, 200), 10**6),
    }  # fmt: skip
    out = [case_of(name, values, size) for name, (values, size) in made.items()]
    out += _columns("adult", {"fnlwgt": (1000, 1_500_000_000)}, "in thousandths")
    out += _columns("higgs_sample", {"m_jj": (1e5, 2_000_000), "jet_4_btag": (1e5, 10**6), "lepton_eta": (1e5, 10**6)})
    out += _columns("image_segmentation", {"hue_mean": (1e5, 10**6), "rawred_mean": (1e4, 1_500_000)})
    out += _columns(
        "spambase", {"capital_run_length_average": (1000, 2_000_000), "char_freq_exclamation": (1000, 40_000)}
    )
    out += _columns("breast_cancer_wdbc", {"area_mean": (10, 30_000)})
    path = data_file("isolet.npz")
    if path is not None:
        whole = np.load(path)["X"]
        out += [case_of(f"isolet column {k}", (whole[:, k].astype(float) + 1) * 5e5, 1_000_001) for k in (3, 300, 500)]
    return out


def drawn_cases(seed: int = 2024, many: int = 24) -> list[Case]:
    """A family with parameters by lot, for choosing by: modes, gaps, spikes and slopes, alone and mixed."""
    rng = np.random.default_rng(seed)
    out = []
    for at in range(many):
        n, size = int(10 ** rng.uniform(4, 5.3)), 10 ** int(rng.integers(6, 11))
        kind = ("modes", "spikes", "spikes on a slope", "boxes with gaps")[at % 4]
        parts = int(rng.integers(2, 40)) if "spikes" in kind else int(rng.integers(2, 6))
        shares = rng.dirichlet(np.full(parts, rng.choice([1.0, 5.0, 100.0])))
        if parts == 2:  # the median is at a rim
            shares = np.array([0.5, 0.5]) + np.array([1, -1]) * rng.uniform(0, 0.01)
        which = rng.choice(parts, n, p=shares)
        places, widths = rng.uniform(0.02, 0.98, parts), 10 ** rng.uniform(-5, -1.5, parts)
        if kind == "modes":
            values = rng.normal(places[which], widths[which])
        elif kind == "boxes with gaps":
            values = places[which] + rng.random(n) * widths[which]
        else:
            values = places[which]
        if kind == "spikes on a slope":
            share, (a, b) = rng.uniform(0.1, 0.7), rng.uniform(0.5, 5, 2).tolist()
            values = np.where(rng.random(n) < share, values, rng.beta(a, b, n))
        out.append(case_of(f"drawn {at}: {parts} {kind}, n={n}, {size:.0e}", values * size, size))
    return out


def _modes(rng: np.random.Generator, n: int, share: float, low: float, high: float, spread: float) -> NDArray[Any]:
    return np.where(rng.random(n) < share, rng.normal(low, spread, n), rng.normal(high, spread, n))


def _columns(name: str, columns: dict[str, tuple[float, int]], words: str = "") -> list[Case]:
    """Columns of one data set: values times a factor, from the least on, in a domain of so many values."""
    path = data_file(f"{name}.parquet")
    if path is None:
        return []
    import polars as pl

    table = pl.read_parquet(path, columns=list(columns))
    out = []
    for column, (factor, size) in columns.items():
        values = table[column].to_numpy().astype(float) * factor
        out.append(case_of(" ".join([name, column, words]).strip(), values - min(0.0, values.min()), size))
    return out
