"""A study's memory does not grow with its rounds: 1,000 clients × 100 rounds (200 × 100 in `make test`).

The resident size of a process of its own, after a collection, at round 20 and at round 100. What may grow is what is
released: one state per round in ``history_`` and the tuples of names, about 5 KB a round for 200 clients. The bound is
4 MB; a server that kept its shares would grow by several times that, which the control shows.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

COLUMNS, FROM, ROUNDS = 12, 20, 100
BOUND = 4_000_000


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(clients: int, leak: bool) -> int:
    """Bytes resident at the last round beyond those at round 20."""
    import numpy as np

    import tallystick as ts
    from tallystick.protocol.secure_sum import MemoryShares

    schema = ts.Schema({f"x{i}": ts.Number(-1, 1) for i in range(COLUMNS)} | {"y": ts.Category(["a", "b"])})
    generator = np.random.default_rng(1)
    frames = []
    for i in range(clients):
        rows = i % 3  # none, one or two records each
        frame = {f"x{j}": generator.uniform(-1, 1, rows) for j in range(COLUMNS)}
        frames.append(frame | {"y": np.array(["a", "b"])[generator.integers(0, 2, rows)].astype(object)})
    fed = ts.Federation.simulate(frames, schema=schema, seed=1)
    if leak:
        MemoryShares.drop = lambda self, round: None  # type: ignore[method-assign]
    model = ts.LogisticRegression(epsilon=8.0, delta=1e-6, rounds=ROUNDS - 1)
    sizes: dict[int, int] = {}

    def measure(number: int, of: int) -> None:
        if number in (FROM, of):
            sizes[number] = resident()

    model.fit_study(fed, model.study_for(fed, target="y", features=None), progress=measure)
    if model.n_iter_ != ROUNDS:
        raise SystemExit("the study did not run all its rounds")
    return sizes[ROUNDS] - sizes[FROM]


def measured(clients: int, *, leak: bool = False) -> int:
    arguments = [sys.executable, __file__, str(clients), "leak" if leak else "sound"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"{clients} clients, {'leaking' if leak else 'sound'}: grew by {int(done.stdout):,} bytes")
    return int(done.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident size is read from /proc")


@needs_proc
def test_memory_is_flat_over_rounds() -> None:
    assert measured(200) < BOUND


@needs_proc
def test_shares_that_are_kept_would_be_seen() -> None:
    assert measured(60, leak=True) > BOUND


@needs_proc
@pytest.mark.audit
def test_memory_is_flat_for_a_thousand_clients() -> None:
    assert measured(1000) < BOUND


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(growth(int(sys.argv[1]), sys.argv[2] == "leak"))
