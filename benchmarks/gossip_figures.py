"""``python -m benchmarks.gossip_figures`` (``make figures``): Figures 1 to 5 of the paper on gossip learning [HJ17].

1. Budgets of perturbed gradients: a walk on which each peer answers once, five times, or with ε/2^t (ε = 50).
2. The artificial set perturbed at several ε, and the hyperplane that is learned from it.
3. Accuracy over ε and records at a peer: perturbed gradients, one update a peer; first column: perturbed records
   learned from until nothing changes; first row: without noise.
4. The same with as many updates as records: each peer answers as often as it has records.
5. Perturbed records (ε = 50) over time: Golf, one model that walks, and mini-batches; mean over 100 sampled peers.

λ = 10⁻⁴ throughout, mean of 10 runs (of MNIST one: column ``runs``). Beside them, as ``ours``: records published by the
randomiser ``subset``, learned from by moments, out of ``gossip-accuracy.csv`` (``benchmarks.gossip_accuracy``). Each
finished cell is a line of a table ``gossip-figure-N.csv``, and is not measured again; plots are drawn from the tables
alone. ``--quick``: few made-up records; it shows that all runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.gossip_charts import Cloud, HeatMap, write_clouds, write_heat_maps
from benchmarks.gossip_data import NAMES, TITLES, GossipSet, load
from benchmarks.gossip_runs import (
    batches_without_noise,
    converged_on_perturbed,
    golf,
    gradients,
    perturbed,
    strategies,
    walked,
)
from benchmarks.line_charts import Panel, write_chart
from benchmarks.pem_tables import read_table
from tallystick.algorithms.gossip.golf.examples import Examples
from tallystick.algorithms.gossip.golf.network import Over
from tallystick.algorithms.gossip.golf.settings import GolfSettings, Learner
from tallystick.algorithms.gossip.golf.walks import Walk, rounds_of_visits
from tallystick.bench import describe
from tallystick.core.errors import TallystickError

__all__ = ["FIGURES", "RESULTS", "draw", "main", "rows"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
LEARNERS: tuple[Learner, ...] = ("pegasos", "logistic")
NAMED = {"pegasos": "Pegasos SVM", "logistic": "logistic regression"}
EPSILONS = (100.0, 50.0, 10.0, 5.0, 1.0)
BATCHES = (1, 5, 10, 50, 100)
MNIST_BATCHES = (1, 10, 100)
"""Of Figure 4: every cell of it takes half a thousand million draws."""
EPSILON = 50.0
"""Of Figures 1 and 5."""
STRATEGIES = ("no noise", "once", "5 uses", "ε/2^t")
METHODS = ("Golf", "sequential", "mini-batch 10", "mini-batch 100")
_KEYS = {
    1: ("data", "learner", "strategy"),
    2: ("epsilon",),
    3: ("data", "learner", "epsilon", "batch"),
    4: ("data", "learner", "epsilon", "batch"),
    5: ("data", "learner", "method"),
}
FIGURES = tuple(_KEYS)
_FIELDS = {
    1: (*_KEYS[1], "visits", "accuracy", "sd", "runs"),
    2: ("epsilon", "kind", "x", "y", "class", "accuracy", "runs"),
    3: (*_KEYS[3], "accuracy", "sd", "runs"),
    4: (*_KEYS[4], "accuracy", "sd", "runs"),
    5: (*_KEYS[5], "cycles", "accuracy", "sd", "runs"),
}
Rows = list[dict[str, Any]]


def runs_of(name: str, quick: bool) -> int:
    """How often a cell is measured."""
    return 2 if quick else 1 if name == "mnist" else 10


class Measuring:
    """What the figures are measured with: sizes, threads, and sets kept from one cell to the next."""

    def __init__(self, *, quick: bool, over: Over) -> None:
        self.quick, self.over = quick, over
        self._kept: dict[tuple[str, int], GossipSet] = {}
        self._columns: dict[tuple[str, float | None], dict[Learner, list[float]]] = {}

    def sets(self, name: str) -> Iterator[tuple[int, GossipSet]]:
        """(run, the set it sees)."""
        for run in range(runs_of(name, self.quick)):
            key = (name, run)
            if key not in self._kept:
                if name == "mnist":
                    self._kept.clear()
                self._kept[key] = load(name, run, quick=self.quick)
            yield run, self._kept[key]

    def rounds(self, name: str) -> int:
        """Rounds of a walk that is said to have converged."""
        return 5 if self.quick else 30 if name in ("artificial", "mnist") else 200

    def strategy(self, name: str, strategy: str) -> dict[str, Rows]:
        """A line of Figure 1 for each learner."""
        budget = {
            "no noise": None,
            "once": {"epsilon": EPSILON},
            "5 uses": {"epsilon": EPSILON, "strategy": "uses", "uses": 5},
            "ε/2^t": {"epsilon": EPSILON, "strategy": "halving"},
        }[strategy]
        found = []
        for run, data in self.sets(name):
            times = _times(len(data.rows) // 100, (3 if name == "mnist" else 10) * len(data.rows))
            found.append(strategies(data, LEARNERS, budget, times, run, self.over))
        return {learner: _mean_lines([f[learner] for f in found], "visits") for learner in LEARNERS}

    def data_column(self, name: str, epsilon: float | None) -> dict[Learner, list[float]]:
        """The first column of Figures 3 and 4: a walk over perturbed records that goes on until nothing changes."""
        if (name, epsilon) not in self._columns:
            found = [
                converged_on_perturbed(data, LEARNERS, epsilon, run, self.rounds(name), self.over)
                for run, data in self.sets(name)
            ]
            self._columns[name, epsilon] = {learner: [f[at] for f in found] for at, learner in enumerate(LEARNERS)}
        return self._columns[name, epsilon]

    def cell(self, figure: int, name: str, epsilon: float | None, batch: int) -> dict[Learner, list[float]]:
        """A cell of Figure 3 (one update a peer) or 4 (as many as records) for each learner."""
        uses, found = 1 if figure == 3 else batch, []
        for run, data in self.sets(name):
            if epsilon is None:
                found.append(batches_without_noise(data, LEARNERS, batch, uses, run))
            else:
                found.append(gradients(data, LEARNERS, epsilon, batch, uses, run, self.over))
        return {learner: [f[at] for f in found] for at, learner in enumerate(LEARNERS)}

    def method(self, name: str, method: str) -> dict[str, Rows]:
        """A line of Figure 5 for each learner."""
        found: list[dict[str, list[tuple[int, float]]]] = []
        for run, data in self.sets(name):
            if method == "Golf":
                last = 20 if self.quick else 300 if name == "mnist" else 3000
                found.append(golf(data, LEARNERS, EPSILON, _times(1, last), run, self.over))
            else:
                batch = 1 if method == "sequential" else int(method.split()[-1])
                last = 2000 if self.quick else 1_000_000 if batch == 1 else 100_000
                found.append(walked(data, LEARNERS, EPSILON, batch, _times(1, last), run, self.over))
        return {learner: _mean_lines([f[learner] for f in found], "cycles") for learner in LEARNERS}

    def hyperplane(self, epsilon: float | None) -> Rows:
        """A panel of Figure 2: some points as they are published, and the hyperplane learned from all of them."""
        right, out = [], []
        for run, data in self.sets("artificial"):
            products = perturbed(data, epsilon, run, 0)
            walk = Walk(Examples.signed(products), GolfSettings())
            walk.visit(rounds_of_visits(len(products), self.rounds("artificial"), run))
            right.append(float(np.mean((data.test_rows @ walk.weights[0] > 0) == (data.test_labels > 0))))
            if run == 0:
                shown = (
                    products * np.where(data.labels > 0, 1, -1)[:, None]
                )  # y(yx + N) = x + yN, as the paper draws it
                for point, label in zip(shown[:150].tolist(), data.labels[:150].tolist()):
                    out.append({"kind": "point", "x": point[0], "y": point[1], "class": label})
                out.append({"kind": "normal", "x": walk.weights[0, 0], "y": walk.weights[0, 1]})
        out[-1] |= {"accuracy": float(np.mean(right)), "runs": len(right)}
        return out


def _times(first: int, last: int) -> list[int]:
    """About four a decade, from ``first`` to ``last``."""
    count = max(2, round(4 * np.log10(last / max(first, 1))) + 1)
    return sorted({round(t) for t in np.geomspace(max(first, 1), last, count)})


def _mean_lines(lines: Sequence[Sequence[tuple[int, float]]], time: str) -> Rows:
    return [{time: points[0][0], **_mean([p[1] for p in points])} for points in zip(*lines)]


def _mean(values: Sequence[float]) -> dict[str, Any]:
    return {"accuracy": float(np.mean(values)), "sd": float(np.std(values)), "runs": len(values)}


@dataclass(frozen=True)
class Cells:
    """Some cells that are measured together: a set, what distinguishes them from others, and how."""

    keys: list[dict[str, Any]]
    measure: Callable[[], Rows]


def _cells(m: Measuring, figure: int, names: Sequence[str]) -> Iterator[Cells]:
    """All cells of a figure."""
    if figure == 2:
        for epsilon in (None, *EPSILONS) if "artificial" in names else ():
            yield Cells([{"epsilon": _level(epsilon)}], partial(_panel_rows, m, epsilon))
        return
    for name in names:
        if figure in (1, 5):
            kind, values = ("strategy", STRATEGIES) if figure == 1 else ("method", METHODS)
            for value in values:
                keys = [{"data": name, "learner": learner, kind: value} for learner in LEARNERS]
                work = partial(m.strategy if figure == 1 else m.method, name, value)
                yield Cells(keys, partial(_line_rows, keys, work))
            yield from _ours(figure, name, m.quick)
            continue
        yield from _ours(figure, name, m.quick)
        for epsilon in (None, *EPSILONS):
            for batch in ("records", *(BATCHES if (name, figure) != ("mnist", 4) or m.quick else MNIST_BATCHES)):
                place = {"data": name, "epsilon": _level(epsilon), "batch": batch}
                keys = [{**place, "learner": learner} for learner in LEARNERS]
                if isinstance(batch, int):
                    yield Cells(keys, partial(_mean_rows, keys, partial(m.cell, figure, name, epsilon, batch)))
                else:
                    yield Cells(keys, partial(_mean_rows, keys, partial(m.data_column, name, epsilon)))


def _ours(figure: int, name: str, quick: bool) -> Iterator[Cells]:
    """What was measured of the product's own way, for both learners alike: it has neither.

    Over time it begins where all records have reached all peers: rumours that everybody passes on to one peer a cycle
    take about log₂ n + ln n cycles [FG85].
    """
    table = RESULTS / "gossip-accuracy.csv"
    if figure == 1 or quick or not table.exists():
        return
    for row in (r for r in read_table(table) if r["set"] == name):
        found = {"accuracy": float(row["accuracy"]), "sd": float(row["standard_error"]) * row["runs"] ** 0.5}
        found["runs"] = row["runs"]
        for learner in LEARNERS:
            key: dict[str, Any] = {"data": name, "learner": learner}
            if figure == 5 and float(row["epsilon"]) == EPSILON:
                n = {"spambase": 4140, "segmentation": 2100, "mnist": 60_000}[name]
                reached = math.ceil(math.log2(n) + math.log(n))
                key |= {"method": "ours"}
                lines = [{**key, "cycles": cycles, **found} for cycles in (reached, 1_000_000)]
                yield Cells([key], partial(list, lines))
            elif figure != 5:
                key |= {"epsilon": _level(float(row["epsilon"])), "batch": "ours"}
                yield Cells([key], partial(list, [{**key, **found}]))


def _panel_rows(m: Measuring, epsilon: float | None) -> Rows:
    return [{"epsilon": _level(epsilon), **row} for row in m.hyperplane(epsilon)]


def _line_rows(keys: Rows, work: Callable[[], dict[str, Rows]]) -> Rows:
    found = work()
    return [{**key, **row} for key in keys for row in found[key["learner"]]]


def _mean_rows(keys: Rows, work: Callable[[], dict[Learner, list[float]]]) -> Rows:
    found = work()
    return [{**key, **_mean(found[key["learner"]])} for key in keys]


def _level(epsilon: float | None) -> str:
    return "no noise" if epsilon is None else f"{epsilon:g}"


def measure(m: Measuring, figure: int, table: Path | None, names: Sequence[str]) -> Rows:
    """All cells of a figure; those in the table are not measured again, new ones are added to it as they are done."""
    have = read_table(table) if table is not None and table.exists() else []
    seen = {tuple(str(r[k]) for k in _KEYS[figure]) for r in have}
    out: Rows = list(have)
    for cells in _cells(m, figure, names):
        if all(tuple(str(key[k]) for k in _KEYS[figure]) in seen for key in cells.keys):
            continue
        found = [{f: row.get(f, "") for f in _FIELDS[figure]} for row in cells.measure()]
        out += found
        if table is not None:
            _add(table, _FIELDS[figure], found)
    return out


def _add(table: Path, fields: Sequence[str], found: Rows) -> None:
    new = not table.exists()
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in found)


def draw(tables: Path, out: Path) -> None:
    """All plots, from the tables."""
    for figure in (1, 5):
        cells = read_table(tables / f"gossip-figure-{figure}.csv")
        for learner in LEARNERS:
            panels = [_panel(figure, [c for c in cells if (c["data"], c["learner"]) == (n, learner)], n) for n in NAMES]
            what = {1: "budgets of perturbed gradients", 5: "Golf and single walks on perturbed records"}[figure]
            write_chart(
                out / f"gossip-figure-{figure}-{learner}.svg", panels, caption=f"{NAMED[learner]}, ε = 50: {what}"
            )
    clouds = []
    cells = read_table(tables / "gossip-figure-2.csv")
    for epsilon in (None, *EPSILONS):
        own = [c for c in cells if str(c["epsilon"]) == _level(epsilon)]
        last = own[-1]
        title = f"{'no noise' if epsilon is None else f'ε = {epsilon:g}'}, accuracy {float(last['accuracy']):.3g}"
        points = [(float(c["x"]), float(c["y"]), int(c["class"])) for c in own[:-1]]
        clouds.append(Cloud(title=title, points=points, normal=(float(last["x"]), float(last["y"]))))
    write_clouds(
        out / "gossip-figure-2.svg", clouds, caption="The artificial set perturbed, and what an SVM makes of it"
    )
    for figure in (3, 4):
        cells = read_table(tables / f"gossip-figure-{figure}.csv")
        maps = [
            [
                HeatMap(
                    title=f"{TITLES[name]}, {NAMED[learner]}",
                    cells={
                        (str(c["epsilon"]), str(c["batch"])): float(c["accuracy"])
                        for c in cells
                        if (c["data"], c["learner"]) == (name, learner)
                    },
                )
                for name in NAMES
            ]
            for learner in LEARNERS
        ]
        updates = "one update a peer" if figure == 3 else "equal numbers of updates"
        write_heat_maps(
            out / f"gossip-figure-{figure}.svg",
            maps,
            rows=[_level(e) for e in (None, *EPSILONS)],
            columns=_columns(cells),
            caption=f"Accuracy over ε and batch size, {updates}",
        )


def _columns(cells: Rows) -> list[str]:
    named = ["ours"] if any(c["batch"] == "ours" for c in cells) else []
    return [*named, "records", *(str(b) for b in BATCHES)]


def _panel(figure: int, cells: Rows, name: str) -> Panel:
    kind, time = ("strategy", "visits") if figure == 1 else ("method", "cycles")
    lines: dict[str, list[tuple[float, float]]] = {}
    for c in cells:
        lines.setdefault(str(c[kind]), []).append((float(c[time]), float(c["accuracy"])))
    label = {1: "visits of the one model", 5: "cycles"}[figure]
    return Panel(title=TITLES[name], x=label, y="accuracy", lines=lines, log_x=True, least=1.0)


def rows(
    quick: bool = False, out: Path | None = None, figures: Sequence[int] = FIGURES, names: Sequence[str] = NAMES
) -> list[dict[str, Any]]:
    """The end of every line and every cell; tables and plots into ``out`` (docs/results; with ``quick`` nowhere)."""
    out = out if out is not None or quick else RESULTS
    summary = []
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        m = Measuring(quick=quick, over=pool.map)
        for figure in figures:
            table = None if out is None else out / f"gossip-figure-{figure}.csv"
            last: dict[tuple[str, ...], dict[str, Any]] = {}
            for row in measure(m, figure, table, names):
                last[tuple(str(row[k]) for k in _KEYS[figure])] = row
            for key, row in last.items():
                summary.append(
                    {
                        "case": f"figure {figure}: {', '.join(key)}",
                        "value": float(row["accuracy"]),
                        "unit": f"accuracy, {row['runs']} runs",
                        "reference": None,
                        "ratio": None,
                    }
                )
    if out is not None and all((out / f"gossip-figure-{figure}.csv").exists() for figure in FIGURES):
        draw(out, out)
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, draw, and print; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gossip_figures", description="Figures 1 to 5 of gossip."
    )
    parser.add_argument("--quick", action="store_true", help="made-up records, few rounds: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of tables and plots (docs/results; with --quick none)")
    parser.add_argument("--figure", type=int, action="append", choices=FIGURES, help="only this one (repeatable)")
    parser.add_argument("--set", action="append", choices=NAMES, help="only this set (repeatable)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    try:
        made = rows(chosen.quick, chosen.out, chosen.figure or FIGURES, chosen.set or NAMES)
    except TallystickError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    result = {"bench": "gossip-figures", "rows": made}
    print(json.dumps(result, allow_nan=False) if chosen.format == "json" else describe(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
