"""``python -m benchmarks.svm_figures`` (``make figures``): Figure 4 of the paper on consensus SVMs, horizontal half.

Convergence of z and accuracy against iterations, linear and with a kernel, four learners, C = 50, ρ = 100, without
relaxation: the paper's settings with the derived updates [decision 15]. Half of each set is learned from,
standardised on it; accuracy is on the other half, of the model that is shared. The kernel is rbf: the paper's way, at
400 landmarks drawn from a standard normal law (public, no records), and by 800 orthogonal random features with ρ = 1.

The table is ``svm-figure-4.csv``; it is measured where it is missing, and plots are drawn from it alone. ``--quick``:
few made-up records; it shows that everything runs, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.line_charts import Panel, write_chart
from benchmarks.pem_tables import read_table
from tallystick.algorithms.consensus_svm.admm import AdmmProgram, AdmmSettings
from tallystick.algorithms.consensus_svm.landmark_admm import LandmarkAdmmProgram
from tallystick.algorithms.feature_maps.landmarks import LandmarkFeatures
from tallystick.algorithms.feature_maps.rbf import RbfFeatures
from tallystick.bench import describe
from tallystick.bench.svm import PAPERS_RHO, C, admm, as_they_are
from tallystick.bench.svm_data import Halves, halves
from tallystick.bench.svm_runs import Learners, public_of
from tallystick.core.errors import StudyError, TallystickError

__all__ = ["RESULTS", "draw", "main", "measure", "rows"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SETS = {"wdbc": "cancer (WDBC)", "optdigits": "OCR (even or odd)", "higgs": "HIGGS (10,984)"}
_FIELDS = ("method", "data", "iteration", "change_of_z", "accuracy")
METHODS = ("linear", "landmarks", "random features")
_ITERATIONS, _LANDMARKS, _FEATURES, _FEATURES_RHO = 60, 400, 800, 1.0


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """One row per method, set and iteration."""
    out = []
    iterations = 6 if quick else _ITERATIONS
    with threadpool_limits(1):
        for name, title in SETS.items():
            data = halves(name, quick=quick)
            if not quick and not data.real:
                raise StudyError(
                    f"the records of {title} are not here", remedy="Put them where tallystick.bench.svm_data looks."
                )
            for method in METHODS:
                out += [{"method": method, "data": title, **r} for r in _run(data, method, iterations)]
    return out


def _run(data: Halves, method: str, iterations: int) -> list[dict[str, Any]]:
    public, columns = public_of(data.rows), data.rows.shape[1]
    program: Any
    if method == "linear":
        program, rows_of = admm(data, rho=PAPERS_RHO, relaxation=1.0, tolerance=0.0), as_they_are
    elif method == "landmarks":
        made = LandmarkFeatures(
            kernel="rbf",
            landmarks=np.random.default_rng(0).normal(size=(_LANDMARKS, columns)),
            synthetic=None,
            longest=1.0,
            typical_square=1.0,
            gamma=0.05 / columns,
            degree=3,
            coef0=0.0,
            seed=0,
        )
        settings = AdmmSettings(C=C, rho=PAPERS_RHO, relaxation=1.0, tolerance=0.0, certify=False)
        program, rows_of = LandmarkAdmmProgram(public, settings, made=made), made.rows
    else:
        waves = RbfFeatures(columns=columns, n_features=_FEATURES, longest=1.0, gamma=0.25 / columns, seed=0)
        settings = AdmmSettings(C=C, rho=_FEATURES_RHO, relaxation=1.0, tolerance=0.0)
        program = AdmmProgram(public, settings, size=_FEATURES, rows=waves.rows, typical_square=1.0)
        rows_of = waves.rows
    learners = Learners.dealt(program, public, data.rows, data.target, 4)
    learners.round()  # counts the learners
    mapped, out, before = rows_of(data.test_rows), [], learners.state
    for iteration in range(1, iterations + 1):
        learners.round()
        now = learners.state
        weights = program.model(now)[1][0] if method == "landmarks" else now.z[0]
        right = float(np.mean((mapped @ weights + now.s[0] > 0) == (data.test_target > 0)))
        change = float(np.sum((now.z - before.z) ** 2))
        out.append({"iteration": iteration, "change_of_z": f"{change:.6g}", "accuracy": round(right, 4)})
        before = now
    return out


def draw(table: Path, out: Path) -> None:
    """Convergence of z in one chart, accuracy in the other; a panel for each method, a line for each set."""
    cells = read_table(table)
    for name, measured, label, log in (
        ("svm-figure-4-z.svg", "change_of_z", "|z(t+1) − z(t)|²", True),
        ("svm-figure-4-accuracy.svg", "accuracy", "accuracy on the other half", False),
    ):
        panels = []
        for method in METHODS:
            lines: dict[str, list[tuple[float, float]]] = {}
            for c in cells:
                if c["method"] == method:
                    lines.setdefault(c["data"], []).append((float(c["iteration"]), float(c[measured])))
            panels.append(Panel(title=method, x="iteration", y=label, lines=lines, log_y=log, least=1e-12))
        write_chart(out / name, panels, caption=f"Consensus SVM, horizontal: {label}")


def rows(quick: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """The last iteration of every line; table and plots into ``out`` (docs/results; with ``quick`` nowhere)."""
    out = out if out is not None or quick else RESULTS
    table = None if out is None else out / "svm-figure-4.csv"
    if table is not None and table.exists():
        measured: list[dict[str, Any]] = list(read_table(table))
    else:
        measured = measure(quick=quick)
        if table is not None:
            table.parent.mkdir(parents=True, exist_ok=True)
            with table.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, _FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(measured)
    if table is not None and out is not None:
        draw(table, out)
    last = {(r["method"], r["data"]): r for r in measured}
    return [
        {
            "case": f"{data}, {method}",
            "value": float(r["accuracy"]),
            "unit": f"accuracy after {r['iteration']} iterations",
            "reference": None,
            "ratio": None,
        }
        for (method, data), r in last.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, draw, and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.svm_figures", description="Figure 4, horizontal half.")
    parser.add_argument("--quick", action="store_true", help="made-up records, few rounds: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of table and plots (docs/results; with --quick none)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    try:
        result = {"bench": "svm-figures", "rows": rows(chosen.quick, chosen.out)}
    except TallystickError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, allow_nan=False) if chosen.format == "json" else describe(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
