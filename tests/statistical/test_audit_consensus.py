"""The ε audit of private consensus: its own learners and plan, the product's noise, and the bugs it would show.

Three learners with a few records each; one record of one learner is replaced, or (add-remove) gone, which moves the
weight of that learner's other records too. Every run goes through all rounds: the
noisy sum of a round makes the z of the next, as in a study. The attacker is one of the two servers and takes its own
noise off, so that only the other one's hides the record. The statistic is the log-likelihood ratio of all sums
together, for which both databases are stepped along the same z's: no attacker does better. Claimed: ε = 2, δ = 0.03.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audit_bounds import Bound, Outputs, find_bound

from tallystick.algorithms.consensus_svm.design import design_consensus_svc
from tallystick.algorithms.consensus_svm.settings import consensus_settings
from tallystick.algorithms.program import Public
from tallystick.crypto.prg import AesStream
from tallystick.engines.planning import plan_study, public_budget
from tallystick.privacy.mechanisms.discrete_gaussian import sample
from tallystick.study import Study

pytestmark = pytest.mark.audit

ALPHA, EPSILON, DELTA = 1e-4, 2.0, 0.03
RUNS = 6_000
PUBLIC = Public(features=("a", "b"), records=20, target="y", classes=("n", "y"), max_l2_squared=2.0)


def study(neighbours: str = "replace-one") -> Study:
    return Study.from_dict(
        {
            "study": {"name": "audit", "program": "consensus_svc"},
            "privacy": {"epsilon": EPSILON, "delta": DELTA, "neighbours": neighbours},
            "trust": {"servers": 2, "colluding": 1},
            "data": {"records": 20},
        }
    )


def designed(way: str, neighbours: str) -> Any:
    settings = consensus_settings(
        {"privacy": way, "C": 0.25, **({"rho": 2.0, "max_iter": 2} if way == "consensus" else {})}
    )
    return design_consensus_svc(PUBLIC, public_budget(study(neighbours)), settings)


def databases(neighbours: str) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(5)
    parts = [(rng.uniform(-1, 1, (3, 2)), rng.integers(0, 2, 3).astype(float)) for _ in range(2)]
    if neighbours == "add-remove":
        two = (np.array([[0.1, 0.1], [1.0, 1.0]]), np.array([0.0, 1.0]))
        return [*parts, two], [*parts, (two[0][:1], two[1][:1])]
    common = (np.array([[1.0, 1.0]]), np.array([1.0]))
    return [*parts, common], [*parts, (common[0], 1 - common[1])]


def outputs(way: str, shrink: float, which: int, runs: int = RUNS, neighbours: str = "replace-one") -> Outputs:
    """``shrink`` divides the sensitivities the noise is made for: 1, or a planted bug."""
    design = designed(way, neighbours)
    planned = replace(design, sensitivities=tuple(s / shrink for s in design.sensitivities))
    plan: Any = plan_study(study(neighbours), planned, allow_not_private=False)
    program, (truth, other) = design.program, databases(neighbours)[:: 1 if which == 0 else -1]
    own = [[program.prepare(*part) for part in parts] for parts in (truth, other)]
    source = AesStream(bytes([which, round(shrink)] * 16), f"{way} {neighbours}".encode())
    draws = [sample(r.noise[0].parameter, runs * r.grid.size, source).reshape(runs, -1) for r in plan.rounds]
    statistics = np.zeros((runs, 1))
    low = np.zeros(runs, dtype=np.int64)
    for run in range(runs):
        state = program.init(PUBLIC)
        memories = [[program.start_in_client(p) for p in parts] for parts in own]
        for number, r in enumerate(plan.rounds):
            sums = []
            for side in (0, 1):
                stepped = [
                    program.step_in_client(p, program.query(state), m) for p, m in zip(own[side], memories[side])
                ]
                memories[side] = [memory for _, memory in stepped]
                sums.append(np.sum([vector for vector, _ in stepped], axis=0))
            total = sums[0] + draws[number][run]
            variance = r.noise[0].variance
            apart = (sums[1] - sums[0]).astype(float)
            ratio = float(apart @ (2 * (total - sums[0]).astype(float) - apart)) / (2 * variance)  # towards the other
            statistics[run, 0] += ratio if which == 0 else -ratio
            low[run] = total[-1] & 63
            state = program.reduce_in_aggregator(np.ldexp(total.astype(float), -r.grid.fraction_bits), state)
    return Outputs(statistics=statistics, low=low, off_grid=np.zeros(runs, dtype=bool))


def audited(way: str, shrink: float = 1.0, runs: int = RUNS, neighbours: str = "replace-one") -> Bound:
    made = [outputs(way, shrink, which, runs, neighbours) for which in (0, 1)]
    return find_bound(*made, delta=DELTA, alpha=ALPHA)


RELATIONS = pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])


@RELATIONS
@pytest.mark.parametrize(("way", "least"), [("consensus", 0.0), ("output", 0.5)])
def test_no_attacker_sees_more_than_was_promised(way: str, least: float, neighbours: str) -> None:
    """And it sees something; of the consensus little: a record moves later sums far less than they are paid for."""
    found = audited(way, neighbours=neighbours)
    assert least < found.epsilon <= EPSILON


@RELATIONS
@pytest.mark.parametrize("way", ["consensus", "output"])
def test_planted_noise_for_a_mean_over_the_records_is_seen(way: str, neighbours: str) -> None:
    """A sensitivity divided by the records of the study, as if their mean were released."""
    assert audited(way, shrink=20.0, runs=2_000, neighbours=neighbours).epsilon > EPSILON
