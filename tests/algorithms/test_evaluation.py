"""Evaluating a released classifier: counts of one bucket a record, averaged by their known noise."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, encodable, mixed, numbers, plan_of, random_records
from hypothesis import given, settings
from hypothesis import strategies as st
from row_independence import RowsDependError, check_row_independence

from tallystick.algorithms.evaluation.confusion_counts import EvaluationProgram, design_evaluation, estimates
from tallystick.algorithms.evaluation.public_classifiers import KINDS, LinearScores, linear_table, predictor_of
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import densify, total

CLASSES = {1: ("a",), 2: ("a", "b"), 3: ("a", "b", "c"), 10: tuple("abcdefghij")}


def table_of(columns: int, classes: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    scores = 1 if classes <= 2 else classes
    return linear_table(rng.normal(size=scores), rng.normal(size=(scores, columns)))


def designed(classes: int, mechanism: str = "gaussian", neighbours: str = "replace-one", columns: Any = None) -> Any:
    public = columns or mixed(records=60, classes=CLASSES[classes])
    budget = budget_of(mechanism, neighbours=neighbours)
    design = design_evaluation({"classifier": table_of(len(public.features), classes)}, public, budget)
    return public, design, plan_of(design, budget, 60).rounds[0]


# -- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_the_public_predictor_is_the_linear_model(classes: int) -> None:
    public = mixed(records=60, classes=CLASSES[classes])
    features, _ = random_records(public, 500, np.random.default_rng(1))
    table = table_of(11, classes)
    scores = features @ np.array(table["weights"]).T + np.array(table["intercept"])
    expected = np.zeros(500) if classes == 1 else scores[:, 0] > 0 if classes == 2 else scores.argmax(axis=1)
    found = predictor_of(table, public).predict(features)
    assert np.array_equal(found, expected.astype(np.int64))  # no score here is within 2^-20 of a tie


@pytest.mark.parametrize("huge", [0.0, 1e-300, 1e30, -1e30])
def test_no_public_weight_makes_a_record_fail(huge: float) -> None:
    features, _ = random_records(mixed(records=60), 50, np.random.default_rng(1))
    found = predictor_of(
        linear_table(np.zeros(3), np.full((3, 11), huge)), mixed(records=60, classes=CLASSES[3])
    ).predict(features)
    assert set(found) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "needs the released classifier"),
        ("linear", "needs the released classifier"),
        ({}, "kind None"),
        ({"kind": []}, "is not known"),
        ({"kind": {}}, "is not known"),
        ({"kind": 1}, "is not known"),
        ({"kind": "linaer"}, "Did you mean 'linear'"),
        ({"kind": "linear", "weights": [[1.0] * 11], "intercept": [0.0], "power": 2}, "classifier.power"),
        ({"kind": "linear", "weights": [[1.0] * 10], "intercept": [0.0]}, "11 encoded columns"),
        ({"kind": "linear", "weights": [[1.0] * 11], "intercept": [0.0, 1.0]}, "11 encoded columns"),
        ({"kind": "linear", "weights": [[1.0] * 10 + [math.nan]], "intercept": [0.0]}, "finite numbers"),
        ({"kind": "linear", "weights": [[1.0] * 10 + [1e200]], "intercept": [0.0]}, "finite numbers"),
        ({"kind": "linear", "weights": [["a"] * 11], "intercept": [0.0]}, "finite numbers"),
        ({"kind": "linear", "weights": [[1.0], [1.0, 2.0]], "intercept": [0.0]}, "finite numbers"),
        ({"kind": "linear", "intercept": [0.0]}, "finite numbers"),
        ({"kind": "linear", "weights": [[0.0] * 30_000], "intercept": [0.0]}, "at most 25000"),
    ],
)
def test_a_table_that_is_no_classifier_is_refused(table: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        design_evaluation({"classifier": table}, mixed(records=60), budget_of("gaussian"))


def test_a_new_kind_of_classifier_plugs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Always:
        def predict(self, features: Any) -> Any:
            return np.full(len(features), 1, dtype=np.int64)

    monkeypatch.setitem(KINDS, "always", lambda table, public: Always())
    public = mixed(records=60)
    design = design_evaluation({"classifier": {"kind": "always"}}, public, budget_of("gaussian"))
    prepared = design.program.prepare(np.zeros((4, 11)), np.array([0.0, 1.0, 1.0, 1.0]))
    plan = plan_of(design, budget_of("gaussian"), 60).rounds[0]
    counts = total(design.program.map_block(prepared, 0.0), plan.grid) / plan.grid.scale
    assert counts.tolist() == [3, 1, 0, 1, 0, 3]


def test_a_number_target_is_refused() -> None:
    with pytest.raises(StudyError, match="not a category"):
        design_evaluation({"classifier": table_of(2, 2)}, numbers(2, records=9, classes=()), budget_of("gaussian"))


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_neighbours_move_each_group_within_its_sensitivity(classes: int, mechanism: str, neighbours: str) -> None:
    public, design, plan = designed(classes, mechanism, neighbours)
    records = np.array(encodable(public, [-1.0, 1.0]))[::7]
    vectors = []
    for label in range(classes):
        prepared = design.program.prepare(records, np.full(len(records), float(label)))
        vectors.append(np.rint(densify(design.program.map_block(prepared, 0.0), plan.grid) * plan.grid.scale))
    parts = np.unique(np.vstack(vectors), axis=0)
    if neighbours == "add-remove":
        gaps = parts
    else:
        gaps = np.array([a - b for a, b in itertools.combinations(parts, 2)] or [parts[0] * 0])
    starts, stops, _ = plan.grid.edges()
    for g, noise in enumerate(plan.noise):
        mine = gaps[:, starts[g] : stops[g]]
        worst = (np.abs(mine).sum(axis=1) if mechanism == "laplace" else np.sqrt((mine**2).sum(axis=1))).max()
        assert worst <= noise.sensitivity
        if classes > 1:
            assert worst >= (1 - 1e-9) * noise.sensitivity  # attained: a histogram of one bucket


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_rows_are_independent_to_the_bit(classes: int) -> None:
    public = numbers(61, records=60, classes=CLASSES[classes])
    public, design, plan = designed(classes, columns=public)
    features, target = random_records(public, 60, np.random.default_rng(1))
    check_row_independence(design.program, features, target, [(0.0, plan.grid)])


def test_a_planted_block_mean_is_caught() -> None:
    class Centred:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def predict(self, features: Any) -> Any:
            return self.inner.predict(features - features.mean(axis=0) if len(features) else features)

    public, design, plan = designed(3)
    features, target = random_records(public, 60, np.random.default_rng(1))
    planted = EvaluationProgram(Centred(design.program.predictor), 3)
    with pytest.raises(RowsDependError):
        check_row_independence(planted, features, target, [(0.0, plan.grid)])


# -- estimates --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(0, 10**6), st.floats(0.1, 50), st.floats(0.1, 50))
@settings(deadline=None, max_examples=60)
def test_the_cells_are_the_weighted_least_squares_fit(k: int, seed: int, correct: float, confusion: float) -> None:
    """Oracle: unknown cells, observed each with noise σ and by the sums of diagonal and rest with noise σ_c."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(500, 1000, (k, k))
    right = truth.trace()
    total = np.concatenate([[right, truth.sum() - right], truth.ravel()])
    noisy = total + rng.normal(0, 1, len(total)) * np.repeat([correct, confusion], [2, k * k])
    found = estimates(noisy, k, std_correct=correct, std_confusion=confusion)
    own = np.eye(k).ravel()
    rows = [np.eye(k * k) / confusion, (own / correct)[None, :]]
    answers = [noisy[2:] / confusion, noisy[:1] / correct]
    if k > 1:
        rows.append(((1 - own) / correct)[None, :])
        answers.append(noisy[1:2] / correct)
    design = np.vstack(rows)
    best, *_ = np.linalg.lstsq(design, np.concatenate(answers), rcond=None)
    np.testing.assert_allclose(found.confusion.ravel(), best, rtol=1e-8)
    spread = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(found.confusion_std.ravel(), spread, rtol=1e-8)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_the_standard_error_of_the_accuracy_is_its_own(k: int) -> None:
    """2,000 draws: mean squared error over variance is 1 ± 5 standard deviations of a χ² of 2,000."""
    rng = np.random.default_rng(k)
    truth = rng.uniform(50, 400, (k, k)) + np.diag(rng.uniform(2000, 4000, k))
    total = np.concatenate([[truth.trace(), truth.sum() - truth.trace()], truth.ravel()])
    accuracy = truth.trace() / truth.sum()
    z = []
    for _ in range(2000):
        noisy = total + rng.normal(0, 1, len(total)) * np.repeat([30.0, 20.0], [2, k * k])
        e = estimates(noisy, k, std_correct=30.0, std_confusion=20.0)
        z.append((e.accuracy - accuracy) / e.accuracy_std)
    assert 0.84 < np.mean(np.square(z)) < 1.16
    assert 0.93 < np.mean(np.abs(z) < 1.96) < 0.97


def test_drowned_counts_say_so() -> None:
    e = estimates(np.array([3.0, -50.0, 2.0, 1.0, -4.0, 0.0]), 2, std_correct=100.0, std_confusion=100.0)
    assert e.accuracy_std >= 1.0
    assert 0 <= e.accuracy <= 1
    assert (e.confusion >= 0).all()


def test_exact_counts_are_taken_as_they_are() -> None:
    e = estimates(np.array([7.0, 3.0, 4.0, 1.0, 2.0, 3.0]), 2, std_correct=0.0, std_confusion=0.0)
    assert (e.accuracy, e.accuracy_std, e.records) == (0.7, 0.0, 10.0)
    assert e.confusion.tolist() == [[4.0, 1.0], [2.0, 3.0]]
    assert not e.confusion_std.any()


def test_a_hopeless_evaluation_is_called_so() -> None:
    table = {"classifier": table_of(11, 2)}
    assert "standard error" in str(design_evaluation(table, mixed(records=60), budget_of("gaussian", 0.05)).hopeless)
    assert design_evaluation(table, mixed(records=10**5), budget_of("gaussian", 1.0)).hopeless is None
    assert isinstance(predictor_of(table["classifier"], mixed(records=60)), LinearScores)
