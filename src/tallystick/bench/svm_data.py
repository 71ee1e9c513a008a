"""What support vector machines are measured on: the paper's three sets where they lie, or made-up ones of their shapes.

Half of each is learned from, standardised on that half, the other half is kept for accuracy, as it was measured before
(``docs/results/svm.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.public_draws import PublicDraws

FOLDERS = (Path("../shared/data"), Path("data"))
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Halves:
    """Rows and targets (0 or 1) to learn from, and to be kept back; ``real``: of the set itself."""

    name: str
    rows: Floats
    target: Floats
    test_rows: Floats
    test_target: Floats
    real: bool


def halves(name: str, *, split: int = 0, quick: bool = False, standardise: bool = True) -> Halves:
    """One of ``wdbc``, ``optdigits`` (even or odd) and ``higgs``; with ``quick`` some made-up records."""
    found = None if quick else _read(name)
    rows, target = _made_up(name, quick) if found is None else found
    order = np.argsort(PublicDraws(split, "halves", name).uniform(len(target)), kind="stable")
    rows, target = rows[order], target[order]
    n = len(target) // 2
    if standardise:
        spread = rows[:n].std(axis=0)
        rows = (rows - rows[:n].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return Halves(
        name=name,
        rows=np.ascontiguousarray(rows[:n]),
        target=target[:n],
        test_rows=np.ascontiguousarray(rows[n:]),
        test_target=target[n:],
        real=found is not None,
    )


def _read(name: str) -> tuple[Floats, Floats] | None:
    file = {"wdbc": "breast_cancer_wdbc", "optdigits": "optdigits", "higgs": "higgs_sample"}[name]
    path = next((f / f"{file}.parquet" for f in FOLDERS if (f / f"{file}.parquet").is_file()), None)
    if path is None:
        return None
    import polars as pl

    table = pl.read_parquet(path)
    if name == "wdbc":
        target = (table["diagnosis"].cast(pl.String) == "M").to_numpy()
        table = table.drop("id", "diagnosis")
    elif name == "optdigits":
        target = (table["digit"].cast(pl.Int64) % 2 == 0).to_numpy()
        table = table.select([c for c in table.columns if c.startswith("px_")])
    else:
        table = table.filter(pl.col("source").cast(pl.String) == "sas10984")
        target = (table["label"].cast(pl.Int64) == 1).to_numpy()
        table = table.drop("label", "source")
    return table.to_numpy().astype(np.float64), target.astype(np.float64)


def _made_up(name: str, quick: bool) -> tuple[Floats, Floats]:
    """Two normal clouds of the set's shape, as far apart as its classes are hard."""
    records, columns, apart = {"wdbc": (569, 30, 1.2), "optdigits": (5620, 64, 0.4), "higgs": (10984, 28, 0.15)}[name]
    records = min(records, 240) if quick else records
    draws = PublicDraws(0, "made up", name)
    target = (draws.uniform(records) < 0.5).astype(np.float64)
    mix = draws.normal(columns, columns) / np.sqrt(columns)
    rows = draws.normal(records, columns) @ mix + apart * np.outer(2 * target - 1, draws.normal(columns))
    return rows, target
