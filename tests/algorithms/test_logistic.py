"""Logistic regression as rounds of sums: row-independent, bounded, and right without noise."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, numbers, plan_of, random_records, run, walk
from numpy.typing import NDArray
from row_independence import RowsDependError, check_row_independence
from sklearn.linear_model import LogisticRegression as ScikitLogisticRegression

import tallystick as ts
import tallystick.algorithms.linear.losses as logistic
from tallystick.algorithms.linear.descent import DescentSettings
from tallystick.algorithms.linear.losses import LogisticProgram
from tallystick.algorithms.linear.moments import moment_vectors
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Contribution, Dense, densify, total, total_by_person

CLASSES = {1: ("a",), 2: ("a", "b"), 3: ("a", "b", "c"), 10: tuple("abcdefghij")}


def noise_of(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda _, plan: np.rint(rng.normal(0, plan.total_std, plan.grid.size) * plan.grid.scale).astype(np.int64)


def rounds_of(public: Public, mechanism: str, settings: DescentSettings, seed: int, epsilon: float = 1.0) -> Any:
    """(design, records, (query, grid) of some rounds) of a noisy run, so that the states are nothing special."""
    records = 60
    budget = budget_of(mechanism, epsilon)
    design = LogisticProgram.design(public, budget, settings)
    features, target = random_records(public, records, np.random.default_rng(seed))
    states = walk(design, plan_of(design, budget, records), public, features, target, noise_of(seed))
    pairs = [(design.program.query(before), plan.grid) for plan, before, _ in states]
    return design, features, target, [pairs[i] for i in sorted({0, 1, 2, len(pairs) // 2, len(pairs) - 1})]


# -- row independence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_rows_are_independent_to_the_bit(mechanism: str, classes: int) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    design, features, target, rounds = rounds_of(public, mechanism, DescentSettings(rounds=8), seed=classes)
    assert [grid.size for _, grid in rounds][:2] == [13, (1 if classes < 3 else 3) * 12]  # both stages are in
    check_row_independence(design.program, features, target, rounds)


def test_rows_are_independent_when_many_are_clipped() -> None:
    public = mixed(records=60)
    settings = DescentSettings(rounds=8, clip=0.05, standardise=False)
    design, features, target, rounds = rounds_of(public, "gaussian", settings, seed=5)
    check_row_independence(design.program, features, target, rounds)


@pytest.mark.parametrize("field", ["shift", "scale", "row_limit", "longest_row"])
def test_rows_kept_from_one_query_are_not_used_for_another(field: str) -> None:
    public = mixed(records=60)
    design, features, target, rounds = rounds_of(public, "gaussian", DescentSettings(rounds=4), seed=1)
    query, grid = rounds[1]
    other = query._replace(**{field: np.asarray(getattr(query, field)) * 0.5})
    kept = design.program.prepare(features, target)
    design.program.map_block(kept, query)
    fresh = design.program.prepare(features, target)
    assert np.array_equal(
        total(design.program.map_block(kept, other), grid), total(design.program.map_block(fresh, other), grid)
    )


class CentredByItsBlock(LogisticProgram):
    """Planted: the gradient's rows are centred by the mean of the block's own records."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        if state.stage > 0:
            prepared = self.prepare(prepared.features - prepared.features.mean(axis=0), prepared.target)
        return super().map_block(prepared, state)


class CentredMomentsByItsBlock(LogisticProgram):
    """Planted: the same in the round of moments."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        if state.stage == 0 and len(prepared.features):
            mine = prepared.features - prepared.features.mean(axis=0)
            return Dense(values=moment_vectors(mine, self.shapes) / self.shapes.moment_bound)
        return super().map_block(prepared, state)


@pytest.mark.parametrize("planted", [CentredByItsBlock, CentredMomentsByItsBlock])
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
def test_a_planted_block_mean_is_caught(planted: type[LogisticProgram]) -> None:
    public = mixed(records=60)
    settings = DescentSettings(rounds=8)
    _, features, target, rounds = rounds_of(public, "gaussian", settings, seed=1)
    program = planted(public, budget_of("gaussian"), settings)
    with pytest.raises(RowsDependError):
        check_row_independence(program, features, target, rounds)


def test_a_planted_float_blas_score_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    public = numbers(61, records=60, classes=CLASSES[3])
    design, features, target, rounds = rounds_of(public, "gaussian", DescentSettings(rounds=8), seed=1)
    check_row_independence(design.program, features, target, rounds)
    monkeypatch.setattr(logistic, "grid_scores", lambda rows, w: np.ldexp(rows.values, -rows.bits) @ w.T)
    with pytest.raises(RowsDependError, match="vectors differ"):
        check_row_independence(design.program, features, target, rounds)


# -- no record moves a total by more than the plan says ---------------------------------------------------------------


def _size(difference: NDArray[np.int64], l1: bool) -> float:
    exact = [int(v) for v in difference]
    return float(sum(map(abs, exact))) if l1 else math.sqrt(sum(v * v for v in exact))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_neighbour_moves_every_total_within_the_planned_sensitivity(mechanism: str, classes: int) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    settings = DescentSettings(rounds=6)
    design, _, _, rounds = rounds_of(public, mechanism, settings, seed=3)
    budget = budget_of(mechanism)
    plan = plan_of(design, budget, 60)
    assert {r.noise[0].sensitivity for r in plan.rounds} == {2 * 2**30}
    rng = np.random.default_rng(classes)
    program = design.program
    for query, grid in rounds:
        # A round's total is a sum over records, so a neighbour moves it by h(new) − h(old), whatever the others are.
        pool, labels = random_records(public, 400, rng)
        prepared = program.prepare(pool, labels)
        vectors = densify(program.map_block(prepared, query), grid)
        signs = rng.choice([-1.0, 1.0], (40, vectors.shape[1]))
        extremes = {int(i) for i in np.argmax(vectors @ signs.T, axis=0)}
        extremes |= {int(i) for i in np.argmin(vectors @ signs.T, axis=0)}
        rest, rest_labels = pool[:2], labels[:2]
        totals = {}
        for i in extremes | set(range(30)):
            data = np.vstack([rest, pool[i : i + 1]])
            label = np.append(rest_labels, labels[i])
            totals[i] = total(program.map_block(program.prepare(data, label), query), grid)
        worst = max(_size(a - b, program.l1) for a in totals.values() for b in totals.values())
        assert worst <= 2 * 2**30
        assert worst >= 0.5 * 2**30  # the search looked at records that matter


def test_the_planned_sensitivity_is_attained() -> None:
    """The same row with the other label, at weights zero: residuals ±½ = ±C on a row as long as R."""
    public = numbers(3, records=50)
    design = LogisticProgram.design(public, budget_of("gaussian"), DescentSettings(standardise=False, rounds=2))
    plan = plan_of(design, budget_of("gaussian"), 50)
    query = design.program.query(design.program.init(public))
    row = np.ones((1, 3))
    a, b = (
        total(design.program.map_block(design.program.prepare(row, np.array([y])), query), plan.rounds[0].grid)
        for y in (0.0, 1.0)
    )
    assert 0.999 * 2**31 <= _size(a - b, False) <= 2**31


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("clip", [0.3, 1.7, 14.0])
def test_a_clip_of_the_users_is_the_bound_on_every_gradient(mechanism: str, classes: int, clip: float) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    settings = DescentSettings(rounds=6, clip=clip, standardise=False, learning_rate=50.0, average=False)
    design, features, target, rounds = rounds_of(public, mechanism, settings, seed=2)
    program = design.program
    prepared = program.prepare(features, target)
    longest = 0.0
    for query, grid in rounds:
        assert query.clip * query.row_limit == pytest.approx(clip, rel=1e-15)
        gradients = densify(program.map_block(prepared, query), grid) * clip  # before the platform clips anything
        norms = np.abs(gradients).sum(axis=1) if program.l1 else np.sqrt((gradients**2).sum(axis=1))
        assert norms.max() <= 1.002 * clip  # rounding a coefficient may lift a very long row a little above
        for i in range(len(features)):
            alone = program.map_block(program.prepare(features[i : i + 1], target[i : i + 1]), query)
            longest = max(longest, _size(total(alone, grid), program.l1) * 2.0**-30 * clip)
    assert longest <= clip
    if clip == 0.3:
        assert longest >= 0.9 * clip


# -- without noise it is ordinary logistic regression -----------------------------------------------------------------


def _fit(features: Any, target: Any, public: Public, settings: DescentSettings, mechanism: str = "none") -> Any:
    budget = budget_of(mechanism)
    design = LogisticProgram.design(public, budget, settings)
    state = run(design, plan_of(design, budget, len(features)), public, features, target.astype(float))
    return *design.program.model(state), state


def _log_loss(scores: NDArray[np.float64], target: NDArray[np.int64]) -> float:
    scores = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
    scores = scores - scores.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(target)), target]))


def _data(classes: int, scales: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    d = len(scales)
    plain = rng.standard_normal((400, d)) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d)))
    scores = plain @ rng.standard_normal((d, classes))
    return np.clip(plain * scales / 3 + 0.1, -1, 1), (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "scales", [[0.9] * 5, [0.9, 0.1, 0.01, 0.003, 0.001], [0.9, 0.9, 0.9, 0.9, 0.0]], ids=["even", "bad", "constant"]
)
def test_without_noise_it_reaches_the_unpenalised_optimum(classes: int, scales: list[float]) -> None:
    features, target = _data(classes, np.array(scales), seed=classes)
    intercept, weights, _ = _fit(features, target, numbers(5, records=400, classes=CLASSES[classes]), DescentSettings())
    spread = np.maximum(features.std(axis=0), 1e-6)
    z = (features - features.mean(axis=0)) / spread
    best = ScikitLogisticRegression(C=np.inf, max_iter=10_000, tol=1e-10).fit(z, target)
    optimum = _log_loss(best.decision_function(z).reshape(len(z), -1), target)
    reached = _log_loss(features @ weights.T + intercept, target)
    assert reached == pytest.approx(optimum, rel=1e-3)
    assert optimum < 0.9 * math.log(classes)


def test_a_constant_number_does_not_coarsen_the_indicators() -> None:
    """Its scale is tiny, so the longest possible row is thousands of times a typical one; bits follow it."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, 1500)
    features = np.hstack([np.eye(4)[group], np.full((1500, 1), 0.3)])
    target = (rng.random(1500) < np.array([0.1, 0.3, 0.6, 0.9])[group]).astype(int)
    public = dataclasses.replace(numbers(5, records=1500), blocks=(("g", 0, 4, "onehot", 1), ("c", 4, 5, "number", 1)))
    intercept, weights, state = _fit(features, target, public, DescentSettings())
    rates = np.array([target[group == g].mean() for g in range(4)])
    fitted = 1 / (1 + np.exp(-(np.hstack([np.eye(4), np.full((4, 1), 0.3)]) @ weights[0] + intercept[0])))
    assert state.row_limit > 1000
    np.testing.assert_allclose(fitted, rates, atol=2e-3)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("scales", [[0.9, 0.5, 0.7], [0.9, 0.5, 0.001]], ids=["even", "bad"])
def test_the_ridge_penalty_is_scikit_learns(classes: int, standardise: bool, scales: list[float]) -> None:
    features, target = _data(classes, np.array(scales), seed=7)
    l2 = 0.02
    settings = DescentSettings(l2=l2, standardise=standardise, rounds=400)
    intercept, weights, _ = _fit(features, target, numbers(3, records=400, classes=CLASSES[classes]), settings)
    best = ScikitLogisticRegression(C=1 / (400 * l2), max_iter=10_000, tol=1e-10).fit(features, target)
    np.testing.assert_allclose(weights, best.coef_, atol=3e-3)
    # A softmax is unchanged by a constant added to every intercept: only differences are comparable.
    shift = 0 if classes == 2 else best.intercept_.mean() - intercept.mean()
    np.testing.assert_allclose(intercept + shift, best.intercept_, atol=3e-3)


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("mechanism", ["none", "laplace"])
def test_without_intercept_the_scores_pass_through_the_origin(standardise: bool, mechanism: str) -> None:
    features, target = _data(2, np.array([0.9, 0.5, 0.7]), seed=8)
    public = numbers(3, records=400)
    settings = DescentSettings(fit_intercept=False, standardise=standardise, rounds=300, clip=8.0)
    budget = budget_of(mechanism, 1e12)  # the rule sees no noise, and none is added
    design = LogisticProgram.design(public, budget, settings)
    state = run(design, plan_of(design, budget_of(mechanism), 400), public, features, target.astype(float))
    intercept, weights = design.program.model(state)
    best = ScikitLogisticRegression(C=np.inf, fit_intercept=False, max_iter=10_000, tol=1e-10).fit(features, target)
    assert intercept.tolist() == [0.0]
    np.testing.assert_allclose(weights, best.coef_, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("classes", [2, 3])
def test_l1_gradients_centred_afterwards_are_the_centred_ones(classes: int) -> None:
    """Nothing clipped, nothing noisy: the Laplace path must walk where the other walks."""
    public = mixed(records=300, classes=CLASSES[classes])
    features, _ = random_records(public, 300, np.random.default_rng(4))
    target = ((features[:, 0] + features[:, 8] > 0.3).astype(float) + (features[:, 3] * (classes > 2))) % classes
    settings = DescentSettings(rounds=25, learning_rate=1.0, clip=32.0)
    models = []
    for mechanism in ("laplace", "none"):
        budget = dataclasses.replace(budget_of(mechanism), epsilon=1e15)  # the rule sees no noise
        design = LogisticProgram.design(public, budget, settings)
        state = run(design, plan_of(design, budget_of(mechanism), 300), public, features, target)
        models.append(np.hstack([state.shift, state.scale, *(m.ravel() for m in design.program.model(state))]))
    np.testing.assert_allclose(models[0], models[1], atol=2e-3)
    assert np.abs(models[1][22:]).max() > 0.5  # it went somewhere


def test_pems_setting_is_pems_loop() -> None:
    """w ← w − η/√t · (Σ gradients + noise)/n, pure Laplace, no intercept, no averaging [Li, Duan, Xu: PEM]."""
    n, rounds, clip = 150, 40, 14.0
    rng = np.random.default_rng(6)
    features = np.rint(rng.uniform(-1, 1, (n, 5)) / clip * 2**15) * clip / 2**15  # on the row grid: no rounding there
    target = (features @ np.array([2.0, -1.0, 0.5, 0.0, 1.0]) + rng.logistic(size=n) > 0).astype(float)
    settings = DescentSettings(
        rounds=rounds,
        clip=clip,
        learning_rate=5.0,
        schedule="inverse-sqrt",
        fit_intercept=False,
        standardise=False,
        average=False,
    )
    public = numbers(5, records=n)
    design = LogisticProgram.design(public, budget_of("laplace"), settings)
    plan = plan_of(design, budget_of("laplace"), n)
    # λ = T·L/ε with L = 2·14 for replace-one, here in units of the clip on a grid of 2^-30.
    assert all(float(r.noise[0].parameter) == pytest.approx(rounds * 2 * 2**30, rel=1e-6) for r in plan.rounds)
    scale = 3e-3 * 2**30  # far less than planned, or the comparison would be of noise only
    drawn = [np.rint(rng.laplace(0, scale, 6)).astype(np.int64) for _ in range(rounds)]
    state = run(design, plan, public, features, target, lambda t, _: drawn[t - 1])
    intercept, weights = design.program.model(state)
    w = np.zeros(5)
    for t in range(1, rounds + 1):
        residual = 1 / (1 + np.exp(-features @ w)) - target
        w = w - 5.0 / math.sqrt(t) * (features.T @ residual + drawn[t - 1][1:] * 2.0**-30 * clip) / n
    np.testing.assert_allclose(weights[0], w, atol=1e-4)
    assert intercept.tolist() == [0.0]
    assert np.abs(w).max() > 0.5


def test_clipped_probabilities_are_corrected() -> None:
    """C = ½ pulls the fit (rates .05 → .026, .8 → .875); π = a/(a + c) undoes it."""
    n = 20_000
    rates = np.array([0.05, 0.5, 0.8])
    group = np.random.default_rng(0).integers(0, 3, n)
    target = np.zeros(n)
    for g, rate in enumerate(rates):
        mine = np.flatnonzero(group == g)
        target[mine[: round(rate * len(mine))]] = 1.0
    public = dataclasses.replace(numbers(3, records=n), blocks=(("g", 0, 3, "onehot", 1),))
    intercept, weights, state = _fit(np.eye(3)[group], target, public, DescentSettings(), "gaussian")
    assert state.clip == 0.5
    p = 1 / (1 + np.exp(-(weights[0] + intercept[0])))
    np.testing.assert_allclose(p, [0.5 * 0.05 / 0.95, 0.5, 1 - 0.5 * 0.2 / 0.8], atol=0.01)
    # The whole way, noise included: what predict_proba returns.
    groups = np.array(["u", "v", "w"])
    frames = [{"g": groups[group[i::3]], "y": target[i::3].astype(int).astype(str)} for i in range(3)]
    schema = ts.Schema({"g": ts.Category(["u", "v", "w"]), "y": ts.Category(["0", "1"])})
    fed = ts.Federation.simulate(frames, schema=schema, seed=1)
    model = ts.LogisticRegression(epsilon=1.0, delta=1e-6).fit(fed, target="y")
    np.testing.assert_allclose(model.predict_proba({"g": groups})[:, 1], rates, atol=0.02)


# -- what a client refuses, and what a design refuses -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale", 1e-300),
        ("scale", 0.0),
        ("scale", -1.0),
        ("shift", 1e300),
        ("weights", 1e308),
        ("clip", 0.0),
        ("clip", 1e-300),
        ("row_limit", 0.0),
        ("row_limit", 1e-300),
        ("row_limit", 1e300),
        ("longest_row", -1.0),
    ],
)
def test_a_crafted_query_is_refused_whatever_the_records(field: str, value: float) -> None:
    """An answer that fails for some records only would tell which a client holds; so refusal must be public."""
    public = mixed(records=60)
    design, features, target, rounds = rounds_of(public, "gaussian", DescentSettings(rounds=4), seed=1)
    query = rounds[1][0]
    crafted = query._replace(**{field: np.full_like(np.asarray(getattr(query, field)), value)})
    for records in (features, features[:0], np.zeros_like(features[:1])):
        prepared = design.program.prepare(records, target[: len(records)])
        with pytest.raises(RemoteProtocolError, match="outside what a logistic regression can reach"):
            design.program.map_block(prepared, crafted)


def test_a_crafted_stage_opens_no_way_around() -> None:
    public = mixed(records=60)
    settings = DescentSettings(rounds=4, standardise=False)
    design, features, target, rounds = rounds_of(public, "gaussian", settings, seed=1)
    crafted = rounds[0][0]._replace(stage=0.0, clip=0.0)
    with pytest.raises(RemoteProtocolError):
        design.program.map_block(design.program.prepare(features, target), crafted)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_no_query_that_passes_makes_any_record_fail(classes: int, mechanism: str) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    design, features, target, rounds = rounds_of(public, mechanism, DescentSettings(rounds=4), seed=1)
    query, grid = rounds[1]
    far = 2.0**100
    for weight in (0.0, 1e-320, -far, far):
        for limit in (1 / far, 1.0, far):
            for scale in (2.0**-12, 1.0):
                crafted = query._replace(
                    weights=np.full_like(query.weights, weight) * np.where(np.arange(12) % 2, 1, -1),
                    row_limit=limit,
                    scale=np.full_like(query.scale, scale),
                    shift=np.full_like(query.shift, -2.0),
                    longest_row=far,
                )
                prepared = design.program.prepare(features, target)
                totals = total(design.program.map_block(prepared, crafted), grid)
                assert np.abs(totals).max() <= 60 * 2**30


def test_a_state_tells_nothing_but_released_totals() -> None:
    """Two data sets with equal totals walk through equal states: nothing else of the records reaches them."""
    public = mixed(records=60)
    design = LogisticProgram.design(public, budget_of("gaussian"), DescentSettings(rounds=5))
    plan = plan_of(design, budget_of("gaussian"), 60)
    features, target = random_records(public, 60, np.random.default_rng(1))
    other, labels = random_records(public, 35, np.random.default_rng(2))  # fewer, too: the divisor is the public count
    rounds = list(walk(design, plan, public, features, target))

    def released(number: int, records: Any, classes: Any) -> NDArray[np.int64]:
        round_plan, before, _ = rounds[number - 1]
        prepared = design.program.prepare(records, classes)
        return total(design.program.map_block(prepared, design.program.query(before)), round_plan.grid)

    def make_equal(number: int, _: Any) -> NDArray[np.int64]:
        return released(number, features, target) - released(number, other, labels)

    for (_, _, mine), (_, _, after) in zip(rounds, walk(design, plan, public, other, labels, make_equal)):
        assert all(np.array_equal(a, b) for a, b in zip(mine, after))


@pytest.mark.parametrize("max_records", [2, 3, 10])
def test_a_person_with_several_records_has_a_plan(max_records: int) -> None:
    public = mixed(records=60)
    budget = budget_of("gaussian", person=max_records)
    design = LogisticProgram.design(public, budget, DescentSettings(rounds=4))
    plan = plan_of(design, budget, 60, max_records=max_records)
    features, target = random_records(public, 60, np.random.default_rng(1))
    bound = plan.rounds[0].grid.integer_bounds[0]
    assert 2**29 < bound < 2**31
    for round_plan, before, _ in walk(design, plan, public, features, target, noise_of(1)):
        query = design.program.query(before)
        contribution = design.program.map_block(design.program.prepare(features, target), query)
        one_person = total_by_person(contribution, round_plan.grid, np.zeros(60, dtype=np.int64))
        assert _size(one_person, False) <= bound
        apart = total_by_person(contribution, round_plan.grid, np.arange(60, dtype=np.int64))
        assert np.array_equal(apart, total(contribution, round_plan.grid))


def test_a_study_about_persons_runs() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 90)
    columns = {"x": x, "y": np.where(x > 0, "b", "a"), "pid": np.repeat(np.arange(45), 2)}
    frames = [{name: column[i::3] for name, column in columns.items()} for i in range(3)]
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})
    fed = ts.Federation.simulate(frames, schema=schema, seed=1)
    model = ts.LogisticRegression(epsilon=9.0, delta=1e-6, rounds=8)
    study = model.study_for(fed, target="y", features=["x"])
    study = study.replace("privacy", unit="person", person="pid", max_records=2)
    model.fit_study(fed, study)
    assert model.privacy_.unit == "person"
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize(
    ("public", "settings", "words"),
    [
        (
            dataclasses.replace(numbers(2, records=9), records=None),
            DescentSettings(standardise=False),
            "number of records",
        ),
        (numbers(2, records=9, classes=()), DescentSettings(), "category as its target"),
        (numbers(2, records=9), DescentSettings(schedule="cosine"), "schedule"),
        (numbers(2, records=9), DescentSettings(clip=1e-30), "clip"),
    ],
)
def test_a_design_that_cannot_work_is_refused(public: Public, settings: DescentSettings, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        LogisticProgram.design(public, budget_of("gaussian"), settings)


def test_a_study_of_noise_is_called_hopeless() -> None:
    assert "times the largest gradient" in str(
        LogisticProgram.design(numbers(8, records=100), budget_of("gaussian", 0.1), DescentSettings()).hopeless
    )
    assert (
        LogisticProgram.design(numbers(8, records=10**6), budget_of("gaussian", 1.0), DescentSettings()).hopeless
        is None
    )


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize(("records", "epsilon"), [(1, 0.01), (60, 9.0)])
@pytest.mark.parametrize("intercept", [True, False])
def test_every_corner_stays_finite(classes: int, mechanism: str, records: int, epsilon: float, intercept: bool) -> None:
    public = mixed(records=records, classes=CLASSES[classes])
    features, target = random_records(public, records, np.random.default_rng(3))
    budget = budget_of(mechanism, epsilon)
    settings = DescentSettings(fit_intercept=intercept, rounds=12)
    design = LogisticProgram.design(public, budget, settings)
    state = run(design, plan_of(design, budget, records), public, features, target, noise_of(2))
    assert all(np.isfinite(part).all() for part in (*state, *design.program.model(state)))
    assert state.step > 0
    assert 0 <= state.momentum < 1
    assert state.clip * state.row_limit > 0
