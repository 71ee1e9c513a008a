"""``python -m benchmarks.svm_vertical_figures`` (``make figures``): Figure 4 of the paper on SVMs, vertical half.

Convergence of z and accuracy against iterations, linear and with a kernel, four learners that hold columns drawn at
random, C = 50, ρ = 100, without relaxation: the paper's settings with the derived z-step [decision 18]. Half of each
set is learned from, standardised on it; accuracy is on the other half. The kernel is the sum of one rbf kernel at each
learner, by 200 orthogonal random features each. Beside each line LIBSVM's accuracy on the same rows, if it arrives.

The table is ``svm-figure-4-vertical.csv``; it is measured where it is missing, and plots are drawn from it alone.
``--quick``: few made-up records; it shows that everything runs, and its figures mean nothing.
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
from numpy.typing import NDArray
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.line_charts import Panel, write_chart
from benchmarks.pem_tables import read_table
from tallystick.algorithms.program import Public
from tallystick.algorithms.vertical_svm.program import VerticalSvmProgram
from tallystick.algorithms.vertical_svm.settings import VerticalSvmSettings
from tallystick.bench import describe
from tallystick.bench.svm_data import Halves, halves
from tallystick.core.errors import StudyError, TallystickError
from tallystick.crypto.field import to_real
from tallystick.privacy.client_vectors import FRACTION_BITS

__all__ = ["RESULTS", "draw", "main", "measure", "rows"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SETS = {"wdbc": "cancer (WDBC)", "optdigits": "OCR (even or odd)", "higgs": "HIGGS (10,984)"}
METHODS = {"linear": "linear", "random features": "rbf"}
_FIELDS = ("method", "data", "iteration", "change_of_z", "accuracy", "libsvm")
_C, _RHO, _LEARNERS, _FEATURES = 50.0, 100.0, 4, 200
_ITERATIONS = 100
_LIBSVM_STEPS = 300_000


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """One row per method, set and iteration."""
    out = []
    with threadpool_limits(1):
        for name, title in SETS.items():
            data = halves(name, quick=quick)
            if not quick and not data.real:
                raise StudyError(
                    f"the records of {title} are not here", remedy="Put them where tallystick.bench.svm_data looks."
                )
            for method in METHODS:
                found = _run(data, method, 6 if quick else _ITERATIONS)
                out += [{"method": method, "data": title, **r} for r in found]
    return out


def _run(data: Halves, method: str, iterations: int) -> list[dict[str, Any]]:
    columns = data.rows.shape[1]
    order = np.random.default_rng(0).permutation(columns)
    held = [tuple(sorted(order[m::_LEARNERS].tolist())) for m in range(_LEARNERS)]
    public = Public(
        features=tuple(f"x{i}" for i in range(columns)),
        records=len(data.rows),
        classes=("0", "1"),
        holders=tuple((f"learner-{m}", places, 1.0) for m, places in enumerate(held)),
        label_holder="learner-0",
    )
    own = {} if method == "linear" else {"n_features": _FEATURES, "gamma": 0.25 / columns}
    settings = VerticalSvmSettings(C=_C, rho=_RHO, relaxation=1.0, kernel=METHODS[method], tolerance=1e-9, **own)
    program = VerticalSvmProgram(public, settings, rounds=10**6)
    reducer = program.reducing(lambda: np.where(data.target > 0, 1.0, -1.0))
    learners = []
    for name in program.holders:
        at = program.at(name)
        prepared = at.prepare(np.ascontiguousarray(data.rows[:, program.places[name]]), None)
        learners.append([at, prepared, at.start_in_client(prepared)])
    state, out, before = reducer.init(public), [], np.zeros(len(data.rows))
    reference = _libsvm(program, data)
    for iteration in range(1, iterations + 1):
        total = np.zeros(program.vector_size, dtype=np.int64)
        for learner in learners:
            vector, learner[2] = learner[0].step_in_client(learner[1], reducer.query(state), learner[2])
            total += vector
        state = reducer.reduce_in_aggregator(to_real(total, FRACTION_BITS), state)
        weights = np.concatenate([memory for *_, memory in learners])
        right = (program.scores(data.test_rows, state._replace(weights=weights)) > 0) == (data.test_target > 0)
        z = _LEARNERS * state.average
        out.append(
            {
                "iteration": iteration,
                "change_of_z": f"{float(np.sum((z - before) ** 2)):.6g}",
                "accuracy": round(float(np.mean(right)), 4),
                "libsvm": reference,
            }
        )
        before = z
    return out


def _libsvm(program: VerticalSvmProgram, data: Halves) -> float | str:
    """LIBSVM's accuracy on the same rows; empty if it does not arrive."""

    def mapped(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = [program.rows_of(n, np.ascontiguousarray(rows[:, program.places[n]])) for n in program.holders]
        return np.hstack(parts)

    model = SVC(C=_C, kernel="linear", max_iter=_LIBSVM_STEPS).fit(mapped(data.rows), data.target > 0)
    if model.fit_status_:
        return ""
    return round(float(model.score(mapped(data.test_rows), data.test_target > 0)), 4)


def draw(table: Path, out: Path) -> None:
    """Convergence of z in one chart, accuracy in the other; a panel for each method, a line for each set."""
    cells = read_table(table)
    for name, measured, label, log in (
        ("svm-figure-4-vertical-z.svg", "change_of_z", "|z(t+1) − z(t)|²", True),
        ("svm-figure-4-vertical-accuracy.svg", "accuracy", "accuracy on the other half", False),
    ):
        panels = []
        for method in METHODS:
            lines: dict[str, list[tuple[float, float]]] = {}
            for c in cells:
                if c["method"] == method:
                    lines.setdefault(c["data"], []).append((float(c["iteration"]), float(c[measured])))
            panels.append(Panel(title=method, x="iteration", y=label, lines=lines, log_y=log, least=1e-12))
        write_chart(out / name, panels, caption=f"SVM of columns at four learners: {label}")


def rows(quick: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """The last iteration of every line; table and plots into ``out`` (docs/results; with ``quick`` nowhere)."""
    out = out if out is not None or quick else RESULTS
    table = None if out is None else out / "svm-figure-4-vertical.csv"
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
    made = []
    for (method, data), r in last.items():
        value, reference = float(r["accuracy"]), float(r["libsvm"]) if r["libsvm"] not in ("", None) else None
        made.append(
            {
                "case": f"{data}, {method}",
                "value": value,
                "unit": f"accuracy after {r['iteration']} iterations",
                "reference": reference,
                "ratio": None if not reference else value / reference,
            }
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, draw, and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.svm_vertical_figures", description="Figure 4.")
    parser.add_argument("--quick", action="store_true", help="made-up records, few rounds: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of table and plots (docs/results; with --quick none)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    try:
        result = {"bench": "svm-vertical-figures", "rows": rows(chosen.quick, chosen.out)}
    except TallystickError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, allow_nan=False) if chosen.format == "json" else describe(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
