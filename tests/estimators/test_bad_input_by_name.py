"""Issue 5's list of bad input, point by point, for every algorithm it applies to: a defined result or a typed error.

What other files already show by name: degenerate data for classifiers, ridge, summary and evaluation
(test_linear_models, tests/engines/test_bad_input_studies), odd transactions (test_frequent_itemsets), k-means
(test_kmeans_estimator). Here is the rest: negative and reversed bounds, labels that nobody declared, a support of one
under noise, transactions of nothing, programs of one's own and sampled studies.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick as ts

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
]

FEATURES = ["age", "sex"]
CATEGORIES = {
    "sex": ts.Category(["f", "m"]),
    "ill": ts.Category(["no", "yes"]),
    "stage": ts.Category(["I", "II", "III"]),
}


def schema(shift: float = 0.0) -> ts.Schema:
    return ts.Schema({"age": ts.Number(shift, 100 + shift), "cost": ts.Number(shift, 64 + shift), **CATEGORIES})


def frame(n: int = 600, seed: int = 0, shift: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 101, n).astype(float)
    sick = age + rng.normal(0, 8, n)
    return {
        "age": age + shift,
        "cost": np.clip(np.rint(age / 2 + rng.normal(0, 3, n)), 0, 64) + shift,
        "sex": rng.choice(["f", "m"], n),
        "ill": np.where(sick > 50, "yes", "no"),
        "stage": np.array(["I", "II", "III"])[np.digitize(sick, [35, 65])],
    }


def parts(data: dict[str, Any], k: int = 3) -> list[dict[str, Any]]:
    return [{c: v[i::k] for c, v in data.items()} for i in range(k)]


def federation(data: dict[str, Any], columns: ts.Schema | None = None, **settings: Any) -> Any:
    return ts.Federation.simulate(parts(data), schema=columns or schema(), **{"seed": 1, **settings})


def empty(data: dict[str, Any]) -> dict[str, Any]:
    return {k: v[:0] for k, v in data.items()}


class Mean(ts.Program):
    """How many records there are, and the sum of the first column."""

    rounds = 2
    bound = 1.5

    def init(self, public: ts.Public) -> Any:
        return np.zeros(2)

    def map_in_client(self, record: Any, state: Any) -> Any:
        return np.array([1.0, record[0]])

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total


def _released(model: Any) -> list[float]:
    """Every number that a fit released."""
    if isinstance(model, ts.Summary):
        return [row[k] for row in model.table_ for k in ("estimate", "standard_error") if row[k] is not None]
    if isinstance(model, ts.FrequentItemsets):
        return [support for _, support in model.itemsets_]
    if isinstance(model, ts.ProgramEstimator):
        return [float(x) for x in model.state_]
    return [*np.ravel(model.coef_), *np.ravel(model.intercept_)]


FITS: dict[str, Callable[[Any, str], Any]] = {
    "logistic": lambda fed, m: ts.LogisticRegression(epsilon=9.0, mechanism=m, rounds=4).fit(
        fed, target="ill", features=FEATURES
    ),
    "multinomial": lambda fed, m: ts.LogisticRegression(epsilon=9.0, mechanism=m, rounds=4).fit(
        fed, target="stage", features=FEATURES
    ),
    "linear_svc": lambda fed, m: ts.LinearSVC(epsilon=9.0, mechanism=m, rounds=4).fit(
        fed, target="ill", features=FEATURES
    ),
    "ridge": lambda fed, m: ts.Ridge(epsilon=9.0, mechanism=m).fit(fed, target="cost", features=FEATURES),
    "summary": lambda fed, m: ts.Summary(epsilon=9.0, mechanism=m, columns=["age", "sex"]).fit(fed),
    "levels": lambda fed, m: ts.FrequentItemsets(0.2, epsilon=9.0, mechanism=m, method="levels").fit(fed),
    "basis": lambda fed, m: ts.FrequentItemsets(0.2, epsilon=9.0, mechanism=m, method="basis").fit(fed),
    "own program": lambda fed, m: ts.ProgramEstimator(Mean(), epsilon=9.0, mechanism=m).fit(fed, features=FEATURES),
}


# -- negative bounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("shift", [-100.0, -1100.0])
def test_negative_bounds_are_bounds(name: str, shift: float) -> None:
    """Records and bounds moved together, below zero: the encoded records, and without noise the model, are the same."""
    here = FITS[name](federation(frame()), "none")
    there = FITS[name](federation(frame(shift=shift), schema(shift)), "none")
    if name == "summary":
        moved = {"mean", "minimum", "maximum"}
        for a, b in zip(here.table_, there.table_, strict=True):
            wanted = a["estimate"] + (shift if a["statistic"] in moved and a["column"] == "age" else 0.0)
            assert b["estimate"] == pytest.approx(wanted, abs=1e-6)
    elif name == "ridge":
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-9)
        assert there.intercept_ == pytest.approx(here.intercept_ + shift)
    else:
        assert _released(there) == _released(here)


REVERSED = [(5, -5), (-5, -5), (math.nan, 1), (-math.inf, 0)]


@pytest.mark.parametrize("bounds", REVERSED)
def test_bounds_the_wrong_way_round_are_no_schema(bounds: tuple[float, float]) -> None:
    """Before any algorithm sees them."""
    with pytest.raises(ts.BoundsError, match="age") as refused:
        ts.Schema({"age": ts.Number(*bounds)})
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "model",
    [
        ts.LogisticRegression(),
        ts.LinearSVC(),
        ts.Ridge(target_bounds=(0, 1)),
        ts.Summary(),
        ts.FrequentItemsets(0.2),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("bounds", REVERSED)
def test_bounds_the_wrong_way_round_are_refused_for_plain_data(model: Any, bounds: tuple[float, float]) -> None:
    with pytest.raises(ts.BoundsError):
        model.set_params(bounds=bounds).fit(np.ones((20, 2)), np.arange(20) % 2)


# -- nobody, nothing, everything alike --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize("case", ["empty client", "constant columns", "all labels equal", "duplicates"])
def test_degenerate_records_have_defined_results(name: str, mechanism: str, case: str) -> None:
    data = frame()
    if case == "constant columns":
        data |= {"age": np.full(600, 40.0), "sex": np.array(["f"] * 600)}
    if case == "all labels equal":
        data |= {"ill": np.array(["yes"] * 600), "stage": np.array(["II"] * 600), "cost": np.full(600, 7.0)}
    if case == "duplicates":
        data = {k: np.repeat(v[:1], 600) for k, v in data.items()}
    fed = ts.Federation.simulate([*parts(data), empty(data)], schema=schema(), seed=1)
    model = FITS[name](fed, mechanism)
    assert np.isfinite(_released(model)).all()
    assert len(model.contributors_) == 4


@pytest.mark.parametrize("name", FITS)
def test_nobody_has_a_record(name: str) -> None:
    data = empty(frame())
    with pytest.raises(ts.TallystickError) as refused:
        FITS[name](ts.Federation.simulate([data, data], schema=schema(), seed=1), "gaussian")
    assert refused.value.exit_code == 2


def test_an_evaluation_of_nobody_and_of_labels_that_are_not_declared() -> None:
    model = FITS["linear_svc"](federation(frame()), "gaussian")
    nobody = empty(frame())
    fed = ts.Federation.simulate([nobody, nobody], schema=schema(), seed=1)
    with pytest.raises(ts.StudyError):
        ts.evaluate(model, fed, target="ill", epsilon=1.0)
    strange = frame() | {"ill": np.array(["perhaps"] * 600)}
    with pytest.raises(ts.StudyError, match="200 of 200 targets are perhaps; the study declares no, yes"):
        ts.evaluate(model, federation(strange), target="ill", epsilon=1.0)


@pytest.mark.parametrize("name", ["logistic", "multinomial", "linear_svc"])
def test_labels_that_are_not_declared_are_an_error_that_names_them(name: str) -> None:
    """In a simulation, whoever fits holds the records: nothing is left out without a word."""
    data = frame(900)
    odd = np.arange(900) % 3 == 0
    strange = {k: np.where(odd, "perhaps", data[k]) if k in ("ill", "stage") else data[k] for k in data}
    with pytest.raises(ts.StudyError, match="300 of 300 targets are perhaps; the study declares") as refused:
        FITS[name](federation(strange), "none")
    assert (refused.value.party, refused.value.rule) == ("client-1", "unknown-target")


# -- itemsets ---------------------------------------------------------------------------------------------------------

BASKETS = ts.Schema({"basket": ts.Items(["a", "b", "c"], max_per_record=2)})


@pytest.mark.parametrize("method", ["levels", "basis", "auto"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_support_of_one_under_noise(method: str, mechanism: str) -> None:
    """Only what everyone holds may come out; nothing does where noise happens to lie below."""
    data = {"basket": ["a;b"] * 600}
    for seed in range(4):
        fed = federation(data, BASKETS, seed=seed)
        model = ts.FrequentItemsets(1.0, epsilon=5.0, method=method, mechanism=mechanism).fit(fed)
        for items, support in model.itemsets_:
            assert set(items) <= {"basket=a", "basket=b"}
            assert 0.9 < support <= 1
    half = federation({"basket": ["a;b"] * 300 + ["c"] * 300}, BASKETS)
    assert ts.FrequentItemsets(1.0, epsilon=5.0, method=method, mechanism=mechanism).fit(half).itemsets_ == []


@pytest.mark.parametrize("method", ["levels", "basis"])
@pytest.mark.parametrize("cell", ["", []], ids=["empty", "empty-list"])
def test_transactions_of_nothing_known_hold_no_set(method: str, cell: Any) -> None:
    data = {"basket": [cell] * 600}
    for mechanism in ("gaussian", "laplace", "none"):
        fed = federation(data, BASKETS, missing=ts.Missing(marker="?", policy="error"))
        model = ts.FrequentItemsets(0.2, epsilon=9.0, method=method, mechanism=mechanism).fit(fed)
        assert model.itemsets_ == []


def test_transactions_of_unknown_items_alone_are_an_error_that_names_them() -> None:
    fed = federation({"basket": ["lobster;caviar"] * 600}, BASKETS)
    with pytest.raises(ts.StudyError, match="1,200 items of 'basket' are lobster/caviar; the study declares a, b, c"):
        ts.FrequentItemsets(0.2, epsilon=9.0).fit(fed)


@pytest.mark.parametrize("cap", [0, -1])
def test_a_record_that_may_hold_nothing_is_refused(cap: int) -> None:
    with pytest.raises(ts.TallystickError) as refused:
        ts.Schema({"basket": ts.Items(["a", "b"], max_per_record=cap)})
    assert refused.value.exit_code == 2


# -- programs of one's own --------------------------------------------------------------------------------------------


class DividesByNothing(Mean):
    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total / 0.0


class NotANumber(Mean):
    def map_in_client(self, record: Any, state: Any) -> Any:
        return np.array([1.0, np.log(record[0])])  # of numbers in [-1, 1]: NaN for half of the records


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_a_state_that_is_not_finite_ends_the_study_with_a_reason() -> None:
    with pytest.raises(ts.RoundAborted, match="NaN or infinity") as refused:
        ts.ProgramEstimator(DividesByNothing(), epsilon=9.0).fit(federation(frame()), features=FEATURES)
    assert refused.value.round == 1


def test_a_vector_that_is_not_finite_is_left_out_record_by_record() -> None:
    """What it maps to depends on the record alone, so leaving it out is part of the map: the count shows who is in."""
    data = frame()
    model = ts.ProgramEstimator(NotANumber(), mechanism="none").fit(federation(data), features=FEATURES)
    assert np.isfinite(model.state_).all()
    assert model.state_[0] <= np.sum(data["age"] > 50) + 1


# -- sampled studies --------------------------------------------------------------------------------------------------


def sampled(data: list[dict[str, Any]], sampling: Any, model: Any = None, target: str | None = "ill") -> Any:
    fed = ts.Federation.simulate(data, schema=schema(), seed=5)
    model = model or ts.LogisticRegression(epsilon=5.0, rounds=8, neighbours="add-remove")
    study = model.study_for(fed, target=target, features=FEATURES if target else None)
    return model.fit_study(fed, study.replace("privacy", sampling=sampling))


RATES = {"no": 0.3, "yes": 0.6}


def test_a_sampled_study_with_an_empty_client_or_one_label() -> None:
    data = frame(900)
    for case in ([*parts(data), empty(data)], parts(data | {"ill": np.array(["yes"] * 900)})):
        assert np.isfinite(_released(sampled(case, RATES))).all()


def test_a_sampled_study_with_one_class_missing_at_a_client() -> None:
    data = frame(1800)
    order = np.argsort(data["ill"], kind="stable")
    cuts = [0, 400, 1100, 1800]
    lopsided = [{k: v[order][a:b] for k, v in data.items()} for a, b in itertools.pairwise(cuts)]
    assert set(lopsided[0]["ill"]) == {"no"}
    assert set(lopsided[2]["ill"]) == {"yes"}
    model = sampled(lopsided, RATES)
    assert model.score({k: data[k] for k in FEATURES}, data["ill"]) > 0.8


def test_a_sampled_study_with_labels_that_are_not_declared() -> None:
    data = frame(900)
    data["ill"] = np.where(np.arange(900) % 3 == 0, "perhaps", data["ill"])
    with pytest.raises(ts.StudyError, match="targets are perhaps; the study declares no, yes"):
        sampled(parts(data), RATES)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, math.nan, math.inf, {}, {"no": 0.1, "yes": 1.5}])
def test_a_rate_that_is_no_probability_is_refused(rate: Any) -> None:
    with pytest.raises(ts.TallystickError):
        sampled(parts(frame()), rate)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (ts.Ridge(neighbours="add-remove"), "cost"),
        (ts.Summary(neighbours="add-remove"), None),
        (ts.FrequentItemsets(0.2, neighbours="add-remove"), None),
    ],
    ids=["ridge", "summary", "itemsets"],
)
def test_a_sample_is_refused_where_it_cannot_help(model: Any, target: str | None) -> None:
    """One round, or a few whose noise the program reckons with: a sample adds its own error and saves no noise."""
    with pytest.raises(ts.StudyError) as refused:
        sampled(parts(frame()), 0.2, model, target)
    assert refused.value.rule == "sampling-needs-rounds"


@pytest.mark.parametrize(
    ("settings", "fit", "words"),
    [
        ({"missing": "drop"}, {}, "ts.Missing"),
        ({"schema": {"age": ts.Number(0, 100)}}, {}, "ts.Schema"),
        ({}, {"features": "age"}, r"features=\['age'\]"),
    ],
)
def test_what_is_nearly_an_argument_is_refused_with_what_to_write(
    settings: dict[str, Any], fit: dict[str, Any], words: str
) -> None:
    data = frame()
    with pytest.raises(ts.StudyError, match=words):
        ts.Summary(epsilon=1.0).fit(ts.Federation.simulate(parts(data), **{"schema": schema(), **settings}), **fit)


def test_one_frame_or_path_is_not_a_list_of_frames() -> None:
    import pandas as pd
    import polars as pl

    data = {"age": [1.0, 2.0]}
    for one in (data, pd.DataFrame(data), pl.DataFrame(data), "records.csv", Path("records.csv")):
        with pytest.raises(ts.StudyError, match="not a list of frames"):
            ts.Federation.simulate(one, schema=schema())  # type: ignore[arg-type]


def test_a_bound_or_cut_of_400_digits_is_not_finite() -> None:
    with pytest.raises(ts.BoundsError, match="finite"):
        ts.Schema({"age": ts.Number(0, 1, bins=[10**400])})
    with pytest.raises(ts.BoundsError, match="lower"):
        ts.KMeans(n_clusters=2, bounds=(10**400, 1)).fit(np.zeros((5, 2)))


@pytest.mark.filterwarnings("ignore:epsilon = inf allows")
def test_an_epsilon_of_400_digits_is_refused_by_name() -> None:
    with pytest.raises(ts.StudyError, match=r"privacy\.epsilon"):
        ts.Summary(epsilon=10**400, bounds=(0, 1)).fit(np.zeros((5, 2)))


@pytest.mark.parametrize(("epsilon", "warned"), [(10.0, False), (10.5, True), (1000.0, True), (Fraction(20), True)])
def test_python_warns_of_an_epsilon_that_protects_hardly_anybody(epsilon: float, warned: bool) -> None:
    fed = ts.Federation.simulate([{"x": np.linspace(-1, 1, 50)}] * 3, schema=ts.Schema({"x": ts.Number(-1, 1)}), seed=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ts.Summary(epsilon=epsilon, columns=["x"]).fit(fed)
    told = [w for w in caught if issubclass(w.category, ts.PrivacyWarning) and "odds of" in str(w.message)]
    assert len(told) == warned
    assert all(w.filename == __file__ for w in told)  # it points at the caller's own line
