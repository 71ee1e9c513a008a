"""``python -m benchmarks.exponential_accuracy``: rank errors of ``method="exponential"`` beside one central draw.

The median, 1,000 runs of the ideal function, replace-one, 3 parties. The reference is the exponential mechanism over
the whole domain at a trusted curator, its expectation taken exactly. The marks: at most 1.3 × at ε ≤ 0.25 and 1.4 × at
ε = 1, or within half a rank. Writes ``quantiles-exponential.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.exponential_runs import SelectedMedian
from benchmarks.pem_tables import write_table
from benchmarks.quantile_data import issue_cases, tied_cases
from benchmarks.quantile_runs import Case, central_exponential

EPSILONS = (0.1, 0.25, 1.0)
_RESULTS = Path(__file__).parents[1] / "docs" / "results"


def measure(case: Case, epsilon: float, runs: int, seed: int = 1) -> dict[str, Any]:
    """One row."""
    die = np.random.default_rng([seed, int(1000 * epsilon), len(case.data)])
    median = SelectedMedian(case, epsilon)
    found = np.array([median.index(die) for _ in range(runs)])
    wanted = len(case.data) / 2
    below, upto = np.searchsorted(case.data, found), np.searchsorted(case.data, found, side="right")
    errors = np.maximum(0.0, np.maximum(below - wanted, wanted - upto))
    error, central = float(errors.mean()), central_exponential(case, 0.5, epsilon)
    most = 1.3 if epsilon <= 0.25 else 1.4
    return {
        "data": case.name,
        "epsilon": epsilon,
        "runs": runs,
        "rank_error": error,
        "standard_error": float(errors.std(ddof=1) / np.sqrt(runs)),
        "central": central,
        "ratio": error / central if central > 0.005 else "-",
        "counts": sum(look.target < 0 for look in median.program.looks),
        "mark": "met" if error <= most * central or error <= central + 0.5 else "missed",
    }


def main() -> None:
    """The table, on standard output and as a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=_RESULTS)
    parser.add_argument("--only", default="", help="data sets whose name holds this; no file is written")
    given = parser.parse_args()
    table = []
    with threadpool_limits(1):  # small matrices: threads would mostly wait for each other
        for case in [*issue_cases(), *tied_cases()]:
            for epsilon in EPSILONS:
                if given.only in case.name:
                    table.append(measure(case, epsilon, given.runs))
                    cells = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in table[-1].values()]
                    print(*cells, sep="\t", flush=True)
    if not given.only:
        write_table(given.out / "quantiles-exponential.csv", table)


if __name__ == "__main__":
    main()
