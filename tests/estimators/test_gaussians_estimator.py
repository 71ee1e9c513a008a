"""GaussianNB and GaussianMixture through simulated federations: contract, accuracy, loading, streams, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import tallystick as ts
from tallystick.data.encoding import encode

pytestmark = [
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),
]
SCHEMA = ts.Schema(
    {
        "a": ts.Number(-10, 10),
        "b": ts.Number(0, 20),
        "s": ts.Category(["f", "m"]),
        "y": ts.Category(["p", "q", "r"]),
    }
)
CENTRES = np.array([[-5.0, 10.0], [5.0, 13.0], [0.0, 4.0]])


def frame(n: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = CENTRES[y] + rng.normal(0, 1.5, (n, 2))
    return {"a": x[:, 0], "b": x[:, 1], "s": rng.choice(["f", "m"], n), "y": np.array(["p", "q", "r"])[y]}


def federation(n: int = 1500, **more: Any) -> Any:
    return ts.Federation.simulate([frame(n // 3, s) for s in (1, 2, 3)], schema=SCHEMA, **({"seed": 4} | more))


@pytest.mark.parametrize(
    "own", [{}, {"neighbours": "add-remove"}, {"mechanism": "laplace"}, {"mechanism": "none"}], ids=str
)
def test_naive_bayes(own: dict[str, Any]) -> None:
    model = ts.GaussianNB(epsilon=1.0, **own).fit(federation(), target="y")
    test = frame(1000, seed=9)
    assert np.mean(model.predict(test) == test["y"]) > 0.93
    probabilities = model.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert np.isfinite(model.predict_log_proba(test)).all()
    assert model.class_count_.sum() == pytest.approx(1500, rel=0.1)
    assert model.model_document()["classes"] == ["p", "q", "r"]
    table = model.to_frame()
    np.testing.assert_allclose(np.array(table["a"]), CENTRES[:, 0], atol=1.5)
    assert table["count_lower"].is_null().all() == (own.get("neighbours") != "add-remove")
    assert model.plot().get_axes()
    records = encode(test, SCHEMA, target="y")
    scores = model.evaluate_records(records, records)
    assert scores["accuracy"] > 0.93
    assert scores["baseline_accuracy"] >= scores["majority_accuracy"]


@pytest.mark.parametrize("own", [{}, {"neighbours": "add-remove"}, {"mechanism": "none"}], ids=str)
def test_a_mixture(own: dict[str, Any]) -> None:
    fed = federation(6000)
    model = ts.GaussianMixture(3, epsilon=2.0, **own).fit(fed, features=["a", "b"])
    one = ts.GaussianMixture(1, epsilon=2.0, **own).fit(fed, features=["a", "b"])
    test = frame(1000, seed=9)
    assert model.score(test) > one.score(test) + 0.3
    assert model.predict_proba(test).shape == (1000, 3)
    assert set(model.predict(test)) <= {0, 1, 2}
    assert model.weights_.sum() == pytest.approx(1)
    assert (model.covariances_ > 0).all()
    assert len(model.to_frame()) == 3
    assert model.plot().get_axes()
    records = encode(test, SCHEMA, features=["a", "b"])
    scores = model.evaluate_records(records, records)
    assert scores["one_component_log_likelihood"] < scores["log_likelihood"]
    assert scores["log_likelihood"] <= scores["baseline_log_likelihood"] + 0.1


def test_a_mixture_in_much_noise_stays_in_its_bounds() -> None:
    model = ts.GaussianMixture(4, epsilon=0.05).fit(federation(300), features=["a", "b"])
    assert (np.abs(model.means_) <= 1).all()
    assert np.isfinite(model.score(frame(50)))


def test_a_mixture_learns_from_a_stream() -> None:
    study = ts.Study.from_dict(
        {
            "study": {"name": "s", "program": "gaussian_mixture", "features": ["a", "b"], "accept_noise": True},
            "program": {"n_components": 3},
            "privacy": {"epsilon": 5.0, "delta": 1e-5, "neighbours": "add-remove"},
            "stream": {"ticks": 6, "tick_seconds": 60, "records_per_tick": 500},
            "data": {"columns": SCHEMA.to_dict()},
        }
    )
    model = ts.GaussianMixture(3, epsilon=5.0, neighbours="add-remove").fit_study(federation(3000), study)
    assert np.isfinite(model.score(frame(50)))


def test_the_split_over_clients_does_not_matter() -> None:
    whole = frame(600)
    parts = [{k: v[i::4] for k, v in whole.items()} for i in range(4)]
    for model, target, features in ((ts.GaussianNB(), "y", None), (ts.GaussianMixture(2, rounds=3), None, ["a", "s"])):
        documents = [
            model.fit(
                ts.Federation.simulate(f, schema=SCHEMA, seed=3), target=target, features=features
            ).model_document()
            for f in ([whole], parts)
        ]
        assert documents[0] == documents[1]


def test_bad_input() -> None:
    with pytest.raises(ts.StudyError, match="category"):
        ts.GaussianNB().fit(federation(), target="a")
    with pytest.raises(ts.StudyError, match="target"):
        ts.GaussianNB().fit(federation())
    with pytest.raises(ts.StudyError, match="needs y"):
        ts.GaussianNB(schema=SCHEMA).fit(pd.DataFrame(frame(30))[["a", "b", "s"]])
    with pytest.raises(ts.StudyError, match="n_components"):
        ts.GaussianMixture(0).fit(federation())
