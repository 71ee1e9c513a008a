"""``python -m benchmarks.pca_figures`` (``make figures``): figures 3 to 5 of the PCA paper, measured.

* Figure 3, time over the number of owners: an owner's (BFV, d = 100, CPU seconds), the proxy's beside SEAL's raw
  additions, and the predecessor's, whose owners wait for each other.
* Figure 4, captured variance, and macro F1 of an RBF machine, over the records that an owner holds, beside the
  predecessor's and a random projection.
* Figure 5, captured variance over ε. The sets of the paper are not to be had here: generated rows of the same shapes,
  with a spectrum that the title states, and 4s and 9s made from MNIST as GISETTE was.

Tables are ``pca-figure-3.csv`` to ``-5.csv``; a cell that is there is not measured again, so it can be stopped; plots
are drawn from the tables alone. ``--quick``: few owners, rows and runs; it shows that all runs, and means nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.line_charts import Panel, write_chart
from benchmarks.pca_accuracy import COMPONENTS, DATA, OWN, federation
from benchmarks.pca_baselines import passed_along, random_projection, without_privacy
from benchmarks.pca_f1 import Split, f1_of, labelled_rows
from benchmarks.pem_tables import read_table, write_table
from tallystick import PCA
from tallystick.bench.proxy import LIMITS, _raw_bfv
from tallystick.crypto.homomorphic.scheme import Extent, scheme_for
from tallystick.crypto.prg import system_stream

__all__ = ["RESULTS", "draw", "generated", "gisette_like", "main"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
OWNERS = (10, 30, 100, 300, 1000)
HELD = {"cnae9": (10, 25, 100, 250), "gisette-like": (50, 100, 250, 1000)}
_MACHINE = (3000, 1500)
"""Rows that the machine of figure 4 learns from and is measured on."""
SHAPES = {  # rows, columns, exponent: eigenvalue j is proportional to j to the minus exponent
    "108,000 × 29, λ ~ 1/j^1.5": (108_000, 29, 1.5),
    "199,030 × 54, λ ~ 1/j^2": (199_030, 54, 2.0),
    "515,345 × 90, λ ~ 1/j": (515_345, 90, 1.0),
}
EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9)
_COLUMNS, _PASSED, _KEPT = 100, 20, 10
Table = list[dict[str, Any]]


def generated(rows: int, columns: int, exponent: float, seed: int = 0) -> NDArray[np.float64]:
    """Gaussian rows of this spectrum in a random orientation, scaled to length 1."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    made = rng.normal(size=(rows, columns)) * np.arange(1, columns + 1.0) ** (-exponent / 2) @ axes
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def gisette_like(folder: Path = DATA, columns: int = 500) -> Split:
    """4s and 9s of MNIST: sampled pixels, products of two of them, and as many columns that mean nothing (a fifth)."""
    file = np.load(folder / "mnist.npz")
    pixels, labels = file["x_train"].reshape(len(file["x_train"]), -1), file["y_train"]
    wanted = np.isin(labels, (4, 9))
    x, y = pixels[wanted].astype(np.float64) / 255, labels[wanted]
    rng = np.random.default_rng(0)
    used = np.flatnonzero(x.mean(axis=0) > 0.02)
    plain = x[:, rng.choice(used, columns * 2 // 5)]
    pairs = x[:, rng.choice(used, columns * 2 // 5)] * x[:, rng.choice(used, columns * 2 // 5)]
    probes = x[:, rng.choice(used, columns - plain.shape[1] - pairs.shape[1])]
    probes = np.column_stack([rng.permutation(column) for column in probes.T])
    rows = np.hstack([plain, pairs, probes])
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    order, cut = rng.permutation(len(rows)), int(0.8 * len(rows))
    train, test = order[:cut], order[cut:]
    return rows[train], y[train], rows[test], y[test]


def made_up(rows: int = 500) -> Split:
    """For --quick: two classes that one direction tells apart."""
    x = np.abs(generated(rows, 20, 1.0))
    y = (x[:, 0] > np.median(x[:, 0])).astype(np.int64)
    cut = int(0.8 * rows)
    return x[:cut], y[:cut], x[cut:], y[cut:]


def times(quick: bool, done: Table) -> Iterator[dict[str, Any]]:
    """Figure 3."""
    size = _COLUMNS * (_COLUMNS + 1) // 2
    scheme: Any = scheme_for("bfv", Extent(size=size, limit=LIMITS["60-bit"], owners=1000, flood_bits=69))
    secret: Any = scheme.generate(system_stream())
    key, source = secret.public, system_stream()
    values = np.arange(scheme.block_values, dtype=np.int64)[:size]
    known = {r["owners"] for r in done}
    raw = _raw_bfv(scheme, secret)["add"]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20 * (10 if quick else 1000), _COLUMNS))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for owners in (5, 10) if quick else OWNERS:
        if owners in known:
            continue
        measured = min(owners, 20)
        started = time.process_time()
        made = [key.encrypt(values, source) for _ in range(measured)]
        encrypting = (time.process_time() - started) / measured
        uploads = [made[i % measured] for i in range(owners)]
        started = time.process_time()
        total = key.total(uploads, values, source)
        adding = time.process_time() - started
        started = time.process_time()
        secret.decrypt(total)
        decrypting = time.process_time() - started
        held = rows[: 20 * owners]
        _, serial = passed_along(held, _PASSED, owners, epsilon=0.3, delta=1e-6, rng=rng)
        yield {
            "owners": owners,
            "an_owner_s": encrypting,
            "proxy_s": adding,
            "raw_additions_s": raw * owners,
            "data_user_s": decrypting,
            "passed_along_s": serial,
        }


def held_records(quick: bool, done: Table) -> Iterator[dict[str, Any]]:
    """Figure 4, at ε = 0.5 and δ = 0.99/N; two runs a point."""
    known = {(r["data"], r["records_per_owner"], r["approach"]) for r in done}
    for name, helds in {"made up": (50, 200)}.items() if quick else HELD.items():
        split = made_up() if quick else gisette_like() if name == "gisette-like" else labelled_rows(name)
        k, n = 5 if quick else COMPONENTS.get(name, 50), len(split[0])
        delta, runs = 0.99 / n, range(1 if quick else 2)
        centred = split[0] - split[0].mean(axis=0)
        scatter = centred.T @ centred

        def scores(
            components: NDArray[np.float64], split: Split = split, scatter: Any = scatter
        ) -> tuple[float, float]:
            basis = np.linalg.qr(components.T)[0]
            held = float(np.trace(basis.T @ scatter @ basis) / np.trace(scatter))
            return held, f1_of(split, components, _MACHINE)[0]

        plain = scores(without_privacy(split[0], k))
        blind = [scores(random_projection(split[0].shape[1], k, np.random.default_rng(seed))) for seed in runs]
        for held in helds:
            owners = n // held
            found: dict[str, list[tuple[float, float]]] = {"without privacy": [plain], "random projection": blind}
            if (name, held, "two servers") in known:
                continue
            for seed in runs:
                fed = federation(split[0], (0, 1), seed, clients=owners)
                model = PCA(k, epsilon=0.5, delta=delta, rows="unit", **OWN.get(name, {})).fit(fed)
                found.setdefault("two servers", []).append(scores(model.components_))
                rng = np.random.default_rng(seed)
                passed, _ = passed_along(split[0], k, owners, epsilon=0.5, delta=delta, rng=rng)
                found.setdefault("passed along", []).append(scores(passed))
            for approach, each in found.items():
                yield {
                    "data": name,
                    "records_per_owner": held,
                    "approach": approach,
                    "captured": float(np.mean([held for held, _ in each])),
                    "f1": float(np.mean([f1 for _, f1 in each])),
                    "f1_sd": float(np.std([f1 for _, f1 in each])),
                }


def variances(quick: bool, done: Table) -> Iterator[dict[str, Any]]:
    """Figure 5, δ = 0.99/N, ten components, two runs a point."""
    known = {(r["data"], r["epsilon"]) for r in done}
    shapes = {"2,000 × 12, λ ~ 1/j": (2000, 12, 1.0)} if quick else {**SHAPES, "gisette-like, from MNIST": None}
    for name, shape in shapes.items():
        left = [e for e in (EPSILONS[-1:] if quick else EPSILONS) if (name, e) not in known]
        if not left:
            continue
        rows = gisette_like()[0] if shape is None else generated(*shape)
        centred = rows - rows.mean(axis=0)
        scatter = centred.T @ centred
        best = np.sort(np.linalg.eigvalsh(scatter))[::-1][:_KEPT].sum() / np.trace(scatter)
        for epsilon in left:
            found = []
            for seed in range(1 if quick else 2):
                model = PCA(_KEPT, epsilon=epsilon, delta=0.99 / len(rows), rows="unit")
                model.fit(federation(rows, (0, 1) if shape is None else (-1, 1), seed))
                held = model.components_ @ scatter @ model.components_.T
                found.append(float(np.trace(held) / np.trace(scatter)))
            yield {
                "data": name,
                "epsilon": epsilon,
                "captured": float(np.mean(found)),
                "sd": float(np.std(found)),
                "without_privacy": float(best),
            }


FIGURES = {"3": times, "4": held_records, "5": variances}


def measure(number: str, out: Path | None, quick: bool) -> Table:
    """The table of a figure; what is missing is measured, and kept line by line."""
    path = None if out is None else out / f"pca-figure-{number}.csv"
    done = read_table(path) if path is not None and path.is_file() else []
    for row in FIGURES[number](quick, list(done)):
        done.append(row)
        print({k: v if isinstance(v, (str, int)) else round(v, 5) for k, v in row.items()}, flush=True)
        if path is not None:
            write_table(path, done)
    return done


def draw(out: Path) -> None:
    """The plots, from the tables alone."""
    cells = read_table(out / "pca-figure-3.csv")
    parts = {
        "each party": {"an_owner_s": "an owner", "data_user_s": "the data user"},
        "all owners": {"proxy_s": "the proxy", "raw_additions_s": "raw additions", "passed_along_s": "passed along"},
    }
    panels = []
    for title, names in parts.items():
        lines = {label: [(float(c["owners"]), float(c[key])) for c in cells] for key, label in names.items()}
        panels.append(
            Panel(
                title=f"{title}, d = {_COLUMNS}, BFV",
                x="owners",
                y="CPU seconds",
                lines=lines,
                log_x=True,
                log_y=title == "all owners",
                least=1e-4,
            )
        )
    write_chart(out / "pca-figure-3.svg", panels, caption="Time over the number of owners")
    cells, panels = read_table(out / "pca-figure-4.csv"), []
    for data in dict.fromkeys(c["data"] for c in cells):
        for measured, label in (("captured", "captured variance"), ("f1", "macro F1")):
            lines = {}
            for c in [c for c in cells if c["data"] == data]:
                lines.setdefault(c["approach"], []).append((float(c["records_per_owner"]), float(c[measured])))
            panels.append(Panel(title=data, x="records per owner", y=label, lines=lines, log_x=True))
    write_chart(out / "pca-figure-4.svg", panels, caption="F1 over the records an owner holds")
    cells, panels = read_table(out / "pca-figure-5.csv"), []
    for data in dict.fromkeys(c["data"] for c in cells):
        mine = [c for c in cells if c["data"] == data]
        lines = {
            "two servers": [(float(c["epsilon"]), float(c["captured"])) for c in mine],
            "without privacy": [(float(c["epsilon"]), float(c["without_privacy"])) for c in mine],
        }
        panels.append(Panel(title=data, x="ε", y="captured variance", lines=lines))
    write_chart(out / "pca-figure-5.svg", panels, caption="Captured variance over epsilon, 10 components")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pca_figures", description="Figures 3-5 of [PCA].")
    parser.add_argument("--quick", action="store_true", help="few owners, rows, runs: only shows that all runs")
    parser.add_argument("--out", type=Path, help="folder of tables and plots (docs/results; with --quick none)")
    parser.add_argument("--figures", default="3,4,5", help="which of them")
    chosen = parser.parse_args(arguments)
    out = chosen.out if chosen.out is not None or chosen.quick else RESULTS
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for number in chosen.figures.split(","):
            measure(number, out, chosen.quick)
    if out is not None and all((out / f"pca-figure-{number}.csv").is_file() for number in FIGURES):
        draw(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
