"""LinearSVC and LogisticRegression on a map's features, from fit to file and back."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tallystick as ts
from tallystick.core.errors import PrivacyWarning, StudyError

SCHEMA = ts.Schema(
    {"a": ts.Number(-2, 2), "b": ts.Number(-2, 2), "kind": ts.Category(["u", "v"]), "y": ts.Category(["in", "out"])}
)


def ring(n: int, seed: int) -> pl.DataFrame:
    """Inside or outside of a circle: a linear model is no better than the majority."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-2, 2, (2, n))
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "kind": np.where(rng.random(n) < 0.5, "u", "v"),
            "y": np.where(a**2 + b**2 < 2.5, "in", "out"),
        }
    )


@lru_cache
def federation(clients: int = 3, **trust: Any) -> Any:
    frame = ring(3000, 1)
    return ts.Federation.simulate([frame[i::clients] for i in range(clients)], schema=SCHEMA, seed=4, **trust)


@lru_cache
def fitted(name: str, clients: int = 3, **keywords: Any) -> Any:
    made = getattr(ts, name)(epsilon=3.0, delta=1e-6, feature_map="rbf", rounds=24, n_features=64, **keywords)
    return made.fit(federation(clients), target="y")


def accuracy(model: Any, frame: pl.DataFrame) -> float:
    return float(np.mean(model.predict(frame) == frame["y"].to_numpy()))


@pytest.mark.parametrize("name", ["LinearSVC", "LogisticRegression"])
def test_a_kernel_learns_what_a_linear_model_cannot(name: str) -> None:
    test = ring(1000, 2)
    model = fitted(name)
    assert accuracy(model, test) > 0.85
    linear = getattr(ts, name)(epsilon=3.0, delta=1e-6, rounds=24).fit(federation(), target="y")
    assert accuracy(linear, test) < 0.75
    assert model.coef_.shape == (1, 64)
    assert model.n_features_in_ == 4
    assert any("orthogonal random features" in note for note in model.plan_.notes)
    assert model.plan_.details["feature_map"]["n_features"] == 64
    assert model.privacy_.epsilon == 3.0
    assert "feature 64" in [row["term"] for row in model.to_frame().iter_rows(named=True)]


def test_the_same_bits_however_the_records_are_split() -> None:
    assert fitted("LinearSVC").coef_.tobytes() == fitted("LinearSVC", clients=1).coef_.tobytes()


def test_predictions_do_not_depend_on_the_other_rows() -> None:
    model, test = fitted("LogisticRegression"), ring(50, 3)
    whole = model.decision_function(test)
    alone = np.concatenate([model.decision_function(test[i : i + 1]) for i in range(50)])
    assert np.allclose(whole, alone, atol=1e-12)
    assert model.predict_proba(test).sum(axis=1) == pytest.approx(np.ones(50))


def test_every_trust_model_that_sums_runs_it_with_the_same_bits_but_the_noise() -> None:
    common: dict[str, Any] = {"mechanism": "none", "feature_map": "rbf", "rounds": 4, "n_features": 32}
    found = {}
    for name, trust in {"servers": {"servers": 2}, "proxy": {"trust": "proxy"}}.items():
        try:
            fed = federation(3, **trust)
        except ts.TrustModelError as missing:  # the homomorphic libraries are an extra
            pytest.skip(str(missing))
        found[name] = ts.LinearSVC(**common).fit(fed, target="y").coef_.tobytes()
    assert found["servers"] == found["proxy"]


def test_a_written_result_is_read_back(tmp_path: Path) -> None:
    from tallystick.application.simulation import simulate

    ring(600, 1).write_csv(tmp_path / "data.csv")
    study = tmp_path / "study.toml"
    study.write_text(
        """
[study]
name = "a ring"
program = "linear_svc"
target = "y"
accept_noise = true
[program]
feature_map = "rbf"
gamma = 1.5
n_features = 40
feature_seed = 7
rounds = 8
[privacy]
epsilon = 3.0
delta = 1e-6
[trust]
model = "servers"
servers = 2
[data]
records = 600
[data.columns]
a = { type = "number", lower = -2, upper = 2 }
b = { type = "number", lower = -2, upper = 2 }
kind = { type = "category", values = ["u", "v"] }
y = { type = "category", values = ["in", "out"] }
""",
        encoding="utf-8",
    )
    result = simulate(study, data=(tmp_path / "data.csv",), clients=3, seed=1)
    assert json.loads(json.dumps(result["model"])) == result["model"]
    assert result["model"]["feature_map"] == {"kernel": "rbf", "gamma": 1.5, "n_features": 40, "seed": 7}
    (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    model = ts.load(tmp_path / "result.json")
    assert model.model_document() == result["model"]
    assert set(model.predict(ring(20, 5))) <= {"in", "out"}


def test_ts_evaluate_takes_the_map_along() -> None:
    found = ts.evaluate(fitted("LinearSVC"), federation(), target="y", epsilon=5.0)
    assert found.accuracy == pytest.approx(accuracy(fitted("LinearSVC"), ring(3000, 1)), abs=0.03)


def test_a_study_without_a_map_says_nothing_of_one() -> None:
    """Its hash stays what it was before there were maps."""
    study = ts.LinearSVC().study_for(federation(), target="y", features=None)
    assert not {"feature_map", "gamma", "degree", "coef0", "n_features", "landmarks", "feature_seed"} & set(
        study.program
    )
    mapped = ts.LinearSVC(feature_map="rbf").study_for(federation(), target="y", features=None)
    assert mapped.program["feature_map"] == "rbf"
    other = ts.LinearSVC(feature_map="rbf", feature_seed=1).study_for(federation(), target="y", features=None)
    assert len({study.hash, mapped.hash, other.hash}) == 3  # the hash covers the map


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"feature_map": "rbf", "gamma": 0.0}, "gamma"),
        ({"gamma": 0.5}, "feature map"),
        ({"feature_map": "laplacian"}, "feature_map"),
        ({"feature_map": "rbf", "landmarks": np.zeros((2, 3))}, "landmarks"),
    ],
)
def test_what_is_not_meant_is_refused(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        ts.LinearSVC(**keywords).fit(federation(), target="y")


def test_landmarks_and_plain_data() -> None:
    frame = ring(800, 1)
    X = frame.select("a", "b").to_numpy()
    points = np.array([[x, y] for x in (-1, 0, 1) for y in (-1, 0, 1)], dtype=float)
    model = ts.LogisticRegression(
        epsilon=50.0, bounds=(-2, 2), feature_map="rbf", gamma=2.0, landmarks=points, rounds=60
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model.fit(X, frame["y"].to_numpy())
    assert model.coef_.shape == (1, 9)
    assert model.score(X, frame["y"].to_numpy()) > 0.85
