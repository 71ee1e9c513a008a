"""``python -m benchmarks.quantile_accuracy``: rank errors of ``Quantiles(method="counts")`` beside a trusted curator's.

Two servers, one of which may collude; replace-one; mean over so many runs of the noise. The reference is one draw of
the exponential mechanism (for five quantiles: one with ε/5 for each), its expectation taken exactly.
Columns: mean rank error / reference = ratio, mean and most rounds, coverage of nominal 95 % intervals (of those given).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.quantile_data import issue_cases, other_cases, tied_cases
from benchmarks.quantile_runs import FIVE, Case, budget_of, central_exponential, run
from benchmarks.quantile_shapes import drawn_cases, kept_back_cases, looked_at_cases

EPSILONS = (0.1, 0.25, 1.0)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One data set at one ε."""

    error: float
    reference: float
    mean_rounds: float
    most_rounds: int
    coverage: float
    given: float
    """Share of answers that have an interval."""

    @property
    def ratio(self) -> float:
        return self.error / self.reference if self.reference > 0.005 else float("nan")

    def __str__(self) -> str:
        return (
            f"{self.error:8.2f} / {self.reference:7.2f} = {self.ratio:5.2f}  {self.mean_rounds:4.1f} "
            f"≤{self.most_rounds:2d}  {self.coverage:.2f} of {self.given:.2f}"
        )


def measure(
    case: Case, q: Sequence[float], epsilon: float, *, runs: int, mechanism: str = "laplace", seed: int = 1
) -> Cell:
    """The mean of ``runs`` searches."""
    rng = np.random.default_rng(seed)
    budget = budget_of(epsilon, mechanism=mechanism)
    made = [run(case, q, budget, rng) for _ in range(runs)]
    held = [h for r in made for h in r.held if h is not None]
    return Cell(
        error=float(np.nanmean([r.errors for r in made])),
        reference=float(np.mean([central_exponential(case, share, epsilon / len(q)) for share in q])),
        mean_rounds=float(np.mean([r.rounds for r in made])),
        most_rounds=max(r.rounds for r in made),
        coverage=float(np.mean(held)) if held else float("nan"),
        given=len(held) / (runs * len(q)),
    )


def main() -> None:
    """The tables, on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--mechanism", default="laplace", choices=("laplace", "gaussian"))
    parser.add_argument("--only", default="", help="data sets whose name holds this")
    parser.add_argument("--table", default="median,five,ties,others,looked-at,kept-back,kept-back-five")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    issue = issue_cases()
    tables = {
        "median": (issue, (0.5,)),
        "five": ([issue[0], *[c for c in issue if "e+09" in c.name]], FIVE),
        "ties": (tied_cases(), FIVE),
        "others": (other_cases(), (0.5,)),
        "looked-at": (looked_at_cases(), (0.5,)),
        "drawn": (drawn_cases(), (0.5,)),
        "kept-back": (kept_back_cases(), (0.5,)),
        "kept-back-five": (kept_back_cases(), FIVE),
    }
    for name in given.table.split(","):
        cases, q = tables[name]
        print(f"\n{name}: q = {q}, {given.mechanism}, {given.runs} runs, ε = {' | '.join(map(str, EPSILONS))}")
        for case in cases:
            if given.only in case.name:
                cells = [
                    measure(case, q, e, runs=given.runs, mechanism=given.mechanism, seed=given.seed) for e in EPSILONS
                ]
                print(f"{case.name:28s} " + " | ".join(map(str, cells)), flush=True)


if __name__ == "__main__":
    main()
