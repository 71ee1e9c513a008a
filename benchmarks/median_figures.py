"""``python -m benchmarks.median_figures`` (``make figures``): the figures of the slides on DP medians [BK20], measured.

Mean absolute error over ε, beside the mean rank error; running time by parties, domain and weight scheme, on one
machine and over a slow network; running time over the number of records, on which it does not depend. Tables are
``median-error.csv``, ``median-time.csv`` and ``median-records.csv``: a cell that is there is not measured again, so it
can be stopped, and deleting a line or a file measures it anew. Plots are drawn from the tables alone. ``--quick``:
made-up records, few runs, 3 parties; it shows that everything runs, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.line_charts import Panel, write_chart
from benchmarks.median_errors import error_table
from benchmarks.median_times import records_table, time_table
from benchmarks.pem_tables import read_table
from tallystick.bench import describe
from tallystick.core.errors import StudyError, TallystickError

__all__ = ["RESULTS", "draw_errors", "draw_records", "draw_times", "main", "rows"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
_MEASURES = {"median-error.svg": ("mean_absolute_error", 0.05), "median-rank-error.svg": ("mean_rank_error", 0.01)}


def rows(quick: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """Both figures; tables and plots into ``out`` (docs/results; with ``quick`` nowhere unless it is given)."""
    out = out if out is not None or quick else RESULTS
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(f"cannot write to {out}: {error.strerror}", remedy="Choose another --out.") from None
    with threadpool_limits(1):  # small matrices: threads would mostly wait for each other
        errors = error_table(None if out is None else out / "median-error.csv", quick=quick)
    times = time_table(None if out is None else out / "median-time.csv", quick=quick)
    by_records = records_table(None if out is None else out / "median-records.csv", quick=quick)
    if out is not None:
        draw_records(out / "median-records.csv", out)
        draw_errors(out / "median-error.csv", out)
        draw_times(out / "median-time.csv", out)
    return [*_error_rows(errors), *_time_rows(times), *_record_rows(by_records)]


def draw_errors(table: Path, out: Path) -> None:
    """A panel for every data set; once in values, once in ranks."""
    cells = read_table(table)
    for name, (measure, least) in _MEASURES.items():
        panels = []
        for data in dict.fromkeys(c["data"] for c in cells):
            lines: dict[str, list[tuple[float, float]]] = {}
            for c in cells:
                if c["data"] == data:
                    lines.setdefault(c["approach"], []).append((float(c["epsilon"]), float(c[measure])))
            label = measure.replace("_", " ")
            panels.append(Panel(title=data, x="ε", y=label, lines=lines, log_x=True, log_y=True, least=least))
        write_chart(out / name, panels, caption=f"Medians over ε: {measure.replace('_', ' ')} of 100 runs")


def draw_times(table: Path, out: Path) -> None:
    """A chart for every network, a panel for every domain."""
    cells = read_table(table)
    for network in dict.fromkeys(c["network"] for c in cells):
        panels = []
        mine = [c for c in cells if c["network"] == network]
        for domain in dict.fromkeys(c["domain"] for c in mine):
            lines: dict[str, list[tuple[float, float]]] = {}
            for c in mine:
                if c["domain"] == domain:
                    lines.setdefault(c["scheme"], []).append((float(c["parties"]), float(c["seconds"])))
            title = f"{network}, |U| = {domain:,}"
            panels.append(Panel(title=title, x="parties", y="seconds", lines=lines, log_y=True))
        name = f"median-time-{'loopback' if network == 'loopback' else 'wan'}.svg"
        write_chart(out / name, panels, caption=f"Running time of a median among computing parties, {network}")


def draw_records(table: Path, out: Path) -> None:
    """A line for every number of parties."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for c in read_table(table):
        lines.setdefault(f"{c['parties']} parties", []).append((float(c["records"]), float(c["seconds"])))
    panel = Panel(
        title="one draw, 1,000 cells, loopback", x="records", y="seconds", lines=lines, log_x=True, log_y=True
    )
    write_chart(out / "median-records.svg", [panel], caption="Running time of a draw over the number of records")


def _record_rows(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "case": f"{r['parties']} parties, {r['records']:.0e} records",
            "value": r["seconds"],
            "unit": f"s, {r['layers']} layers",
            "reference": None,
            "ratio": None,
        }
        for r in table
    ]


def _error_rows(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything beside the trusted exponential mechanism at the same ε."""
    trusted = {(r["data"], r["epsilon"]): r["mean_absolute_error"] for r in table if r["approach"] == "trusted EM"}
    out = []
    for r in table:
        reference = trusted.get((r["data"], r["epsilon"]))
        if r["approach"] != "trusted EM" and reference is not None:
            found = float(r["mean_absolute_error"])
            out.append(
                {
                    "case": f"{r['data'].split(',')[0]} {r['approach']} e={r['epsilon']:g}",
                    "value": found,
                    "unit": "mean absolute error",
                    "reference": reference,
                    "ratio": round(found / reference, 3) if reference else None,
                }
            )
    return out


def _time_rows(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "case": f"{r['parties']} parties {r['domain']:.0e} {r['scheme']}, {r['network']}",
            "value": r["seconds"],
            "unit": f"s, {r['layers']} layers",
            "reference": None,
            "ratio": None,
        }
        for r in table
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, draw, and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.median_figures", description="Figures on DP medians.")
    parser.add_argument("--quick", action="store_true", help="made-up records, few runs: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of tables and plots (docs/results; with --quick none)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    try:
        result = {"bench": "median-figures", "rows": rows(chosen.quick, chosen.out)}
    except TallystickError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, allow_nan=False) if chosen.format == "json" else describe(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
