"""The split of a round's budget over its groups: no other one has less error."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from block_runs import budget_of, plan_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.algorithms.budget_split import group_sensitivity, least_error, split_note
from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import Program
from tallystick.privacy.grid import Group

GROUPS = (
    Group(name="a", size=100, bound=2.0, nonnegative=True),
    Group(name="b", size=7, bound=3.0),
    Group(name="c", size=1, bound=0.5),
)


def error(groups: tuple[Group, ...], mechanism: str, weights: dict[str, float], neighbours: str) -> float:
    """The weighted sum of variances by the plan itself, not by the formula under test."""
    budget = budget_of(mechanism, neighbours=neighbours)
    plan = plan_of(SumDesign(program=Program(), groups=(groups,)), budget, 1000)
    return sum(weights[g.name] * g.size * plan.rounds[0].std_of(g.name) ** 2 for g in groups)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.1, "b": 5.0, "c": 30.0}])
def test_no_other_split_has_less_error(mechanism: str, neighbours: str, weights: dict[str, float]) -> None:
    best = least_error(GROUPS, budget_of(mechanism, neighbours=neighbours), weights)
    assert sum(g.share for g in best) == pytest.approx(1)
    least = error(best, mechanism, weights, neighbours)
    steps = [i / 9 for i in range(1, 9)]
    for a, b in itertools.product(steps, steps):
        if a + b < 0.99:
            other = tuple(replace(g, share=s) for g, s in zip(GROUPS, (a, b, 1 - a - b)))
            assert least <= error(other, mechanism, weights, neighbours) * (1 + 1e-6)


@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from(["replace-one", "add-remove"]),
    st.booleans(),
    st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=40)
def test_the_sensitivity_is_the_plans(mechanism: str, neighbours: str, nonnegative: bool, bound: float) -> None:
    group = Group(name="g", size=3, bound=bound, nonnegative=nonnegative)
    budget = budget_of(mechanism, neighbours=neighbours)
    plan = plan_of(SumDesign(program=Program(), groups=((group,),)), budget, 1000).rounds[0]
    assert group_sensitivity(group, budget) == pytest.approx(plan.noise[0].sensitivity / plan.grid.scale, rel=1e-6)


def test_a_split_as_one_gaussian_on_the_joined_vector_is_no_better() -> None:
    """The claim of the module's head: Σ (m^½ Δ)² either way (groups of the general kind)."""
    groups = tuple(replace(g, nonnegative=False) for g in GROUPS)
    budget = budget_of("gaussian")
    split = sum(
        g.size * group_sensitivity(g, budget) ** 2 / (2 * budget.rho * g.share) for g in least_error(groups, budget)
    )
    joined = sum(math.sqrt(g.size) * group_sensitivity(g, budget) for g in groups) ** 2 / (2 * budget.rho)
    assert split == pytest.approx(joined)


def test_the_note_names_groups_shares_and_reason() -> None:
    assert split_note(GROUPS[:2], why="because") == "split of the budget over groups: a 1, b 1 (because)"
