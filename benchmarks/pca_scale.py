"""``python -m benchmarks.pca_scale``: a client's sum of products beside BLAS, and a study of 5,000 columns on servers.

For d = 784, 2,000 and 5,000 columns: the round of a component study in which a client sums its records' products
(normalising, gridding and clipping included) against ``dsyrk`` of the same rows in the same run, processor seconds
of all threads, the better of two. Then, with ``--study``, principal components of 2,000 records × 5,000 columns
(12.5 million coordinates) at three clients and two servers: seconds, the process's largest memory, bytes.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.engines.client_map import ClientMaps
from tallystick.engines.setup import set_up
from tallystick.privacy.sum_plan import rounds_of

__all__ = ["main", "map_ratio", "whole_study"]

_SHAPES = ((24_000, 784), (12_000, 2_000), (6_000, 5_000))
"""Records of all three clients; one of them is measured."""
_COMPONENTS = 10


def generated(records: int, columns: int, seed: int = 0) -> NDArray[np.float64]:
    """Rows of rank 20 and noise within [-1, 1]."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((records, 20)) @ rng.standard_normal((20, columns))
    return np.clip((rows + rng.standard_normal((records, columns))) / 12, -1, 1)


def federation(rows: NDArray[np.float64], clients: int) -> Any:
    """Rows dealt to clients."""
    names = [f"x{i}" for i in range(rows.shape[1])]
    schema = ts.Schema({name: ts.Number(-1, 1) for name in names})
    frames = [dict(zip(names, rows[at::clients].T)) for at in range(clients)]
    return ts.Federation.simulate(frames, schema=schema, seed=1)


def map_ratio(records: int, columns: int) -> dict[str, Any]:
    """How fast one client's round of products is, as a part of BLAS's speed on the same block."""
    rows = generated(records, columns)
    fed = federation(rows, 3)
    # Much budget: the plan then takes all columns' products, the largest round there is.
    study = ts.PCA(_COMPONENTS, epsilon=100.0, delta=1e-6, rows="unit").study_for(fed, target=None, features=None)
    study = study.replace("data", records=records)
    setup = set_up(study.canonical(), "")
    program, state, number = setup.design.program, setup.template, 0
    products = columns * (columns + 1) // 2
    while setup.sum_plan.rounds[number].grid.size < products:  # the mean and squares before it, as if all were zero
        state = program.reduce_in_aggregator(np.zeros(setup.sum_plan.rounds[number].grid.size), state)
        number += 1
    mapped = ClientMaps(study, program, setup.template).whole(fed.records(study)[0])
    block = np.asfortranarray(rows[::3])
    model, plan = pack_state(program.query(state)), setup.sum_plan.rounds[number]
    own = _best(lambda: mapped.contribute(model, plan))
    blas = _best(lambda: dsyrk(1.0, block, trans=1))
    return {
        "records": len(block),
        "columns": columns,
        "map_cpu_seconds": round(own, 3),
        "syrk_cpu_seconds": round(blas, 3),
        "ratio": round(blas / own, 3),
    }


def whole_study(records: int = 2_000, columns: int = 5_000) -> dict[str, Any]:
    """Principal components of so many columns among three clients and two servers, everything included."""
    fed = federation(generated(records, columns), 3)
    started, used = time.perf_counter(), time.process_time()
    model = ts.PCA(_COMPONENTS, epsilon=100.0, delta=1e-6, rows="unit").fit(fed)
    return {
        "records": records,
        "columns": columns,
        "coordinates": max(r.grid.size for r in rounds_of(model.plan_)),
        "rounds": model.privacy_.as_dict()["rounds"],
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "largest_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _best(work: Callable[[], Any], times: int = 2) -> float:
    work()
    found = []
    for _ in range(times):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pca_scale", description=__doc__.splitlines()[0])
    parser.add_argument("--study", action="store_true", help="also the whole study of 5,000 columns (minutes)")
    own = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for records, columns in _SHAPES:
            print(json.dumps(map_ratio(records, columns)), flush=True)
        if own.study:
            print(json.dumps(whole_study()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
