"""Run a designed block program on one client's records, without servers: exact totals in, states out.

The noise is an argument (none by default), so a test can inject the very same noise into an oracle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.claims import servers_claim

from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.program import BlockProgram, Public, pack_state, unpack_state
from tallystick.crypto.field import to_real
from tallystick.privacy.contribution import total
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.plan import Plan
from tallystick.privacy.round_plan import RoundPlan
from tallystick.privacy.sum_plan import make_plan

__all__ = ["budget_of", "encodable", "mixed", "numbers", "plan_of", "random_records", "run", "walk"]

Noise = Callable[[int, RoundPlan], NDArray[np.int64]]


def numbers(count: int, *, records: int, classes: Sequence[str | float] = ("no", "yes")) -> Public:
    """The public facts of ``count`` numbers in [-1, 1] and a category target."""
    return Public(
        features=tuple(f"x{i}" for i in range(count)),
        records=records,
        target="y",
        classes=tuple(classes),
        max_l2_squared=float(count),
        max_l1=float(count),
        blocks=tuple((f"x{i}", i, i + 1, "number", 1) for i in range(count)),
    )


def mixed(*, records: int, classes: Sequence[str | float] = ("no", "yes")) -> Public:
    """A column of every kind: one-hot, items (at most 2 of 4), a lone indicator, a number, one that may be missing."""
    blocks = (
        ("color", 0, 3, "onehot", 1),
        ("drugs", 3, 7, "items", 2),
        ("flag", 7, 8, "onehot", 1),
        ("age", 8, 9, "number", 1),
        ("dose", 9, 11, "number", 1),
    )
    return Public(
        features=tuple(f"f{i}" for i in range(11)),
        records=records,
        target="y",
        classes=tuple(classes),
        max_l2_squared=6.0,
        max_l1=6.0,
        blocks=blocks,
    )


def encodable(public: Public, values: Sequence[float]) -> list[NDArray[np.float64]]:
    """Every record the layout can encode, numbers taken from ``values``: unknown categories are zeros, a missing number
    is 0 with its mark at 1."""
    per_block: list[list[list[float]]] = []
    for _, start, stop, kind, ones in public.blocks:
        k = stop - start
        if kind == "number":
            cells = [[v] + [0.0] * (k - 1) for v in values] + ([[0.0, 1.0]] if k == 2 else [])
        else:
            chosen = [c for size in range(min(ones, k) + 1) for c in itertools.combinations(range(k), size)]
            cells = [[float(j in c) for j in range(k)] for c in chosen]
        per_block.append(cells)
    return [np.array([x for part in parts for x in part]) for parts in itertools.product(*per_block)]


def random_records(
    public: Public, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Encodable records with every oddity, and class indices."""
    values = [-1.0, 1.0, 0.0, *rng.uniform(-1, 1, 2)]
    out = np.zeros((count, len(public.features)))
    for i in range(count):
        for _, start, stop, kind, ones in public.blocks:
            k = stop - start
            if kind == "number" and k == 2 and rng.random() < 0.3:
                out[i, start + 1] = 1.0
            elif kind == "number":
                out[i, start] = rng.choice(values) if rng.random() < 0.3 else rng.uniform(-1, 1)
            else:
                out[i, start + rng.permutation(k)[: rng.integers(0, ones + 1)]] = 1.0
    return out, rng.integers(0, max(1, len(public.classes)), count).astype(float)


def budget_of(
    mechanism: str, epsilon: float = 1.0, *, neighbours: str = "replace-one", person: int = 1
) -> PublicBudget:
    """As the engine makes it for two servers, one of them curious."""
    gaussian = mechanism == "gaussian"
    return PublicBudget(
        mechanism=mechanism,
        rho=float(gaussian_rho(epsilon, 1e-6)) if gaussian else math.inf,
        epsilon=epsilon if mechanism != "none" else math.inf,
        neighbours=neighbours,
        variance_factor=2.0,
        person_factor=person,
    )


def plan_of(design: SumDesign, budget: PublicBudget, records: int, *, max_records: int = 1) -> Plan:
    """The plan an engine would make of the design."""
    claim = servers_claim(
        epsilon=budget.epsilon if budget.mechanism != "none" else 1.0,
        delta=1e-6 if budget.mechanism == "gaussian" else 0.0,
        neighbours=budget.neighbours,
        mechanism=budget.mechanism,
        rounds=design.rounds,
        servers=2,
        colluding=1,
        min_clients=3,
        records=records,
        unit="person" if max_records > 1 else "record",
        max_records=max_records,
        max_institutions=1,
        shares=(1.0,),
        allow_not_private=True,
    )
    return make_plan(claim, design.groups, fraction_bits=design.fraction_bits, weights=design.weights)


def walk(
    design: SumDesign,
    plan: Plan,
    public: Public,
    features: NDArray[np.float64],
    target: NDArray[np.float64],
    noise: Noise | None = None,
) -> Iterator[tuple[RoundPlan, Any, Any]]:
    """Every round as (its plan, the state clients mapped at, the state after it)."""
    program = design.program
    if not isinstance(program, BlockProgram):
        raise TypeError("not a block program")
    prepared = program.prepare(features, target)
    state = program.init(public)
    template = program.query(state)
    for number, round_plan in enumerate(plan.rounds, start=1):
        query = unpack_state(pack_state(program.query(state)), template)
        values = total(program.map_block(prepared, query), round_plan.grid)
        if noise is not None:
            values = values + noise(number, round_plan)
        after = program.reduce_in_aggregator(to_real(values, round_plan.grid.fraction_bits), state)
        yield round_plan, state, after
        state = after


def run(
    design: SumDesign,
    plan: Plan,
    public: Public,
    features: NDArray[np.float64],
    target: NDArray[np.float64],
    noise: Noise | None = None,
) -> Any:
    """The final state."""
    return list(walk(design, plan, public, features, target, noise))[-1][2]
