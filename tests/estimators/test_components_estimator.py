"""PCA and TruncatedSVD through simulated federations: contract, units, intervals, choices, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import decomposition
from sklearn.pipeline import make_pipeline

import tallystick as ts
from tallystick.application.loading import of_simulation, packed_fit
from tallystick.data.encoding import encode

pytestmark = [
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),
]
NAMES = [f"x{i}" for i in range(6)]
SCHEMA = ts.Schema({name: ts.Number(-10, 10) for name in NAMES})


def rows(n: int, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).normal(0, 1, (2, 6))
    return np.clip(rng.normal(0, 2, (n, 2)) @ mixing + rng.normal(1, 0.5, (n, 6)), -10, 10)


def federation(x: NDArray[np.float64], clients: int = 3, **more: Any) -> Any:
    frames = [dict(zip(NAMES, x[at::clients].T)) for at in range(clients)]
    return ts.Federation.simulate(frames, **({"schema": SCHEMA, "seed": 1} | more))


def test_the_contract() -> None:
    x = rows(3000)
    model = ts.PCA(2, epsilon=2.0).fit(federation(x))
    plain = decomposition.PCA(2).fit(x)
    assert np.abs(np.diag(model.components_ @ plain.components_.T)).min() > 0.97
    np.testing.assert_allclose(model.mean_, plain.mean_, atol=0.5)
    np.testing.assert_allclose(model.explained_variance_ratio_, plain.explained_variance_ratio_, atol=0.1)
    np.testing.assert_allclose(
        model.explained_variance_ * 100, plain.explained_variance_, rtol=0.2
    )  # half-widths of 10
    low, high = model.explained_variance_ratio_interval_
    assert (low <= model.explained_variance_ratio_).all()
    assert (model.explained_variance_ratio_ <= high).all()
    assert model.privacy_.epsilon == 2.0
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1"]
    assert model.model_document()["type"] == "PCA"
    coordinates = model.transform(dict(zip(NAMES, x.T)))
    assert coordinates.shape == (3000, 2)
    back = model.inverse_transform(coordinates)
    assert np.abs(back - x).mean() < 0.6


def test_plain_arrays_and_a_pipeline() -> None:
    x = rows(2000)
    model = ts.PCA(2, epsilon=50.0, bounds=(-10, 10)).fit(x)
    assert np.abs(model.inverse_transform(model.transform(x)) - x).mean() < 0.5
    joined = make_pipeline(ts.PCA(2, epsilon=50.0, bounds=(-10, 10)), decomposition.PCA(1)).fit(x)
    assert joined.transform(x).shape == (2000, 1)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"neighbours": "add-remove"},
        {"mechanism": "laplace", "epsilon": 20.0},
        {"noise": "equal"},
        {"basis": "dct"},
        {"rows": "unit"},
        {"columns": "uneven"},
        {"epsilon": 0.05},
        {"epsilon": 1e4},
        {"mechanism": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [ts.PCA, ts.TruncatedSVD])
def test_every_way_gives_unit_vectors_a_table_a_picture_and_loads_again(kind: Any, own: dict[str, Any]) -> None:
    model = kind(2, **({"epsilon": 1.0} | own)).fit(federation(rows(900)))
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-6)
    assert (model.explained_variance_ratio_ >= 0).all()
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-9
    assert all(c[np.abs(c).argmax()] > 0 for c in model.components_)
    table = model.to_frame()
    assert set(table["part"]) == {"explained variance ratio", "loadings of component 1", "loadings of component 2"}
    titles = [axes.get_title() for axes in model.plot().get_axes()]
    assert titles == ["explained variance ratio", "loadings of component 1", "loadings of component 2"]
    assert model.answer().notes[0]
    kept = of_simulation({**result_of(model), "fitted": packed_fit(model)})
    assert kept.model_document() == model.model_document()


def result_of(model: Any) -> dict[str, Any]:
    dropped = [{"round": r, "names": list(names)} for r, names in enumerate(model.dropped_, start=1)]
    return {"cost": {**model.cost_, "seconds": 0.0}, "participants": {"dropped": dropped, "min_clients": 1}}


def test_only_the_top_is_released() -> None:
    model = ts.PCA(4, epsilon=5.0, top=2).fit(federation(rows(900)))
    assert model.components_.shape == (2, 6)
    assert all(np.size(part) <= 2 * 6 for part in model.history_[-1])  # no scatter in what leaves


@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_the_intervals_cover_as_they_say(epsilon: float) -> None:
    """All ratios together in 95 of 100 runs; Weyl's inequality is generous, so nearly always."""
    x = rows(1500)
    covered = 0
    for seed in range(40):
        model = ts.PCA(2, epsilon=epsilon).fit(federation(x, seed=seed))
        z = model._program.space.rows(model._encode(dict(zip(NAMES, x.T)))) - model._mean
        radius = model.history_[-1].radius
        lengths = np.linalg.norm(z, axis=1)
        bounded = model._program.choices.bounded
        divisor = {"unit": lengths, "clip": np.maximum(lengths, radius), "longest": radius}[bounded]
        z = z / np.broadcast_to(divisor, len(z))[:, None]
        truth = np.linalg.eigvalsh(z.T @ z)[::-1][:2] / np.trace(z.T @ z)
        low, high = model.explained_variance_ratio_interval_
        covered += bool((low <= truth).all() and (truth <= high).all())
    assert covered >= 36


def test_where_nothing_can_be_promised_there_are_no_intervals() -> None:
    x = rows(900)
    for own in ({"neighbours": "add-remove"}, {"mechanism": "laplace"}, {"basis": "dct", "n_components": 1}):
        model = ts.PCA(**({"n_components": 2, "epsilon": 0.3} | own)).fit(federation(x))
        if own.get("basis") and model._program.choices.selected == 6:
            continue
        assert np.isnan(model.explained_variance_ratio_interval_[0]).all()
        assert "No intervals" in model.answer().notes[0]
        assert model.model_document()["explained_variance_ratio_interval"] is None


def test_a_basis_on_unordered_columns_is_warned_of_and_one_on_a_grid_is_not() -> None:
    x = rows(300)
    schema = ts.Schema({name: ts.Number(-10, 10 + i) for i, name in enumerate(NAMES)})
    with pytest.warns(ts.PrivacyWarning, match="look unordered"):
        ts.PCA(2, basis="dct").fit(federation(x, schema=schema))
    model = ts.PCA(2, basis="dct", shape=(2, 3)).fit(federation(x, schema=schema))
    assert not any("look unordered" in note for note in model.plan_.notes)


def test_the_split_over_clients_does_not_matter() -> None:
    x = rows(600)
    models = [ts.PCA(2, columns="uneven").fit(federation(x, clients=c)) for c in (1, 2, 7)]
    for model in models[1:]:
        assert np.array_equal(model.components_, models[0].components_)


def test_persons_and_missing_values() -> None:
    x = rows(300)
    frame = dict(zip(NAMES, x.T)) | {"who": [f"p{i % 100}" for i in range(300)]}
    schema = ts.Schema(dict(SCHEMA) | {"who": ts.Category([f"p{i}" for i in range(100)])})
    study = ts.Study.from_dict(
        {
            "study": {"name": "p", "program": "pca", "features": NAMES, "accept_noise": True},
            "privacy": {"epsilon": 5.0, "delta": 1e-5, "unit": "person", "person": "who", "max_records": 3},
            "data": {"columns": schema.to_dict()},
        }
    )
    fed = ts.Federation.simulate([frame], schema=schema, seed=2)
    model = ts.PCA(2, epsilon=5.0, delta=1e-5).fit_study(fed, study)
    assert model.privacy_.unit == "person"
    assert np.isfinite(model.components_).all()
    gaps = {name: [None if i % 50 == 3 else float(v) for i, v in enumerate(x[:, j])] for j, name in enumerate(NAMES)}
    dropped = ts.Federation.simulate([gaps], schema=SCHEMA, seed=2, missing=ts.Missing("?", "drop"))
    assert np.isfinite(ts.PCA(2, epsilon=5.0).fit(dropped).components_).all()


def test_captured_variance_of_a_simulation() -> None:
    x = rows(1500)
    model = ts.PCA(2, epsilon=2.0).fit(federation(x))
    records = encode(dict(zip(NAMES, x.T)), SCHEMA)
    scores = model.evaluate_records(records, records)
    assert 0.9 < scores["captured_variance"] <= scores["baseline_captured_variance"] + 1e-9
    random = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0].T
    model.components_ = random
    assert model.evaluate_records(records, records)["captured_variance"] < 0.9


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: ts.PCA(7).fit(federation(rows(50))), "7 components of 6"),
        (lambda: ts.PCA(3).fit(federation(rows(2), clients=1)), "3 components of 2 records"),
        (lambda: ts.PCA(2).fit(federation(np.zeros((0, 6)))), "no institution holds a record"),
        (lambda: ts.PCA(2).fit(federation(np.full((9, 6), np.nan))), "missing values"),
        (lambda: ts.PCA(2, basis="wavelet").fit(federation(rows(50))), "basis"),
        (lambda: ts.TruncatedSVD(7).fit(federation(rows(50), trust="proxy")), "7 components of 6"),
        (lambda: ts.PCA(0).fit(federation(rows(50))), "n_components"),
        (lambda: ts.PCA(2, bounds=(-1, 1)).fit(np.array([[np.nan, 0.0], [1.0, 1.0]])), "NaN"),
        (lambda: ts.PCA(1).fit(rows(50)), "bounds"),
        (lambda: ts.PCA(2).fit(federation(rows(50))).inverse_transform(np.ones((2, 3))), "takes 2 columns"),
    ],
)
def test_bad_input_has_a_cause_and_a_remedy(wrong: Any, words: str) -> None:
    with pytest.raises((ts.TallystickError, ValueError), match=words):
        wrong()


def test_rows_of_zeros_do_no_harm() -> None:
    x = np.zeros((60, 6))
    for rows_are in ("given", "unit"):
        model = ts.PCA(2, rows=rows_are).fit(federation(x))
        assert np.isfinite(model.components_).all()
