"""A pipeline of components and a classifier: one study, one budget, on every trust model that sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.estimators.test_components_estimator import result_of

import tallystick as ts
from tallystick.application.loading import of_simulation, packed_fit
from tallystick.estimators.from_study import estimator_for
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
NAMES = [f"x{i}" for i in range(8)]
SCHEMA = ts.Schema({**{name: ts.Number(-10, 10) for name in NAMES}, "kind": ts.Category(["a", "b", "c"])})


def records(n: int = 3000) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(4)
    axes = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    kind = rng.integers(0, 3, n)
    centres = np.array([[4.0, 0.0], [-3.0, 3.0], [-1.0, -4.0]])
    parts = np.hstack([centres[kind] + rng.normal(0, 0.8, (n, 2)), rng.normal(0, 0.3, (n, 6))])
    x = np.clip(parts @ axes, -10, 10)
    return {**dict(zip(NAMES, x.T)), "kind": np.array(["a", "b", "c"])[kind]}


def federation(**more: Any) -> Any:
    whole = records()
    frames = [{k: v[at::3] for k, v in whole.items()} for at in range(3)]
    return ts.Federation.simulate(frames, **({"schema": SCHEMA, "seed": 3} | more))


def pipeline(last: Any = None, **own: Any) -> Any:
    steps = [ts.PCA(2), ts.LogisticRegression(rounds=40) if last is None else last]
    return ts.Pipeline(steps, **({"epsilon": 1.0, "delta": 1e-6} | own))


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"neighbours": "add-remove"},
        {"mechanism": "laplace", "delta": None, "epsilon": 20.0},
        {"last": ts.LinearSVC(rounds=40), "share": 0.5},
        {"mechanism": "none"},
    ],
    ids=str,
)
def test_every_way_learns_and_loads_again(own: dict[str, Any]) -> None:
    model = pipeline(**own).fit(federation(), target="kind")
    whole = records()
    assert np.mean(model.predict(whole) == whole["kind"]) > 0.9
    assert model.coef_.shape == (3, 2)
    assert model.project(whole).shape == (3000, 2)
    assert hasattr(model, "predict_proba") == ("last" not in own)
    if "last" not in own:
        np.testing.assert_allclose(model.predict_proba(whole).sum(axis=1), 1)
    assert {"explained variance ratio", "coefficient"} == set(model.to_frame()["part"])
    assert model.plot().get_axes()
    kept: Any = of_simulation({**result_of(model), "fitted": packed_fit(model)})
    assert kept.model_document() == model.model_document()
    assert np.array_equal(kept.predict(whole), model.predict(whole))


def test_one_budget_is_charged_once() -> None:
    fed = federation()
    model = pipeline().fit(fed, target="kind")
    assert fed.spent.fits == 1
    assert fed.spent.epsilon <= 1.0
    assert model.plan_.rho <= gaussian_rho(1.0, 1e-6)
    assert float(model.plan_.rho) == pytest.approx(float(gaussian_rho(1.0, 1e-6)), rel=1e-6)
    assert "epsilon = 1" in model.privacy_.statement
    (said,) = [note for note in model.plan_.notes if note.startswith("pipeline")]
    assert "pca has 30% of the budget" in said
    assert model.plan_.details["phases"][1]["program"] == "logistic_regression"


def test_servers_and_proxy_give_the_same_bits_without_noise() -> None:
    quiet = pipeline(mechanism="none", delta=None)
    here, there = (quiet.fit(federation(trust=trust), target="kind").coef_ for trust in ("servers", "proxy"))
    assert here.tobytes() == there.tobytes()


def test_the_split_over_clients_does_not_matter() -> None:
    whole = records()
    one = ts.Federation.simulate([whole], schema=SCHEMA, seed=3)
    assert np.array_equal(pipeline().fit(one, target="kind").coef_, pipeline().fit(federation(), target="kind").coef_)


def test_a_study_file_says_the_same() -> None:
    text = """
[study]
name = "kinds"
program = "pipeline"
target = "kind"
[program]
share = 0.3
[[program.steps]]
program = "pca"
n_components = 2
[[program.steps]]
program = "logistic_regression"
rounds = 40
[privacy]
epsilon = 1.0
delta = 1e-6
[data]
records = 3000
"""
    raw = Study.parse(text + "[data.columns]\nx0 = {type = 'number', lower = 0, upper = 1}\n").model_dump()
    raw["data"]["columns"] = SCHEMA.to_dict()
    estimator, study = estimator_for(Study.from_dict(raw))
    by_file: Any = estimator.fit_study(federation(), study)
    here = pipeline().fit(federation(), target="kind")
    assert by_file.coef_.shape == here.coef_.shape
    assert [r.rho for r in by_file.plan_.rounds] == [r.rho for r in here.plan_.rounds]


def test_it_is_evaluated_as_any_classifier_and_linear_in_its_columns() -> None:
    model = pipeline().fit(federation(), target="kind")
    found = ts.evaluate(model, federation(), target="kind", epsilon=5.0)
    assert found.accuracy > 0.9
    unit = ts.Pipeline([ts.PCA(2, rows="unit"), ts.LinearSVC(rounds=3)]).fit(federation(), target="kind")
    with pytest.raises(ts.StudyError, match="not linear"):
        ts.evaluate(unit, federation(), target="kind", epsilon=5.0)


def test_plain_arrays() -> None:
    whole = records()
    x = np.column_stack([whole[name] for name in NAMES])
    model = pipeline(bounds=(-10, 10), epsilon=5.0).fit(x, whole["kind"])
    assert np.mean(model.predict(x) == whole["kind"]) > 0.9


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ts.Pipeline([ts.PCA(2, epsilon=0.5), ts.LogisticRegression()]), "inside a pipeline"),
        (lambda: ts.Pipeline([ts.PCA(2), ts.LogisticRegression(schema=SCHEMA)]), "inside a pipeline"),
        (lambda: ts.Pipeline([ts.LogisticRegression(), ts.PCA(2)]), "can stand here"),
        (lambda: ts.Pipeline([ts.PCA(2)]), "two steps"),
        (lambda: ts.Pipeline(ts.PCA(2)), "two steps"),
        (lambda: ts.Pipeline([ts.PCA(9), ts.LogisticRegression()]), "9 components of 8"),
        (lambda: ts.Pipeline([ts.PCA(2), ts.LogisticRegression()], share=2), "part of the budget"),
    ],
)
def test_bad_input_has_a_cause_and_a_remedy_and_costs_nothing(make: Any, words: str) -> None:
    fed = federation()
    with pytest.raises(ts.StudyError, match=words) as error:
        make().fit(fed, target="kind")
    assert error.value.remedy
    assert fed.spent.fits == 0


def test_the_target_must_be_there_and_a_category() -> None:
    with pytest.raises(ts.StudyError, match="target"):
        pipeline().fit(federation())
    with pytest.raises(ts.StudyError, match="a category"):
        pipeline().fit(federation(), target="x0")
