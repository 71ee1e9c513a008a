"""Local programs driven by hand: learners in a list, exact totals, no protocol around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import LocalProgram
from tallystick.algorithms.program import Public
from tallystick.privacy.client_vectors import FRACTION_BITS

Parts = list[tuple[NDArray[np.float64], NDArray[np.float64]]]


def public_of(records: int, columns: int, classes: int = 2) -> Public:
    names = tuple(f"x{i}" for i in range(columns))
    labels = tuple(str(i) for i in range(classes))
    return Public(features=names, records=records, target="y", classes=labels, max_l2_squared=float(columns))


def dealt(features: NDArray[np.float64], target: NDArray[np.float64], learners: int) -> Parts:
    return [(np.ascontiguousarray(features[m::learners]), target[m::learners]) for m in range(learners)]


def run(program: LocalProgram, public: Public, parts: Parts, rounds: int) -> list[Any]:
    """All states, until the program says it is finished."""
    prepared = [program.prepare(x, y) for x, y in parts]
    memories = [program.start_in_client(p) for p in prepared]
    states: list[Any] = []
    state = program.init(public)
    for _ in range(rounds):
        steps = [program.step_in_client(p, program.query(state), m) for p, m in zip(prepared, memories)]
        memories = [memory for _, memory in steps]
        total = np.sum([vector for vector, _ in steps], axis=0)
        state = program.reduce_in_aggregator(np.ldexp(total.astype(np.float64), -FRACTION_BITS), state)
        states.append(state)
        if program.finished(state):
            break
    return states


def two_clouds(records: int, columns: int, seed: int = 0, apart: float = 0.35) -> tuple[Any, Any]:
    """Overlapping classes within [-1, 1], the bias not at 0."""
    rng = np.random.default_rng(seed)
    target = (rng.random(records) < 0.6).astype(np.float64)
    middle = apart * (2 * target[:, None] - 1) * np.linspace(1, 0.2, columns) + 0.2
    return np.clip(middle + 0.35 * rng.normal(size=(records, columns)), -1, 1), target
