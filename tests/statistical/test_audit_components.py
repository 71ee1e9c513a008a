"""The ε audit of principal components: the rounds together stay below the claim, planted bugs do not.

One run of the whole study is its mean round and its scatter round, whose sums the honest server's noise covers
(audit_rounds). 20,000 runs a database, α = 1e-4. Planted: spectral instead of Frobenius calibration, the smaller
variance on the diagonal too, a mean that nobody charged.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import audit_rounds
import numpy as np
import pytest
from audit_bounds import Bound
from audit_rounds import times, told
from numpy.typing import NDArray
from tests.claims import servers_claim

from tallystick.algorithms.components.design import design_pca, design_truncated_svd
from tallystick.algorithms.components.settings import component_settings
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.program import Public
from tallystick.privacy.contribution import total
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.sum_plan import SumPlan

EPSILON, DELTA, RUNS = 2.0, 0.03, 20_000
Tamper = Callable[[SumPlan], SumPlan]


def planned(neighbours: str, mechanism: str = "gaussian", **own: Any) -> tuple[Any, SumPlan, Public]:
    public = Public(
        features=("a", "b"),
        records=20,
        units=(("number", 0.0, 1.0, 0.0),) * 2,
        blocks=(("a", 0, 1, "number", 1), ("b", 1, 2, "number", 1)),
    )
    gaussian = mechanism == "gaussian"
    budget = PublicBudget(
        mechanism=mechanism,
        rho=float(gaussian_rho(EPSILON, DELTA)) if gaussian else np.inf,
        epsilon=EPSILON,
        neighbours=neighbours,
        variance_factor=2.0,
    )
    make = design_truncated_svd if own.pop("svd", False) else design_pca
    design = make(public, budget, component_settings({"n_components": 1, **own}))
    claim = servers_claim(
        epsilon=EPSILON,
        delta=DELTA if gaussian else 0.0,
        neighbours=neighbours,
        mechanism=mechanism,
        rounds=design.rounds,
        records=20,
    )
    return design, design.plan(claim), public


def vectors(design: Any, plan: SumPlan, public: Public, record: Any) -> list[NDArray[np.int64]]:
    """What a record adds to each round (nothing, if there is none); later rounds at the state that zeros give."""
    program = design.program
    rows = np.zeros((0, 2)) if record is None else np.array([record], dtype=float)
    state, out = program.init(public), []
    for r in plan.rounds:
        out.append(total(program.map_block(program.prepare(rows, None), program.query(state)), r.grid))
        empty = np.zeros(r.grid.size)
        state = program.reduce_in_aggregator(empty, state)._replace(mean=np.zeros(2), radius=1.0)
    return out


def worst(design: Any, plan: SumPlan, public: Public) -> tuple[Any, Any]:
    """Of a small domain, the neighbours that the claimed noise hides least."""
    corner = [(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0)]
    added = plan.claim.neighbours == "add-remove"
    pairs = [(None, a) for a in corner] if added else [(a, b) for a in corner for b in corner if a < b]
    return max(
        pairs,
        key=lambda pair: told(plan, (vectors(design, plan, public, pair[0]), vectors(design, plan, public, pair[1]))),
    )


def audit(
    neighbours: str, *, mechanism: str = "gaussian", tamper: Tamper | None = None, runs: int = RUNS, **own: Any
) -> Bound:
    design, claimed, public = planned(neighbours, mechanism, **own)
    plan = claimed if tamper is None else tamper(claimed)
    pair = worst(design, claimed, public)
    plain = (vectors(design, claimed, public, pair[0]), vectors(design, claimed, public, pair[1]))
    bound = audit_rounds.audit(claimed, plain, runs=runs, delta=DELTA, drawn=plan)
    print(f"{neighbours} {mechanism} {own}: {pair} eps >= {bound.epsilon:.3f}")
    return bound


CASES = [("replace-one", "gaussian", {}), ("replace-one", "gaussian", {"noise": "equal"}),
         ("add-remove", "gaussian", {}), ("replace-one", "laplace", {}),
         ("replace-one", "gaussian", {"columns": "uneven"})]  # fmt: skip


@pytest.mark.parametrize(("neighbours", "mechanism", "own"), CASES, ids=str)
def test_the_claim_is_not_refuted(neighbours: str, mechanism: str, own: dict[str, Any]) -> None:
    bound = audit(neighbours, mechanism=mechanism, **own)
    assert 0.5 < bound.epsilon < EPSILON


@pytest.mark.audit
@pytest.mark.parametrize(("neighbours", "mechanism", "own"), CASES, ids=str)
def test_the_claim_is_not_refuted_by_many_runs(neighbours: str, mechanism: str, own: dict[str, Any]) -> None:
    assert audit(neighbours, mechanism=mechanism, runs=400_000, **own).epsilon < EPSILON


def test_spectral_calibration_is_flagged() -> None:
    """Δ = 1 where √2 is right: half of the variance everywhere in the scatter."""
    tamper = times(Fraction(1, 2), lambda name: name.startswith("scatter"))
    assert audit("replace-one", svd=True, rows="unit").epsilon < EPSILON
    assert audit("replace-one", tamper=tamper, runs=6 * RUNS, svd=True, rows="unit").epsilon > EPSILON


def test_the_smaller_variance_on_the_diagonal_is_flagged() -> None:
    tamper = times(Fraction(1, 2), lambda name: name == "scatter_diagonal")
    assert audit("replace-one", tamper=tamper, runs=6 * RUNS, svd=True, rows="unit").epsilon > EPSILON


def test_a_mean_that_nobody_charged_is_flagged() -> None:
    """Each round noised as if it had the whole budget to itself; under add-remove one record is at the end of both."""

    def tamper(plan: SumPlan) -> SumPlan:
        for name, share in plan.details["rounds"].items():
            plan = times(Fraction(share).limit_denominator(1000), lambda group, name=name: group.startswith(name))(plan)
        return plan

    assert audit("add-remove", tamper=tamper, runs=6 * RUNS, rows="unit").epsilon > EPSILON
