"""The sets of the paper on gossip learning, split and scaled as it does; with ``quick`` made-up ones of few records.

Columns go to [0, 1] by the smallest and the largest value of the training part, which the paper reads off the records
(they would have to be public), then each record to an L1 norm of 1. The artificial set is drawn anew for every run,
Spambase and Segmentation are split anew; MNIST keeps its official parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.public_draws import PublicDraws
from tallystick.core.errors import StudyError

FOLDERS = (Path("../shared/data"), Path("data"))
NAMES = ("artificial", "spambase", "segmentation", "mnist")
TITLES = {"artificial": "artificial", "spambase": "Spambase", "segmentation": "Segmentation", "mnist": "MNIST"}
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GossipSet:
    """Records to learn from and to test on, scaled; labels are class indices."""

    name: str
    classes: int
    rows: Floats
    labels: NDArray[np.int64]
    test_rows: Floats
    test_labels: NDArray[np.int64]

    @property
    def problems(self) -> int:
        """Binary problems: one for two classes."""
        return 1 if self.classes == 2 else self.classes


def load(name: str, run: int, *, quick: bool) -> GossipSet:
    """A set as run ``run`` sees it."""
    draws = PublicDraws(run, "gossip figures", name)
    if name == "artificial":
        train, test = (400, 100) if quick else (20_000, 2_000)
        labels = (draws.uniform(train + test) < 0.5).astype(np.int64)
        centres = np.array([[0.0, 10.0], [10.0, 0.0]])  # the paper's N(μ, 1): the negative class first
        rows = centres[labels] + draws.normal(train + test, 2)
    elif quick:
        train, test, columns, classes = {
            "spambase": (200, 50, 8, 2),
            "segmentation": (210, 60, 6, 3),
            "mnist": (200, 60, 10, 4),
        }[name]
        labels = draws.below(classes, train + test)
        rows = draws.uniform(train + test, columns) + np.eye(classes, columns)[labels]
    elif name == "mnist":
        rows, labels, train = _mnist()
    else:
        rows, labels = _table(name)
        order = np.argsort(draws.uniform(len(labels)), kind="stable")
        rows, labels = rows[order], labels[order]
        train = {"spambase": 4140, "segmentation": 2100}[name]
    low, high = rows[:train].min(axis=0), rows[:train].max(axis=0)
    scaled = np.clip((rows - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    norms = scaled.sum(axis=1, keepdims=True)
    scaled /= np.where(norms > 0, norms, 1.0)
    return GossipSet(
        name=name,
        classes=int(labels.max()) + 1,
        rows=scaled[:train],
        labels=labels[:train],
        test_rows=scaled[train:],
        test_labels=labels[train:],
    )


def _file(name: str) -> Path:
    found = next((f / name for f in FOLDERS if (f / name).is_file()), None)
    if found is None:
        raise StudyError(f"{name} is not here", remedy=f"Put it into {' or '.join(map(str, FOLDERS))}.")
    return found


@lru_cache(maxsize=1)
def _mnist() -> tuple[Floats, NDArray[np.int64], int]:
    with np.load(_file("mnist.npz")) as parts:
        images = np.concatenate([parts["x_train"], parts["x_test"]]).reshape(-1, 784).astype(np.float64)
        labels = np.concatenate([parts["y_train"], parts["y_test"]]).astype(np.int64)
        return images, labels, len(parts["y_train"])


@lru_cache(maxsize=2)
def _table(name: str) -> tuple[Floats, NDArray[np.int64]]:
    import polars as pl

    file, target = {"spambase": ("spambase", "is_spam"), "segmentation": ("image_segmentation", "class")}[name]
    table = pl.read_parquet(_file(f"{file}.parquet"))
    values = table[target].cast(pl.String).to_numpy()
    labels = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return table.drop(target, "split", strict=False).to_numpy().astype(np.float64), labels
