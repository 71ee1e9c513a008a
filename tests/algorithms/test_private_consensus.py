"""Private consensus: what one record moves, the certificate behind it, what is charged, and the plan's words."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of
from local_runs import dealt, public_of, run, two_clouds
from numpy.typing import NDArray
from scipy.optimize import minimize

import tallystick as ts
from tallystick.algorithms.consensus_svm import private_consensus
from tallystick.algorithms.consensus_svm.certified_prox import bounded_rows, certified_prox, duality_gap, weights_of
from tallystick.algorithms.consensus_svm.private_consensus import (
    PRECISION,
    PrivateConsensusProgram,
    PrivateQuery,
    tapered,
)
from tallystick.algorithms.consensus_svm.private_design import step_sensitivity
from tallystick.core.errors import DataError, PrivacyRefused, RemoteProtocolError, RoundAborted, StudyError
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.client_vectors import CLIENTS, LARGEST_TOTAL
from tallystick.study import Study

FEATURES, TARGET = two_clouds(240, 4)
PUBLIC = public_of(*FEATURES.shape)


def as_they_are(rows: Any) -> Any:
    return rows


def program_of(*, public: Any = PUBLIC, size: int = 2, rounds: int = 6, **given: Any) -> PrivateConsensusProgram:
    settings: dict[str, Any] = {
        "C": 1.0,
        "rho": 2.0,
        "longest": 1.5,
        "fraction_bits": 30,
        "averaged": False,
        "largest": 2.0**31,
    } | given
    return PrivateConsensusProgram(public, size=size, rounds=rounds, rows=as_they_are, **settings)


def deviations(
    program: PrivateConsensusProgram, one: Any, other: Any, history: list[NDArray[np.float64]]
) -> list[float]:
    """How far apart the vectors of one client are that holds one or the other records, all z's being the same."""
    own = [program.prepare(*one), program.prepare(*other)]
    memories = [program.start_in_client(prepared) for prepared in own]
    z, found = np.zeros((program.outputs, program.size + 1)), []
    for t in range(len(history) + 1):
        for who in (0, 1):
            _, memories[who] = program.step_in_client(own[who], PrivateQuery(round=t + 1.0, z=z), memories[who])
        found.append(float(np.linalg.norm(memories[0].sent - memories[1].sent)))
        z = history[t] if t < len(history) else z
    return found


def neighbours(rng: np.random.Generator, *, removed: bool, classes: int = 2) -> tuple[Any, Any]:
    n = int(rng.integers(1, 6))
    x, y = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0], (n, 2)), rng.integers(0, classes, n).astype(float)
    if removed:
        return (x, y), (x[1:], y[1:])
    x2, y2 = x.copy(), y.copy()
    x2[0], y2[0] = (x[0] if rng.random() < 0.5 else rng.choice([-1.0, 0.0, 1.0, 2.0], 2)), (y[0] + 1) % classes
    return (x, y), (x2, y2)


@pytest.mark.parametrize(("removed", "classes"), [(False, 2), (True, 2), (False, 3)])
def test_no_record_moves_a_sum_further_than_the_theorem_says(removed: bool, classes: int) -> None:
    """Tiny problems, where one record weighs most, and z's that no honest run would have."""
    rng = np.random.default_rng(3 * removed + classes)
    worst = 0.0
    for _ in range(150):
        C, rho = 10 ** rng.uniform(-1, 1, 2)
        public = replace(PUBLIC, classes=("a", "b", "c")[:classes])
        program = program_of(public=public, C=C, rho=rho)
        budget = replace(budget_of("gaussian"), neighbours="add-remove" if removed else "replace-one")
        step = step_sensitivity(C, 1.5, rho, budget, program.outputs)
        history = [rng.normal(size=(program.outputs, 3)) * 10 ** rng.uniform(-1, 1) for _ in range(4)]
        found = deviations(program, *neighbours(rng, removed=removed, classes=classes), history)
        assert all(moved <= t * step for t, moved in enumerate(found, start=1))
        worst = max(worst, found[0] / step)
    assert worst > (0.9 if classes == 2 else 0.6)  # the bound of the first round is met: there is nothing to spare


def test_a_record_that_moves_to_another_client_moves_the_sum_no_further() -> None:
    rng = np.random.default_rng(8)
    program = program_of(C=0.5, rho=0.7)
    step = step_sensitivity(0.5, 1.5, 0.7, budget_of("gaussian"), 1)
    for _ in range(60):
        (x, y), (x2, y2) = neighbours(rng, removed=True)
        (u, v), _ = neighbours(rng, removed=False)
        moved = np.vstack([u, rng.choice([-1.0, 1.0, 2.0], (1, 2))]), np.append(v, 1 - y[0])
        history = [rng.normal(size=(1, 3)) for _ in range(3)]
        apart = np.array(deviations(program, (x, y), (x2, y2), history))
        apart += deviations(program, (u, v), moved, history)
        assert np.all(apart <= step * np.arange(1, 5))


@pytest.mark.parametrize("span", [8.0, 33.5, 800.0, 2.0**26])
def test_one_record_more_changes_all_weights_together_by_no_more_than_its_own(span: float) -> None:
    """n·|c(n) − c(n + 1)| + c(n + 1) ≤ C is what the theorem needs of the weights; planted: a cap does not do."""
    C, counts = 0.3, [*range(200), *(int(span * part) for part in (0.25, 0.5, 0.9, 0.99999, 1, 1.1, 4))]
    assert all(n * abs(tapered(C, n, span) - tapered(C, n + 1, span)) + tapered(C, n + 1, span) <= C for n in counts)
    assert all(n * tapered(C, n, span) <= C * span / 4 for n in counts)

    def capped(n: int) -> float:  # planted
        return C * min(1.0, 20 / max(n, 1))

    assert max(n * abs(capped(n) - capped(n + 1)) + capped(n + 1) for n in range(100)) > 1.9 * C


def test_under_add_remove_a_client_with_any_number_of_records_moves_no_further_and_is_soon_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few records were planned for; clients with none, some, too many. All steps end within what 2N pull would take."""
    rng = np.random.default_rng(21)
    monkeypatch.setattr(private_consensus, "_SWEEPS", 400)
    rho, planned, worst = 1.0, 6, 0.0
    budget = replace(budget_of("gaussian"), neighbours="add-remove")
    for C, n in itertools.product((0.1, 2.0), (1, 5, 11, 24, 47, 48, 49, 500)):
        step = step_sensitivity(C, 1.5, rho, budget, 1)
        program = program_of(public=replace(PUBLIC, records=planned), C=C, rho=rho, span=8.0 * planned)
        x, y = rng.choice([-1.0, 1.0, 2.0], (n, 2)), rng.integers(0, 2, n).astype(float)
        history = [rng.normal(size=(1, 3)) for _ in range(3)]
        found = deviations(program, (x, y), (x[1:], y[1:]), history)
        assert all(moved <= t * step for t, moved in enumerate(found, start=1))
        worst = max(worst, found[0] / step)
        own = program.prepare(x, y)
        _, memory = program.step_in_client(
            own, PrivateQuery(round=1.0, z=np.zeros((1, 3))), program.start_in_client(own)
        )
        assert n < 48 or not memory.sent.any()  # far more than planned: nothing to solve
    assert worst > 0.9  # the bound is met: there is nothing to spare


def test_a_client_with_more_records_than_there_are_in_all_says_so() -> None:
    program = program_of(public=replace(PUBLIC, records=10))
    with pytest.raises(DataError, match="more records than the 10"):
        program.prepare(FEATURES[:11, :2], TARGET[:11])


# Found by hill climbing over records and z's: the second sum moves by 1.11 D, though every step is solved to 1e-5 D.
RECORDS = [[4.76, 6.5], [-4.87, -2.4], [1.92, -1.93], [-2.14, -0.58], [2.41, -0.13], [1.23, 0.93], [0.96, -2.68]]
RECORDS += [[1.57, -4.03]]


def test_planted_a_charge_of_one_step_in_every_round_is_too_little() -> None:
    program = program_of(C=1.0, rho=8.846, longest=2.0)
    program.within *= 1e-5 / PRECISION
    x, y = np.array(RECORDS), np.array([0.0, 1, 0, 0, 0, 0, 0, 1])
    other = np.vstack([[-2.47, -3.42], x[1:]])
    one_step = 2 * 1.0 * 2.0 / 8.846
    found = deviations(program, (x, y), (other, y), [np.array([[0.73, 1.49, 6.44]])])
    assert found[0] <= one_step
    assert 1.1 * one_step < found[1] <= 2 * one_step


@pytest.mark.parametrize("seed", range(5))
def test_a_certified_step_is_as_near_as_it_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, squares = bounded_rows(rng.normal(size=(30, 3)), 1.5)
    assert np.all(np.linalg.norm(rows, axis=1) <= 1.5 * (1 + 1e-15))
    signs, start, C, rho = rng.choice([-1.0, 1.0], 30), rng.normal(size=4), 0.7, 1.3

    def exact(w: NDArray[np.float64]) -> float:
        return float(C * np.maximum(0, 1 - signs * (rows @ w)).sum() + 0.5 * rho * np.sum((w - start) ** 2))

    best, w = np.zeros(30), np.empty(4)
    assert certified_prox(rows, signs, squares, best, start, C, rho, 7, 1e-7, 100_000, w)
    reference = w.copy()
    found = minimize(
        exact, reference + 0.01, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 10_000}
    )
    assert found.fun >= exact(reference) - 1e-9
    for within in (0.3, 0.03, 0.003):
        multipliers = np.zeros(30)
        assert certified_prox(rows, signs, squares, multipliers, start, C, rho, 7, within, 100_000, w)
        assert np.linalg.norm(w - reference) <= within
        assert np.all((multipliers >= 0) & (multipliers <= C))
        again = np.empty(4)
        weights_of(rows, signs, multipliers, start, rho, again)
        assert np.array_equal(w, again)
        dual = multipliers.sum() + 0.5 * rho * (start @ start - w @ w)
        assert duality_gap(rows, signs, multipliers, w, C) == pytest.approx(exact(w) - dual, abs=1e-10)


def test_what_could_not_be_certified_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(rho=0.01)
    own = program.prepare(FEATURES[:, :2], TARGET)
    monkeypatch.setattr(private_consensus, "_SWEEPS", 0)
    with pytest.raises(DataError, match="as exactly as its privacy needs"):
        program.step_in_client(own, program.query(program.init(PUBLIC)), program.start_in_client(own))


def test_a_record_of_zeros_and_no_record_at_all_are_solved() -> None:
    rows, signs, w = np.zeros((1, 2)), np.ones(1), np.empty(2)
    assert certified_prox(rows, signs, np.zeros(1), np.zeros(1), np.ones(2), 1.0, 1.0, 1, 1e-6, 10, w)
    assert w.tolist() == [1.0, 1.0]
    assert certified_prox(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros(0), w.copy(), 1.0, 1.0, 1, 1e-6, 10, w)


def test_without_noise_it_is_the_minimiser_of_all_records_together() -> None:
    C = 0.05
    program = program_of(size=4, rounds=400, C=C, rho=1.0, longest=3.0, fraction_bits=40)
    states = run(program, PUBLIC, dealt(FEATURES, TARGET, 4), 400)
    rows, signs = np.hstack([FEATURES, np.ones((240, 1))]), 2 * TARGET - 1
    rows *= np.minimum(1, 3.0 / np.linalg.norm(rows, axis=1))[:, None]

    def objective(w: NDArray[np.float64]) -> float:
        return float(0.5 * w @ w + C * np.maximum(0, 1 - signs * (rows @ w)).sum())

    best, w = np.zeros(240), np.empty(5)
    squares = np.einsum("ij,ij->i", rows, rows)
    assert certified_prox(rows, signs, squares, best, np.zeros(5), C, 1.0, 149, 1e-6, 100_000, w)
    assert objective(states[-1].z[0]) <= objective(w) * (1 + 1e-3)


def test_output_is_the_mean_of_the_institutions_own_minimisers() -> None:
    program = program_of(size=4, rounds=1, C=0.05, rho=1.0, longest=3.0, averaged=True, fraction_bits=40)
    parts = dealt(FEATURES, TARGET, 3)
    state = run(program, PUBLIC, parts, 1)[-1]
    own = []
    for part in parts:
        prepared = program.prepare(*part)
        _, memory = program.step_in_client(
            prepared, PrivateQuery(round=1.0, z=np.zeros((1, 5))), program.start_in_client(prepared)
        )
        own.append(memory.sent[0])
    intercept, weights = program.model(state)
    assert np.allclose(np.append(weights[0], intercept), np.mean(own, axis=0), atol=1e-7)


def test_what_is_sent_stays_within_the_room_and_what_is_kept_is_exact() -> None:
    program = program_of(fraction_bits=40)
    own = program.prepare(FEATURES[:, :2], TARGET)
    z = np.full((1, 3), 2.0**20)
    vector, memory = program.step_in_client(own, PrivateQuery(round=1.0, z=z), program.start_in_client(own))
    assert np.abs(vector).max() <= LARGEST_TOTAL // CLIENTS
    assert memory.sent.max() > 2.0**19
    with pytest.raises(RemoteProtocolError):
        program.step_in_client(own, PrivateQuery(round=1.0, z=z * 2.0**20), memory)


def test_learners_are_counted_under_noise_and_a_lost_one_ends_the_study() -> None:
    program = program_of()
    count = private_consensus._COUNT
    state = program.init(PUBLIC)
    for noise in (-(2**46), 0, 2**46):
        total = np.ldexp(np.array([4 * count + noise, 0, 0, 0], dtype=float), -30)
        assert program.reduce_in_aggregator(total, state).learners == 4
    after = program.reduce_in_aggregator(np.ldexp(np.array([4.0 * count, 0, 0, 0]), -30), state)
    with pytest.raises(RoundAborted, match="dropped out"):
        program.reduce_in_aggregator(np.ldexp(np.array([3.0 * count, 0, 0, 0]), -30), after)


# -- the plan -------------------------------------------------------------------------------------------------------


def study_of(**given: Any) -> Study:
    program = {"privacy": "consensus", "C": 0.01, "max_iter": 4} | given.pop("program", {})
    privacy = {"epsilon": 1.0, "delta": 1e-6} | given.pop("privacy", {})
    columns = {f"x{i}": {"type": "number", "lower": -1, "upper": 1} for i in range(3)}
    columns["y"] = {"type": "category", "values": ["a", "b"]}
    return Study.from_dict(
        {
            "study": {"name": "private", "program": "consensus_svc", "target": "y"},
            "program": program,
            "privacy": privacy,
            "trust": {"servers": 2},
            "data": {"records": 4000, "columns": columns},
            **given,
        }
    )


def planned(**given: Any) -> Any:
    from tallystick.engines.setup import set_up

    return set_up(study_of(**given).canonical(), "")


def charged(plan: Any, step: float) -> float:
    """Σ (t·step)²/(2σ_t²), σ of one honest server alone: what the theorem says the noise costs."""
    total = 0.0
    for t, round_plan in enumerate(plan.rounds, start=1):
        sigma = math.sqrt(round_plan.noise[0].variance) * math.ldexp(1.0, -round_plan.grid.fraction_bits)
        total += (t * step) ** 2 / (2 * sigma**2)
    return total


def test_the_noise_pays_for_growing_sensitivities() -> None:
    setup = planned()
    step = setup.plan.details["sensitivity_of_round_1"]
    program = setup.design.program
    assert step == pytest.approx(2 * (1 + 4 * PRECISION) * 0.01 * program.longest / program.rho)
    budget = float(rho_from_epsilon(1.0, setup.plan.claim.noise_delta))
    assert 0.99 * budget < charged(setup.plan, step) <= budget
    deviation = [r.noise[0].variance for r in setup.plan.rounds]
    assert max(deviation) < 1.001 * min(deviation)  # the same noise in every round
    assert setup.plan.differentially_private
    assert any("t times" in note for note in setup.plan.notes)
    # Planted: charged with one step a round, and with a step divided by the records.
    for wrong in ((step,) * 4, tuple(t * step / 4000 for t in range(1, 5))):
        plan = replace(setup.design, sensitivities=wrong).plan(setup.plan.claim)
        assert charged(plan, step) > 1.5 * budget


def test_under_add_remove_the_plan_says_how_records_are_weighed() -> None:
    setup = planned(privacy={"neighbours": "add-remove"})
    assert setup.design.program.span == 8 * 4000
    assert any("C(1 - n/32,000)" in note for note in setup.plan.notes)
    assert planned().design.program.span is None


def test_the_grid_is_much_finer_than_what_a_record_moves() -> None:
    for r in planned().plan.rounds:
        assert math.sqrt(r.grid.size) < 2e-5 * r.noise[0].sensitivity
        assert r.noise[0].sensitivity >= 1


def test_output_is_one_round() -> None:
    setup = planned(program={"privacy": "output", "max_iter": "auto"})
    assert setup.design.rounds == 1
    step = setup.plan.details["sensitivity_of_round_1"]
    assert step == pytest.approx(2 * (1 + 4 * PRECISION) * 0.01 * setup.design.program.longest)
    assert any("not the solution of all records together" in note for note in setup.plan.notes)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"privacy": {"mechanism": "laplace", "delta": 0}}, "gaussian"),
        ({"privacy": {"mechanism": "none"}}, "gaussian"),
        ({"program": {"max_iter": 21}}, "at most 20 rounds"),
        ({"program": {"privacy": "wishes"}}, "wishes"),
        ({"program": {"rho": 1e8}}, "more exactly than"),
        ({"program": {"privacy": "output", "C": 100.0, "max_iter": "auto"}}, "could take hours"),
        ({"program": {"privacy": None}}, "differential privacy"),
        ({"program": {"privacy": "output"}}, "max_iter would change nothing"),
        ({"program": {"privacy": "output", "max_iter": "auto", "rho": 2.0}}, "rho would change nothing"),
        ({"program": {"privacy": "output", "max_iter": "auto", "solver": "admm"}}, "solver would change nothing"),
        ({"program": {"relaxation": 1.0, "tolerance": 0.1, "reveal": True}}, "relaxation, tolerance, reveal would"),
        ({"program": {"feature_map": "landmarks", "kernel": "rbf"}}, "feature_map would change nothing"),
    ],
)
def test_what_has_no_theorem_is_refused(given: Any, words: str) -> None:
    with pytest.raises((PrivacyRefused, StudyError), match=words):
        planned(**given)


@pytest.mark.parametrize(("way", "most"), [("consensus", 1), ("output", 1), ("consensus", 3)])
def test_persons_are_refused_also_with_one_record_each_because_nobody_counts_them(way: str, most: int) -> None:
    """max_records caps a person's clipped sum, and a step has no such sum: all of a person's records count."""
    privacy = {"epsilon": 1.0, "delta": 1e-6, "unit": "person", "person": "who", "max_records": most}
    numbers = {"type": "number", "lower": -1, "upper": 1}
    study = Study.from_dict(
        {
            "study": {"name": "p", "program": "consensus_svc", "target": "y", "accept_noise": True},
            "program": {"C": 0.01, "privacy": way},
            "privacy": privacy | {"mechanism": "gaussian"},
            "data": {"columns": {"x": numbers, "y": {"type": "category", "values": ["0", "1"]}}, "records": 300},
        }
    )
    frame = {"x": np.ones(300), "y": np.repeat("1", 300), "who": np.repeat("one", 300)}
    with pytest.raises(PrivacyRefused, match="records of one person"):
        ts.ConsensusSVC(C=0.01, privacy=way).fit_study(ts.Federation.simulate([frame], seed=1), study)


# -- the estimator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["consensus", "output"])
def test_a_private_machine_is_learned_and_says_what_it_is(way: str) -> None:
    schema = ts.Schema({**{f"x{i}": ts.Number(-1, 1) for i in range(4)}, "y": ts.Category(["no", "yes"])})
    x, y = two_clouds(2400, 4)
    frames = [{**{f"x{i}": x[k::3, i] for i in range(4)}, "y": np.where(y[k::3] > 0.5, "yes", "no")} for k in range(3)]
    fed = ts.Federation.simulate(frames, schema=schema, seed=2)
    model = ts.ConsensusSVC(privacy=way, C=0.02, epsilon=4.0, delta=1e-6).fit(fed, target="y")
    assert model.privacy_.epsilon == 4.0
    assert model.plan_.differentially_private
    assert "not differentially" not in " ".join(model.answer().notes).lower()
    assert np.mean(model.predict(frames[0]) == frames[0]["y"]) > 0.8
    assert Fraction(sum(r.rho for r in model.plan_.rounds)) <= rho_from_epsilon(4.0, model.plan_.claim.noise_delta)
