"""The Python half of docs/contract.md, as far as it is built: names, signatures, errors, statements, budgets."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import tallystick as ts
from tallystick.privacy.gaussian_curve import gaussian_epsilon

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
]

SCHEMA = ts.Schema({"age": ts.Number(17, 90), "sex": ts.Category(["f", "m"]), "income": ts.Category(["low", "high"])})


def frame(records: int = 300, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age = rng.uniform(17, 90, records)
    income = np.where(age + rng.normal(0, 10, records) > 50, "high", "low")
    return {"age": age, "sex": rng.choice(["f", "m"], records), "income": income}


def federation(**settings: Any) -> Any:
    return ts.Federation.simulate([frame(seed=s) for s in (1, 2, 3)], **{"schema": SCHEMA, **settings})


# -- names and signatures ---------------------------------------------------------------------------------------------


def keywords(function: Any) -> dict[str, Any]:
    return {
        name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }


def test_federation_simulate_has_the_contracts_keywords() -> None:
    wanted = {
        "schema": None,
        "trust": "servers",
        "servers": 2,
        "colluding": None,
        "parties": 3,
        "min_clients": None,
        "seed": None,
        "names": None,
        "drop": 0.0,
    }
    found = keywords(ts.Federation.simulate)
    assert {k: found[k] for k in wanted} == wanted
    assert next(iter(inspect.signature(ts.Federation.simulate).parameters)) == "frames"
    assert all(default is not inspect.Parameter.empty for default in found.values())


def test_logistic_regression_has_the_contracts_parameters() -> None:
    found = keywords(ts.LogisticRegression.__init__)
    common = {
        "epsilon": 1.0,
        "delta": None,
        "neighbours": "replace-one",
        "mechanism": "gaussian",
        "schema": None,
        "bounds": None,
    }
    own = {"rounds": "auto", "clip": "auto", "learning_rate": "auto", "l2": "auto", "fit_intercept": True}
    assert {k: found.get(k, "absent") for k in common | own} == common | own
    assert list(keywords(ts.LogisticRegression.fit)) == ["target", "features", "name", "purpose"]


def test_schema_types_take_the_contracts_arguments() -> None:
    assert ts.Number(0, 1, bins=[0.5], log=False) == ts.Number(lower=0, upper=1, bins=[0.5])
    assert ts.Integer(0, 10, step=2) == ts.Integer(lower=0, upper=10, step=2)
    assert ts.Category(["a"], merge="other") == ts.Category(values=["a"], merge="other")
    assert ts.Items(["a", "b"], 2) == ts.Items(vocabulary=["a", "b"], max_per_record=2)


def test_every_error_is_a_tallystick_error() -> None:
    errors = ("StudyError", "BoundsError", "BudgetExceeded", "TooFewParties", "TrustModelError", "RoundAborted")
    for name in (*errors, "VerificationError"):
        assert issubclass(getattr(ts, name), ts.TallystickError), name
    error = ts.RoundAborted("a cause", party="clinic", round=3, remedy="a remedy")
    assert (error.party, error.round, error.cause, error.remedy) == ("clinic", 3, "a cause", "a remedy")
    assert issubclass(ts.PrivacyWarning, Warning)


def test_all_public_names_exist() -> None:
    for name in ts.__all__:
        assert getattr(ts, name) is not None
    assert set(dir(ts)) >= set(ts.__all__)
    with pytest.raises(AttributeError, match="no attribute 'KMens'"):
        _ = ts.KMens


# -- what a fit says --------------------------------------------------------------------------------------------------


def test_a_fit_states_its_privacy_in_words_and_as_data() -> None:
    fed = federation(servers=3, colluding=1)
    model = ts.LogisticRegression(epsilon=1.5, delta=1e-7, rounds=4).fit(fed, target="income")
    privacy = model.privacy_
    assert (privacy.epsilon, privacy.delta, privacy.neighbours, privacy.unit) == (1.5, 1e-7, "replace-one", "record")
    assert (privacy.mechanism, privacy.rounds, privacy.differentially_private) == ("gaussian", 5, True)
    assert privacy.trust == {"model": "servers", "servers": 3, "colluding": 1, "honest": 2}
    assert privacy.noise_std["total"] == pytest.approx(privacy.noise_std["per_server"] * math.sqrt(3))
    assert gaussian_epsilon(model.plan_.rho, 1e-7) <= 1.5
    assert "epsilon = 1.5, delta = 1e-07" in privacy.statement
    assert "any one of the 3 servers" in privacy.statement
    as_dict = privacy.as_dict()
    assert as_dict == dataclasses.asdict(privacy)
    assert json.loads(json.dumps(as_dict)) == as_dict
    assert model.contributors_ == ("client-1", "client-2", "client-3")
    assert model.dropped_ == ((),) * 5
    assert len(model.history_) == model.n_iter_ == 5
    assert list(model.classes_) == ["low", "high"]
    assert list(model.feature_names_in_) == ["age", "sex=f", "sex=m"]
    assert model.coef_.shape == (1, 3)


def test_two_fits_compose_on_the_federation() -> None:
    fed = federation()
    assert (fed.spent.fits, fed.spent.epsilon) == (0, 0.0)
    ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=2).fit(fed, target="income")
    once = fed.spent
    ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=3).fit(fed, target="income", features=["age"])
    twice = fed.spent
    assert (once.fits, twice.fits) == (1, 2)
    assert twice.rho == pytest.approx(2 * once.rho, rel=1e-6)
    assert once.epsilon <= 1.0 < twice.epsilon < 2.0  # better than the sum, worse than one
    assert twice.epsilon == pytest.approx(gaussian_epsilon(twice.rho, 1e-6))
    assert "2 fit(s)" in twice.statement


def test_features_choose_the_columns() -> None:
    model = ts.LogisticRegression(rounds=2).fit(federation(), target="income", features=["age"])
    assert list(model.feature_names_in_) == ["age"]
    assert model.predict({"age": [20.0, 80.0]}).shape == (2,)


def test_a_federation_needs_the_target_by_name() -> None:
    fed = federation()
    with pytest.raises(ts.StudyError, match='target="…"'):
        ts.LogisticRegression().fit(fed, frame()["income"])
    with pytest.raises(ts.StudyError, match="needs a category as its target"):
        ts.LogisticRegression().fit(fed, target="age")
    with pytest.raises(ts.StudyError, match=r"'incme' is not declared.*income"):
        ts.LogisticRegression().fit(fed, target="incme")
    assert fed.spent.fits == 0


# -- plain data -------------------------------------------------------------------------------------------------------


def test_plain_data_warn_that_nobody_counts() -> None:
    data = frame()
    with pytest.warns(ts.PrivacyWarning, match=r"no ledger.*spends epsilon again.*classes were read from y"):
        ts.LogisticRegression(bounds=(0, 100), rounds=1, epsilon=10.0).fit(data["age"][:, None], data["income"])


def test_plain_data_without_bounds_print_the_lines_to_paste() -> None:
    import pandas as pd

    with pytest.raises(ts.BoundsError) as refused:
        ts.LogisticRegression().fit(pd.DataFrame({"age": [1.0], "height": [2.0]}), [0])
    assert '    "age": ts.Number(lower=..., upper=...)' in str(refused.value)
    assert '    "height": ts.Number(lower=..., upper=...)' in str(refused.value)
    assert "schema=ts.Schema({" in str(refused.value)
    assert "bounds=(lower, upper)" in str(refused.value)
    with pytest.raises(ts.BoundsError, match=r'"age": ts\.Number'):
        ts.LogisticRegression().fit(federation(schema=None), target="income")
    with pytest.raises(ts.BoundsError, match=r"ts\.Number"):
        ts.LogisticRegression().fit([[1.0], [2.0]], [0, 1])


def test_bounds_of_a_schema_print_the_line_to_paste() -> None:
    raw = {"study": {"name": "s", "program": "logistic_regression"}, "data": {"columns": {"age": {"type": "number"}}}}
    with pytest.raises(ts.StudyError, match=r"data\.columns\.age\.lower"):
        ts.Study.from_dict(raw)
    with pytest.raises(ts.BoundsError, match=r'"age": ts\.Number\(lower, upper\)'):
        ts.Schema.from_dict({"age": {"type": "number"}})


@pytest.mark.parametrize("bounds", [5, (1,), (0, 1, 2), "ab!", ([0, 0, 0], 1), (1, 0), (0, math.inf), (math.nan, 1)])
def test_impossible_bounds_are_refused(bounds: Any) -> None:
    with pytest.raises(ts.BoundsError):
        ts.LogisticRegression(bounds=bounds).fit([[0.5, 0.5], [0.1, 0.2]], [0, 1])


def test_plain_frames_are_read_by_name() -> None:
    import pandas as pd

    data = pd.DataFrame(frame(1000))
    model = ts.LogisticRegression(epsilon=10.0, schema=SCHEMA, rounds=30).fit(data[["sex", "age"]], data["income"])
    assert list(model.classes_) == ["low", "high"]  # as declared, not as found
    assert list(model.feature_names_in_) == ["age", "sex=f", "sex=m"]
    assert model.score(data[["age", "sex"]], data["income"]) > 0.75
    with pytest.raises(ts.StudyError, match="no column 'sex'"):
        model.predict(data[["age"]])
    with pytest.raises(ts.StudyError, match="one label per record"):
        ts.LogisticRegression(schema=SCHEMA).fit(data[["sex", "age"]], data["income"][:10])
    with pytest.raises(ts.StudyError, match="needs y"):
        ts.LogisticRegression(schema=SCHEMA).fit(data[["sex", "age"]])


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_every_kind_of_frame_gives_the_same_model(kind: str, equal_noise: None) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    data = frame(400)
    features = {k: data[k] for k in ("age", "sex")}
    make: dict[str, Any] = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "dict": dict}
    X = make[kind](features)
    model = ts.LogisticRegression(epsilon=10.0, schema=SCHEMA, rounds=3).fit(
        X, pd.Series(data["income"], name="income")
    )
    fed = ts.Federation.simulate([data], schema=SCHEMA)
    same = ts.LogisticRegression(epsilon=10.0, rounds=3).fit(fed, target="income")
    np.testing.assert_array_equal(model.predict(X), same.predict(data))
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_declared_classes_are_public_found_ones_are_not() -> None:
    """A class that no record has is a class all the same when the schema declares it."""
    X, y = np.linspace(0, 1, 50)[:, None], np.repeat(["a", "b"], 25)
    schema = ts.Schema({"x": ts.Number(0, 1), "y": ts.Category(["c", "b", "a"])})
    assert list(ts.LogisticRegression(schema=schema, rounds=2).fit(X, y).classes_) == ["c", "b", "a"]
    assert list(ts.LogisticRegression(bounds=(0, 1), rounds=2).fit(X, y).classes_) == ["a", "b"]


def test_coefficients_are_in_the_callers_units() -> None:
    data = frame(2000)
    X = np.column_stack([data["age"], (data["sex"] == "m") * 1.0])
    model = ts.LogisticRegression(epsilon=1e4, bounds=([17, 0], [90, 1])).fit(X, data["income"])
    by_hand = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(by_hand[:, 0], model.decision_function(X), rtol=1e-9, atol=1e-9)
    assert model.score(X, data["income"]) > 0.8


def test_a_matrix_with_a_schema_keeps_its_order() -> None:
    data = frame(500)
    X = np.column_stack([data["age"], (data["sex"] == "m") * 1.0])
    schema = ts.Schema({"age": ts.Number(17, 90, bins=[30, 50]), "male": ts.Category([0.0, 1.0])})
    model = ts.LogisticRegression(epsilon=10.0, schema=schema, rounds=20).fit(X, data["income"])
    assert model.coef_.shape == (1, 5)  # three bins, two categories: the encoded columns
    assert model.n_features_in_ == 2
    assert model.score(X, data["income"]) > 0.7
    with pytest.raises(ts.BoundsError, match="declares 2 features where X has 1"):
        ts.LogisticRegression(schema=schema).fit(X[:, :1], data["income"])


def test_a_program_of_ones_own_needs_y_declared() -> None:
    class Sum(ts.Program):
        bound = 1.0

        def init(self, public: ts.Public) -> Any:
            return np.zeros(1)

        def map_in_client(self, record, state):  # type: ignore[no-untyped-def]
            out = np.zeros(1)
            out[0] = record[0] * record[1]
            return out

        def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
            return total

    X, y = np.full((200, 1), 1.0), np.full(200, 0.5)
    with pytest.raises(ts.BoundsError, match="y is not declared"):
        ts.ProgramEstimator(Sum(), bounds=(-1, 1)).fit(X, y)
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Number(0, 1)})
    model = ts.ProgramEstimator(Sum(), mechanism="none", schema=schema).fit(X, y)
    assert model.state_ == pytest.approx([100.0])
    with pytest.raises(ts.StudyError, match="has no predict"):
        model.predict(X)


def test_a_fit_that_is_mostly_noise_warns() -> None:
    with pytest.warns(ts.PrivacyWarning, match="little but noise"):
        ts.LogisticRegression(epsilon=0.001, rounds=1).fit(federation(), target="income")


# -- budgets ----------------------------------------------------------------------------------------------------------


def test_a_dataset_counts_its_fits_and_refuses() -> None:
    data = ts.Dataset(frame(), budget=1.0, schema=SCHEMA)
    half = ts.LogisticRegression(epsilon=0.5, delta=1e-6, rounds=2)
    half.fit(data, target="income")
    assert data.spent.fits == 1
    whole = ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=2)
    with pytest.raises(ts.BudgetExceeded, match="budget-covers-charge") as refused:
        whole.fit(data, target="income")
    assert refused.value.exit_code == 3
    assert not hasattr(whole, "coef_")
    assert data.spent.fits == 1
    assert data.spent.epsilon <= 0.5
    with pytest.raises(ts.BudgetExceeded, match="costs more than any budget"):
        ts.LogisticRegression(mechanism="none", rounds=2).fit(data, target="income")
    assert "fits=1" in repr(data)


def test_a_dataset_may_be_spent_to_the_last() -> None:
    data = ts.Dataset(frame(), budget=ts.Budget(epsilon=1.0, delta=1e-6), schema=SCHEMA)
    ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=2).fit(data, target="income")
    with pytest.raises(ts.BudgetExceeded):
        ts.LogisticRegression(epsilon=0.001, delta=1e-6, rounds=1).fit(data, target="income")


# -- trust models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["gossip", "parties"])
def test_a_trust_model_that_does_not_fit_names_those_that_do(trust: str) -> None:
    fed = federation(trust=trust)
    with pytest.raises(ts.TrustModelError, match=f"{trust}.*It runs under: .*servers") as refused:
        ts.LogisticRegression(rounds=1).fit(fed, target="income")
    assert refused.value.exit_code == 2
    assert fed.spent.fits == 0


def test_an_unknown_trust_model_is_an_error() -> None:
    with pytest.raises(ts.StudyError, match=r"trust\.model"):
        federation(trust="hope")  # already here, not only when something is fitted


# -- the rules of scikit-learn that its checks leave out --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 0},
        {"rounds": 2.5},
        {"rounds": "many"},
        {"rounds": True},
        {"clip": -1.0},
        {"clip": math.nan},
        {"learning_rate": 0},
        {"l2": -0.1},
        {"l2": math.inf},
        {"schedule": "sometimes"},
    ],
)
def test_wrong_parameters_are_refused_by_name(settings: dict[str, Any]) -> None:
    fed = federation()
    with pytest.raises(ts.TallystickError, match=next(iter(settings))):
        ts.LogisticRegression(**settings).fit(fed, target="income")
    assert fed.spent.fits == 0


def test_clones_and_parameters_survive_a_fit() -> None:
    model = ts.LogisticRegression(epsilon=2.0, schema=SCHEMA, rounds=2)
    before = model.get_params()
    model.fit(federation(schema=None), target="income")
    assert model.get_params() == before
    assert model.schema is SCHEMA
    assert clone(model).get_params() == before
    assert not hasattr(clone(model), "coef_")


def test_a_failed_fit_leaves_the_last_model() -> None:
    model = ts.LogisticRegression(epsilon=2.0, rounds=2).fit(federation(), target="income")
    kept = model.coef_.copy()
    with pytest.raises(ts.TallystickError):
        model.fit(federation(trust="gossip"), target="income")
    np.testing.assert_array_equal(model.coef_, kept)
    assert model.predict(frame()).shape == (300,)
