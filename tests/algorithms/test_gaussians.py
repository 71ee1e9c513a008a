"""Naive Bayes and mixtures from moments: exact sums, row by row, within their sensitivities; sensible in noise."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, numbers, plan_of, random_records, run, walk
from numpy.typing import NDArray
from row_independence import RowsDependError, check_row_independence
from sklearn.naive_bayes import GaussianNB as ScikitBayes

from tallystick.algorithms.gaussians.diagonal import Gaussians, from_moments, log_joint, moments_of
from tallystick.algorithms.gaussians.mixture import MixtureProgram, design_mixture, mixture_settings
from tallystick.algorithms.gaussians.naive_bayes import design_naive_bayes
from tallystick.algorithms.linear.moments import ColumnShapes
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Contribution, total


def designed(kind: str, public: Public, mechanism: str, **more: Any) -> Any:
    budget = budget_of(mechanism, **more)
    if kind == "mixture":
        return design_mixture(public, budget, mixture_settings({"n_components": 3, "rounds": 2})), budget
    return design_naive_bayes({}, public, budget), budget


CASES = list(itertools.product(("bayes", "mixture"), ("gaussian", "laplace"), ("mixed", "numbers")))


@pytest.mark.parametrize(("kind", "mechanism", "columns"), CASES)
def test_rows_do_not_depend_on_each_other_and_move_sums_by_what_the_plan_says(
    kind: str, mechanism: str, columns: str
) -> None:
    public = mixed(records=40) if columns == "mixed" else numbers(4, records=40)
    design, budget = designed(kind, public, mechanism)
    features, target = random_records(public, 40, np.random.default_rng(3))
    made = list(walk(design, plan_of(design, budget, 40), public, features, target))
    program = design.program
    check_row_independence(program, features, target, [(program.query(before), r.grid) for r, before, _ in made])
    for r, before, _ in made:
        query = program.query(before)
        each = [
            total(program.map_block(program.prepare(x[None], t[None]), query), r.grid).astype(float)
            for x, t in zip(features, target)
        ]
        order = 1 if mechanism == "laplace" else 2
        moved = max(np.linalg.norm(a - b, order) for a, b in itertools.combinations(each, 2))
        assert moved <= r.noise[0].sensitivity


class BlockMean(MixtureProgram):
    """Planted: the probabilities are centred on their block."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        found: Any = super().map_block(prepared, state)
        if state.stage == 0 or not len(found.coefficients):
            return found
        return dataclasses.replace(found, coefficients=found.coefficients - found.coefficients.mean(axis=0))


def test_a_block_mean_is_caught() -> None:
    public = numbers(4, records=40)
    design, budget = designed("mixture", public, "gaussian")
    features, target = random_records(public, 40, np.random.default_rng(3))
    made = list(walk(design, plan_of(design, budget, 40), public, features, target))
    design.program.__class__ = BlockMean
    with pytest.raises(RowsDependError):
        check_row_independence(design.program, features, target, [(made[1][1], made[1][0].grid)])


def three_groups(n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    centres = np.array([[-0.5, 0.0, 0.2, 0.0], [0.5, 0.3, 0.0, 0.1], [0.0, -0.6, -0.4, 0.0]])
    return np.clip(centres[y] + rng.normal(0, 0.15, (n, 4)), -1, 1), y.astype(float)


def test_without_noise_naive_bayes_is_scikit_learns() -> None:
    x, y = three_groups(2000)
    public = numbers(4, records=2000, classes=("a", "b", "c"))
    design, budget = designed("bayes", public, "none")
    found = design.program.model(run(design, plan_of(design, budget, 2000), public, x, y), 0.0)
    plain = ScikitBayes().fit(x, y)
    np.testing.assert_allclose(found.means, plain.theta_, atol=1e-6)
    np.testing.assert_allclose(found.variances, plain.var_, rtol=1e-5)
    np.testing.assert_allclose(found.weights, plain.class_prior_, atol=1e-9)
    assert np.array_equal(log_joint(x, found).argmax(axis=1), plain.predict(x))


def test_without_noise_a_mixture_finds_its_components() -> None:
    x, _ = three_groups(3000)
    public = numbers(4, records=3000)
    budget = budget_of("none")
    design = design_mixture(public, budget, mixture_settings({"n_components": 3, "rounds": 15}))
    state = run(design, plan_of(design, budget, 3000), public, x, np.zeros(3000))
    found = state.means[np.argsort(state.means[:, 0])]
    np.testing.assert_allclose(found[:, :3], [[-0.5, 0, 0.2], [0, -0.6, -0.4], [0.5, 0.3, 0]], atol=0.05)
    assert state.weights.sum() == pytest.approx(1)
    assert design.program.usable(state)


def test_a_part_that_drowns_in_noise_stays_at_its_anchor() -> None:
    shapes = ColumnShapes.of(numbers(2, records=10), l1=False)
    before = Gaussians(np.array([0.5, 0.5]), np.array([[0.1, 0.2], [-0.3, 0.4]]), np.full((2, 2), 0.05))
    anchor = moments_of(before, shapes)
    sums = np.array([[900.0, -900, 900, 900], [900, 900, -900, 900]])
    kept = from_moments(np.array([-20.0, 5.0]), sums, 500.0, 300.0, anchor, shapes)
    np.testing.assert_allclose(kept.means, before.means)
    assert (kept.variances > 0).all()
    moved = from_moments(np.array([1000.0, 1000.0]), anchor * 1000, 1.0, 1.0, anchor * 0.9, shapes)
    np.testing.assert_allclose(moved.means, before.means, atol=0.01)


def test_bad_input_is_refused() -> None:
    with pytest.raises(StudyError, match="a category"):
        design_naive_bayes({}, dataclasses.replace(numbers(2, records=9), classes=()), budget_of("gaussian"))
    with pytest.raises(StudyError, match="3 components of 2"):
        designed("mixture", numbers(2, records=2), "gaussian")
    for wrong in ({"n_components": 0}, {"rounds": 0}, {"seed": -1}, {"n_components": "two"}):
        with pytest.raises(StudyError):
            mixture_settings(wrong)
    public = numbers(2, records=9)
    design, _ = designed("mixture", public, "gaussian")
    state = design.program.init(public)
    prepared = design.program.prepare(np.zeros((1, 2)), None)
    for odd in ({"means": np.full((3, 2), 7.0)}, {"variances": np.zeros((3, 2))}, {"weights": np.full(3, -1.0)}):
        with pytest.raises(RemoteProtocolError):
            design.program.map_block(prepared, state._replace(**odd))
    assert designed("bayes", numbers(2, records=9), "gaussian", epsilon=0.001)[0].hopeless
    assert designed("mixture", numbers(2, records=9), "gaussian", epsilon=0.001)[0].hopeless
