"""Accuracy of the serverless sum: ``python -m benchmarks.serverless_sum [--runs 10] [--rounds 30] [--out DIR]``.

Spambase as ``gossip_accuracy`` has it (4,140 records to learn from, 461 to test on; public bounds and logarithms),
every record a peer of its own, under ``masks`` with ``reducer = "every-peer"``: a tenth of the peers may collude with
any one of them, a tenth may miss a round. ε = 1, δ = 1e-6. Cells that are in ``serverless-sum.csv`` are not measured
again.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tallystick as ts
from benchmarks.gossip_accuracy import DATA, RESULTS, Split, splits
from benchmarks.pem_tables import read_table, write_table
from tallystick.data.encoding import study_records
from tallystick.engines.client_map import HeldRecords
from tallystick.engines.federation import SimulatedFederation
from tallystick.study import Study

FILE = "serverless-sum.csv"
MARK = 0.90
"""What issue 17 asks for at epsilon 1."""
EPSILON, DELTA = 1.0, 1e-6


@dataclass(kw_only=True)
class SinglePeers(SimulatedFederation):
    """Every record a peer's: read in one go, for each cell is encoded by itself."""

    whole: Any = None

    def records(self, study: Study) -> list[HeldRecords]:
        if not self._encoded:
            all_of_them = study_records(study, self.whole, party="all", lenient=False)
            one = replace(all_of_them.tallies, records=1)
            taken = [all_of_them.take([i]) for i in range(len(all_of_them))]
            self._encoded[b""] = [replace(records, tallies=one) for records in taken]
        return self._encoded[b""]


def peers(split: Split, seed: int) -> SinglePeers:
    """One peer a record."""
    n = len(split.train[split.target])
    trust = {
        "model": "masks", "reducer": "every-peer", "clients": n, "colluding": n // 10, "dropout": 0.1,
        "min_clients": n - n // 10, "round_timeout_s": 60,
    }  # fmt: skip
    return SinglePeers(frames=(None,) * n, schema=split.schema, trust=trust, seed=seed, whole=split.train)


def measure(split: Split, run: int, *, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ts.LogisticRegression(epsilon=EPSILON, delta=DELTA, rounds=rounds).fit(
            peers(split, run), target=split.target
        )
    features = {name: column for name, column in split.test.items() if name != split.target}
    right = np.asarray(model.predict(features)) == np.asarray(split.test[split.target])
    return {
        "run": run, "rounds": rounds, "accuracy": round(float(right.mean()), 4),
        "honest": model.privacy_.trust["honest"], "cpu_s": round(time.process_time() - begun, 1),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measure, write, print; exit 1 if the mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    path = chosen.out / FILE
    rows = [dict(row) for row in read_table(path)] if path.exists() else []
    done = {(int(row["run"]), int(row["rounds"])) for row in rows}
    for run, split in enumerate(splits("spambase", chosen.runs, DATA)):
        if (run, chosen.rounds) not in done:
            rows.append(measure(split, run, rounds=chosen.rounds))
            print(rows[-1], file=sys.stderr, flush=True)
            write_table(path, rows)
    found = [float(row["accuracy"]) for row in rows if int(row["rounds"]) == chosen.rounds]
    mean, error = float(np.mean(found)), float(np.std(found) / len(found) ** 0.5)
    print(f"accuracy {mean:.3f} (standard error {error:.3f}, {len(found)} runs), asked for {MARK}")
    return 0 if mean >= MARK else 1


if __name__ == "__main__":
    raise SystemExit(main())
