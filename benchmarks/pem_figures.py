"""``python -m benchmarks.pem_figures`` (``make figures``): Figures 2 and 3 of the PEM paper, measured, as CSV and SVG.

Figure 2: accuracy on Adult (10 folds), relative loss on Nursery, itemset loss on Mushroom, against ε with 100 clients
and against the number of clients at ε = 1. Approaches: no privacy; noise-only (each client adds the full noise); PEM as
written; ours. Figure 3: time per role against clients and dimension, and computation beside communication.

One line per finished run goes to ``pem-figures-runs.csv``; a bench that was stopped goes on from there; deleting the
file starts anew. Repeats are the outermost loop, so an unfinished bench has every cell before any cell has all its
repeats. Plots are drawn from the tables: with nothing left to run, the same bytes. ``--quick`` takes made-up records of
the same columns, few rounds and few clients: it shows that everything runs, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.line_charts import Panel, write_chart
from benchmarks.pem_runs import data_file, pooled
from benchmarks.pem_tables import Cell, finished_runs, note_run, read_table, write_table
from benchmarks.pem_time_figure import figure_3, time_rows
from tallystick.application.study_files import load_study
from tallystick.application.synthetic_records import made_up_table
from tallystick.bench import describe
from tallystick.core.errors import PrivacyWarning, StudyError, TallystickError

__all__ = ["PEM_KMEANS", "RESULTS", "draw_figure_2", "figure_2", "main", "rows"]

_ROOT = Path(__file__).parents[1]
_EXAMPLES, RESULTS = _ROOT / "examples", _ROOT / "docs" / "results"
EPSILONS = (0.05, 0.1, 0.5, 1.0, 2.0, 10.0)
CLIENTS = (100, 200, 500, 1000)

PEM_KMEANS = (
    'program.method="plain"',
    'program.start="random"',
    "program.rounds=50",
    'privacy.mechanism="laplace"',
    "privacy.delta=0.0",
    "study.accept_noise=true",
)
"""k-means as PEM has it: 50 plain rounds from a random start, Laplace noise."""

_RATES = {
    "PEM": {0.05: 0.002, 0.1: 0.002, 0.5: 0.01, 1.0: 0.05, 2.0: 1.0, 10.0: 1.0},
    "noise-only": {0.05: 0.002, 0.1: 0.002, 0.5: 0.002, 1.0: 0.002, 2.0: 0.05, 10.0: 0.2},
}
"""Steps of PEM's gradient descent on Adult; the paper does not state its own.

Chosen among 0.0005 … 1 in a NumPy emulation, one noise draw each, on the test records of the first fold: kind to PEM.
Where that is a coin flip (PEM at ε ≤ 0.1, noise-only at ε ≤ 1) the example study's 0.002 stands, whatever scored best.
"""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One part of Figure 2: the studies compared, the measure, and what no privacy means."""

    letter: str
    data: str
    ours: str
    pem: str
    pem_settings: tuple[str, ...]
    measure: str
    baseline: str | None
    """The key of the same measure without privacy; None where the measure is a loss against it, so 0."""
    repeats: int
    folds: bool = False
    title: str = ""
    log: bool = False


_CASES = (
    _Case(
        letter="a",
        data="adult.parquet",
        ours="adult.toml",
        pem="adult_pem.toml",
        pem_settings=(),
        measure="accuracy",
        baseline="baseline_accuracy",
        repeats=10,
        folds=True,
        title="Adult, logistic regression: accuracy",
    ),
    _Case(
        letter="b",
        data="nursery.parquet",
        ours="nursery.toml",
        pem="nursery.toml",
        pem_settings=PEM_KMEANS,
        measure="relative_loss",
        baseline=None,
        repeats=10,
        title="Nursery, k-means: relative loss",
        log=True,
    ),
    _Case(
        letter="c",
        data="mushroom.parquet",
        ours="mushroom.toml",
        pem="mushroom_pem.toml",
        pem_settings=(),
        measure="itemset_loss",
        baseline=None,
        repeats=5,
        title="Mushroom, itemsets: loss",
    ),
)


def rows(quick: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """Both figures; tables and plots into ``out`` (docs/results; with ``quick`` nowhere unless it is given)."""
    out = out if out is not None or quick else RESULTS
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(f"cannot write to {out}: {error.strerror}", remedy="Choose another --out.") from None
    second, third = figure_2(quick, out), figure_3(quick, out)
    return [*_accuracy_rows(second), *time_rows(third)]


# -- Figure 2 ----------------------------------------------------------------------------------------------------------


def figure_2(quick: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """Every cell with its mean, median and standard deviation over the runs there are."""
    epsilons, clients = ((1.0, 10.0), (3, 40)) if quick else (EPSILONS, CLIENTS)
    stem = "pem-quick" if quick else "pem"
    runs = None if out is None else out / f"{stem}-figures-runs.csv"
    done = finished_runs(runs)
    tables: dict[str, Any] = {}
    for cell in _cells(epsilons, clients, 2 if quick else max(c.repeats for c in _CASES)):
        case = _CASES["abc".index(cell.figure)]
        if cell.repeat >= case.repeats or cell in done:
            continue
        if case.letter not in tables:
            tables[case.letter] = _table(case, quick)
        done[cell] = _run(case, cell, tables[case.letter], quick)
        note_run(runs, cell, done[cell])
    summary = [row for case in _CASES for row in _summary(case, done)]
    if out is not None:
        write_table(out / f"{stem}-figure-2.csv", summary)
        draw_figure_2(out / f"{stem}-figure-2.csv", out)
    return summary


def _cells(epsilons: tuple[float, ...], clients: tuple[int, ...], repeats: int) -> Iterator[Cell]:
    for repeat in range(repeats):
        for case in reversed(_CASES):  # the cheap ones first
            for epsilon in epsilons:
                for approach, n in (("ours", 0), ("PEM", 0), ("noise-only", clients[0])):
                    yield Cell(figure=case.letter, approach=approach, epsilon=epsilon, clients=n, repeat=repeat)
            for n in clients[1:]:
                yield Cell(figure=case.letter, approach="noise-only", epsilon=1.0, clients=n, repeat=repeat)


def _table(case: _Case, quick: bool) -> Any:
    if not quick:
        return data_file(case.data)
    study, _ = load_study(_EXAMPLES / case.pem)
    return made_up_table(study, 400)


def _run(case: _Case, cell: Cell, table: Any, quick: bool) -> tuple[float, float]:
    """(the measure, the same without privacy)."""
    name, settings = (case.ours, ()) if cell.approach == "ours" else (case.pem, case.pem_settings)
    chosen = (*settings, f"privacy.epsilon={cell.epsilon}", "study.accept_noise=true")
    if case.letter == "b":
        chosen += (f"program.seed={cell.repeat}",)
    if case.letter == "a" and cell.approach in _RATES:
        chosen += (f"program.learning_rate={_RATES[cell.approach][cell.epsilon]}",)
    if quick:
        chosen += ("program.min_support=0.2",) if case.letter == "c" else ("program.rounds=3",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # that PEM drowns in noise is what the figure shows
        scores = pooled(
            _EXAMPLES / name,
            table,
            settings=chosen,
            seed=1 if case.folds else 1 + cell.repeat,
            noises=cell.clients or None,
            fold=cell.repeat if case.folds else None,
        )
    return scores[case.measure], scores[case.baseline] if case.baseline else 0.0


def _summary(case: _Case, done: dict[Cell, tuple[float, float]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, float, int], list[float]] = {}
    without: list[float] = []
    for cell, (value, baseline) in done.items():
        if cell.figure == case.letter:
            groups.setdefault((cell.approach, cell.epsilon, cell.clients), []).append(value)
            if cell.approach == "PEM" and cell.epsilon == 1.0:
                without.append(baseline)
    if without:
        groups[("no privacy", float("inf"), 0)] = without
    return [
        {
            "figure": f"2{case.letter}",
            "approach": approach,
            "epsilon": epsilon,
            "clients": n or "any",
            "measure": case.measure,
            "mean": round(fmean(values), 5),
            "median": round(median(values), 5),
            "sd": round(stdev(values), 5) if len(values) > 1 else 0.0,
            "runs": len(values),
        }
        for (approach, epsilon, n), values in sorted(groups.items())
    ]


def draw_figure_2(table: Path, out: Path) -> None:
    """A chart for every case of a table, in files named after it."""
    summary = read_table(table)
    for case in _CASES:
        _draw(case, summary, out / f"{table.stem}{case.letter}.svg")


def _draw(case: _Case, summary: list[dict[str, Any]], path: Path) -> None:
    mine = [r for r in summary if r["figure"] == f"2{case.letter}"]
    epsilons = sorted({r["epsilon"] for r in mine if r["approach"] == "PEM"})
    clients = sorted({r["clients"] for r in mine if r["approach"] == "noise-only"})
    first = clients[0]

    def lines(over: list[Any], key: str, fixed: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = {}
        for row in mine:
            constant = row["approach"] == "no privacy" or (key == "clients" and row["clients"] == "any")
            if any(row[k] not in (v, "any") for k, v in fixed.items()) and row["approach"] != "no privacy":
                continue
            places = over if constant else [row[key]]
            found.setdefault(row["approach"], []).extend((float(x), row["median"]) for x in places)
        return found

    least = 1e-3
    label = case.measure.replace("_", " ") + " (median)"
    clamped = f"; what is below {least} is drawn there" if case.log else ""
    panels = [
        Panel(
            title=f"{case.title}, {first} clients",
            x="ε",
            y=label,
            lines=lines(epsilons, "epsilon", {"clients": first}),
            log_x=True,
            log_y=case.log,
            least=least,
        ),
        Panel(
            title=f"ε = 1{clamped}",
            x="clients",
            y=label,
            lines=lines(clients, "clients", {"epsilon": 1.0}),
            log_y=case.log,
            least=least,
        ),
    ]
    write_chart(path, panels, caption=f"Figure 2({case.letter}) of PEM, measured: {case.title}")


# -- rows ----------------------------------------------------------------------------------------------------


def _accuracy_rows(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours and noise-only beside PEM at the same ε; the ratio is ours over PEM's."""
    pem = {(r["figure"], r["epsilon"]): r["median"] for r in summary if r["approach"] == "PEM"}
    out = []
    for r in summary:
        reference = pem.get((r["figure"], r["epsilon"]))
        if r["approach"] != "PEM" and reference is not None:
            many = "" if r["clients"] == "any" else f" n={r['clients']}"
            out.append(
                {
                    "case": f"{r['figure']} {r['approach']}{many} e={r['epsilon']:g}",
                    "value": r["median"],
                    "unit": r["measure"],
                    "reference": reference,
                    "ratio": round(r["median"] / reference, 4) if reference else None,
                }
            )
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, draw, and print each figure beside PEM's; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pem_figures", description="Figures 2 and 3 of PEM.")
    parser.add_argument("--quick", action="store_true", help="made-up records, few rounds: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of tables and plots (docs/results; with --quick none)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    try:
        result = {"bench": "pem-figures", "rows": rows(chosen.quick, chosen.out)}
    except TallystickError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, allow_nan=False) if chosen.format == "json" else describe(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
