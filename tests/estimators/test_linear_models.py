"""LinearSVC, Ridge, Summary and evaluate through simulated federations: contract, accuracy, splits, bad input."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as ScikitLogisticRegression

import tallystick as ts
from tallystick.engines.planning import layout_of
from tallystick.engines.setup import set_up

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
]

SCHEMA = ts.Schema(
    {
        "age": ts.Number(0, 100),
        "dose": ts.Number(0, 10),
        "sex": ts.Category(["f", "m"]),
        "ill": ts.Category(["no", "yes"]),
        "stage": ts.Category(["I", "II", "III"]),
        "cost": ts.Number(0, 1000),
    }
)
CLASSIFIERS = [ts.LogisticRegression, ts.LinearSVC]


def frame(n: int = 900, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, n), rng.uniform(0, 10, n)
    sick = age + 5 * dose + rng.normal(0, 10, n)
    return {
        "age": age,
        "dose": dose,
        "sex": rng.choice(["f", "m"], n),
        "ill": np.where(sick > 75, "yes", "no"),
        "stage": np.array(["I", "II", "III"])[np.digitize(sick, [60, 90])],
        "cost": np.clip(100 + 5 * age + 30 * dose + rng.normal(0, 40, n), 0, 1000),
    }


def parts(data: dict[str, Any], k: int = 3) -> list[dict[str, Any]]:
    return [{c: v[i::k] for c, v in data.items()} for i in range(k)]


def federation(n: int = 900, seed: int = 1, **settings: Any) -> Any:
    return ts.Federation.simulate(parts(frame(n, seed)), **{"schema": SCHEMA, "seed": seed, **settings})


FEATURES = ["age", "dose", "sex"]


# -- contract ---------------------------------------------------------------------------------------------------------


def keywords(function: Any) -> dict[str, Any]:
    return {
        name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }


def test_signatures_are_the_contracts() -> None:
    common = {"epsilon": 1.0, "delta": None, "neighbours": "replace-one", "mechanism": "gaussian", "schema": None}
    own = {"rounds": "auto", "clip": "auto", "learning_rate": "auto", "l2": "auto", "fit_intercept": True}
    for kind, wanted in ((ts.LinearSVC, own), (ts.Ridge, {"alpha": 1.0}), (ts.Summary, {"columns": None})):
        found = keywords(kind.__init__)
        assert {k: found.get(k, "absent") for k in common | wanted} == common | wanted
        assert "bounds" in found
    assert list(inspect.signature(ts.evaluate).parameters)[:2] == ["model", "fed"]
    assert keywords(ts.evaluate) == {
        "target": inspect.Parameter.empty,
        "epsilon": inspect.Parameter.empty,
        "delta": None,
    }


def test_a_linear_svc_has_the_fitted_attributes() -> None:
    model = ts.LinearSVC(epsilon=9.0).fit(federation(), target="ill", features=FEATURES)
    assert model.coef_.shape == (1, 4)
    assert model.intercept_.shape == (1,)
    assert list(model.classes_) == ["no", "yes"]
    assert list(model.feature_names_in_) == ["age", "dose", "sex=f", "sex=m"]
    assert not hasattr(model, "predict_proba")
    three = ts.LinearSVC(epsilon=9.0, rounds=5).fit(federation(), target="stage", features=FEATURES)
    assert three.coef_.shape == (3, 4)
    assert three.decision_function(frame(7)).shape == (7, 3)


def test_coefficients_are_in_public_units() -> None:
    data = frame(2000)
    X = np.column_stack([data["age"], data["dose"]])
    svc = ts.LinearSVC(epsilon=1e4, bounds=([0, 0], [100, 10])).fit(X, data["ill"])
    np.testing.assert_allclose((X @ svc.coef_.T + svc.intercept_)[:, 0], svc.decision_function(X), rtol=1e-9, atol=1e-9)
    assert svc.score(X, data["ill"]) > 0.85
    ridge = ts.Ridge(epsilon=1e4, bounds=([0, 0], [100, 10]), target_bounds=(0, 1000)).fit(X, data["cost"])
    np.testing.assert_allclose(X @ ridge.coef_ + ridge.intercept_, ridge.predict(X), rtol=1e-9)
    np.testing.assert_allclose(ridge.coef_, [5, 30], rtol=0.1)
    assert ridge.intercept_ == pytest.approx(100, abs=15)
    assert ridge.score(X, data["cost"]) > 0.9


def test_ridge_of_a_federation_refers_to_the_encoded_columns() -> None:
    model = ts.Ridge(epsilon=1e4).fit(federation(3000), target="cost", features=FEATURES)
    # age is scaled by 50, dose by 5: 5·50 and 30·5 in the target's units.
    np.testing.assert_allclose(model.coef_[:2], [250, 150], rtol=0.1)
    data = frame(500, 9)
    assert model.score({k: data[k] for k in FEATURES}, data["cost"]) > 0.9
    document = model.model_document()
    assert document["type"] == "Ridge"
    assert document["target"] == "cost"
    assert json.loads(json.dumps(document)) == document


def test_plain_ridge_needs_bounds_for_y() -> None:
    with pytest.raises(ts.BoundsError, match="y is not declared"):
        ts.Ridge(bounds=(0, 1)).fit([[0.1], [0.2]], [1.0, 2.0])
    with pytest.raises(ts.BoundsError, match="target_bounds is not a pair"):
        ts.Ridge(bounds=(0, 1), target_bounds=3).fit([[0.1], [0.2]], [1.0, 2.0])
    schema = ts.Schema({"x": ts.Number(0, 1), "y": ts.Number(0, 5)})
    assert math.isfinite(ts.Ridge(schema=schema, epsilon=9.0).fit([[0.1], [0.2]] * 10, [1.0, 2.0] * 10).intercept_)


# -- accuracy rises with epsilon --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["ill", "stage"])
def test_the_accuracy_of_a_linear_svc_rises_with_epsilon(target: str) -> None:
    test = frame(3000, 99)
    means = []
    for epsilon in (0.02, 0.2, 9.0):
        fits = [
            ts.LinearSVC(epsilon=epsilon, delta=1e-6, rounds=40).fit(
                federation(1500, s), target=target, features=FEATURES
            )
            for s in (1, 2, 3)
        ]
        means.append(np.mean([m.score({k: test[k] for k in FEATURES}, test[target]) for m in fits]))
    assert means == sorted(means)
    assert means[-1] > (0.88 if target == "ill" else 0.7)


def test_the_score_of_ridge_rises_with_epsilon() -> None:
    test = frame(3000, 99)
    means = []
    for epsilon in (0.01, 0.1, 1.0, 9.0):
        fits = [
            ts.Ridge(epsilon=epsilon, delta=1e-6).fit(federation(1500, s), target="cost", features=FEATURES)
            for s in (1, 2, 3)
        ]
        means.append(np.mean([m.score({k: test[k] for k in FEATURES}, test["cost"]) for m in fits]))
    assert means == sorted(means)
    assert means[-1] > 0.9


def test_the_errors_of_a_summary_fall_with_epsilon_and_the_noise_does() -> None:
    data = frame(1500, 1)
    claimed, real = [], []
    for epsilon in (0.1, 1.0, 9.0):
        rows = ts.Summary(epsilon=epsilon, delta=1e-6, columns=["age"]).fit(federation(1500)).table_
        row = next(r for r in rows if r["statistic"] == "mean")
        claimed.append(row["standard_error"])
        real.append(abs(row["estimate"] - data["age"].mean()))
    assert claimed == sorted(claimed, reverse=True)
    assert all(r < 4 * c for r, c in zip(real, claimed))


def test_the_interval_of_an_evaluation_shrinks_with_epsilon() -> None:
    fed = federation(3000)
    model = ts.LinearSVC(epsilon=5.0, rounds=30).fit(fed, target="ill", features=FEATURES)
    data = frame(3000, 1)
    exact = np.mean(model.predict(data) == data["ill"])
    widths = []
    for epsilon in (0.1, 1.0, 9.0):
        found = ts.evaluate(model, fed, target="ill", epsilon=epsilon, delta=1e-6)
        low, high = found.accuracy_interval
        assert low - 0.02 <= exact <= high + 0.02
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.01


# -- epsilon-splitting ------------------------------------------------------------------------------------------------


def _noise(model: Any) -> dict[str, float]:
    return {n.group.name: model.plan_.rounds[0].std_of(n.group.name) for n in model.plan_.rounds[0].noise}


@pytest.mark.parametrize(
    ("estimator", "target", "groups"),
    [
        (ts.Ridge(epsilon=2.0), "cost", {"products": 0.2, "signed_products": 0.3, "targets": 0.5}),
        (
            ts.Summary(epsilon=2.0, columns=["age", "dose", "sex"]),
            None,
            {"histograms": 0.7, "moments": 0.2, "correlations": 0.1},
        ),
    ],
    ids=["ridge", "summary"],
)
def test_groups_of_the_study_split_its_budget(estimator: Any, target: str | None, groups: dict[str, float]) -> None:
    fed = federation()
    study = estimator.study_for(fed, target=target, features=FEATURES if target else None)
    proposed = estimator.fit_study(fed, study)
    before = _noise(proposed)
    assert sum("proposed: the least error" in note for note in proposed.plan_.notes) == 1
    assert all(name in proposed.plan_.notes[-1] for name in groups)
    whole = proposed.plan_.rho
    own = {n.group.name: n.group.share for n in proposed.plan_.rounds[0].noise}
    given = study.replace("privacy", groups=[{"name": n, "share": s} for n, s in groups.items()])
    taken = estimator.fit_study(fed, given)
    assert "as the study gives it" in taken.plan_.notes[-1]
    assert f"{next(iter(groups))} {next(iter(groups.values())):g}" in taken.plan_.notes[-1]
    for name, share in groups.items():  # σ² ∝ 1/share
        assert _noise(taken)[name] == pytest.approx(before[name] * math.sqrt(own[name] / share), rel=1e-6)
    assert taken.plan_.rho == pytest.approx(whole, rel=1e-6)
    if target is None:  # standard errors follow the noise that was really added
        errors = [
            next(r["standard_error"] for r in m for _ in [0] if r["statistic"] == "mean")
            for m in (estimator.fit_study(fed, study).table_, estimator.fit_study(fed, given).table_)
        ]
        assert errors[1] / errors[0] == pytest.approx(math.sqrt(own["moments"] / groups["moments"]), rel=1e-3)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([{"name": "products", "share": 1.0}], "the program's groups are"),
        ([{"name": n, "share": 0.5} for n in ("products", "signed_products", "targets")], "do not sum to 1"),
        (
            [{"name": n, "share": s} for n, s in (("products", 2.0), ("signed_products", -0.5), ("targets", -0.5))],
            "share",
        ),
    ],
)
def test_groups_that_are_no_split_are_refused(groups: list[dict[str, Any]], words: str) -> None:
    fed = federation()
    model = ts.Ridge()
    study = model.study_for(fed, target="cost", features=FEATURES).replace("privacy", groups=groups)
    with pytest.raises(ts.TallystickError, match=words):
        model.fit_study(fed, study)
    assert fed.spent.fits == 0


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_no_other_split_gives_a_summary_less_error(mechanism: str) -> None:
    fed = federation()
    model = ts.Summary(epsilon=2.0, mechanism=mechanism, columns=["age", "dose", "sex"])
    study = model.study_for(fed, target=None, features=None).replace("data", records=900)

    def error(chosen: ts.Study) -> float:
        plan = model.design_for(chosen, layout_of(chosen)).groups[0]
        power = 1 if mechanism == "gaussian" else 2
        factor = {g.name: 2.0 if g.nonnegative and mechanism == "gaussian" else 4.0 for g in plan}
        return sum(g.size * factor[g.name] * g.bound**2 / g.share**power for g in plan)

    least = error(study)
    for a in (0.1, 0.3, 0.5, 0.7):
        for b in (0.1, 0.2, 0.25):
            shares = {"histograms": a, "moments": b, "correlations": 1 - a - b}
            other = study.replace("privacy", groups=[{"name": n, "share": s} for n, s in shares.items()])
            assert least <= error(other) * (1 + 1e-9)


# -- evaluate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("target", ["ill", "stage"])
def test_every_classifier_can_be_evaluated(kind: Any, target: str) -> None:
    fed = federation(2000)
    model = kind(epsilon=5.0, rounds=20).fit(fed, target=target, features=FEATURES)
    found = ts.evaluate(model, fed, target=target, epsilon=2.0)
    data = frame(2000, 1)
    predicted = model.predict(data)
    exact = np.array(
        [[np.sum((data[target] == a) & (predicted == b)) for b in model.classes_] for a in model.classes_], float
    )
    assert found.classes == tuple(model.classes_)
    assert abs(found.accuracy - np.mean(predicted == data[target])) < 4 * found.accuracy_std
    assert np.all(np.abs(found.confusion - exact) < 5 * found.confusion_std + 1e-9)
    assert found.population_interval[0] <= found.accuracy_interval[0] <= found.accuracy <= found.accuracy_interval[1]
    assert np.all(found.confusion_interval[0] >= 0)
    assert json.loads(json.dumps(found.as_dict()))["level"] == 0.95
    assert fed.spent.fits == 2
    assert found.privacy.epsilon == 2.0
    assert len(found.contributors) == 3


def test_an_evaluation_is_charged_by_itself() -> None:
    data = ts.Dataset(frame(), budget=1.5, schema=SCHEMA)
    model = ts.LinearSVC(epsilon=1.0, delta=1e-6, rounds=3).fit(data, target="ill", features=FEATURES)
    ts.evaluate(model, data, target="ill", epsilon=0.3, delta=1e-6)
    assert data.spent.fits == 2
    with pytest.raises(ts.BudgetExceeded):
        ts.evaluate(model, data, target="ill", epsilon=1.4, delta=1e-6)
    assert data.spent.fits == 2


def test_without_noise_an_evaluation_is_exact() -> None:
    fed = federation(500)
    model = ts.LinearSVC(mechanism="none", rounds=9).fit(fed, target="ill", features=FEATURES)
    found = ts.evaluate(model, fed, target="ill", epsilon=1.0)
    data = frame(500, 1)
    assert found.accuracy == np.mean(model.predict(data) == data["ill"])
    assert found.confusion.sum() == 500
    assert found.privacy.differentially_private is False


def test_a_model_fitted_elsewhere_is_evaluated_on_other_institutions() -> None:
    """Fitted on plain data; evaluated where the target has another name and its classes another order."""
    data = frame(2000, 3)
    X = np.column_stack([data["age"], data["dose"]])
    import pandas as pd

    model = ts.LinearSVC(epsilon=50.0, bounds=([0, 0], [100, 10])).fit(
        pd.DataFrame({"age": X[:, 0], "dose": X[:, 1]}), data["ill"]
    )
    other = {k: v for k, v in frame(1200, 4).items() if k in ("age", "dose")} | {"sick": frame(1200, 4)["ill"]}
    schema = ts.Schema({"age": ts.Number(0, 100), "dose": ts.Number(0, 10), "sick": ts.Category(["yes", "no"])})
    fed = ts.Federation.simulate(parts(other), schema=schema, seed=2)
    found = ts.evaluate(model, fed, target="sick", epsilon=5.0)
    exact = np.mean(model.predict(pd.DataFrame({"age": other["age"], "dose": other["dose"]})) == other["sick"])
    assert abs(found.accuracy - exact) < 4 * found.accuracy_std
    wrong = ts.Schema({**schema, "sick": ts.Category(["perhaps", "no"])})
    with pytest.raises(ts.StudyError, match="not those of the model"):
        ts.evaluate(model, ts.Federation.simulate(parts(other), schema=wrong), target="sick", epsilon=1.0)
    number = ts.Schema({**schema, "sick": ts.Number(0, 1)})
    with pytest.raises(ts.StudyError, match="not a category"):
        ts.evaluate(model, ts.Federation.simulate(parts(other), schema=number), target="sick", epsilon=1.0)


def test_what_is_no_fitted_classifier_cannot_be_evaluated() -> None:
    fed = federation()
    ridge = ts.Ridge(epsilon=5.0).fit(fed, target="cost", features=FEATURES)
    for model in (ridge, ts.LinearSVC(), ScikitLogisticRegression(), "a model"):
        with pytest.raises(ts.StudyError, match="cannot be evaluated"):
            ts.evaluate(model, fed, target="ill", epsilon=1.0)
    svc = ts.LinearSVC(epsilon=5.0, rounds=2).fit(fed, target="ill", features=FEATURES)
    with pytest.raises(ts.StudyError, match="needs a federation"):
        ts.evaluate(svc, frame(), target="ill", epsilon=1.0)  # type: ignore[arg-type]
    with pytest.raises(ts.TallystickError, match="epsilon"):
        ts.evaluate(svc, fed, target="ill", epsilon=0.0)


def test_missing_values_are_treated_as_they_were_for_the_fit() -> None:
    data = frame(900)
    data["age"][::5] = np.nan
    for policy in ("category", "drop"):
        fed = ts.Federation.simulate(parts(data), schema=SCHEMA, seed=1, missing=ts.Missing(marker="?", policy=policy))
        model = ts.LinearSVC(epsilon=20.0, rounds=4).fit(fed, target="ill", features=FEATURES)
        found = ts.evaluate(model, fed, target="ill", epsilon=20.0)
        assert found.confusion.sum() == pytest.approx(900 if policy == "category" else 720, abs=25)


def test_a_role_derives_the_evaluation_from_the_study_alone() -> None:
    """What travels to servers and clients is the canonical study: the model is in it, of bounded size."""
    fed = federation()
    model = ts.LinearSVC(epsilon=5.0, rounds=2).fit(fed, target="stage", features=FEATURES)
    estimator = ts.ClassifierEvaluation(classifier=model.public_classifier(), epsilon=1.0, schema=SCHEMA)
    study = estimator.study_for(fed, target="stage", features=FEATURES).replace("data", records=900)
    setup = set_up(study.canonical(), "")
    features = np.random.default_rng(0).uniform(-1, 1, (40, 4))
    assert np.array_equal(setup.design.program.predictor.predict(features), model.predict_encoded(features))
    assert len(study.canonical()) < 1 << 16


# -- bad input --------------------------------------------------------------------------------------------------------


def _constant() -> dict[str, Any]:
    return frame() | {"age": np.full(900, 40.0), "dose": np.full(900, 5.0), "sex": np.array(["f"] * 900)}


BAD = {
    "constant": _constant(),
    "one-label": frame() | {"ill": np.array(["yes"] * 900), "stage": np.array(["II"] * 900), "cost": np.full(900, 7.0)},
    "duplicates": {k: np.repeat(v[:1], 900) for k, v in frame().items()},
    "one-record": {k: v[:1] for k, v in frame().items()},
    "unknown-category": frame() | {"sex": np.array(["other"] * 900)},
    "out-of-bounds": frame() | {"age": np.full(900, -1e308), "cost": np.full(900, 1e308)},
}


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize("case", BAD)
def test_degenerate_data_have_defined_results(case: str, mechanism: str) -> None:
    data = BAD[case]
    empty = {k: v[:0] for k, v in data.items()}
    fed = ts.Federation.simulate([data, empty], schema=SCHEMA, seed=1)  # and one client has no record
    settings = {"epsilon": 9.0, "mechanism": mechanism}
    for target in ("ill", "stage"):
        for kind in CLASSIFIERS:
            model = kind(rounds=3, **settings).fit(fed, target=target, features=FEATURES)
            assert np.isfinite(model.coef_).all()
            assert set(model.predict(data)) <= set(model.classes_)
        found = ts.evaluate(model, fed, target=target, epsilon=9.0)
        assert 0 <= found.accuracy_interval[0] <= found.accuracy <= found.accuracy_interval[1] <= 1
        assert np.isfinite(found.confusion).all()
    if case == "out-of-bounds":
        with pytest.raises(ts.StudyError, match="900 of 900 targets lie outside 0 to 1000"):
            ts.Ridge(**settings).fit(fed, target="cost", features=FEATURES)
    else:
        ridge = ts.Ridge(**settings).fit(fed, target="cost", features=FEATURES)
        assert np.isfinite(ridge.predict(data)).all()
    rows = ts.Summary(**settings).fit(fed).table_
    for row in rows:
        values = [row[k] for k in ("estimate", "standard_error", "lower", "upper") if row[k] is not None]
        assert np.isfinite(values).all()
        assert row["statistic"] == "correlation" or row["estimate"] is not None


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_one_class_missing_at_a_client_changes_nothing(kind: Any) -> None:
    """The sums are over all records: how they are spread over institutions leaves the bits alone."""
    data = frame(600)
    order = np.argsort(data["stage"], kind="stable")  # institution 1 has stage I alone, 3 has no stage I
    sorted_ = {k: v[order] for k, v in data.items()}
    even = [{k: v[i::3] for k, v in sorted_.items()} for i in range(3)]
    cuts = [0, 100, 350, 600]
    lopsided = [{k: v[a:b] for k, v in sorted_.items()} for a, b in itertools.pairwise(cuts)]
    assert set(lopsided[0]["stage"]) == {"I"}
    assert "I" not in set(lopsided[2]["stage"])
    models = [
        kind(epsilon=5.0, rounds=6).fit(
            ts.Federation.simulate(frames, schema=SCHEMA, seed=4), target="stage", features=FEATURES
        )
        for frames in (even, lopsided)
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].intercept_, models[1].intercept_)


def test_nobody_has_a_record() -> None:
    empty = {k: v[:0] for k, v in frame().items()}
    fed = ts.Federation.simulate([empty, empty], schema=SCHEMA, seed=1)
    for model, target in ((ts.LinearSVC(rounds=2), "ill"), (ts.Ridge(), "cost"), (ts.Summary(), None)):
        with pytest.raises(ts.TallystickError) as refused:
            model.fit(fed, target=target)
        assert refused.value.exit_code in (2, 3)


@pytest.mark.parametrize("bounds", [(5, 1), (0, math.inf), (3, 3), (math.nan, 1)])
def test_impossible_bounds_of_a_target_are_refused(bounds: Any) -> None:
    with pytest.raises(ts.BoundsError):
        ts.Ridge(bounds=(0, 1), target_bounds=bounds).fit([[0.5], [0.1]], [0.0, 1.0])


def test_targets_of_the_wrong_kind_are_refused() -> None:
    fed = federation()
    with pytest.raises(ts.StudyError, match="needs a number as its target"):
        ts.Ridge().fit(fed, target="ill")
    with pytest.raises(ts.StudyError, match="linear SVC needs a category"):
        ts.LinearSVC().fit(fed, target="cost")
    with pytest.raises(ts.StudyError, match="a summary has no target"):
        ts.Summary().fit(fed, target="ill")
    assert fed.spent.fits == 0


# -- multinomial logistic regression ----------------------------------------------------------------------------------


def test_multinomial_probabilities_add_up_and_match_scikit_learn() -> None:
    data, test = frame(3000, 1), frame(2000, 7)
    model = ts.LogisticRegression(epsilon=9.0).fit(federation(3000), target="stage", features=FEATURES)
    probabilities = model.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(test))

    def columns(d: dict[str, Any]) -> Any:
        return np.column_stack([d["age"] / 50 - 1, d["dose"] / 5 - 1, d["sex"] == "m"])

    plain = ScikitLogisticRegression().fit(columns(data), data["stage"])
    ours, theirs = np.mean(model.predict(test) == test["stage"]), plain.score(columns(test), test["stage"])
    assert ours > theirs - 0.03
    np.testing.assert_allclose(probabilities, plain.predict_proba(columns(test)), atol=0.25)


@pytest.mark.parametrize("label", ["I", "III"])
def test_multinomial_with_all_labels_equal_predicts_that_label(label: str) -> None:
    data = frame(600) | {"stage": np.array([label] * 600)}
    for kind in CLASSIFIERS:
        fed = ts.Federation.simulate(parts(data), schema=SCHEMA, seed=2)
        model = kind(epsilon=9.0, rounds=30).fit(fed, target="stage", features=FEATURES)
        assert np.mean(model.predict(frame(300, 5)) == label) > 0.99
        assert list(model.classes_) == ["I", "II", "III"]


def test_a_declared_class_that_nobody_has_is_never_predicted_much() -> None:
    data = frame(900)
    keep = data["stage"] != "II"
    fed = ts.Federation.simulate(parts({k: v[keep] for k, v in data.items()}), schema=SCHEMA, seed=2)
    for kind in CLASSIFIERS:
        model = kind(epsilon=9.0, rounds=40).fit(fed, target="stage", features=FEATURES)
        assert np.mean(model.predict({k: v[keep] for k, v in data.items()}) == "II") < 0.05
