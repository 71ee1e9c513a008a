"""A pipeline's rounds: row by row, within their sensitivities, charged once, and what the model is of without noise."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, numbers, plan_of, random_records, run, walk
from numpy.typing import NDArray
from row_independence import RowsDependError, check_row_independence
from sklearn import decomposition
from sklearn.linear_model import LogisticRegression as ScikitLogistic

from tallystick.algorithms.components.program import ComponentsProgram
from tallystick.algorithms.pipelines.design import design_pipeline
from tallystick.algorithms.pipelines.program import PipelineProgram, Projection
from tallystick.algorithms.pipelines.settings import pipeline_settings
from tallystick.algorithms.program import Public, pack_state, unpack_state
from tallystick.core.errors import PrivacyRefused, RemoteProtocolError, StudyError
from tallystick.privacy.contribution import total
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.sensitivity import outer_sensitivity

CASES = {
    "pca, logistic": ("numbers", "gaussian", {"program": "pca"}, {"program": "logistic_regression"}),
    "mixed columns": ("mixed", "gaussian", {"program": "pca"}, {"program": "logistic_regression"}),
    "unit rows, svc": ("numbers", "gaussian", {"program": "pca", "rows": "unit"}, {"program": "linear_svc"}),
    "basis": ("numbers", "gaussian", {"program": "pca", "basis": "dct"}, {"program": "logistic_regression"}),
    "svd, laplace": ("mixed", "laplace", {"program": "truncated_svd"}, {"program": "logistic_regression"}),
    "not standardised": ("numbers", "gaussian", {"program": "pca"}, {"program": "linear_svc", "standardise": False}),
}


def designed(case: str, *, records: int = 40, epsilon: float = 1.0, **more: Any) -> tuple[Any, Any, Public]:
    columns, mechanism, first, second = CASES[case]
    public = mixed(records=records) if columns == "mixed" else numbers(5, records=records, classes=("a", "b", "c"))
    budget = budget_of(mechanism, epsilon)
    steps = [{"n_components": 2, **first}, {"rounds": 3, **second}]
    return design_pipeline(public, budget, pipeline_settings({"steps": steps, **more})), budget, public


@pytest.mark.parametrize("case", CASES)
def test_rows_do_not_depend_on_each_other(case: str) -> None:
    design, budget, public = designed(case)
    features, target = random_records(public, 40, np.random.default_rng(3))
    made = list(walk(design, plan_of(design, budget, 40), public, features, target))
    program = design.program
    check_row_independence(program, features, target, [(program.query(before), r.grid) for r, before, _ in made])


class BlockMean(PipelineProgram):
    """Planted: coordinates are centred on the block that is projected together."""

    def projected(self, features: NDArray[np.float64], projection: Projection) -> NDArray[np.float64]:
        found = super().projected(features, projection)
        return found - found.mean(axis=0) if len(found) else found


def test_a_block_mean_is_caught() -> None:
    design, budget, public = designed("pca, logistic")
    features, target = random_records(public, 40, np.random.default_rng(3))
    made = list(walk(design, plan_of(design, budget, 40), public, features, target))
    design.program.__class__ = BlockMean
    r, before, _ = made[-1]
    with pytest.raises(RowsDependError):
        check_row_independence(design.program, features, target, [(design.program.query(before), r.grid)])


@pytest.mark.parametrize("case", CASES)
def test_every_round_moves_by_what_the_plan_says(case: str) -> None:
    """Brute force: each pair of records, in every round, at states that noise has moved."""
    design, budget, public = designed(case, epsilon=20.0)
    features, target = random_records(public, 24, np.random.default_rng(5))
    plan = plan_of(design, budget, 24)
    rng = np.random.default_rng(1)

    def noise(_: int, r: Any) -> NDArray[np.int64]:
        std = np.concatenate([np.full(n.group.size, np.sqrt(n.variance)) for n in r.noise])
        return np.rint(rng.normal(0, std)).astype(np.int64)

    program, l1 = design.program, budget.mechanism == "laplace"
    for r, before, _ in walk(design, plan, public, features, target, noise):
        query = unpack_state(pack_state(program.query(before)), program.query(before))
        each = np.array(
            [
                total(program.map_block(program.prepare(x[None], t[None]), query), r.grid)
                for x, t in zip(features, target)
            ]
        ).astype(float)
        at = 0
        for n in r.noise:
            own = each[:, at : at + n.group.size] * (np.sqrt(2) if n.group.outer == "beside" and not l1 else 1)
            at += n.group.size
            gaps = own[:, None, :] - own[None, :, :]
            moved = np.abs(gaps).sum(axis=2).max() if l1 else np.sqrt((gaps**2).sum(axis=2).max())
            assert moved <= n.sensitivity, (n.group.name, moved)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", ["auto", 0.1, 0.75])
def test_both_parts_together_cost_the_budget_once(case: str, share: Any) -> None:
    design, budget, public = designed(case, share=share)
    plan: Any = plan_of(design, budget, 40)
    first = design.program.first.rounds
    if budget.mechanism == "laplace":
        costs, whole = [r.epsilon for r in plan.rounds], Fraction(1)
    else:
        costs, whole = [r.rho for r in plan.rounds], gaussian_rho(1.0, 1e-6)
    assert sum(costs) <= whole
    assert float(sum(costs)) == pytest.approx(float(whole), rel=1e-6)
    assert float(sum(costs[:first]) / whole) == pytest.approx(design.details["share"], rel=1e-6)
    assert [p["rounds"] for p in design.details["phases"]] == [first, plan.claim.rounds - first]
    assert public.features != design.program.second_public.features


@pytest.mark.parametrize("case", ["pca, logistic", "basis", "svd, laplace"])
def test_both_programs_know_the_noise_that_is_really_there(case: str) -> None:
    """Shrinkage and descent go by the noise they reckon with: it must be that of the plan, in both parts."""
    design, budget, _ = designed(case)
    plan: Any = plan_of(design, budget, 40)
    first, second = design.program.first, design.program.second
    for at, stage in enumerate(first.choices.stages):
        name = "scatter_diagonal" if stage == "scatter" else stage
        assert plan.rounds[at].std_of(name) == pytest.approx(first.noise(stage), rel=1e-3)
    moments = plan.rounds[first.rounds]
    unit = second.budget.noise(second.budget.sensitivity_factor, 0.1)
    assert moments.std_of("moments") == pytest.approx(unit, rel=1e-3)


def signal(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Six columns of which two directions have most of the spread, and one of these tells the class."""
    rng = np.random.default_rng(2)
    axes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    parts = rng.normal(size=(n, 6)) * np.array([0.3, 0.2, 0.05, 0.03, 0.02, 0.01])
    y = (parts[:, 1] + 0.05 * rng.normal(size=n) > 0).astype(float)
    return np.clip(parts @ axes + 0.1, -1, 1), y


def test_without_noise_it_is_scikit_learns_pipeline() -> None:
    x, y = signal(4000)
    public = numbers(6, records=4000)
    budget = budget_of("none")
    steps = [{"program": "pca", "n_components": 2}, {"program": "logistic_regression", "rounds": 200}]
    design = design_pipeline(public, budget, pipeline_settings({"steps": steps}))
    program = design.program
    state = run(design, plan_of(design, budget, 4000), public, x, y)
    first, second = program.states(state)
    plain = decomposition.PCA(2).fit(x)
    assert np.abs(first.components @ plain.components_.T).diagonal() == pytest.approx([1, 1], abs=1e-4)
    lengths = 3 * np.sqrt(plain.explained_variance_)
    assert program.lengths(first) == pytest.approx(lengths, rel=1e-3)
    intercept, weights = program.second.model(second)
    ours = program.projected(x, program.projection(first)) @ weights[0] + intercept[0] > 0
    theirs = ScikitLogistic(C=1e6).fit(plain.transform(x), y).predict(plain.transform(x))
    assert np.mean(ours == (theirs > 0.5)) > 0.99


def noised(rng: np.random.Generator) -> Any:
    def noise(_: int, r: Any) -> NDArray[np.int64]:
        std = np.concatenate([np.full(n.group.size, np.sqrt(2 * n.variance)) for n in r.noise])
        return np.rint(rng.normal(0, std)).astype(np.int64)

    return noise


def length_ratios(reduction: dict[str, Any], records: int, epsilon: float) -> NDArray[np.float64]:
    """Over 40 draws of the first part's noise: the lengths that coordinates are cut at, over 3 true deviations."""
    x, y = signal(records)
    public, budget = numbers(6, records=records), budget_of("gaussian", epsilon)
    steps = [{"n_components": 2, **reduction}, {"program": "linear_svc", "rounds": 1}]
    design = design_pipeline(public, budget, pipeline_settings({"steps": steps}))
    plan, program, noise = plan_of(design, budget, records), design.program, noised(np.random.default_rng(0))
    rows, ratios = program.first.space.rows(x), []
    for _ in range(40):
        made = zip(range(program.first.rounds), walk(design, plan, public, x, y, noise))
        first, _ = program.states(list(made)[-1][1][2])
        along = (rows - program.first.mean_of(first)) @ first.components.T
        ratios.append(program.lengths(first) / 3 / np.sqrt((along**2).mean(axis=0)))
    return np.array(ratios)


def test_a_components_variance_is_not_its_noisy_eigenvalue() -> None:
    """The length that coordinates are cut at follows the variance along the noisy component."""
    ratios = length_ratios({"program": "truncated_svd", "rows": "unit"}, 3000, 0.1)
    assert 0.7 < np.mean(ratios[:, 0]) < 1.3
    assert ratios.max() < 4


@pytest.mark.parametrize(("records", "epsilon"), [(900, 1.0), (900, 0.3), (4000, 1.0), (20_000, 3.0)])
def test_noise_does_not_make_a_length_so_short_that_all_is_cut(records: int, epsilon: float) -> None:
    ratios = length_ratios({"program": "pca"}, records, epsilon)
    assert np.quantile(ratios, 0.05) > 0.9
    assert ratios.min() > 0.5


def test_planted_a_noisy_mean_square_taken_as_it_came_cuts_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ComponentsProgram, "total_noise", lambda *_: 0.0)
    assert length_ratios({"program": "pca"}, 900, 0.3).min() < 0.1


def test_a_query_of_another_study_is_refused() -> None:
    design, budget, public = designed("pca, logistic")
    features, target = random_records(public, 4, np.random.default_rng(0))
    made = list(walk(design, plan_of(design, budget, 40), public, features, target))
    query = list(design.program.query(made[-1][1]))
    prepared = design.program.prepare(features, target)
    for at in (4, 5):
        odd = list(query)
        odd[at] = odd[at] + 1e300
        with pytest.raises(RemoteProtocolError):
            design.program.map_block(prepared, tuple(odd))


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"steps": "pca"}, "two steps"),
        ({"steps": [{"program": "pca"}]}, "two steps"),
        ({"steps": [{"program": "pca"}, "svc"]}, "two steps"),
        ({"steps": [{"program": "kmeans"}, {"program": "linear_svc"}]}, "can stand here"),
        ({"steps": [{"program": "linear_svc"}, {"program": "pca"}]}, "can stand here"),
        ({"steps": [{"program": "pca", "n_clusters": 2}, {"program": "linear_svc"}]}, "n_clusters"),
        ({"steps": [{"program": "pca", "n_components": 0}, {"program": "linear_svc"}]}, "n_components"),
        ({"share": 1.0}, "part of the budget"),
        ({"share": True}, "part of the budget"),
        ({"share": float("nan")}, "part of the budget"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words) as error:
        pipeline_settings(keywords)
    assert error.value.remedy


def test_rounds_that_would_fill_the_memory_are_refused_before_anything_is_built() -> None:
    """Found by the fuzzer of studies: a plan of 3·10^12 rounds."""
    steps = [{"program": "pca"}, {"program": "linear_svc", "rounds": 2999999999999.9999999}]
    with pytest.raises(PrivacyRefused, match="3000000000000 rounds cannot be run") as error:
        pipeline_settings({"steps": steps})
    assert error.value.rule == "rounds-are-bounded"
    assert pipeline_settings({"steps": [steps[0], {**steps[1], "rounds": 100_000}]}).descent.rounds == 100_000


def test_the_target_is_asked_for_first() -> None:
    public = dataclasses.replace(numbers(3, records=9), classes=())
    with pytest.raises(StudyError, match="a category"):
        design_pipeline(public, budget_of("gaussian"), pipeline_settings({}))


def test_planted_a_scatter_calibrated_by_its_spectral_norm_falls_short() -> None:
    """The brute force above is able to fail: replaced rows e₁, e₂ move the triangle by √2, not by 1."""
    assert outer_sensitivity(1000, "replace-one", l1=False) == pytest.approx(1000 * np.sqrt(2), abs=1)
    design, budget, public = designed("pca, logistic")
    plan: Any = plan_of(design, budget, 40)
    scatter = plan.rounds[design.program.first.rounds - 1]
    query = list(design.program.query(design.program.init(public)))
    query[0] = float(design.program.first.rounds - 1)
    each = []
    for x in np.eye(5)[:2]:
        prepared = design.program.prepare(x[None], np.zeros(1))
        each.append(total(design.program.map_block(prepared, tuple(query)), scatter.grid).astype(float))
    weights = np.concatenate(
        [np.full(n.group.size, np.sqrt(2) if n.group.outer == "beside" else 1) for n in scatter.noise]
    )
    moved = np.linalg.norm((each[0] - each[1]) * weights)
    assert moved > 1.3 * scatter.grid.integer_bounds[-1]
    assert moved <= scatter.noise[-1].sensitivity
