"""Lower bounds on ε from observed outputs, and what they are worth.

Two samples of outputs, under database 0 and under database 1. If the mechanism is (ε, δ)-DP then for every event E and
both orders of the databases P₁(E) ≤ e^ε P₀(E) + δ; so

    ε ≥ ln( (p₁ − δ) / p₀ )        with p₁ a lower, p₀ an upper confidence limit (Clopper-Pearson, α/2 each).

The event is chosen on one half of the runs among a family fixed in advance (:func:`events`), the limits are computed on
the other half; so the bound exceeds the true ε with probability at most α, whatever the family and the choice.

The family: both tails of each statistic at 120 levels of the pooled first half; each residue of the low six bits; the
"off grid" mark. For a sound mechanism on the grid the last two carry nothing; for float noise they carry everything.

One run, many canaries [SNJ23, arXiv 2305.08846]: the number of right guesses among r, of m independent fair secrets
that each enter as a replaced record, is dominated by W ~ Binomial(r, e^ε/(1 + e^ε)) but for 2mδ·max_i P(v−i ≤ W < v)/i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom

__all__ = ["Bound", "Outputs", "clopper_pearson", "epsilon_lower_bound", "find_bound", "one_run_lower_bound"]

LOW_BITS = 6


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """One row per experiment: the statistics (columns), the low bits of one output, and whether it is off the grid."""

    statistics: np.ndarray
    low: np.ndarray
    off_grid: np.ndarray

    def __len__(self) -> int:
        return len(self.statistics)

    def part(self, start: int, step: int) -> Outputs:
        return Outputs(
            statistics=self.statistics[start::step], low=self.low[start::step], off_grid=self.off_grid[start::step]
        )


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The lower bound on ε, the event it comes from, and the counts."""

    epsilon: float
    event: str
    hits: tuple[int, int]
    runs: int


def clopper_pearson(hits: int, runs: int, alpha: float) -> tuple[float, float]:
    """One-sided exact limits for a probability, each wrong with probability at most alpha."""
    low = 0.0 if hits == 0 else float(betaincinv(hits, runs - hits + 1, alpha))
    high = 1.0 if hits == runs else float(betaincinv(hits + 1, runs - hits, 1 - alpha))
    return low, high


def epsilon_lower_bound(ones: int, zeros: int, runs: int, *, delta: float, alpha: float) -> float:
    """From the hits of one event under database 1 and 0, ``runs`` each; -inf when they say nothing."""
    low, _ = clopper_pearson(ones, runs, alpha / 2)
    _, high = clopper_pearson(zeros, runs, alpha / 2)
    return math.log((low - delta) / high) if low > delta else -math.inf


Event = tuple[str, Callable[[Outputs], np.ndarray]]


def events(first: Outputs, second: Outputs) -> Iterator[Event]:
    """The family, with thresholds at levels of the pooled sample."""
    levels = np.concatenate([np.geomspace(1e-4, 0.1, 40), np.linspace(0.1, 0.9, 40), 1 - np.geomspace(0.1, 1e-4, 40)])
    pooled = np.concatenate([first.statistics, second.statistics])
    for column in range(pooled.shape[1]):
        for cut in np.unique(np.quantile(pooled[:, column], levels, method="lower")):
            yield f"T{column} >= {cut:.4g}", lambda o, c=column, x=cut: o.statistics[:, c] >= x
            yield f"T{column} <= {cut:.4g}", lambda o, c=column, x=cut: o.statistics[:, c] <= x
    for residue in np.unique(np.concatenate([first.low, second.low])):
        yield f"low bits {residue}", lambda o, r=residue: o.low == r
    yield "off grid", lambda o: o.off_grid


def find_bound(zero: Outputs, one: Outputs, *, delta: float, alpha: float) -> Bound:
    """Choose event and order on the even runs, bound ε on the odd ones."""
    tune = zero.part(0, 2), one.part(0, 2)
    best: tuple[float, bool, Event] | None = None
    for event in events(*tune):
        hits = [int(event[1](o).sum()) for o in tune]
        for swap in (False, True):
            a, b = hits[::-1] if not swap else hits
            found = epsilon_lower_bound(a, b, len(tune[0]), delta=delta, alpha=alpha)
            if best is None or found > best[0]:
                best = found, swap, event
    assert best is not None
    _, swap, (name, holds) = best
    test = zero.part(1, 2), one.part(1, 2)
    hits = [int(holds(o).sum()) for o in (test if swap else test[::-1])]
    epsilon = epsilon_lower_bound(*hits, len(test[0]), delta=delta, alpha=alpha)
    return Bound(epsilon=epsilon, event=name, hits=(hits[0], hits[1]), runs=len(test[0]))


def one_run_p_value(canaries: int, guesses: int, right: int, *, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of so many right guesses under (ε, δ)-DP [SNJ23]."""
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, q))
    if delta == 0:
        return tail
    masses = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, q))  # P(right − i ≤ W < right)
    worst = float(np.max(masses / np.arange(1, right + 1), initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * worst)


def one_run_lower_bound(canaries: int, guesses: int, right: int, *, delta: float, alpha: float) -> float:
    """The largest ε refuted at level alpha; 0 if none is."""
    low, high = 0.0, 50.0
    if one_run_p_value(canaries, guesses, right, epsilon=0.0, delta=delta) > alpha:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        refuted = one_run_p_value(canaries, guesses, right, epsilon=middle, delta=delta) <= alpha
        low, high = (middle, high) if refuted else (low, middle)
    return low
