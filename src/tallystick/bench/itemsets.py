"""``tallystick bench itemsets``: exact mining, and its packed counter, beside mlxtend's ``apriori`` in the same run.

The UCI Mushroom set (``mushroom.parquet`` in ../shared/data or data), support 1 %, lengths up to 4: 190,858 sets of 2
to 4 items. Without that file, made-up records of the same shape. mlxtend is not a dependency: where it is not installed
there is nothing to compare with. It runs with ``low_memory=True``; its default mode exhausts 24 GB.
"""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.itemsets.exact import Level, count_sets, least_count, mine, pack
from tallystick.bench.measuring import best_seconds, row

_SIZES = (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7)
"""Values of Mushroom's 22 columns."""
_RECORDS = 8124
_NO_MLXTEND = "mlxtend is not installed, so there is nothing to compare with"


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """``exact-mining`` in seconds (ratio: mlxtend's time over ours) and ``bitset-count`` in M words/s over NumPy's."""
    present, block, note = _mushroom()
    if quick:
        present = present[:2000]
    least, longest = least_count(0.01 if not quick else 0.1, len(present)), 4
    levels: list[Level] = []

    def ours() -> None:
        levels[:] = mine(present, block, least=least, longest=longest)

    seconds = best_seconds(ours)
    found = sum(len(level) for level in levels if level.sets.shape[1] > 1)
    reference = _mlxtend(present, least / len(present), longest, found)
    compared = (None, None) if reference is None else (round(reference, 3), round(reference / seconds, 2))
    mining = row("exact-mining", round(seconds, 4), f"s for {found:,} sets", *compared)
    notes = [n for n in (note, None if reference is not None else _NO_MLXTEND) if n]
    if notes:
        mining["note"] = "; ".join(notes)
    words, sets = pack(present), levels[-1].sets
    counted = best_seconds(lambda: count_sets(words, sets))
    some = sets[: max(1, len(sets) // 20)]
    plain = best_seconds(lambda: _numpy_count(words, some)) * len(sets) / len(some)
    million = sets.size * words.shape[1] / 1e6
    return [
        mining,
        row(
            "bitset-count",
            round(million / counted, 1),
            "M words/s",
            round(million / plain, 1),
            round(plain / counted, 2),
        ),
    ]


def _numpy_count(words: NDArray[np.uint64], sets: NDArray[np.int64]) -> NDArray[np.int64]:
    both = np.bitwise_and.reduce(words[sets], axis=1)
    return np.asarray(np.bitwise_count(both).sum(axis=1, dtype=np.int64))


def _mlxtend(present: NDArray[np.bool_], min_support: float, longest: int, found: int) -> float | None:
    """Seconds of one run of mlxtend; None if it is not installed."""
    try:
        import pandas as pd

        apriori = import_module("mlxtend.frequent_patterns").apriori
    except ImportError:
        return None
    frame = pd.DataFrame(present)
    started = time.thread_time()
    sets = apriori(frame, min_support=min_support, max_len=longest, low_memory=True)
    seconds = time.thread_time() - started
    if int((sets["itemsets"].map(len) > 1).sum()) != found:
        raise RuntimeError("the two miners found different sets")  # a bug, not an input
    return seconds


def _mushroom() -> tuple[NDArray[np.bool_], NDArray[np.int64], str | None]:
    """(records × items, the column of each item, a note if the records are made up)."""
    for folder in ("../shared/data", "data"):
        path = Path(folder) / "mushroom.parquet"
        if path.is_file():
            import pyarrow.parquet as pq

            table = pq.read_table(path)
            columns = [np.asarray(table[c].to_pylist(), dtype=str) for c in table.column_names if c != "class"]
            return *_items(columns), None
    # Twenty kinds, each with its own two likely values a column: frequent sets in plenty, as in the real set.
    kind = np.arange(_RECORDS) % 20
    step = np.arange(_RECORDS) // 20
    columns = [(kind * (a + 3) + (step // (1 + a % 5)) % 2) % k for a, k in enumerate(_SIZES)]
    return *_items([c.astype(str) for c in columns]), "made-up records of Mushroom's shape"


def _items(columns: list[NDArray[np.str_]]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    values = [np.unique(c) for c in columns]
    present = np.hstack([c[:, None] == v for c, v in zip(columns, values)])
    return present, np.repeat(np.arange(len(values)), [len(v) for v in values]).astype(np.int64)
