"""ConsensusSVC as users meet it: exact, said to be so, the same model for any split, and refused where it would lie."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

import tallystick as ts
from tallystick.application.loading import load
from tallystick.application.planning import describe, plan
from tallystick.application.result_document import describe_result, write_result
from tallystick.application.simulation import simulate
from tallystick.data.examples import census
from tallystick.engines.planning import layout_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = ts.Schema({"a": ts.Number(-1, 1), "b": ts.Number(-1, 1), "ill": ts.Category(["no", "yes"])})


def people(n: int = 400, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)
    return {"a": a, "b": b, "ill": np.where(a - 0.5 * b + 0.2 + 0.3 * rng.normal(size=n) > 0, "yes", "no")}


def ring(n: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)
    return {"a": a, "b": b, "ill": np.where(np.hypot(a, b) < 0.7, "yes", "no")}


def federation(clients: int = 4, data: Any = None, **options: Any) -> Any:
    data = people() if data is None else data
    frames = [{k: v[i::clients] for k, v in data.items()} for i in range(clients)]
    return ts.Federation.simulate(frames, schema=SCHEMA, seed=1, **options)


def accuracy(model: Any, data: Any) -> float:
    return float(np.mean(model.predict({k: data[k] for k in ("a", "b")}) == data["ill"]))


def test_an_exact_model_says_that_it_is_not_private() -> None:
    model = ts.ConsensusSVC(C=2.0, reveal=True).fit(federation(), target="ill")
    data = people()
    found = SVC(C=2.0, kernel="linear", tol=1e-8).fit(np.column_stack([data["a"], data["b"]]), data["ill"])
    np.testing.assert_allclose(model.coef_, found.coef_, rtol=2e-3)
    np.testing.assert_allclose(model.intercept_, found.intercept_, rtol=2e-3)
    assert model.solution_["relative_gap"] <= 1e-6
    assert not model.privacy_.as_dict()["differentially_private"]
    assert "NOT differentially private" in model.privacy_.statement
    assert any("this is not differential privacy" in note for note in model.plan_.notes)
    assert not hasattr(model, "support_vectors_")
    assert not hasattr(model, "dual_coef_")
    assert "exact numbers" in model.answer().text() + " ".join(model.answer().notes)


def test_fit_warns_that_it_is_exact_and_a_private_way_does_not() -> None:
    with pytest.warns(ts.PrivacyWarning, match=r"not differentially private: everybody will see up to [\d,]+ exact"):
        ts.ConsensusSVC(solver="admm", max_iter=3).fit(federation(), target="ill")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ts.ConsensusSVC(privacy="output", C=0.02, epsilon=8.0, delta=1e-6).fit(federation(), target="ill")
    assert not any("exact" in str(warning.message) for warning in caught)


def test_the_interior_points_model_has_the_same_bits_for_4_and_20_learners_and_through_a_proxy() -> None:
    feds = [federation(4), federation(20), federation(4, trust="proxy")]
    models = [ts.ConsensusSVC(reveal=True, max_iter=3).fit(fed, target="ill") for fed in feds]
    assert len({m.coef_.tobytes() + m.intercept_.tobytes() for m in models}) == 1


def test_a_study_that_promises_privacy_refuses_it() -> None:
    for mechanism in ("gaussian", "laplace"):
        with pytest.raises(ts.TallystickError, match="no bound is known on what one record changes") as refused:
            ts.ConsensusSVC(mechanism=mechanism).fit(federation(), target="ill")
        assert refused.value.rule == "exact-sums-are-not-private"
    with pytest.raises(ts.StudyError, match="privacy = 'dp' is not known"):
        ts.ConsensusSVC(privacy="dp").fit(federation(), target="ill")


def test_an_interior_point_that_would_tell_too_much_has_to_be_asked_for() -> None:
    fed = federation()
    model = ts.ConsensusSVC(C=2.0).fit(fed, target="ill")
    assert model.solution_["solver"] == "admm"
    told, held = model.plan_.details["numbers_told"], model.plan_.details["numbers_held"]
    assert held == 400 * 3
    assert any("more than a tenth" in note for note in model.plan_.notes)
    assert any(f"{told:,} exact numbers" in note and f"{held:,}" in note for note in model.plan_.notes)
    assert model.solution_["relative_gap"] <= 1e-3
    asked = ts.ConsensusSVC(C=2.0, reveal=True).fit(fed, target="ill")
    assert asked.solution_["solver"] == "interior-point"
    many = ts.ConsensusSVC().study_for(fed, target="ill", features=None).replace("data", records=10**6)
    design = ts.ConsensusSVC().design_for(many, layout_of(many))
    assert design.details["solver"] == "interior-point"


@pytest.mark.parametrize(
    "settings",
    [
        {"n_features": 60, "reveal": True},
        {"n_features": 60, "solver": "admm", "max_iter": 60},
        {"landmarks": 40, "feature_map": "landmarks", "max_iter": 60},
        {"kernel": "poly", "degree": 2, "n_features": 30, "reveal": True},
        {"kernel": "sigmoid", "landmarks": 60, "gamma": 2.0, "coef0": 1.0, "reveal": True},
    ],
    ids=lambda s: s.get("feature_map") or s.get("kernel") or s.get("solver", "rbf"),
)
def test_kernels_bend_the_line(settings: dict[str, Any], tmp_path: Path) -> None:
    data = ring()
    given = {
        "kernel": "rbf",
        "C": 5.0,
        **({"gamma": 2.0} if settings.get("kernel", "rbf") == "rbf" else {}),
        **settings,
    }
    model = ts.ConsensusSVC(**given).fit(federation(data=data), target="ill")
    assert accuracy(model, ring()) > 0.9
    assert not hasattr(model, "coef_")
    with pytest.raises(ts.StudyError, match="this one has a kernel"):
        model.public_classifier()
    assert model.model_document()["feature_map"]["kernel"] == given["kernel"]


def test_a_class_missing_at_a_learner_and_a_learner_without_records_are_no_obstacle() -> None:
    data = people()
    ill = data["ill"] == "yes"
    frames = [{k: v[rows] for k, v in data.items()} for rows in (ill, ~ill, np.zeros(400, dtype=bool))]
    fed = ts.Federation.simulate(frames, schema=SCHEMA, seed=1)
    whole = ts.ConsensusSVC(reveal=True).fit(federation(), target="ill")
    assert np.array_equal(ts.ConsensusSVC(reveal=True).fit(fed, target="ill").coef_, whole.coef_)
    assert accuracy(ts.ConsensusSVC(solver="admm").fit(fed, target="ill"), data) > 0.85


def test_more_than_two_classes() -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 300)
    points = np.clip(np.array([[0.5, 0.5], [-0.5, 0.5], [0, -0.6]])[kind] + 0.15 * rng.normal(size=(300, 2)), -1, 1)
    data = {"a": points[:, 0], "b": points[:, 1], "kind": np.array(["x", "y", "z"])[kind]}
    schema = ts.Schema({"a": ts.Number(-1, 1), "b": ts.Number(-1, 1), "kind": ts.Category(["x", "y", "z"])})
    fed = ts.Federation.simulate([{k: v[i::3] for k, v in data.items()} for i in range(3)], schema=schema, seed=1)
    for settings in ({"reveal": True}, {"solver": "admm", "max_iter": 200}):
        model = ts.ConsensusSVC(C=5.0, **settings).fit(fed, target="kind")
        assert model.coef_.shape == (3, 2)
        assert np.mean(model.predict({"a": data["a"], "b": data["b"]}) == data["kind"]) > 0.97


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"C": 0}, "C = 0 is not a positive number"),
        ({"C": -1.0}, "C = -1.0 is not a positive number"),
        ({"C": float("nan")}, "C = nan is not a positive number"),
        ({"kernel": "rbf", "gamma": 0.0}, "gamma = 0.0 is not a positive number"),
        ({"kernel": "rbf", "gamma": -2}, "gamma = -2 is not a positive number"),
        ({"gamma": 2.0}, "gamma is for a feature map"),
        ({"kernel": "cubic"}, "kernel = 'cubic' is not known"),
        ({"solver": "newton"}, "solver = 'newton' is not known"),
        ({"rho": -1}, "rho = -1 is not a positive number"),
        ({"relaxation": 2.5}, "relaxation = 2.5"),
        ({"max_iter": 0}, "max_iter = 0 is out of range"),
        ({"tolerance": 0}, "tolerance = 0"),
        ({"reveal": "yes"}, "neither true nor false"),
        ({"feature_map": "landmarks"}, "public landmarks"),
        ({"kernel": "rbf", "landmarks": [[2.0, 0.0]]}, "within \\[-1, 1\\]"),
    ],
)
def test_settings_that_mean_nothing_are_named(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ts.StudyError, match=match):
        ts.ConsensusSVC(**settings).fit(federation(), target="ill")


def test_what_is_for_sums_of_records_is_refused() -> None:
    fed = federation()
    study = ts.ConsensusSVC(solver="admm").study_for(fed, target="ill", features=None)
    for settings in ({"threshold": 2.0}, {"sampling": 0.5, "neighbours": "add-remove"}):
        with pytest.raises(ts.TallystickError, match=r"is for sums of records|states its number of rounds"):
            ts.ConsensusSVC(solver="admm").fit_study(fed, study.replace("privacy", **settings))
    with pytest.raises(ts.StudyError, match="a category"):
        ts.ConsensusSVC().fit(fed, target="a")


def test_a_learner_that_drops_out_ends_the_study() -> None:
    fed = federation(8, drop=0.3, min_clients=2)
    with pytest.raises(ts.RoundAborted, match=r"dropped out|has not taken part") as ended:
        ts.ConsensusSVC(solver="admm").fit(fed, target="ill")
    assert ended.value.rule == "a-learner-dropped-out"


def test_nan_is_refused_and_one_feature_is_enough() -> None:
    with pytest.raises(ValueError, match="NaN"):
        ts.ConsensusSVC(bounds=(-1, 1)).fit([[np.nan], [0.5], [0.1]], [0, 1, 0])
    model = ts.ConsensusSVC(bounds=(-4, 4), C=100.0, reveal=True).fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
    assert model.predict([[-1.5], [1.5]]).tolist() == [0, 1]
    assert model.coef_[0, 0] == pytest.approx(1.0, rel=1e-3)  # the margin is between -1 and 1, in the caller's units


def test_a_study_file_is_planned_simulated_and_loaded(tmp_path: Path) -> None:
    made = plan(EXAMPLES / "exact" / "adult_consensus.toml", records=48842)
    text = describe(made)
    assert "exact numbers in all rounds" in text
    assert "Every institution has to take part in every round" in text
    assert not made["privacy"]["differentially_private"]
    records = tmp_path / "census.csv"
    census(1500).write_csv(records)
    result = simulate(EXAMPLES / "exact" / "adult_consensus.toml", data=(records,), clients=3, seed=1, holdout=0.2)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["privacy"]["differentially_private"] is False
    evaluation = result["simulation"]["evaluation"]
    assert evaluation["accuracy"] > evaluation["baseline_accuracy"] - 0.02
    assert "NOT differentially private" in describe_result(result)
    model = load(write_result(result, tmp_path))
    assert isinstance(model, ts.ConsensusSVC)
    assert model.coef_.tolist() == result["model"]["coef"]
    with pytest.raises(ts.PrivacyRefused, match="promises differential privacy"):
        plan(EXAMPLES / "exact" / "adult_consensus.toml", records=48842, settings=("privacy.mechanism=gaussian",))


def test_it_is_evaluated_like_every_linear_classifier() -> None:
    fed = federation()
    model = ts.ConsensusSVC(C=2.0, reveal=True).fit(fed, target="ill")
    found = ts.evaluate(model, fed, target="ill", epsilon=5.0)
    assert abs(found.accuracy - accuracy(model, people())) < 5 * found.accuracy_std


def test_a_keyword_of_a_kernel_without_one_says_which_keyword_names_it() -> None:
    with pytest.raises(ts.StudyError, match=r'gamma is for a feature map.*Add kernel = "rbf"'):
        ts.ConsensusSVC(gamma=0.5).fit(federation(), target="ill")


@pytest.mark.parametrize(
    "keywords",
    [
        {"C": 10**400},
        {"kernel": "rbf", "gamma": 10**400},
        {"kernel": "rbf", "landmarks": [[10**400, 0]]},
        {"landmarks": np.zeros((3, 2))},
    ],
    ids=lambda k: ", ".join(k),
)
def test_what_is_no_keyword_is_refused_in_our_own_words(keywords: dict[str, Any]) -> None:
    with pytest.raises(ts.StudyError):
        ts.ConsensusSVC(**keywords).fit(federation(), target="ill")


@pytest.mark.parametrize("way", [{"solver": "admm", "C": 100.0}, {"reveal": True}], ids=["admm", "interior point"])
def test_a_model_that_ran_out_of_rounds_does_not_say_that_it_is_solved(way: dict[str, Any]) -> None:
    model = ts.ConsensusSVC(max_iter=3, **way).fit(federation(), target="ill")
    notes = " ".join(model.answer().notes)
    assert "Not solved" in notes
    assert "max_iter" in notes
    assert "Solved by" not in notes
