"""Consensus ADMM and interior points: the optimum of the pooled problem, whoever holds which record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from local_runs import dealt, public_of, run, two_clouds
from scipy.optimize import LinearConstraint, minimize
from sklearn.svm import SVC

from tallystick.algorithms.consensus_svm import mapped_blocks
from tallystick.algorithms.consensus_svm.admm import AdmmProgram, AdmmQuery, AdmmSettings
from tallystick.algorithms.consensus_svm.interior_point import CANDIDATES, EXCHANGES, REDUCTIONS, InteriorPointProgram
from tallystick.algorithms.consensus_svm.landmark_admm import LandmarkAdmmProgram
from tallystick.algorithms.consensus_svm.wide_numbers import LARGEST, packed, unpacked, wide
from tallystick.algorithms.feature_maps.landmarks import LandmarkFeatures
from tallystick.core.errors import RemoteProtocolError, RoundAborted

C = 5.0
FEATURES, TARGET = two_clouds(240, 4)
PUBLIC = public_of(*FEATURES.shape)
SIGNS = 2 * TARGET - 1


def as_they_are(rows: Any) -> Any:
    return rows


def objective(weights: Any, bias: float, features: Any = FEATURES, signs: Any = SIGNS) -> float:
    return float(0.5 * weights @ weights + C * np.maximum(0, 1 - signs * (features @ weights + bias)).sum())


@pytest.fixture(scope="module")
def best() -> float:
    """LIBSVM's, as a second opinion."""
    found = SVC(C=C, kernel="linear", tol=1e-9).fit(FEATURES, TARGET)
    return objective(found.coef_[0], float(found.intercept_[0]))


def admm(**settings: Any) -> AdmmProgram:
    given = {"C": C, "rho": 20.0, "sweeps": 50, "precision": 1e-9, "tolerance": 1e-4} | settings
    return AdmmProgram(PUBLIC, AdmmSettings(**given), size=4, rows=as_they_are, typical_square=2.0)


def point(**settings: Any) -> InteriorPointProgram:
    given: dict[str, Any] = {"C": C, "tolerance": 1e-6, "size": 4, "rows": as_they_are} | settings
    return InteriorPointProgram(PUBLIC, **given)


# -- ADMM -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learners", [1, 4, 7])
@pytest.mark.parametrize("relaxation", [1.0, 1.6])
def test_admm_finds_the_optimum_of_all_records_together(learners: int, relaxation: float, best: float) -> None:
    program = admm(relaxation=relaxation)
    states = run(program, PUBLIC, dealt(FEATURES, TARGET, learners), 800)
    bias, weights = program.model(states[-1])
    assert objective(weights[0], bias[0]) <= best * (1 + 1e-4)
    assert len(states) < 800
    assert states[-1].bound[0] <= best * (1 + 1e-9)  # the certificate is a lower bound in truth
    assert program.gaps(states[-1])[0] <= 1e-4


def test_one_learners_step_solves_its_problem_as_a_general_solver_does() -> None:
    program = admm(relaxation=1.0)
    x, y = dealt(FEATURES, TARGET, 4)[1]
    own = program.prepare(x, y)
    rng = np.random.default_rng(3)
    z, s = rng.normal(size=(1, 4)), rng.normal(size=1)
    memory = program.start_in_client(own)._replace(sent_w=z + rng.normal(size=(1, 4)), sent_b=s + 0.3)
    g, e = memory.sent_w[0] - z[0], float(memory.sent_b[0] - s[0])
    _, after = program.step_in_client(own, AdmmQuery(round=2.0, learners=4.0, rho=20.0, z=z, s=s), memory)
    w, b = after.sent_w[0] - g, float(after.sent_b[0]) - e
    signs = own.signs[0]

    def local(v: Any) -> float:  # as the problem is written, hinges and all, in variables (w, b, slacks)
        pull = 10 * np.sum((v[:4] - z[0] + g) ** 2) + 10 * (v[4] - s[0] + e) ** 2
        return float(v[:4] @ v[:4] / 8 + C * v[5:].sum() + pull)

    n = len(y)
    margins = np.hstack([signs[:, None] * x, signs[:, None], np.eye(n)])
    start = np.concatenate([np.zeros(5), np.full(n, 3.0)])
    found = minimize(
        local, start, method="SLSQP", bounds=[(None, None)] * 5 + [(0, None)] * n,
        constraints=LinearConstraint(margins, 1, np.inf), options={"ftol": 1e-12, "maxiter": 300},
    )  # fmt: skip
    np.testing.assert_allclose(np.append(w, b), found.x[:5], atol=2e-5)


def test_the_papers_own_updates_never_move_the_bias() -> None:
    """Its dual has 1ᵀYλ = ρ(b − s + β) as an equality; put into its update of b that is b⁺ = b [decision 15]."""
    learners, rho, rounds = 4, 20.0, 12
    parts = [(x, 2 * y - 1) for x, y in dealt(FEATURES[:80], TARGET[:80], learners)]
    z, s = np.zeros(4), 0.0
    g, beta, b = np.zeros((learners, 4)), np.zeros(learners), np.zeros(learners)
    factor = learners / (1 + rho * learners)
    for _ in range(rounds):
        w = np.zeros((learners, 4))
        for m, (x, y) in enumerate(parts):
            rows = y[:, None] * x
            linear = -1 + factor * rho * rows @ (z - g[m])
            wanted = rho * (b[m] - s + beta[m])
            found = minimize(
                lambda v, a=factor * rows @ rows.T, q=linear: 0.5 * v @ a @ v + q @ v, np.full(len(y), C / 2),
                jac=lambda v, a=factor * rows @ rows.T, q=linear: a @ v + q, bounds=[(0, C)] * len(y),
                constraints={"type": "eq", "fun": lambda v, y=y, t=wanted: y @ v - t, "jac": lambda v, y=y: y},
                method="SLSQP",
            )  # fmt: skip
            w[m] = factor * (rho * (z - g[m]) + rows.T @ found.x)
            b[m] = y @ found.x / rho + s - beta[m]  # (13d)
        z, s = (w + g).mean(axis=0), float((b + beta).mean())
        g, beta = g + w - z, beta + b - s
        assert abs(s) < 1e-6
    ours = run(admm(tolerance=1e-3), public_of(80, 4), dealt(FEATURES[:80], TARGET[:80], learners), 400)[-1]
    assert abs(ours.best_s[0]) > 0.2  # the optimum's bias is not 0
    published = objective(z, s, FEATURES[:80], SIGNS[:80])
    assert published > 1.01 * objective(ours.best_z[0], ours.best_s[0], FEATURES[:80], SIGNS[:80])


def test_rho_follows_from_public_facts_and_is_released() -> None:
    program = admm(rho=None)
    states = run(program, PUBLIC, dealt(FEATURES, TARGET, 4), 400)
    assert states[0].rho == program.chosen_rho(4) > 0
    assert program.gaps(states[-1])[0] <= 1e-4


# -- interior point -------------------------------------------------------------------------------------------------


def test_an_interior_point_has_the_same_bits_for_any_split_and_libsvms_answer(best: float) -> None:
    program = point()
    states = [run(program, PUBLIC, dealt(FEATURES, TARGET, m), EXCHANGES * 25 + 1) for m in (1, 4, 20)]
    for other in states[1:]:
        assert len(other) == len(states[0])
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(other, states[0]))
    last = states[0][-1]
    bias, weights = program.model(last)
    assert last.iteration <= 25
    assert program.gaps(last)[0] <= 1e-6
    assert objective(weights[0], bias[0]) == pytest.approx(best, rel=1e-5)


def test_rows_that_are_made_anew_in_blocks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    program, seen = point(), []
    whole = run(program, PUBLIC, dealt(FEATURES, TARGET, 3), 13)[-1]
    monkeypatch.setattr(mapped_blocks, "KEPT", 0)
    monkeypatch.setattr(mapped_blocks, "BLOCK", 1)  # the least block: 64 records
    monkeypatch.setattr(program, "_rows", lambda rows: seen.append(len(rows)) or rows)
    split = run(program, PUBLIC, dealt(FEATURES, TARGET, 3), 13)[-1]
    assert max(seen) == 64
    assert len(seen) == 13 * 3 * 2
    assert all(np.array_equal(a, b) for a, b in zip(whole, split))


def test_many_records_do_not_slow_it_down() -> None:
    """Classes that overlap evenly: with Mehrotra's own τ 20,000 records took 23 iterations, and ever more with more."""
    rng = np.random.default_rng(0)
    target = (rng.random(40_000) < 0.5).astype(np.float64)
    rows = np.clip(0.05 * np.outer(2 * target - 1, 1 + np.arange(8) % 3) + 0.3 * rng.normal(size=(40_000, 8)), -1, 1)
    public = public_of(*rows.shape)
    program = InteriorPointProgram(public, C=1.0, tolerance=1e-6, size=8, rows=as_they_are)
    last = run(program, public, dealt(rows, target, 4), EXCHANGES * 25 + 1)[-1]
    assert program.gaps(last)[0] <= 1e-6
    assert last.iteration <= 20


def test_a_block_mean_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a learner centres its rows, so that one record's part depends on the others."""
    program = point()
    whole = run(program, PUBLIC, dealt(FEATURES, TARGET, 1), 10)[-1]
    monkeypatch.setattr(program, "_rows", lambda rows: rows - rows.mean(axis=0))
    split = run(program, PUBLIC, dealt(FEATURES, TARGET, 4), 10)[-1]
    assert not np.array_equal(whole.weights, split.weights)


def test_rows_that_may_be_long_are_scaled_by_a_power_of_two() -> None:
    program = point(longest=10.0, C=C / 64)
    bias, weights = program.model(run(program, PUBLIC, dealt(8 * FEATURES, TARGET, 3), 101)[-1])
    plain = point()
    bias_1, weights_1 = plain.model(run(plain, PUBLIC, dealt(FEATURES, TARGET, 3), 101)[-1])
    np.testing.assert_allclose(8 * weights, weights_1, rtol=1e-3)
    np.testing.assert_allclose(bias, bias_1, rtol=1e-3)


def test_a_class_may_be_missing_at_a_learner_and_a_learner_may_be_empty(best: float) -> None:
    order = np.argsort(TARGET, kind="stable")
    first = int((TARGET == 0).sum())
    parts = [(FEATURES[i], TARGET[i]) for i in (order[:first], order[first:], order[:0])]
    for program in (admm(tolerance=1e-3, rho=5.0), point()):
        bias, weights = program.model(run(program, PUBLIC, parts, 900)[-1])
        assert objective(weights[0], bias[0]) <= best * (1 + 1e-3)


def test_many_classes_are_solved_side_by_side() -> None:
    rng = np.random.default_rng(5)
    target = rng.integers(0, 3, 150).astype(np.float64)
    rows = np.clip(0.4 * np.eye(3)[target.astype(int)] + 0.2 * rng.normal(size=(150, 3)), -1, 1)
    public = public_of(150, 3, classes=3)
    program = InteriorPointProgram(public, C=C, tolerance=1e-6, size=3, rows=as_they_are)
    bias, weights = program.model(run(program, public, dealt(rows, target, 4), 101)[-1])
    for k in range(3):
        found = SVC(C=C, kernel="linear", tol=1e-9).fit(rows, target == k)
        signs = np.where(target == k, 1.0, -1.0)
        wanted = objective(found.coef_[0], float(found.intercept_[0]), rows, signs)
        assert objective(weights[k], bias[k], rows, signs) == pytest.approx(wanted, rel=1e-5)


def test_one_class_alone_ends_at_the_constant_function() -> None:
    for program in (admm(tolerance=1e-3), point()):
        bias, weights = program.model(run(program, PUBLIC, dealt(FEATURES, np.ones(240), 3), 400)[-1])
        assert objective(weights[0], bias[0], FEATURES, np.ones(240)) < 0.05 * C


# -- landmarks ------------------------------------------------------------------------------------------------------


def test_a_step_at_landmarks_is_the_minimum_in_the_kernels_own_space() -> None:
    """A polynomial kernel of degree 1 has φ(x) = (√γ x, √c) written out, so w can be had by a general solver."""
    made = LandmarkFeatures(
        kernel="poly", landmarks=np.random.default_rng(0).uniform(-1, 1, (3, 2)), synthetic=None, longest=2.0,
        typical_square=1.0, gamma=0.5, degree=1, coef0=1.0, seed=0,
    )  # fmt: skip
    settings = AdmmSettings(C=C, rho=3.0, relaxation=1.0, sweeps=3000, precision=1e-11, certify=False)
    program = LandmarkAdmmProgram(public_of(240, 2), settings, made=made)
    x, y = FEATURES[:40, :2], TARGET[:40]
    own = program.prepare(x, y)
    rng = np.random.default_rng(1)
    z, s, learners, rho = rng.normal(size=(1, 3)), rng.normal(size=1), 4, 3.0
    memory = program.start_in_client(own)._replace(sent_z=z + rng.normal(size=(1, 3)), sent_b=s + 0.3)
    r, e = memory.sent_z[0] - z[0], float(memory.sent_b[0] - s[0])
    _, after = program.step_in_client(own, AdmmQuery(round=2.0, learners=4.0, rho=rho, z=z, s=s), memory)

    def mapped(rows: Any) -> Any:
        return np.hstack([np.sqrt(0.5) * rows, np.ones((len(rows), 1))])

    phi, grid, signs = mapped(x), mapped(made.landmarks), 2 * y - 1

    def local(v: Any) -> float:
        pull = rho / 2 * np.sum((grid @ v[:3] - z[0] + r) ** 2) + rho / 2 * (v[3] - s[0] + e) ** 2
        return float(v[:3] @ v[:3] / (2 * learners) + C * v[4:].sum() + pull)

    margins = np.hstack([signs[:, None] * phi, signs[:, None], np.eye(40)])
    found = minimize(
        local, np.concatenate([np.zeros(4), np.full(40, 3.0)]), method="SLSQP",
        bounds=[(None, None)] * 4 + [(0, None)] * 40, constraints=LinearConstraint(margins, 1, np.inf),
        options={"ftol": 1e-13, "maxiter": 500},
    )  # fmt: skip
    np.testing.assert_allclose(after.sent_z[0] - r, grid @ found.x[:3], atol=1e-4)
    assert float(after.sent_b[0]) - e == pytest.approx(found.x[3], abs=1e-4)


def test_learners_agree_at_landmarks_and_share_no_record() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (240, 2))
    y = (np.hypot(*x.T) < 0.7).astype(np.float64)  # no line tells them apart
    made = LandmarkFeatures(
        kernel="rbf", landmarks=rng.uniform(-1, 1, (40, 2)), synthetic=40, longest=2.0, typical_square=1.0,
        gamma=2.0, degree=3, coef0=0.0, seed=0,
    )  # fmt: skip
    program = LandmarkAdmmProgram(public_of(240, 2), AdmmSettings(C=C, rho=1.0, certify=False), made=made)
    bias, weights = program.model(run(program, public_of(240, 2), dealt(x, y, 4), 100)[-1])
    assert np.mean((made.rows(x) @ weights[0] + bias[0] > 0) == (y > 0.5)) > 0.93
    assert weights.shape == (1, 40)


# -- what is sent ---------------------------------------------------------------------------------------------------


def test_wide_numbers_keep_forty_bits_behind_the_point_and_a_wide_range() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=200) * 10.0 ** rng.integers(-12, 9, 200)
    vectors = [packed(*wide(values * k), np.array([k], dtype=np.int64)) for k in (1, -3, 5)]
    learners, counts, sums = unpacked(np.ldexp(np.sum(vectors, axis=0).astype(float), -40), 200, 1)
    assert (learners, counts.tolist()) == (3.0, [3.0])
    np.testing.assert_allclose(sums, 3 * values, rtol=1e-14, atol=3 * 2.0**-41)
    high, low = wide(np.array([np.inf, -np.inf, np.nan, 1e300]))
    assert np.all(np.abs(high) <= LARGEST * 256)
    assert low.tolist() == [0, 0, 0, 0]


def test_what_is_told_is_what_the_rounds_carry() -> None:
    program = point()
    matrix, directions = 5 * 6 // 2, len(REDUCTIONS)
    assert program.numbers_told(20) == 20 * (matrix + 2 * 5 + 3 + 2 * 5 + directions * (5 + 2 * len(CANDIDATES)))
    assert matrix + 2 * 5 + 3 <= 2 * 25
    assert len(program.sizes(20)) == 81
    states = run(program, PUBLIC, dealt(FEATURES, TARGET, 2), 5)
    own = program.prepare(FEATURES, TARGET)
    for state, size in zip([program.init(PUBLIC), *states], program.sizes(20)):
        assert len(program.step_in_client(own, program.query(state), program.start_in_client(own))[0]) == size


def test_a_learner_that_drops_out_ends_the_study() -> None:
    for program in (admm(), point()):
        prepared = [program.prepare(x, y) for x, y in dealt(FEATURES, TARGET, 3)]
        memories = [program.start_in_client(p) for p in prepared]
        state = program.init(PUBLIC)
        steps = [program.step_in_client(p, program.query(state), m) for p, m in zip(prepared, memories)]
        state = program.reduce_in_aggregator(np.sum([v for v, _ in steps], axis=0) * 2.0**-40, state)
        again = [program.step_in_client(p, program.query(state), s[1]) for p, s in zip(prepared, steps)]
        with pytest.raises(RoundAborted, match="2 of 3 learners"):
            program.reduce_in_aggregator(np.sum([v for v, _ in again[:2]], axis=0) * 2.0**-40, state)


def test_a_step_is_a_function_of_its_arguments_and_leaves_the_memory_alone() -> None:
    for program in (admm(), point()):
        states = run(program, PUBLIC, dealt(FEATURES, TARGET, 2), 3)
        own = program.prepare(FEATURES[::2], TARGET[::2])
        memory = program.start_in_client(own)
        kept = [part.copy() for part in memory]
        query = program.query(states[0])
        first, second = (program.step_in_client(own, query, memory) for _ in range(2))
        assert np.array_equal(first[0], second[0])
        assert all(np.array_equal(a, b) for a, b in zip(first[1], second[1]))
        assert all(np.array_equal(a, b) for a, b in zip(memory, kept))


def test_a_query_that_no_honest_aggregator_sends_is_refused() -> None:
    for program, bad in ((admm(), {"z": np.full((1, 4), 1e20)}), (point(), {"weights": np.full((1, 5), 1e20)})):
        own = program.prepare(FEATURES, TARGET)
        query = program.query(program.init(PUBLIC))._replace(**bad)
        with pytest.raises(RemoteProtocolError, match="Nothing was shared"):
            program.step_in_client(own, query, program.start_in_client(own))
