"""Trust model ``gossip`` simulated: one charge a record whatever the split, every row published, refusals, commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.application import planning
from tallystick.data.encoding import study_records
from tallystick.engines.planning import layout_of, plan_study
from tallystick.study import Study
from tallystick.trust.gossip.simulation import rows_of

TEXT = """
[study]
name = "ill"
program = "gossip_classifier"
target = "ill"
[privacy]
epsilon = 5.0
[trust]
model = "gossip"
[data]
records = 1200
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
dose = { type = "number", lower = 0, upper = 50, log = 10 }
sex = { type = "category", values = ["f", "m"] }
ill = { type = "category", values = ["no", "yes"] }
"""
SCHEMA = Study.parse(TEXT).schema_of_data()


def frame(n: int = 1200, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    age = np.clip(rng.normal(np.where(ill, 75, 25), 12), 0, 100)
    dose = np.clip(rng.exponential(np.where(ill, 20, 1.0)), 0, 50)
    return {"age": age, "dose": dose, "sex": rng.choice(["f", "m"], n), "ill": np.where(ill, "yes", "no")}


def federation(parts: int = 3, **options: Any) -> Any:
    whole = frame()
    frames = [{k: v[i::parts] for k, v in whole.items()} for i in range(parts)]
    return ts.Federation.simulate(frames, **{"schema": SCHEMA, "trust": "gossip", "seed": 3, **options})


def accuracy(model: Any) -> float:
    test = frame(seed=1)
    return float(np.mean(model.predict({k: v for k, v in test.items() if k != "ill"}) == test["ill"]))


@pytest.mark.parametrize("randomiser", ["subset", "laplace", "gaussian"])
def test_it_learns_under_every_randomiser(randomiser: str) -> None:
    fed = federation()
    model = ts.GossipClassifier(epsilon=5.0, randomiser=randomiser).fit(fed, target="ill")
    assert accuracy(model) > (0.6 if randomiser == "gaussian" else 0.75)  # of variance 3.8 a coordinate, not .3
    assert model.privacy_.mechanism == randomiser
    assert model.privacy_.trust["model"] == "gossip"
    assert (model.privacy_.delta == 0) == (randomiser != "gaussian")
    assert fed.spent.epsilon == pytest.approx(5.0, rel=0.02)
    assert len(model.contributors_) == 3
    assert model.coef_.shape == (1, 4)


def test_three_classes_and_a_seed_that_decides() -> None:
    data = frame()
    data["ill"] = np.where(data["age"] < 30, "young", np.where(data["dose"] > 5, "yes", "no"))
    columns = {name: SCHEMA[name] for name in ("age", "dose", "sex")}
    schema = ts.Schema({**columns, "ill": ts.Category(["young", "no", "yes"])})

    def fit(seed: int) -> Any:
        fed = ts.Federation.simulate([data], schema=schema, trust="gossip", seed=seed)
        return ts.GossipClassifier(epsilon=10.0).fit(fed, target="ill")

    model = fit(1)
    assert model.plan_.randomiser.label_kind == "randomised"
    predicted = model.predict({k: v for k, v in data.items() if k != "ill"})
    assert np.mean(predicted == data["ill"]) > 0.8
    assert np.array_equal(model.coef_, fit(1).coef_)
    assert not np.array_equal(model.coef_, fit(2).coef_)
    assert model.decision_function({k: v for k, v in data.items() if k != "ill"}).shape == (1200, 3)


def test_a_record_costs_the_same_however_records_are_split() -> None:
    costs = set()
    for parts in (1, 3, 1200):
        fed = federation(parts)
        ts.GossipClassifier(epsilon=2.0).fit(fed, target="ill")
        costs.add(fed.spent.epsilon)
    assert costs == {2.0}


def test_every_row_is_published_also_one_that_cannot_be_read() -> None:
    """What a record holds does not decide whether it is there: it goes out as zeros of class 0."""
    study = Study.parse(TEXT)
    data = {k: v[:6].copy() for k, v in frame().items()}
    data["age"][2], data["ill"][4] = np.nan, "maybe"
    records = study_records(study, data, lenient=True)
    design = ts.GossipClassifier().design_for(study, layout_of(study))
    vectors, labels = rows_of(records, design.program)
    assert len(vectors) == len(labels) == 6
    for gone in (2, 4):
        assert not vectors[gone].any()
        assert labels[gone] == 0
    assert vectors[[0, 1, 3, 5]].any(axis=1).all()


def test_missing_cells_are_encoded_as_the_study_says() -> None:
    data = frame(300)
    data["age"][::7] = np.nan
    fed = ts.Federation.simulate([data], schema=SCHEMA, trust="gossip", seed=1)
    with pytest.raises(ts.StudyError, match="missing"):
        ts.GossipClassifier(epsilon=5.0).fit(fed, target="ill")
    dropping = ts.Federation.simulate([data], schema=SCHEMA, trust="gossip", seed=1, missing=ts.Missing("?", "drop"))
    model = ts.GossipClassifier(epsilon=5.0).fit(dropping, target="ill")
    assert model.study_.data.records == 300


def test_persons_publish_as_many_records_each() -> None:
    text = TEXT.replace("epsilon = 5.0", 'epsilon = 5.0\nunit = "person"\nperson = "id"\nmax_records = 3')
    study = Study.parse(text)
    data = {k: v[:7] for k, v in frame().items()} | {"id": np.array(["a", "b", "a", "a", "a", "c", "b"])}
    records = study_records(study, data, lenient=True)
    design = ts.GossipClassifier().design_for(study, layout_of(study))
    vectors, _ = rows_of(records, design.program, study.privacy.max_records)
    assert len(vectors) == 9  # three of each person, zeros where there are fewer
    assert vectors.any(axis=1).tolist() == [True] * 3 + [True, True, False] + [True, False, False]
    data["age"] = data["age"].copy()
    data["age"][5] = np.nan  # all that c has: c publishes zeros, and as many
    lacking, _ = rows_of(study_records(study, data, lenient=True), design.program, study.privacy.max_records)
    assert len(lacking) == 9
    assert not lacking[6:].any()
    plan = plan_study(study, design, allow_not_private=False)
    assert float(plan.randomiser.pure_epsilon) == pytest.approx(5 / 3)  # type: ignore[attr-defined]
    assert plan.pure_epsilon == 5


def test_without_perturbation_it_says_so() -> None:
    model = ts.GossipClassifier(perturb="none").fit(federation(), target="ill")
    assert not model.privacy_.differentially_private
    assert "NOT differentially private" in model.privacy_.statement
    assert accuracy(model) > 0.9
    study = Study.parse(TEXT, settings=("program.perturb=none",))
    design = model.design_for(study, layout_of(study))
    with pytest.raises(ts.TallystickError) as refused:
        plan_study(study, design, allow_not_private=False)
    assert refused.value.exit_code == 3


def test_absent_peers_are_left_out() -> None:
    model = ts.GossipClassifier(epsilon=5.0).fit(federation(40, drop=0.3), target="ill")
    away = model.dropped_[0]
    assert 2 < len(away) < 25
    assert len(model.contributors_) + len(away) == 40


def test_other_combinations_are_refused_and_named() -> None:
    with pytest.raises(ts.TrustModelError, match="gossip"):
        ts.GossipClassifier().fit(federation(trust="servers"), target="ill")
    with pytest.raises(ts.TrustModelError, match="servers"):
        ts.LogisticRegression().fit(federation(), target="ill")


@pytest.mark.parametrize("epsilon, code", [(0.0, 3), (-1.0, 3), (12.0, 3)])
def test_epsilon_is_refused_before_anything_is_charged(epsilon: float, code: int) -> None:
    fed = federation()
    with pytest.raises(ts.TallystickError) as refused:
        ts.GossipClassifier(epsilon=epsilon).fit(fed, target="ill")
    assert refused.value.exit_code == code
    assert fed.spent.fits == 0


def test_the_override_is_in_the_result() -> None:
    model = ts.GossipClassifier(epsilon=12.0, weak_epsilon=True).fit(federation(), target="ill")
    assert model.privacy_.as_dict()["trust"]["weak_epsilon"] is True
    assert "OVERRIDDEN" in model.privacy_.statement


def test_one_class_is_refused() -> None:
    schema = ts.Schema({"age": ts.Number(0, 100), "ill": ts.Category(["no"])})
    with pytest.raises(ts.StudyError, match="one class"):
        ts.GossipClassifier().fit(
            ts.Federation.simulate([{"age": np.arange(9.0), "ill": ["no"] * 9}], schema=schema, trust="gossip"),
            target="ill",
        )


def test_records_that_are_all_zero_are_published_like_any_other() -> None:
    data = {"age": np.zeros(50), "ill": np.array(["no", "yes"] * 25)}
    schema = ts.Schema({"age": ts.Number(0, 100), "ill": ts.Category(["no", "yes"])})
    fed = ts.Federation.simulate([data], schema=schema, trust="gossip", seed=1)
    with pytest.warns(ts.DataWarning, match="age"):
        model = ts.GossipClassifier(epsilon=5.0, intercept=0.0).fit(fed, target="ill")
    assert np.isfinite(model.coef_).all()


def test_plain_data_are_fitted_too() -> None:
    data = frame()
    X = np.column_stack([data["age"], data["dose"]])
    with pytest.warns(ts.PrivacyWarning, match="no ledger"):
        model = ts.GossipClassifier(epsilon=5.0, bounds=(0, 100)).fit(X, data["ill"])
    assert np.mean(model.predict(X) == data["ill"]) > 0.75


def test_it_is_planned_and_the_plan_says_who_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    made = planning.plan(file)
    assert made["privacy"]["mechanism"] == "subset"
    words = planning.describe(made)
    assert "nobody" in words
    assert "candidates" in words
    assert "149 to 1" in words
