"""``python -m benchmarks.svm_scale``: two million generated rows of 28 columns at four learners, everything included.

Both solvers by :class:`tallystick.ConsensusSVC` on a simulated federation (servers, secret shares and all): wall and
processor seconds, rounds, the relative duality gap reached and the process's largest memory. Rows are made, not read:
two overlapping normal clouds within [-1, 1].
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import tallystick as ts

__all__ = ["main", "measure"]

_COLUMNS, _LEARNERS = 28, 4


def learner_frame(records: int, seed: int) -> dict[str, Any]:
    """One learner's rows."""
    rng = np.random.default_rng(seed)
    ill = rng.random(records) < 0.5
    middle = np.where(ill, 0.05, -0.05)
    frame: dict[str, Any] = {
        f"x{j}": np.clip(middle * (1 + j % 3) + 0.3 * rng.standard_normal(records), -1, 1) for j in range(_COLUMNS)
    }
    return frame | {"ill": np.where(ill, "yes", "no")}


def measure(records: int) -> list[dict[str, Any]]:
    """A row for each solver."""
    columns = {f"x{j}": ts.Number(-1, 1) for j in range(_COLUMNS)}
    schema = ts.Schema({**columns, "ill": ts.Category(["no", "yes"])})
    fed = ts.Federation.simulate(
        [learner_frame(records // _LEARNERS, m) for m in range(_LEARNERS)], schema=schema, seed=1
    )
    out = []
    for solver in ("interior-point", "admm"):
        started, used = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = ts.ConsensusSVC(C=1.0, solver=solver).fit(fed, target="ill")
        out.append(
            {
                "solver": model.solution_["solver"],
                "records": records,
                "rounds": model.n_iter_,
                "relative_gap": model.solution_["relative_gap"],
                "seconds": round(time.perf_counter() - started, 1),
                "cpu_seconds": round(time.process_time() - used, 1),
                "largest_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            }
        )
        print(json.dumps(out[-1]), flush=True)
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.svm_scale", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    measure(parser.parse_args(arguments).records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
