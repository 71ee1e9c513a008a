"""Captured variance of private principal components on the PCA paper's sets, through simulated servers.

    python -m benchmarks.pca_accuracy [--sets isolet,mnist] [--runs 10] [--basis] [--out FILE]

Rows are scaled to length 1, 80 % of them train, two servers of which one is curious; "captured" is the part of the
training rows' centred variance in the span of the components. Beside each cell, what the central Analyze Gauss of
the project's measurements has, the mark there for two servers without a public basis (or with the DCT), and the gap.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tallystick as ts

DATA = Path(__file__).parents[2] / "shared" / "data"
EPSILONS = (0.1, 0.3, 0.5, 1.0)
COMPONENTS = {"isolet": 50, "mnist": 50, "optdigits": 10, "cnae9": 50}
BOUNDS = {"isolet": (-1, 1), "mnist": (0, 1), "optdigits": (0, 1), "cnae9": (0, 1)}
OWN: dict[str, dict[str, Any]] = {"cnae9": {"columns": "sparse"}}
SHAPES = {"mnist": [28, 28], "optdigits": [8, 8], "isolet": None}
CENTRAL = {  # Analyze Gauss, one trusted curator; δ = 1/N, then 1e-6
    "isolet": ((0.231, 0.373, 0.441, 0.532), (0.155, 0.309, 0.376, 0.474)),
    "mnist": ((0.388, 0.582, 0.659, 0.741), (0.323, 0.532, 0.617, 0.713)),
    "optdigits": ((0.324, 0.529, 0.609, 0.680), (0.239, 0.422, 0.526, 0.635)),
    "cnae9": ((0.062, 0.071, 0.083, 0.117), (0.060, 0.063, 0.068, 0.083)),
}
MARKS = {
    "isolet": ((0.210, 0.398, 0.479, 0.574), (0.129, 0.314, 0.401, 0.515)),
    "mnist": ((0.527, 0.666, 0.719, 0.772), (0.474, 0.630, 0.690, 0.755)),
    "optdigits": ((0.517, 0.675, 0.713, 0.734), (0.329, 0.606, 0.674, 0.722)),
    "cnae9": ((0.238, 0.361, 0.433, 0.525), (0.148, 0.249, 0.311, 0.433)),
}
DCT_MARKS = {
    "isolet": ((0.565, 0.572, 0.616, 0.664), (0.527, 0.582, 0.576, 0.635)),
    "mnist": ((0.646, 0.724, 0.759, 0.788), (0.619, 0.703, 0.740, 0.779)),
    "optdigits": ((0.543, 0.670, 0.708, 0.733), (0.436, 0.611, 0.668, 0.718)),
}


def training_rows(name: str, folder: Path = DATA) -> NDArray[np.float64]:
    """80 % of a set's rows, each scaled to length 1."""
    if name == "optdigits":
        import polars as pl

        frame = pl.read_parquet(folder / "optdigits.parquet")
        rows = frame.select([c for c in frame.columns if c.startswith("px_")]).to_numpy().astype(np.float64)
    else:
        file = np.load(folder / f"{name}.npz")
        rows = file["x_train" if name == "mnist" else "X"].astype(np.float64)
        rows = rows.reshape(len(rows), -1)
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths == 0, 1, lengths)[:, None]
    return np.asarray(rows[np.random.default_rng(0).permutation(len(rows))[: int(0.8 * len(rows))]])


def federation(rows: NDArray[np.float64], bounds: tuple[float, float], seed: int, clients: int = 3) -> Any:
    """Rows dealt to clients."""
    names = [f"x{i}" for i in range(rows.shape[1])]
    schema = ts.Schema({name: ts.Number(*bounds) for name in names})
    frames = [dict(zip(names, rows[at::clients].T)) for at in range(clients)]
    return ts.Federation.simulate(frames, schema=schema, seed=seed)


def captured(
    rows: NDArray[np.float64], name: str, *, epsilon: float, delta: float, seed: int, basis: bool = False
) -> float:
    """One run."""
    own = dict(OWN.get(name, {})) | ({"basis": "dct", "shape": SHAPES[name]} if basis else {})
    model = ts.PCA(COMPONENTS[name], epsilon=epsilon, delta=delta, rows="unit", **own)
    model.fit(federation(rows, BOUNDS[name], seed))
    centred = rows - rows.mean(axis=0)
    return float(((centred @ model.components_.T) ** 2).sum() / (centred**2).sum())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="optdigits,cnae9,isolet,mnist")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--basis", action="store_true", help="with the public DCT")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    marks = DCT_MARKS if chosen.basis else MARKS
    lines = ["| set | δ | ε | captured (sd) | central AG | mark | gap |", "|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for name in [n for n in chosen.sets.split(",") if n in marks]:
        rows = training_rows(name)
        for which, delta in enumerate((0.99 / len(rows), 1e-6)):
            for at, epsilon in enumerate(EPSILONS):
                runs = [
                    captured(rows, name, epsilon=epsilon, delta=delta, seed=seed, basis=chosen.basis)
                    for seed in range(chosen.runs)
                ]
                mean, mark = float(np.mean(runs)), marks[name][which][at]
                lines.append(
                    f"| {name} | {'0.99/N' if which == 0 else '1e-6'} | {epsilon:g} | {mean:.3f} ({np.std(runs):.3f}) "
                    f"| {CENTRAL[name][which][at]:.3f} | {mark:.3f} | {mean - mark:+.3f} |"
                )
                print(lines[-1], flush=True)
    if chosen.out is not None:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
