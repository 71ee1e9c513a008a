"""The ε audits of naive Bayes, mixtures and pipelines: their rounds together stay below the claim, planted bugs do not.

Every pair of a small domain is tried, and the one that the claimed noise hides least is audited (audit_rounds).
Planted: noise for a record that is only added where one is replaced; rounds that are each noised as if they had the
whole budget: the steps of a mixture beside its moments, and a pipeline's classifier beside its components.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import audit_rounds
import numpy as np
import pytest
from audit_bounds import Bound
from audit_rounds import Totals, times, told
from tests.claims import servers_claim

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.gaussians.mixture import design_mixture, mixture_settings
from tallystick.algorithms.gaussians.naive_bayes import design_naive_bayes
from tallystick.algorithms.pipelines.design import design_pipeline
from tallystick.algorithms.pipelines.settings import pipeline_settings
from tallystick.algorithms.program import Public
from tallystick.privacy.contribution import total
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.sum_plan import SumPlan

EPSILON, DELTA, RUNS, MANY = 2.0, 0.03, 20_000, 120_000
RECORDS = 20
PIPELINE = {
    "share": 0.5,
    "steps": [
        {"program": "truncated_svd", "n_components": 1, "rows": "unit"},
        {"program": "logistic_regression", "rounds": 1, "standardise": False},
    ],
}


def public(columns: int) -> Public:
    return Public(
        features=("a", "b")[:columns],
        records=RECORDS,
        target="y",
        classes=("no", "yes"),
        max_l2_squared=float(columns),
        max_l1=float(columns),
        units=(("number", 0.0, 1.0, 0.0),) * columns,
        blocks=tuple((name, i, i + 1, "number", 1) for i, name in enumerate(("a", "b")[:columns])),
    )


def designed(kind: str, budget: PublicBudget) -> tuple[Any, Public]:
    facts = public(2 if kind == "pipeline" else 1)
    if kind == "bayes":
        return design_naive_bayes({}, facts, budget), facts
    if kind == "mixture":
        return design_mixture(facts, budget, mixture_settings({"n_components": 2, "rounds": 1})), facts
    return design_pipeline(facts, budget, pipeline_settings(PIPELINE)), facts


def states(kind: str, design: Any, facts: Public) -> list[Any]:
    """A public state for every round: what an aggregator may have released, at which records differ as they can."""
    program = design.program
    start = program.init(facts)
    if kind == "bayes":
        return [start]
    if kind == "mixture":
        apart = {"means": np.array([[-0.9], [0.9]]), "variances": np.full((2, 1), 0.05)}
        return [start, start._replace(stage=1.0, **apart)]
    first, second = program.states(start)
    along = np.array([[1.0, 1.0]]) / np.sqrt(2)  # both axes lie along it, as far as coordinates are not cut
    return [start, (*first._replace(stage=1.0, components=along, shares=np.full(1, 0.02), total=1.0), *second)]


def totals(kind: str, design: Any, plan: SumPlan, facts: Public, record: Any) -> Totals:
    """What a record adds to each round; nothing, if there is none."""
    program = design.program
    rows = np.zeros((0, len(facts.features))) if record is None else np.array([record[:-1]], dtype=float)
    target = np.zeros(0) if record is None else np.array([record[-1]], dtype=float)
    return [
        total(program.map_block(program.prepare(rows, target), program.query(state)), r.grid)
        for state, r in zip(states(kind, design, facts), plan.rounds)
    ]


def audit(kind: str, neighbours: str, mechanism: str = "gaussian", *, runs: int = RUNS, tamper: Any = None) -> Bound:
    gaussian = mechanism == "gaussian"
    budget = PublicBudget(
        mechanism=mechanism,
        rho=float(gaussian_rho(EPSILON, DELTA)) if gaussian else np.inf,
        epsilon=EPSILON,
        neighbours=neighbours,
        variance_factor=2.0,
    )
    design, facts = designed(kind, budget)
    claim = servers_claim(
        epsilon=EPSILON,
        delta=DELTA if gaussian else 0.0,
        neighbours=neighbours,
        mechanism=mechanism,
        rounds=design.rounds,
        records=RECORDS,
    )
    plan = design.plan(claim)
    corner = list(itertools.product(*[(-1.0, 0.0, 1.0)] * len(facts.features), (0.0, 1.0)))
    sums = {one: totals(kind, design, plan, facts, one) for one in [None, *corner]}
    added = neighbours == "add-remove"
    pairs = [(None, a) for a in corner] if added else list(itertools.combinations(corner, 2))
    pair = max(pairs, key=lambda p: told(plan, (sums[p[0]], sums[p[1]])))
    drawn = None if tamper is None else tamper(plan)
    found = audit_rounds.audit(plan, (sums[pair[0]], sums[pair[1]]), runs=runs, delta=DELTA, drawn=drawn)
    print(f"{kind} {neighbours} {mechanism}: {pair} eps >= {found.epsilon:.3f}")
    return found


CASES = [
    ("bayes", "replace-one", "gaussian"),
    ("bayes", "add-remove", "gaussian"),
    ("bayes", "replace-one", "laplace"),
    ("mixture", "replace-one", "gaussian"),
    ("mixture", "add-remove", "gaussian"),
    ("mixture", "replace-one", "laplace"),
    ("pipeline", "replace-one", "gaussian"),
    ("pipeline", "add-remove", "gaussian"),
    ("pipeline", "replace-one", "laplace"),
]


@pytest.mark.parametrize(("kind", "neighbours", "mechanism"), CASES)
def test_the_claim_is_not_refuted(kind: str, neighbours: str, mechanism: str) -> None:
    assert 0.3 < audit(kind, neighbours, mechanism).epsilon < EPSILON


@pytest.mark.audit
@pytest.mark.parametrize(("kind", "neighbours", "mechanism"), CASES)
def test_the_claim_is_not_refuted_by_many_runs(kind: str, neighbours: str, mechanism: str) -> None:
    assert audit(kind, neighbours, mechanism, runs=400_000).epsilon < EPSILON


@pytest.mark.parametrize("kind", ["bayes", "mixture", "pipeline"])
def test_noise_for_a_record_that_is_only_added_is_flagged(kind: str) -> None:
    """Half of the sensitivity, so a quarter of the variance."""
    assert audit(kind, "replace-one", runs=MANY, tamper=times(Fraction(1, 4))).epsilon > EPSILON


def test_a_pipelines_components_that_nobody_charged_are_flagged() -> None:
    """Both halves noised as if each had the whole budget."""
    assert audit("pipeline", "replace-one", runs=MANY).epsilon < EPSILON
    assert audit("pipeline", "replace-one", runs=MANY, tamper=times(Fraction(1, 2))).epsilon > EPSILON


def test_moments_of_a_mixture_that_nobody_charged_are_flagged() -> None:
    """A record at the end of both rounds: the moments' tenth, and the step's nine, each noised as if it were all."""

    def tamper(plan: SumPlan) -> SumPlan:
        return times(Fraction(9, 10), lambda name: name == "components")(
            times(Fraction(1, 10), lambda name: name == "moments")(plan)
        )

    assert audit("mixture", "add-remove", runs=MANY, tamper=tamper).epsilon > EPSILON
