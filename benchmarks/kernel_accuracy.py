"""Kernels by public features on optdigits, even against odd: accuracy with and without privacy.

    python -m benchmarks.kernel_accuracy [--runs 5] [--first 10] [--train 0.8] [--only TEXT]

The columns are numbers with the bounds 0 and 16; four clients, two servers of which one is curious, replace-one,
δ = 1e-6; each run splits the 5,620 records anew, by its seed. Without privacy: scikit-learn's linear SVC on the same
features, and its kernel SVC on the columns.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import tallystick as ts
from tallystick.algorithms.feature_maps.settings import make_map, map_settings
from tallystick.algorithms.program import Public

DATA = Path(__file__).parents[2] / "shared" / "data"
PIXELS = [f"px_{row}_{column}" for row in range(8) for column in range(8)]
SCHEMA = ts.Schema({**{name: ts.Number(0, 16) for name in PIXELS}, "parity": ts.Category(["even", "odd"])})


def records(folder: Path = DATA) -> pl.DataFrame:
    """The columns, and whether the digit is even or odd."""
    frame = pl.read_parquet(folder / "optdigits.parquet")
    odd = pl.when(pl.col("digit") % 2 == 0).then(pl.lit("even")).otherwise(pl.lit("odd"))
    return frame.select([*PIXELS, odd.alias("parity")])


def halves(frame: pl.DataFrame, seed: int, train: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Records to learn from, and records to measure with."""
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = int(train * len(frame))
    return frame[order[:cut]], frame[order[cut:]]


def private(frame: pl.DataFrame, make: Callable[[], Any], seed: int, train: float = 0.8) -> float:
    """Accuracy of one private fit."""
    learn, test = halves(frame, seed, train)
    fed = ts.Federation.simulate([learn[i::4] for i in range(4)], schema=SCHEMA, servers=2, seed=seed)
    model = make().fit(fed, target="parity")
    return float(np.mean(model.predict(test) == test["parity"].to_numpy()))


def plain(frame: pl.DataFrame, seed: int, train: float = 0.8, *, n_features: int | None) -> float:
    """Accuracy without privacy: linear on features of a map, or with the kernel itself where there are none."""
    from sklearn.svm import SVC, LinearSVC

    public = Public(features=tuple(PIXELS))
    settings = map_settings({"feature_map": "rbf"})
    assert settings is not None
    made: Any = make_map(public, settings, n_features=n_features or 2)
    learn, test = halves(frame, seed, train)
    sides = [(part.select(PIXELS).to_numpy() / 8 - 1, part["parity"].to_numpy()) for part in (learn, test)]
    model: Any = SVC(C=50.0, gamma=made.gamma) if n_features is None else LinearSVC(C=50.0, dual=False, tol=1e-3)
    (x, y), (u, v) = sides if n_features is None else [(made.rows(a), b) for a, b in sides]
    return float(model.fit(x, y).score(u, v))


def cases() -> Iterator[tuple[str, Callable[[pl.DataFrame, int, float], float]]]:
    """Every row of the table: its name, and one run."""

    def fitted(name: str, **keywords: Any) -> Callable[[pl.DataFrame, int, float], float]:
        return lambda frame, seed, train: private(
            frame, lambda: getattr(ts, name)(**{"epsilon": 1.0, "delta": 1e-6} | keywords), seed, train
        )

    for features in (400, 1600, None):
        what = "the kernel itself" if features is None else f"{features:,} features"
        yield f"no privacy, {what}", partial(plain, n_features=features)
    for epsilon in (0.1, 0.5, 1.0, 2.0, 10.0):
        yield f"`LinearSVC`, rbf, ε = {epsilon:g}", fitted("LinearSVC", feature_map="rbf", epsilon=epsilon)
    yield "`LogisticRegression`, rbf", fitted("LogisticRegression", feature_map="rbf")
    yield "`LinearSVC` without a map", fitted("LinearSVC")
    yield "`LinearSVC`, rbf, 1,600 features", fitted("LinearSVC", feature_map="rbf", n_features=1600)
    yield "`LinearSVC`, rbf, γ = .02", fitted("LinearSVC", feature_map="rbf", gamma=0.02)
    yield "`LinearSVC`, rbf, γ = .125", fitted("LinearSVC", feature_map="rbf", gamma=0.125)
    yield "`LinearSVC`, poly of degree 3", fitted("LinearSVC", feature_map="poly")
    yield "`LinearSVC`, rbf, 400 made-up landmarks", fitted("LinearSVC", feature_map="rbf", landmarks=400)
    consensus: dict[str, Any] = {"kernel": "rbf", "n_features": 256, "privacy": "consensus"}
    yield (
        '`ConsensusSVC(privacy="output")`, C = .03',
        fitted("ConsensusSVC", **consensus | {"privacy": "output", "C": 0.03}),
    )
    for rounds in (2, 5):
        yield (
            f'`ConsensusSVC(privacy="consensus")`, C = .01, {rounds} rounds',
            fitted("ConsensusSVC", **consensus | {"C": 0.01, "max_iter": rounds}),
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first", type=int, default=10, help="the first seed")
    parser.add_argument("--train", type=float, default=0.8, help="the part of the records that is learned from")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    frame = records()
    print("| | accuracy (sd) | least |\n|---|---|---|", flush=True)
    for name, one in cases():
        if chosen.only in name:
            found = [one(frame, seed, chosen.train) for seed in range(chosen.first, chosen.first + chosen.runs)]
            print(f"| {name} | {np.mean(found):.4f} ({np.std(found, ddof=1):.4f}) | {min(found):.4f} |", flush=True)


if __name__ == "__main__":
    main()
