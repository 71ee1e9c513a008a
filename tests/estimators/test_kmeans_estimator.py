"""``KMeans`` as its users meet it: federations, plain arrays, odd input, simulation, scikit-learn."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import tallystick as ts
from tallystick.application.result_document import describe_result
from tallystick.application.simulation import simulate
from tallystick.core.errors import DataError, PrivacyRefused, StudyError

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]

SCHEMA = ts.Schema({"age": ts.Number(0, 100), "pay": ts.Number(0, 1e5, log=True), "town": ts.Category(["A", "B", "C"])})
MIDDLES = {"age": (30.0, 70.0, 50.0), "pay": (1e3, 5e4, 1e4), "town": ("A", "B", "C")}
NURSERY = Path(__file__).parents[3] / "shared" / "data" / "nursery.parquet"
OPTDIGITS = NURSERY.with_name("optdigits.parquet")
EXAMPLES = Path(__file__).parents[2] / "examples"


def people(count: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, count)
    return {
        "age": np.clip(np.array(MIDDLES["age"])[which] + 3 * rng.normal(size=count), 0, 100),
        "pay": np.array(MIDDLES["pay"])[which] * np.exp(0.1 * rng.normal(size=count)),
        "town": np.array(MIDDLES["town"])[which],
    }


def federation(data: dict[str, Any], clients: int = 3, **more: Any) -> Any:
    parts = [{k: v[i::clients] for k, v in data.items()} for i in range(clients)]
    return ts.Federation.simulate(parts, schema=SCHEMA, **more)


def test_centres_come_in_the_units_that_were_declared() -> None:
    model = ts.KMeans(3, epsilon=5.0).fit(federation(people(3000)))
    assert list(model.feature_names_in_) == ["age", "pay", "town=A", "town=B", "town=C"]
    order = np.argsort(model.cluster_centers_[:, 0])
    found = model.cluster_centers_[order]
    assert np.allclose(found[:, 0], [30, 50, 70], atol=4)
    assert np.allclose(np.log(found[:, 1]), np.log([1e3, 1e4, 5e4]), atol=0.4)
    assert np.allclose(found[:, 2:], [[1, 0, 0], [0, 0, 1], [0, 1, 0]], atol=0.1)
    assert model.counts_.sum() == pytest.approx(3000)
    assert np.abs(model.counts_ - 1000).max() < 150
    assert not hasattr(model, "labels_")
    assert not hasattr(model, "inertia_")


def test_predict_and_transform_agree() -> None:
    model = ts.KMeans(3, epsilon=5.0).fit(federation(people(3000)))
    new = people(50, seed=1)
    far = model.transform(new)
    assert far.shape == (50, 3)
    assert np.array_equal(model.predict(new), far.argmin(axis=1))
    assert len(np.unique(model.predict(new))) == 3
    assert list(model.get_feature_names_out()) == ["kmeans0", "kmeans1", "kmeans2"]


def test_plain_arrays_have_centres_in_their_own_units() -> None:
    rng = np.random.default_rng(2)
    X = np.vstack([rng.normal(10, 1, (800, 2)), rng.normal(40, 1, (800, 2))])
    model = ts.KMeans(2, epsilon=5.0, bounds=(0, 50)).fit(X)
    assert np.allclose(np.sort(model.cluster_centers_[:, 0]), [10, 40], atol=2)
    assert model.n_features_in_ == 2
    assert not hasattr(model, "feature_names_in_")
    assert len(set(model.predict([[9, 9], [41, 41]]))) == 2


def test_add_remove_persons_and_pure_epsilon() -> None:
    data = people(3000)
    for more in ({"neighbours": "add-remove"}, {"mechanism": "laplace"}):
        model = ts.KMeans(3, epsilon=5.0, **more).fit(federation(data))
        assert np.allclose(np.sort(model.cluster_centers_[:, 0]), [30, 50, 70], atol=10)
        assert model.privacy_.epsilon <= 5.0
    person = dict(data, who=np.arange(3000) // 2)
    schema = ts.Schema(dict(SCHEMA))
    parts = [{k: v[i * 1000 : (i + 1) * 1000] for k, v in person.items()} for i in range(3)]
    fed = ts.Federation.simulate(parts, schema=schema)
    study = ts.KMeans(3, epsilon=20.0, rounds=4).study_for(fed, target=None, features=["age", "pay", "town"])
    study = study.replace("privacy", unit="person", person="who", max_records=2, max_institutions=1)
    model = ts.KMeans(3, epsilon=20.0, rounds=4).fit_study(fed, study)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.privacy_.as_dict()["unit"] == "person"


def test_pem_as_written_runs_by_its_keywords() -> None:
    model = ts.KMeans(3, epsilon=100.0, mechanism="laplace", method="plain", start="random", rounds=50, seed=4)
    model.fit(federation(people(3000)))
    assert model.n_iter_ == 50
    assert {g.name: g.share for g in model.plan_.rounds[0].grid.groups} == {"sums": 0.5, "counts": 0.5}
    given = np.zeros((3, 5))
    given[:, 0] = [-0.4, 0.0, 0.4]
    start = ts.KMeans(3, epsilon=100.0, mechanism="laplace", method="plain", start=given, rounds=5)
    assert start.fit(federation(people(3000))).n_iter_ == 5


# -- odd input ------------------------------------------------------------------------------------------------------


def test_k_larger_than_records_is_a_typed_error() -> None:
    with pytest.raises(StudyError, match="5 clusters for 4 records") as refused:
        ts.KMeans(5, bounds=(0, 1)).fit(np.eye(4))
    assert refused.value.rule == "clusters-within-records"


def test_an_empty_client_adds_nothing() -> None:
    data = people(2000)
    parts = [{k: v[:0] for k, v in data.items()}, data, {k: v[:1] for k, v in data.items()}]
    model = ts.KMeans(3, epsilon=5.0).fit(ts.Federation.simulate(parts, schema=SCHEMA))
    assert np.allclose(np.sort(model.cluster_centers_[:, 0]), [30, 50, 70], atol=5)


def test_a_constant_column_stays_what_it_is() -> None:
    data = people(2000)
    data["age"] = np.full(2000, 42.0)
    model = ts.KMeans(3, epsilon=5.0).fit(federation(data))
    used = model.counts_ > 200
    assert np.allclose(model.cluster_centers_[used, 0], 42, atol=5)


def test_duplicates_count_as_often_as_they_occur() -> None:
    X = np.repeat([[1.0, 1.0], [9.0, 9.0]], 700, axis=0)
    model = ts.KMeans(2, epsilon=5.0, bounds=(0, 10)).fit(X)
    assert np.allclose(np.sort(model.cluster_centers_[:, 0]), [1, 9], atol=0.5)
    assert np.abs(model.counts_ - 700).max() < 100
    many = ts.KMeans(6, epsilon=5.0, bounds=(0, 10)).fit(X)  # more clusters than different records
    assert np.isfinite(many.cluster_centers_).all()


def test_negative_bounds_are_bounds_and_reversed_ones_a_typed_error() -> None:
    X = np.repeat([[-90.0, -90.0], [-20.0, -20.0]], 700, axis=0)
    model = ts.KMeans(2, epsilon=5.0, bounds=(-100, -10)).fit(X)
    assert np.allclose(np.sort(model.cluster_centers_[:, 0]), [-90, -20], atol=5)
    outside = ts.KMeans(2, epsilon=5.0, bounds=(-100, -50)).fit(X)  # values beyond the bounds are put on them
    assert np.all((outside.cluster_centers_ >= -100) & (outside.cluster_centers_ <= -50))
    for bounds in ((-10, -100), (-10, -10)):
        with pytest.raises(StudyError) as refused:
            ts.KMeans(2, bounds=bounds).fit(X)
        assert refused.value.remedy


def test_clients_that_are_all_empty_give_centres_within_the_bounds() -> None:
    parts = [{k: v[:0] for k, v in people(3).items()}] * 3
    study_less = ts.KMeans(2, epsilon=5.0, neighbours="add-remove")
    model = study_less.fit(ts.Federation.simulate(parts, schema=SCHEMA))
    assert np.all((model.cluster_centers_[:, 0] >= 0) & (model.cluster_centers_[:, 0] <= 100))


def test_too_little_data_is_refused_unless_noise_is_accepted(tmp_path: Path) -> None:
    study = (EXAMPLES / "nursery.toml").read_text()
    (tmp_path / "study.toml").write_text(study)
    rows = {name: [v] * 30 for name, v in zip(NURSERY_COLUMNS, NURSERY_ROW)}
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(rows), tmp_path / "few.parquet")
    keywords: dict[str, Any] = {"data": (tmp_path / "few.parquet",), "clients": 3, "seed": 1}
    with pytest.raises(PrivacyRefused, match="nothing but noise"):
        simulate(tmp_path / "study.toml", settings=("privacy.epsilon=0.05",), **keywords)
    accepted = ("privacy.epsilon=0.05", "study.accept_noise=true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.PrivacyWarning)
        result = simulate(tmp_path / "study.toml", settings=accepted, **keywords)
    assert "times their spread" in result["noise_warning"]


NURSERY_COLUMNS = ("parents", "has_nurs", "form", "children", "housing", "finance", "social", "health")
NURSERY_ROW = ("usual", "proper", "foster", "2", "critical", "inconv", "nonprob", "priority")


def test_nothing_to_evaluate_is_a_typed_error() -> None:
    model = ts.KMeans(3, epsilon=5.0).fit(federation(people(300)))
    from tallystick.data.encoding import encode

    records = encode(people(20), SCHEMA, features=list(SCHEMA))
    with pytest.raises(DataError, match="nothing to evaluate"):
        model.evaluate_records(records, records.take([]))
    scores = model.evaluate_records(records, records)
    assert scores["loss"] >= scores["baseline_loss"]
    assert scores["relative_loss"] == pytest.approx(scores["loss"] / scores["baseline_loss"] - 1)


# -- simulation -----------------------------------------------------------------------------------------------------

MARKS = {0.05: 0.091, 0.1: 0.067, 0.5: 0.001, 1.0: -0.006, 2.0: -0.008, 10.0: 0.001}
PHI0 = 4.5632 * 12960
"""The loss that shared/measurements.md 1b divides by: its one uniform centroid scores .198 (docs/results/kmeans.md)."""


@pytest.mark.skipif(not NURSERY.exists(), reason="shared/data/nursery.parquet is not here")
@pytest.mark.parametrize(
    "epsilon", [pytest.param(e, marks=[] if e in (0.1, 1.0) else [pytest.mark.audit]) for e in MARKS]
)
def test_nursery_is_below_the_marks(epsilon: float) -> None:
    results = [
        simulate(
            EXAMPLES / "nursery.toml",
            data=(NURSERY,),
            clients=4,
            seed=seed,
            settings=(f"privacy.epsilon={epsilon}", f"program.seed={seed}"),
        )
        for seed in range(1, 7)  # a third of the runs end in a worse optimum, with any noise: two say little
    ]
    evaluation = results[0]["simulation"]["evaluation"]
    assert evaluation["method"] == "own records"
    assert evaluation["one_centre_loss"] == pytest.approx(1.198 * PHI0, rel=1e-3)
    assert np.mean([r["simulation"]["evaluation"]["loss"] for r in results]) / PHI0 - 1 < MARKS[epsilon]
    assert "relative loss" in describe_result(results[0])
    assert results[0]["model"]["features"][0] == "parents=usual"
    assert len(results[0]["model"]["cluster_centers"]) == 5


@pytest.mark.skipif(not OPTDIGITS.exists(), reason="shared/data/optdigits.parquet is not here")
def test_digits_have_real_clusters_and_the_example_finds_them() -> None:
    result = simulate(EXAMPLES / "optdigits.toml", data=(OPTDIGITS,), clients=4, seed=1)
    evaluation = result["simulation"]["evaluation"]
    assert evaluation["relative_loss"] < 0.3
    assert evaluation["one_centre_relative_loss"] > 0.8


# -- scikit-learn ---------------------------------------------------------------------------------------------------

_NOISE = "two private fits differ by their noise; passes when both draw the same (test_two_fits_*)"
EXPECTED = ("check_fit_idempotent",)
SKIPPED_FOR_THE_TAG = ("check_transformer_general", "check_transformer_data_not_an_array", "check_pipeline_consistency")


def estimator() -> ts.KMeans:
    return ts.KMeans(2, epsilon=1e4, bounds=(-100, 100), rounds=4)


def expected(_: Any) -> dict[str, str]:
    return dict.fromkeys(EXPECTED, _NOISE)


@parametrize_with_checks([estimator()], expected_failed_checks=expected)
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.usefixtures("equal_noise")
@pytest.mark.parametrize("name", [*EXPECTED, *SKIPPED_FOR_THE_TAG])
def test_two_fits_that_draw_the_same_noise_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ts.KMeans.__sklearn_tags__

    def tags(self: ts.KMeans) -> Any:
        found = original(self)
        found.non_deterministic = False
        return found

    monkeypatch.setattr(ts.KMeans, "__sklearn_tags__", tags)
    getattr(estimator_checks, name)("KMeans", estimator())


@pytest.mark.parametrize("name", ["check_methods_sample_order_invariance", "check_methods_subset_invariance"])
def test_predictions_do_not_depend_on_the_other_rows(name: str) -> None:
    getattr(estimator_checks, name)("KMeans", estimator())
