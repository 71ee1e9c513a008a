"""Principal components from sums: exact, bounded, row by row; chosen from public facts; ordered by signed value."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, numbers, plan_of, random_records, run, walk
from numpy.typing import NDArray
from row_independence import RowsDependError, check_row_independence

from tallystick.algorithms.components import choices as chosen_by
from tallystick.algorithms.components.basis import bands, cosines
from tallystick.algorithms.components.design import design_pca, design_truncated_svd
from tallystick.algorithms.components.program import ComponentsProgram
from tallystick.algorithms.components.settings import component_settings
from tallystick.algorithms.components.shrinkage import prior_squares, shrunken_mean, shrunken_scatter, shrunken_squares
from tallystick.algorithms.components.spectrum import leading, noise_norm
from tallystick.algorithms.program import Public
from tallystick.core.errors import BoundsError, RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Contribution, densify, total
from tallystick.privacy.outer_products import OuterProducts


def pixels(count: int, *, records: int | None) -> Public:
    """Numbers in [0, 1]: encoded in [−1, 1] around ½, with their zero at −1."""
    return dataclasses.replace(
        numbers(count, records=1), records=records, units=(("number", 0.5, 0.5, 0.0),) * count, target=None, classes=()
    )


def designed(
    public: Public, *, epsilon: float = 1.0, mechanism: str = "gaussian", svd: bool = False, **own: Any
) -> Any:
    budget = budget_of(mechanism, epsilon, **{k: own.pop(k) for k in ("neighbours", "person") if k in own})
    make = design_truncated_svd if svd else design_pca
    return make(public, budget, component_settings(own)), budget


def correlated(n: int, d: int, seed: int = 1) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(0, 0.25, (n, 2)) @ rng.normal(0, 1, (2, d)) + rng.normal(0.2, 0.1, (n, d)), -1, 1)


CASES: dict[str, tuple[Public, dict[str, Any]]] = {
    "dense": (numbers(9, records=40), {"epsilon": 0.5}),
    "uneven": (pixels(9, records=40), {"epsilon": 0.5}),
    "unit rows": (pixels(9, records=40), {"epsilon": 0.5, "rows": "unit"}),
    "clipped": (numbers(9, records=10_000), {"epsilon": 3.0}),
    "longest": (numbers(9, records=10_000_000), {"epsilon": 5.0}),
    "basis": (numbers(9, records=40), {"epsilon": 2.0, "basis": "dct", "shape": [3, 3], "n_components": 1}),
    "squares only": (pixels(9, records=40), {"epsilon": 0.05, "columns": "sparse"}),
    "secret count": (numbers(9, records=40), {"epsilon": 0.5, "neighbours": "add-remove"}),
    "every kind of column": (mixed(records=40), {"epsilon": 0.5}),
    "laplace": (numbers(9, records=40), {"mechanism": "laplace"}),
    "singular vectors": (pixels(9, records=40), {"svd": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_do_not_depend_on_each_other(case: str) -> None:
    public, own = CASES[case]
    design, budget = designed(public, **own)
    plan = plan_of(design, budget, 40)
    features, target = random_records(public, 40, np.random.default_rng(3))
    rounds = [(design.program.query(before), r.grid) for r, before, _ in walk(design, plan, public, features, target)]
    check_row_independence(design.program, features, None, rounds)


class BlockMean(ComponentsProgram):
    """Planted: rows are centred by the mean of their block instead of the released one."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        if len(prepared[0]):
            state = state._replace(mean=self.space.rows(prepared[0]).mean(axis=0))
        return super().map_block(prepared, state)


def test_a_block_mean_is_caught() -> None:
    public = numbers(5, records=30)
    design, budget = designed(public, epsilon=0.5)
    plan = plan_of(design, budget, 30)
    features, target = random_records(public, 30, np.random.default_rng(3))
    states = list(walk(design, plan, public, features, target))
    design.program.__class__ = BlockMean
    with pytest.raises(RowsDependError):
        check_row_independence(
            design.program, features, None, [(design.program.query(states[1][1]), states[1][0].grid)]
        )


@pytest.mark.parametrize("case", CASES)
def test_every_group_moves_by_what_the_plan_says(case: str) -> None:
    """Over pairs of records: the change of each group, products together, is within its sensitivity."""
    public, own = CASES[case]
    design, budget = designed(public, **own)
    features, target = random_records(public, 40, np.random.default_rng(4))
    features[0] = 0.0
    l1 = budget.mechanism == "laplace"
    for r, before, _ in walk(design, plan_of(design, budget, 40), public, features, target):
        query = design.program.query(before)
        each = [total(design.program.map_block(design.program.prepare(x[None], None), query), r.grid) for x in features]
        starts, stops, _ = r.grid.edges()
        pairs = [(a, 0 * a) for a in each] if budget.neighbours == "add-remove" else itertools.combinations(each, 2)
        for a, b in pairs:
            moved = [(a - b)[i:j].astype(float) for i, j in zip(starts, stops)]
            for g, noise in enumerate(r.noise):
                if noise.group.outer == "beside":
                    continue
                own_part = moved[g]
                if noise.group.outer and len(r.grid.outer_groups) > 1:
                    own_part = np.concatenate([moved[g], moved[g + 1] * (1 if l1 else math.sqrt(2))])
                size = np.abs(own_part).sum() if l1 else np.linalg.norm(own_part)
                assert size <= noise.sensitivity * (1 + 1e-12)


def test_without_noise_they_are_the_components_of_the_records() -> None:
    public = numbers(6, records=3000)
    x = correlated(3000, 6)
    design, budget = designed(public, mechanism="none", n_components=6)
    state = run(design, plan_of(design, budget, 3000), public, x, np.zeros(3000))
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    np.testing.assert_allclose(state.shares, values[::-1] / values.sum(), atol=1e-4)
    np.testing.assert_allclose(state.total, values.sum(), rtol=1e-3)
    np.testing.assert_allclose(np.abs(state.components @ vectors[:, ::-1])[:2], np.eye(6)[:2], atol=1e-3)
    np.testing.assert_allclose(design.program.mean_of(state), x.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("case", ["uneven", "basis", "dense", "singular vectors"])
def test_shrinking_selecting_and_normalising_find_the_subspace_without_noise(case: str) -> None:
    public = dataclasses.replace(CASES[case][0], records=3000)
    own = {**CASES[case][1], "epsilon": 0.3, "n_components": 2}
    x = correlated(3000, 9)
    design, budget = designed(public, **own)
    if design.program.choices.scatter == 0:
        raise AssertionError("squares only")
    state = run(design, plan_of(design, budget, 3000), public, x, np.zeros(3000))
    rows = design.program.space.rows(x)
    rows = rows - (rows.mean(axis=0) if design.program.centred else 0.0)
    _, _, best = np.linalg.svd(rows, full_matrices=False)
    held = ((rows @ state.components.T) ** 2).sum() / ((rows @ best[:2].T) ** 2).sum()
    assert held > (0.9 if case == "basis" else 0.97)


def test_the_eigenvalues_are_ordered_by_their_sign() -> None:
    """Planted: by absolute value the largest is −5, which is noise."""
    matrix = np.diag([1.0, -5.0, 3.0])
    values, rows = leading(matrix, 2)
    assert values.tolist() == [3.0, 1.0]
    assert np.abs(rows).argmax(axis=1).tolist() == [2, 0]
    by_size = np.argsort(-np.abs(np.linalg.eigvalsh(matrix)))
    assert np.linalg.eigvalsh(matrix)[by_size[0]] == -5.0


def test_signs_are_settled() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(5, 5))
    _, rows = leading(a @ a.T, 5)
    assert all(row[np.abs(row).argmax()] > 0 for row in rows)


def test_negative_eigenvalues_explain_nothing() -> None:
    public = numbers(4, records=50)
    design, budget = designed(public, epsilon=0.01, n_components=4)
    rng = np.random.default_rng(1)

    def noise(_: int, r: Any) -> NDArray[np.int64]:
        return np.concatenate([rng.normal(0, math.sqrt(2 * n.variance), n.group.size) for n in r.noise]).astype(
            np.int64
        )

    state = run(design, plan_of(design, budget, 50), public, correlated(50, 4), np.zeros(50), noise)
    assert (state.shares >= 0).all()
    assert state.shares.sum() <= 1 + 1e-12
    assert state.shares[-1] == 0


# -- choices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("public", "own", "stages", "bounded"),
    [
        (numbers(20, records=500), {"epsilon": 0.5}, ("mean", "scatter"), "unit"),
        (pixels(20, records=500), {"epsilon": 0.5}, ("mean", "squares", "scatter"), "unit"),
        (pixels(200, records=500), {"epsilon": 0.1, "columns": "sparse"}, ("squares",), "unit"),
        (pixels(200, records=500), {"epsilon": 0.1, "basis": "dct"}, ("mean", "squares"), "unit"),
        (pixels(200, records=5_000), {"epsilon": 1.0, "basis": "dct"}, ("mean", "squares", "scatter"), "unit"),
        (numbers(5, records=10_000), {"epsilon": 1.0}, ("mean", "scatter"), "clip"),
        (numbers(5, records=10_000_000), {"epsilon": 5.0}, ("mean", "scatter"), "longest"),
        (pixels(5, records=500), {"svd": True}, ("squares", "scatter"), "unit"),
        (numbers(5, records=500), {"svd": True}, ("scatter",), "unit"),
    ],
)
def test_the_plan_chooses_by_public_facts(public: Public, own: Any, stages: Any, bounded: str) -> None:
    design, _ = designed(public, **own)
    assert design.program.choices.stages == stages
    assert design.program.choices.bounded == bounded
    assert sum(design.weights) == pytest.approx(1)
    assert all(sum(g.share for g in groups) == pytest.approx(1) for groups in design.groups)
    assert design.notes[0].startswith("components: noise over signal R")


def test_the_mean_is_paid_for() -> None:
    """Planted: a plan whose first round is left out of the charge claims less than it spends."""
    design, budget = designed(numbers(5, records=500), epsilon=0.5)
    plan = plan_of(design, budget, 500)
    charged = [float(r.rho) for r in plan.rounds]
    assert sum(charged) == pytest.approx(budget.rho, rel=1e-6)
    assert charged[0] == pytest.approx(0.12 * budget.rho, rel=1e-3)
    assert charged[1] < 0.9 * budget.rho  # a scatter calibrated as if the mean were free would have all of it


@pytest.mark.parametrize("case", CASES)
def test_the_program_knows_the_noise_of_its_plan(case: str) -> None:
    public, own = CASES[case]
    design, budget = designed(public, **own)
    plan = plan_of(design, budget, 40)
    for stage, r in zip(design.program.choices.stages, plan.rounds):
        name = "scatter_diagonal" if stage == "scatter" else stage
        assert r.std_of(name) == pytest.approx(design.program.noise(stage), rel=2e-3)
        if stage == "scatter":
            assert r.std_of("scatter") == pytest.approx(design.program.noise_beside(), rel=2e-3)


def test_the_noise_ratio_is_the_spectral_norm_over_records_per_component() -> None:
    public, budget = numbers(300, records=1000), budget_of("gaussian", 1.0)
    s = budget.noise(math.sqrt(2), 1.0)
    rng = np.random.default_rng(0)
    g = np.triu(rng.normal(0, s / math.sqrt(2), (300, 300)), 1)
    g = g + g.T + np.diag(rng.normal(0, s, 300))
    expected = np.linalg.norm(g, 2) / (1000 / 7)
    assert chosen_by.noise_ratio(public, budget, 7) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"n_components": 6}, "6 components of 5"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "whole"),
        ({"top": 3}, "top"),
        ({"basis": "wavelets"}, "basis"),
        ({"noise": "wishart"}, "wishart"),
        ({"columns": "odd"}, "columns"),
        ({"rows": "long"}, "rows"),
        ({"shape": [5]}, "no basis|there is none"),
        ({"basis": "dct", "shape": [2, 2]}, "grid of 5"),
        ({"basis": "dct", "shape": "square"}, "sides of a grid"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(own: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words) as refused:
        designed(numbers(5, records=30), **own)
    assert refused.value.remedy


def test_fewer_records_than_components_and_too_many_columns() -> None:
    with pytest.raises(StudyError, match="3 components of 2 records"):
        designed(numbers(5, records=2), n_components=3)
    with pytest.raises(BoundsError, match="coordinates"):
        designed(numbers(6000, records=10**9))


def test_a_state_of_another_study_is_refused() -> None:
    public = numbers(5, records=30)
    design, _ = designed(public, epsilon=0.5)
    program = design.program
    good = program.query(program.init(public))
    prepared = program.prepare(np.zeros((2, 5)), None)
    for wrong in (
        {"stage": 7.0},
        {"stage": 0.5},
        {"mean": np.full(5, 1e300)},
        {"chosen": np.full(5, -1.0)},
        {"chosen": np.full(5, 0.5)},
        {"radius": 0.0},
    ):
        with pytest.raises(RemoteProtocolError):
            program.map_block(prepared, good._replace(**wrong))


def test_rows_of_norm_zero_and_no_rows_add_zeros() -> None:
    public = pixels(5, records=30)
    design, budget = designed(public, epsilon=0.5)
    plan = plan_of(design, budget, 30)
    zeros = np.full((4, 5), -1.0)  # the encoded zero
    for r, before, _ in walk(design, plan, public, zeros, np.zeros(4)):
        query = design.program.query(before)
        assert not total(design.program.map_block(design.program.prepare(zeros[:0], None), query), r.grid).any()
    state = run(design, plan, public, zeros, np.zeros(4))
    assert np.isfinite(state.components).all()


# -- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(8,), (3, 4), (2, 2, 3), (1,)])
def test_the_cosines_are_a_rotation(sides: tuple[int, ...]) -> None:
    c = cosines(sides)
    np.testing.assert_allclose(c @ c.T, np.eye(math.prod(sides)), atol=1e-12)
    assert len(bands(sides, 4)) == math.prod(sides)
    assert bands(sides, 4)[0] == 0


def test_the_basis_is_scipys() -> None:
    fft = pytest.importorskip("scipy.fft")
    x = np.random.default_rng(0).normal(size=(4, 6))
    np.testing.assert_allclose(cosines((4, 6)) @ x.ravel(), fft.dctn(x, norm="ortho").ravel(), atol=1e-12)


def test_shrinkage_does_nothing_without_noise_and_all_of_it_in_noise() -> None:
    rng = np.random.default_rng(2)
    t = rng.normal(size=20)
    band = np.repeat([0, 1], 10)
    assert np.array_equal(shrunken_mean(t, 0.0, band, nonnegative=False), t)
    assert not shrunken_mean(t, 100.0, band, nonnegative=False).any()
    np.testing.assert_allclose(shrunken_squares(t, 0.0, None), t)
    flat = shrunken_squares(t, 100.0, None)
    assert np.array_equal(np.argsort(flat), np.argsort(t))  # their order is the best guess there is
    assert np.ptp(flat) < 0.1 * np.ptp(t)
    s = rng.normal(size=(20, 20))
    s = s + s.T
    prior = prior_squares(np.abs(t), 20.0)
    assert prior.sum() == pytest.approx(20)
    np.testing.assert_allclose(shrunken_scatter(s, prior, 0.0, 0.0), s)
    off = shrunken_scatter(s, prior, 1e9, 1e9) - np.diag(prior)
    assert np.abs(off).max() < 1e-6


@pytest.mark.parametrize(("columns", "beside"), [(2, 0.5), (30, 0.5), (30, 1.0), (1, 0.0)])
def test_the_noise_norm_is_exceeded_no_more_often_than_it_says(columns: int, beside: float) -> None:
    rng = np.random.default_rng(5)
    limit = noise_norm(columns, 1.0, beside, 0.9)
    beyond = 0
    for _ in range(400):
        g = np.triu(rng.normal(0, math.sqrt(beside), (columns, columns)), 1)
        g = g + g.T + np.diag(rng.normal(0, 1, columns))
        beyond += np.linalg.norm(g, 2) > limit
    assert beyond <= 40


def test_products_are_what_travels_and_only_their_upper_triangle() -> None:
    public = numbers(7, records=40)
    design, budget = designed(public, epsilon=0.5)
    made = list(walk(design, plan_of(design, budget, 40), public, correlated(40, 7), np.zeros(40)))
    r, before, _ = made[-1]
    contribution = design.program.map_block(
        design.program.prepare(correlated(40, 7), None), design.program.query(before)
    )
    assert isinstance(contribution, OuterProducts)
    assert r.grid.size == 7 * 8 // 2
    assert densify(contribution, r.grid).shape == (40, 28)
