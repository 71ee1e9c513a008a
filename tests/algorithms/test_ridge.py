"""Ridge from sufficient statistics: exact sums, bounded by what the plan says, solved with the noise in mind."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, encodable, mixed, numbers, plan_of, random_records, run
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from row_independence import RowsDependError, check_row_independence
from sklearn.linear_model import Ridge as ScikitRidge

from tallystick.algorithms.linear.ridge import RidgeProgram, design_ridge
from tallystick.algorithms.linear.ridge_solution import solve
from tallystick.algorithms.linear.second_moments import SecondMoments, product_rows
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.engines.client_map import ClientMap, blocks_of
from tallystick.privacy.contribution import Contribution, densify, total, total_by_person

BOUNDS = (10.0, 50.0)


def with_number(public: Public) -> Public:
    return dataclasses.replace(public, classes=(), target_bounds=BOUNDS)


def targets(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.uniform(*BOUNDS, n)


def size_of(vector: NDArray[np.int64], l1: bool) -> float:
    exact = [int(v) for v in vector]
    return float(sum(map(abs, exact))) if l1 else math.sqrt(sum(v * v for v in exact))


# -- the sums ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("public", [mixed(records=60), numbers(4, records=60)], ids=["mixed", "numbers"])
def test_the_summed_coordinates_are_the_matrix(public: Public, l1: bool) -> None:
    """Oracle: Zᵀ Z and Zᵀ t by NumPy; whatever is left out or weighted is put back by ``matrix``."""
    features, _ = random_records(public, 60, np.random.default_rng(1))
    t = np.random.default_rng(2).uniform(-1, 1, 60)
    moments = SecondMoments.of(public, l1=l1)
    bounds = tuple(2 * b for b in moments.longest())  # nothing is weighted down
    indptr, indices, values = product_rows(moments, features, t, bounds)
    size = sum(moments.sizes) + moments.size
    dense = np.zeros((60, size))
    for i in range(60):
        mine = indices[indptr[i] : indptr[i + 1]]
        assert np.all(np.diff(mine) > 0)  # ascending and distinct, as sparse rows must be
        dense[i, mine] = values[indptr[i] : indptr[i + 1]]
    first, second = moments.sizes
    parts = np.split(dense.sum(axis=0), [first, first + second])
    plain, signed, cross = (part * bound for part, bound in zip(parts, bounds))
    z = np.hstack([np.ones((60, 1)), features])
    np.testing.assert_allclose(moments.matrix(plain, signed), z.T @ z, atol=1e-9)
    np.testing.assert_allclose(cross, z.T @ t, atol=1e-9)
    assert np.all(dense[:, :first] >= 0)  # what the first group declares


@pytest.mark.parametrize("l1", [False, True])
def test_no_encodable_record_is_longer_than_the_longest(l1: bool) -> None:
    public = mixed(records=60)
    moments = SecondMoments.of(public, l1=l1)
    longest = moments.longest()
    records = np.array(encodable(public, [-1.0, 0.3, 1.0]))
    indptr, indices, values = product_rows(moments, records, np.ones(len(records)), (1e6, 1e6, 1e6))
    edges = np.cumsum([0, *moments.sizes, moments.size])
    found = np.zeros(3)
    for i in range(len(records)):
        at, v = indices[indptr[i] : indptr[i + 1]], values[indptr[i] : indptr[i + 1]] * 1e6
        for g in range(3):
            mine = v[(at >= edges[g]) & (at < edges[g + 1])]
            found[g] = max(found[g], np.abs(mine).sum() if l1 else math.sqrt((mine**2).sum()))
    assert np.all(found <= np.array(longest) * (1 + 1e-12))
    assert np.all(found >= 0.85 * np.array(longest))  # and not by much: a mark and its number are counted together
    assert np.all(np.array(moments.typical()) <= np.array(longest))


@given(st.integers(0, 10**6), st.sampled_from(["gaussian", "laplace"]), st.booleans())
@settings(deadline=None, max_examples=25)
def test_every_record_is_within_the_bound_of_every_group(seed: int, mechanism: str, wide: bool) -> None:
    public = with_number(mixed(records=60) if wide else numbers(5, records=60))
    rng = np.random.default_rng(seed)
    features, _ = random_records(public, 8, rng)
    design = design_ridge({}, public, budget_of(mechanism))
    plan = plan_of(design, budget_of(mechanism), 60)
    grid = plan.rounds[0].grid
    contribution = design.program.map_block(design.program.prepare(features, targets(8, rng)), 0.0)
    rows = np.rint(densify(contribution, grid) * grid.scale).astype(np.int64)
    starts, stops, rules = grid.edges()
    for row in rows:  # before the platform clips anything: it should have nothing to do
        for g in range(len(starts)):
            assert size_of(row[starts[g] : stops[g]], grid.norm == "l1") <= rules[g, 0]


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_neighbours_move_each_group_within_its_sensitivity(mechanism: str, neighbours: str) -> None:
    """Brute force over every encodable record of a small domain, both relations."""
    blocks = (("c", 0, 2, "onehot", 1), ("x", 2, 4, "number", 1), ("y", 4, 5, "number", 1))
    public = with_number(dataclasses.replace(numbers(5, records=20), blocks=blocks))
    budget = budget_of(mechanism, neighbours=neighbours)
    design = design_ridge({}, public, budget)
    plan = plan_of(design, budget, 20).rounds[0]
    records = np.array(encodable(public, [-1.0, 0.0, 1.0]))
    vectors = [np.zeros(plan.grid.size, dtype=np.int64)] if neighbours == "add-remove" else []
    for record, target in itertools.product(records, BOUNDS):
        prepared = design.program.prepare(record[None, :], np.array([target]))
        vectors.append(total(design.program.map_block(prepared, 0.0), plan.grid))
    starts, stops, _ = plan.grid.edges()
    for g, noise in enumerate(plan.noise):
        parts = np.unique(np.array([v[starts[g] : stops[g]] for v in vectors]), axis=0)
        pairs = itertools.combinations(parts, 2) if neighbours == "replace-one" else ((parts[0] * 0, p) for p in parts)
        worst = max(size_of(a - b, mechanism == "laplace") for a, b in pairs)
        assert 0.55 * noise.sensitivity <= worst <= noise.sensitivity


# -- row independence -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
def test_rows_are_independent_to_the_bit(mechanism: str) -> None:
    public = with_number(mixed(records=60))
    features, _ = random_records(public, 60, np.random.default_rng(4))
    design = design_ridge({}, public, budget_of(mechanism))
    grid = plan_of(design, budget_of(mechanism), 60).rounds[0].grid
    check_row_independence(design.program, features, targets(60, np.random.default_rng(5)), [(0.0, grid)])


class CentredByItsBlock(RidgeProgram):
    """Planted: targets are centred by the mean of the block's own records."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        features, target = prepared
        return super().map_block((features, target - target.mean() if len(target) else target), state)


def test_a_planted_block_mean_is_caught() -> None:
    public = with_number(mixed(records=60))
    features, _ = random_records(public, 60, np.random.default_rng(4))
    design = design_ridge({}, public, budget_of("gaussian"))
    grid = plan_of(design, budget_of("gaussian"), 60).rounds[0].grid
    planted = CentredByItsBlock(public, budget_of("gaussian"), alpha=1.0, fit_intercept=True)
    with pytest.raises(RowsDependError):
        check_row_independence(planted, features, targets(60, np.random.default_rng(5)), [(0.0, grid)])


class _Records:
    def __init__(self, features: Any, target: Any) -> None:
        self.features, self.target = features, target


@pytest.mark.parametrize("persons", [False, True])
def test_blocks_of_records_give_the_bits_of_the_whole(persons: bool) -> None:
    public = with_number(numbers(6, records=200))
    rng = np.random.default_rng(6)
    features, target = rng.uniform(-1, 1, (200, 6)), targets(200, rng)
    codes = rng.integers(0, 60, 200) if persons else None
    budget = budget_of("gaussian", person=2 if persons else 1)
    design = design_ridge({}, public, budget)
    plan = plan_of(design, budget, 200, max_records=2 if persons else 1).rounds[0]
    whole = design.program.map_block(design.program.prepare(features, target), 0.0)
    expected = total(whole, plan.grid) if codes is None else total_by_person(whole, plan.grid, codes)
    design.program.block_records = 23
    client = ClientMap(design.program, _Records(features, target), np.zeros(design.program.size), persons=codes)
    assert len(client._blocks) > 5
    assert np.array_equal(client.contribute(bytes(8), plan), expected)


def test_blocks_keep_persons_together() -> None:
    codes = np.repeat(np.arange(10), 3)
    blocks = [b for b in blocks_of(30, 4, codes) if b is not None]
    assert sorted(np.concatenate(blocks).tolist()) == list(range(30))
    assert all(len(set(codes[a]) & set(codes[b])) == 0 for a, b in itertools.combinations(blocks, 2))
    assert list(blocks_of(30, None, codes)) == [None]
    assert [len(b) for b in blocks_of(10, 4, None) if b is not None] == [4, 4, 2]


# -- the solution -----------------------------------------------------------------------------------------------------


def fit(
    public: Public, features: Any, target: Any, mechanism: str, own: dict[str, Any], noise: Any = None, eps: float = 1.0
) -> tuple[float, NDArray[np.float64]]:
    budget = budget_of(mechanism, eps)
    design = design_ridge(own, public, budget)
    plan = plan_of(design, budget, len(features))
    state = run(design, plan, public, features, target, noise)
    program = design.program
    assert isinstance(program, RidgeProgram)
    std = {n.group.name: plan.rounds[0].std_of(n.group.name) for n in plan.rounds[0].noise}
    return program.model(state, std)


@pytest.mark.parametrize("alpha", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_it_is_scikit_learns(alpha: float, intercept: bool) -> None:
    public = with_number(mixed(records=300))
    rng = np.random.default_rng(7)
    features, _ = random_records(public, 300, rng)
    target = np.clip(30 + 8 * features @ rng.normal(size=features.shape[1]) + rng.normal(0, 2, 300), *BOUNDS)
    own = {"alpha": alpha, "fit_intercept": intercept}
    if not intercept:
        target = target - 30 + 0.0
        public = dataclasses.replace(public, target_bounds=(-20.0, 20.0))
    b, w = fit(public, features, target, "none", own)
    best = ScikitRidge(alpha=alpha, fit_intercept=intercept).fit(features, target)
    np.testing.assert_allclose(w, best.coef_, atol=1e-5)
    assert b == pytest.approx(best.intercept_, abs=1e-5)


def test_weighting_long_records_down_keeps_the_linear_model() -> None:
    """The weight depends on the columns alone, so a true linear model is found all the same."""
    n = 20_000
    public = with_number(numbers(4, records=n))
    rng = np.random.default_rng(8)
    features = rng.choice([-1.0, 1.0], (n, 4)) * rng.uniform(0.5, 1, (n, 4))  # longer than uniform ones
    truth = np.array([3.0, -2.0, 1.0, 0.0])
    target = 30 + features @ truth + rng.normal(0, 1, n)
    design = design_ridge({}, public, budget_of("gaussian", 0.2))
    assert design.details["records_weighted_down"]
    b, w = fit(public, features, target, "gaussian", {"alpha": 0.0})  # planned for noise, none added
    np.testing.assert_allclose(w, truth, atol=0.1)
    assert b == pytest.approx(30, abs=0.1)


def _problem(seed: int, n: int = 3000, d: int = 12) -> Any:
    rng = np.random.default_rng(seed)
    public = with_number(numbers(d, records=n))
    features = np.clip(rng.normal(0, 0.4, (n, d)), -1, 1)
    w = rng.normal(0, 20 / math.sqrt(d), d)
    target = np.clip(30 + features @ w + rng.normal(0, 2, n), *BOUNDS)
    return public, features, target


def draws(seed: int) -> Any:
    rng = np.random.default_rng(seed)

    def noise(_: int, plan: Any) -> NDArray[np.int64]:
        parts = [rng.normal(0, plan.std_of(x.group.name) * plan.grid.scale, x.group.size) for x in plan.noise]
        return np.rint(np.concatenate(parts)).astype(np.int64)

    return noise


def _r2(public: Any, features: Any, target: Any, b: float, w: Any) -> float:
    return float(1 - ((target - b - features @ w) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def test_accuracy_rises_with_epsilon_and_never_explodes() -> None:
    scores = []
    for eps in (0.05, 0.5, 5.0, 50.0):
        rounds = []
        for seed in range(6):
            public, features, target = _problem(seed)
            rounds.append(
                _r2(public, features, target, *fit(public, features, target, "gaussian", {}, draws(seed), eps))
            )
        scores.append(float(np.mean(rounds)))
    assert scores == sorted(scores)
    assert scores[0] > -0.5  # nothing to learn, and little harm done
    assert scores[-1] > 0.8


def test_the_solution_that_knows_its_noise_beats_the_one_that_does_not() -> None:
    aware, plain = [], []
    for seed in range(6):
        public, features, target = _problem(seed)
        budget = budget_of("gaussian", 0.5)
        design = design_ridge({}, public, budget)
        plan = plan_of(design, budget, len(features))
        state = run(design, plan, public, features, target, draws(seed))
        std = {n.group.name: plan.rounds[0].std_of(n.group.name) for n in plan.rounds[0].noise}
        aware.append(_r2(public, features, target, *design.program.model(state, std)))
        plain.append(_r2(public, features, target, *design.program.model(state, {})))  # told that there is none
    assert np.mean(aware) > np.mean(plain) + 0.2
    assert np.mean(aware) > 0.3


def test_known_variances_are_those_of_the_matrix() -> None:
    moments = SecondMoments.of(mixed(records=60), l1=False)
    rng = np.random.default_rng(9)
    samples = np.array(
        [
            moments.matrix(rng.normal(0, 2.0, moments.sizes[0]), rng.normal(0, 3.0, moments.sizes[1]))
            for _ in range(4000)
        ]
    )
    np.testing.assert_allclose(samples.var(axis=0), moments.variances(4.0, 9.0), rtol=0.12, atol=1e-12)
    np.testing.assert_array_equal(samples[0], samples[0].T)


def test_a_solution_from_a_matrix_that_is_not_positive_is_finite_and_small() -> None:
    moments = SecondMoments.of(numbers(5, records=60), l1=False)
    rng = np.random.default_rng(10)
    for _ in range(20):
        gram = rng.normal(0, 100, (6, 6))
        w = solve(
            moments,
            gram + gram.T,
            rng.normal(0, 100, 6),
            gram_variance=np.full((6, 6), 2e4),
            cross_variance=1e4,
            alpha=0.0,
        )
        assert np.isfinite(w).all()
        assert np.abs(w).max() < 5


@pytest.mark.parametrize("alpha", [-1.0, math.inf, math.nan, "much", True, None])
def test_an_impossible_penalty_is_refused(alpha: Any) -> None:
    with pytest.raises(StudyError, match="alpha"):
        design_ridge({"alpha": alpha}, with_number(numbers(2, records=9)), budget_of("gaussian"))


@pytest.mark.parametrize("word", ["False", "no", 0, None])
def test_a_flag_that_only_python_takes_for_one_is_refused(word: Any) -> None:
    with pytest.raises(StudyError, match="neither true nor false"):
        design_ridge({"fit_intercept": word}, with_number(numbers(2, records=9)), budget_of("gaussian"))


def test_a_category_target_is_refused() -> None:
    with pytest.raises(StudyError, match="needs a number as its target"):
        design_ridge({}, numbers(2, records=9), budget_of("gaussian"))


def test_a_study_of_noise_is_called_hopeless() -> None:
    small, large = (with_number(numbers(30, records=n)) for n in (100, 10**6))
    assert "target × columns" in str(design_ridge({}, small, budget_of("gaussian", 0.05)).hopeless)
    assert design_ridge({}, large, budget_of("gaussian", 1.0)).hopeless is None


def test_nothing_is_weighted_down_where_the_budget_is_ample() -> None:
    public = with_number(numbers(3, records=10**6))
    assert not design_ridge({}, public, budget_of("gaussian", 9.0)).details["records_weighted_down"]
    assert not design_ridge({}, public, budget_of("none")).details["records_weighted_down"]
    assert design_ridge({}, public, budget_of("gaussian", 0.01)).details["records_weighted_down"]
    assert isinstance(design_ridge({}, public, budget_of("none")).program, RidgeProgram)
