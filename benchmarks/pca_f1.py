"""F1 of a classifier on projected rows: ``python -m benchmarks.pca_f1 [--quick] [--sets …] [--runs 10] [--out DIR]``.

Rows of length 1, 80 % train. Components come from the training rows through two simulated servers, one of them curious;
a support vector machine with an RBF kernel (C = 10, gamma "scale") learns from the projected training rows without
privacy, and macro F1, precision and recall are those of the other 20 %. Beside them: a random projection on as many
directions, which already scores high and is what the F1 must be read against; components without privacy; all columns.
A cell that is in ``pca-f1.csv`` is not measured again.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support
from sklearn.svm import SVC

from benchmarks.pca_accuracy import BOUNDS, COMPONENTS, DATA, EPSILONS, OWN, federation
from benchmarks.pca_baselines import random_projection, without_privacy
from benchmarks.pem_tables import read_table, write_table
from tallystick import PCA

__all__ = ["f1_of", "labelled_rows", "main", "table"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MOST = {"mnist": (6000, 3000)}
"""Rows the machine learns from and is measured on, where all of them would take hours; components have all rows."""
Found = tuple[float, float, float]
Split = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64], NDArray[Any]]


def labelled_rows(name: str, folder: Path = DATA, seed: int = 0) -> Split:
    """(training rows, labels, test rows, labels), rows scaled to length 1."""
    if name == "optdigits":
        import polars as pl

        frame = pl.read_parquet(folder / "optdigits.parquet")
        rows = frame.select([c for c in frame.columns if c.startswith("px_")]).to_numpy().astype(np.float64)
        labels = frame["digit"].to_numpy()
    else:
        file = np.load(folder / f"{name}.npz")
        rows, labels = (file["x_train"], file["y_train"]) if name == "mnist" else (file["X"], file["y"])
        rows = rows.reshape(len(rows), -1).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths == 0, 1, lengths)[:, None]
    order, cut = np.random.default_rng(seed).permutation(len(rows)), int(0.8 * len(rows))
    train, test = order[:cut], order[cut:]
    return rows[train], labels[train], rows[test], labels[test]


def f1_of(split: Split, components: NDArray[np.float64] | None, most: tuple[int, int] | None = None) -> Found:
    """(macro F1, precision, recall) on projected rows; None: on all columns."""
    x, y, other, truth = split
    if most is not None:
        x, y, other, truth = x[: most[0]], y[: most[0]], other[: most[1]], truth[: most[1]]
    if components is not None:
        x, other = x @ components.T, other @ components.T
    predicted = SVC(C=10.0, gamma="scale", cache_size=500).fit(x, y).predict(other)
    precision, recall, f1, _ = precision_recall_fscore_support(truth, predicted, average="macro", zero_division=0)
    return float(f1), float(precision), float(recall)


def table(path: Path | None, *, sets: Sequence[str], runs: int, quick: bool = False) -> list[dict[str, Any]]:
    """Every cell that is not in the file already is measured and added to it."""
    done = read_table(path) if path is not None and path.is_file() else []
    known = {(r["data"], r["approach"], r["delta"], r["epsilon"]) for r in done}
    for name in sets:
        split, k, most = labelled_rows(name), COMPONENTS[name], MOST.get(name)
        if quick:
            split = (split[0][:300], split[1][:300], split[2][:200], split[3][:200])
        own = 1 if quick else runs
        n = len(split[0])
        for approach in ("random projection", "without privacy", "all columns"):
            if (name, approach, "", "") not in known:
                times = runs if approach == "random projection" and not quick else 1
                found = [f1_of(split, _known(approach, split[0], k, seed), most) for seed in range(times)]
                done.append(_row(name, approach, "", "", found))
                _keep(path, done)
        for label, delta in (("0.99/N", 0.99 / n), ("1e-06", 1e-6)):
            for epsilon in EPSILONS[-1:] if quick else EPSILONS:
                if (name, "two servers", label if label[0] != "1" else 1e-06, epsilon) in known:
                    continue
                found = []
                for seed in range(own):
                    keywords: dict[str, Any] = dict(OWN.get(name, {}))
                    model = PCA(k, epsilon=epsilon, delta=delta, rows="unit", **keywords)
                    found.append(f1_of(split, model.fit(federation(split[0], BOUNDS[name], seed)).components_, most))
                done.append(_row(name, "two servers", label, epsilon, found))
                _keep(path, done)
    return done


def _known(approach: str, rows: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64] | None:
    """Directions that cost nothing: none where all columns are taken."""
    if approach == "random projection":
        return random_projection(rows.shape[1], k, np.random.default_rng(seed))
    return without_privacy(rows, k) if approach == "without privacy" else None


def _keep(path: Path | None, done: list[dict[str, Any]]) -> None:
    print({k: v if isinstance(v, str) else round(v, 4) for k, v in done[-1].items()}, flush=True)
    if path is not None:
        write_table(path, done)


def _row(name: str, approach: str, delta: Any, epsilon: Any, found: Sequence[Found]) -> dict[str, Any]:
    mean, sd = np.mean(found, axis=0), np.std(found, axis=0)
    return {
        "data": name,
        "approach": approach,
        "delta": delta,
        "epsilon": epsilon,
        "runs": len(found),
        "f1": float(mean[0]),
        "f1_sd": float(sd[0]),
        "precision": float(mean[1]),
        "recall": float(mean[2]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pca_f1", description=__doc__)
    parser.add_argument("--sets", default="optdigits,cnae9,isolet,mnist")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="few rows, one run: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of the table (docs/results; with --quick none)")
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    out = chosen.out if chosen.out is not None or chosen.quick else RESULTS
    path = None if out is None else out / "pca-f1.csv"
    table(path, sets=chosen.sets.split(","), runs=chosen.runs, quick=chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
