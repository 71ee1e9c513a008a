"""Captured variance on sets that no constant was chosen on, beside the central Analyze Gauss.

    python -m benchmarks.pca_unseen [--runs 10] [--sets spambase,higgs_sample]

Numeric columns are brought to [0, 1] by their range, categories to indicators; rows are scaled to length 1. k is a
fifth of the columns, two at least.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.pca_accuracy import DATA, EPSILONS, federation
from benchmarks.pca_baselines import central_analyze_gauss, without_privacy
from tallystick import PCA

__all__ = ["SETS", "main", "rows_of"]

SETS = {
    "spambase": "is_spam",
    "image_segmentation": "class",
    "higgs_sample": "label",
    "breast_cancer_wdbc": "diagnosis",
    "adult": "income",
}
"""And the column that is left out of each."""


def rows_of(name: str, folder: Path = DATA) -> NDArray[np.float64]:
    """A set's rows without its label, each scaled to length 1; columns by range, categories as indicators."""
    import polars as pl

    frame = pl.read_parquet(folder / f"{name}.parquet")
    parts: list[NDArray[np.float64]] = []
    for column in frame.columns:
        if column in (SETS[name], "split", "id", "source", "fnlwgt"):
            continue
        values = frame[column]
        if values.dtype.is_numeric():
            numbers = values.to_numpy().astype(np.float64)
            low, high = np.nanmin(numbers), np.nanmax(numbers)
            parts.append(((np.nan_to_num(numbers, nan=low) - low) / max(high - low, 1e-300))[:, None])
        else:
            parts.append(values.to_dummies().to_numpy().astype(np.float64))
    rows = np.hstack(parts)[:20_000]
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pca_unseen", description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--runs", type=int, default=10)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    print("| set | ε | captured (sd) | central Analyze Gauss (sd) | without privacy |\n|---|---|---|---|---|")
    for name in chosen.sets.split(","):
        rows = rows_of(name)
        n, d = rows.shape
        k, delta = max(2, math.ceil(d / 5)), 0.99 / n
        centred = rows - rows.mean(axis=0)
        scatter = centred.T @ centred

        def held(components: NDArray[np.float64], scatter: NDArray[np.float64] = scatter) -> float:
            return float(np.trace(components @ scatter @ components.T) / np.trace(scatter))

        for epsilon in EPSILONS:
            ours, central = [], []
            for seed in range(chosen.runs):
                model = PCA(k, epsilon=epsilon, delta=delta, rows="unit").fit(federation(rows, (0, 1), seed))
                ours.append(held(model.components_))
                rng = np.random.default_rng(seed)
                central.append(held(central_analyze_gauss(rows, k, epsilon=epsilon, delta=delta, rng=rng)))
            print(
                f"| {name} {n:,} × {d}, k = {k} | {epsilon:g} | {np.mean(ours):.3f} ({np.std(ours):.3f}) | "
                f"{np.mean(central):.3f} ({np.std(central):.3f}) | {held(without_privacy(rows, k)):.3f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
