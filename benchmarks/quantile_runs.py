"""Many runs of the product's own search for quantiles, without parties: what clients would sum is read off sorted data.

The program, its states, prices and edges are the product's; only the sum is taken by binary search in sorted indices
instead of record by record (a test compares the two), and noise is drawn by NumPy at the plan's own scales. So 100 runs
on a million records take seconds. The reference is the exponential mechanism at a trusted curator, whose law is summed
up exactly instead of drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.program import Public
from tallystick.algorithms.quantiles.answers import QuantileAnswer, quantile_answers
from tallystick.algorithms.quantiles.design import design_quantiles
from tallystick.algorithms.quantiles.program import QuantileProgram, Query
from tallystick.algorithms.quantiles.settings import QuantileSettings
from tallystick.bench.central_draw import expected_rank_error
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.open_budget import PARTS

DELTA = 1e-6
FIVE = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One data set: sorted grid indices of a domain of ``size`` values."""

    name: str
    data: NDArray[np.int64]
    size: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: rank errors of its answers, rounds, and which intervals held (None: refused)."""

    indices: tuple[int | None, ...]
    """The answers themselves."""
    errors: tuple[float, ...]
    rounds: int
    held: tuple[bool | None, ...]


def budget_of(epsilon: float, *, mechanism: str = "laplace", neighbours: str = "replace-one") -> PublicBudget:
    """Two servers, one of which may collude: twice the variance that one trusted curator would need."""
    return PublicBudget(
        mechanism=mechanism,
        rho=math.inf if mechanism == "laplace" else float(gaussian_rho(epsilon, DELTA)),
        epsilon=epsilon,
        neighbours=neighbours,
        variance_factor=2.0,
    )


def program_for(case: Case, q: Sequence[float], budget: PublicBudget) -> QuantileProgram:
    """The product's program for an integer column of this domain."""
    public = public_of(case)
    program: QuantileProgram = design_quantiles(  # type: ignore[assignment]
        public, budget, QuantileSettings(q=tuple(q), column=("x",))
    ).program
    return program


def public_of(case: Case, salt: int = 0) -> Public:
    half = (case.size - 1) / 2
    return Public(
        features=("x",),
        records=len(case.data),
        units=(("number", half, half, 0.0),),
        blocks=(("x", 0, 1, "number", 1),),
        integers=(("x", 0, 1, case.size),),
        salt=salt,
    )


def exact_total(program: QuantileProgram, data: NDArray[np.int64], query: Query) -> NDArray[np.float64]:
    """What the clients of all records would sum: one column, one group."""
    edges = query.edges[0].astype(np.int64)
    total = np.zeros(program.edges + 1)
    ranks = np.searchsorted(data, edges)
    if query.probe and program.lone:
        share = program.probe_share(program.series[0])
        total[0] = (ranks[0] - share * len(data)) / (2 * max(share, 1 - share))
        return total
    total[:] = np.diff(np.concatenate([[0], ranks, [len(data)]])) * (0.5 if program.laplace else 1.0)
    return total


def run(case: Case, q: Sequence[float], budget: PublicBudget, rng: np.random.Generator) -> Run:
    """One search, its noise from ``rng``."""
    program = program_for(case, q, budget)
    state = program.init(public_of(case, int(rng.integers(2**32))))
    while not state.done:
        query = program.query(state)
        std = program.schedule.noise.std(int(query.price)) * (0.5 if program.laplace else 1.0)
        size = program.edges + 1
        if program.laplace:  # two servers, each the whole scale: the variance of each is half of the total's
            noise = rng.laplace(0.0, std / 2, size) + rng.laplace(0.0, std / 2, size)
        else:
            noise = rng.normal(0.0, std, size)
        state = program.reduce_in_aggregator(exact_total(program, case.data, query) + noise, state)
    if int(state.asked[:, 0].sum()) > PARTS:
        raise RuntimeError("the search spent more than it has")  # a bug: servers would have refused
    answers = quantile_answers(program, state, level=0.95)
    return Run(
        indices=tuple(a.index for a in answers),
        errors=tuple(rank_error(case.data, a) for a in answers),
        rounds=int(state.rounds),
        held=tuple(None if a.interval is None else _holds(case.data, a) for a in answers),
    )


def rank_error(data: NDArray[np.int64], answer: QuantileAnswer) -> float:
    """How far the target rank is from the ranks that the answered value has."""
    wanted = answer.q * len(data)
    if answer.index is None:
        return math.nan
    below, upto = np.searchsorted(data, answer.index), np.searchsorted(data, answer.index, side="right")
    return max(0.0, below - wanted, wanted - upto)


def _holds(data: NDArray[np.int64], answer: QuantileAnswer) -> bool:
    """Whether some value in the interval has the target rank."""
    low, high = answer.interval or (0, 0)
    wanted = answer.q * len(data)
    return bool(np.searchsorted(data, int(low)) <= wanted <= np.searchsorted(data, int(high), side="right"))


def central_exponential(case: Case, q: float, epsilon: float) -> float:
    """Expected rank error of the exponential mechanism at a trusted curator, replace-one."""
    return expected_rank_error(case.data, case.size, q, epsilon)
