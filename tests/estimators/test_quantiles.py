"""Quantiles as users have them: exact on ties, per group and column, kept and loaded again, refused with a remedy."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.quantiles.schedule import MOST_ROUNDS
from tallystick.core.errors import StudyError
from tallystick.engines.planning import layout_of, plan_study

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.DataWarning", "ignore::tallystick.PrivacyWarning")

SCHEMA = ts.Schema(
    {
        "hours": ts.Integer(0, 100),
        "wage": ts.Integer(0, 10**9),
        "age": ts.Number(0, 120, bins=[18, 65]),
        "sex": ts.Category(["f", "m"]),
        "town": ts.Category(["A", "B", "nowhere"]),
    }
)
N = 6000


def people(n: int = N, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n, p=[0.3, 0.7])
    return {
        "hours": np.where(rng.random(n) < 0.6, 40, rng.integers(0, 101, n)),
        "wage": np.clip(np.exp(rng.normal(0, 1, n)) * 5e7 * np.where(sex == "m", 2, 1), 0, 1e9).astype(np.int64),
        "age": rng.integers(0, 90, n).astype(float),
        "sex": sex,
        "town": rng.choice(["A", "B"], n),
    }


def federation(data: dict[str, np.ndarray], *, clients: int = 3, seed: int = 1, **options: Any) -> Any:
    frames = [{k: v[i::clients] for k, v in data.items()} for i in range(clients)]
    return ts.Federation.simulate(frames, schema=options.pop("schema", SCHEMA), seed=seed, **options)


def rank_error(values: np.ndarray, q: float, answer: float) -> float:
    wanted = q * len(values)
    return float(max(0.0, (values < answer).sum() - wanted, wanted - (values <= answer).sum()))


@pytest.fixture(scope="module")
def fed() -> Any:
    return federation(people())


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["auto", "gaussian"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_heavy_tie_is_exact_and_a_large_domain_is_close(fed: Any, neighbours: str, mechanism: str) -> None:
    tied = ts.Quantiles(column="hours", neighbours=neighbours, mechanism=mechanism, delta=None).fit(fed)
    assert tied.quantiles_ == {0.5: 40}
    assert tied.interval_ == {0.5: (40, 40)}
    wide = ts.Quantiles(column="wage", neighbours=neighbours, mechanism=mechanism).fit(fed)
    wages = people()["wage"]
    assert rank_error(wages, 0.5, wide.quantiles_[0.5]) < 60
    assert wide.n_iter_ <= MOST_ROUNDS
    low, high = wide.interval_[0.5]
    assert (wages < low).sum() <= 0.5 * N <= (wages <= high).sum()


def test_auto_is_laplace_here_and_pure(fed: Any) -> None:
    model = ts.Quantiles(column="hours", delta=1e-6).fit(fed)
    assert (model.privacy_.mechanism, model.privacy_.delta, model.privacy_.epsilon) == ("laplace", 0.0, 1.0)


def test_auto_is_gaussian_where_many_columns_share_one_budget() -> None:
    """Laplace's noise grows with the number of columns, the Gaussian's with its root."""
    names = [f"x{i}" for i in range(12)]
    fed = ts.Federation.simulate(
        [{n: np.arange(50) for n in names}] * 3, schema=ts.Schema(dict.fromkeys(names, ts.Integer(0, 50)))
    )
    made = ts.Quantiles(column=names, epsilon=0.5).study_for(fed)
    assert made.privacy.mechanism == "gaussian"
    assert ts.Quantiles(column=names[:1], epsilon=0.5).study_for(fed).privacy.mechanism == "laplace"


def test_several_quantiles_share_rounds_and_come_in_order(fed: Any) -> None:
    model = ts.Quantiles(q=(0.9, 0.1, 0.5), column="wage").fit(fed)
    wages = people()["wage"]
    assert list(model.quantiles_) == [0.1, 0.5, 0.9]
    assert sorted(model.quantiles_.values()) == list(model.quantiles_.values())
    assert max(rank_error(wages, q, v) for q, v in model.quantiles_.items()) < 150
    assert model.n_iter_ <= MOST_ROUNDS


def test_groups_have_their_own_quantiles_and_noisy_sizes(fed: Any) -> None:
    model = ts.Quantiles(column="wage", by="sex").fit(fed)
    data = people()
    for group in ("f", "m"):
        own = data["wage"][data["sex"] == group]
        assert rank_error(own, 0.5, model.quantiles_[group][0.5]) < 100
        assert abs(model.counts_[group] - len(own)) < 500
        assert model.counts_[group] != len(own)
        low, high = model.interval_[group][0.5]
        assert low <= np.median(own) <= high


def test_an_empty_group_has_no_value_and_says_why(fed: Any) -> None:
    model = ts.Quantiles(column="hours", by="town", epsilon=0.5).fit(fed)
    assert model.quantiles_["nowhere"] == {0.5: None}
    assert model.interval_["nowhere"] == {0.5: None}
    assert model.quantiles_["A"] == model.quantiles_["B"] == {0.5: 40}
    assert any("fewer records than the noise" in note for note in model.answer().notes)


def test_several_columns_and_groups_are_nested(fed: Any) -> None:
    model = ts.Quantiles(q=[0.25, 0.75], column=["hours", "age"], by="sex", epsilon=2.0).fit(fed)
    assert set(model.quantiles_) == {"hours", "age"}
    assert set(model.quantiles_["age"]) == {"f", "m"}
    assert set(model.quantiles_["age"]["f"]) == {0.25, 0.75}
    assert abs(model.quantiles_["age"]["m"][0.75] - 67) < 6
    assert len(model.answer().rows) == 8


def test_the_smallest_and_largest_leave_a_few_records_beyond(fed: Any) -> None:
    model = ts.Quantiles(q=(0, 1), column="wage").fit(fed)
    wages = people()["wage"]
    beyond = (wages < model.quantiles_[0.0]).sum(), (wages > model.quantiles_[1.0]).sum()
    assert all(0 <= b <= 60 for b in beyond)
    assert any("records beyond them" in note for note in model.answer().notes)
    assert any("records beyond them" in note for note in model.plan_.notes)


def test_without_noise_the_answer_is_exact(fed: Any) -> None:
    model = ts.Quantiles(q=(0.25, 0.5), column="hours", mechanism="none").fit(fed)
    assert model.quantiles_ == {0.25: 40, 0.5: 40}


def test_without_noise_the_groups_are_exact_too() -> None:
    """A group's size is no public fact: exact counts after a vague prior must not lose all digits."""
    rng = np.random.default_rng(1)
    wait, sex = rng.poisson(40, 6000), rng.choice(["f", "m"], 6000)
    schema = ts.Schema({"wait": ts.Integer(0, 100_000), "sex": ts.Category(["f", "m"])})
    fed = ts.Federation.simulate([{"wait": wait, "sex": sex}], schema=schema, seed=1)
    qs = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    found = ts.Quantiles(q=qs, column="wait", by="sex", mechanism="none").fit(fed).quantiles_
    for group in ("f", "m"):
        values = wait[sex == group]
        assert all((values < found[group][q]).mean() <= q <= (values <= found[group][q]).mean() for q in qs)


@pytest.mark.parametrize("value", [0, 7, 100])
def test_all_values_equal(value: int) -> None:
    data = {**people(600), "hours": np.full(600, value)}
    assert ts.Quantiles(q=(0.1, 0.5, 0.9), column="hours").fit(federation(data)).quantiles_ == {
        0.1: value, 0.5: value, 0.9: value,
    }  # fmt: skip


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_hardly_any_records_give_no_interval(n: int, neighbours: str) -> None:
    model = ts.Quantiles(column="hours", neighbours=neighbours, epsilon=1.0).fit(federation(people(n)))
    assert model.interval_ == {0.5: None}
    value = model.quantiles_[0.5]
    assert value is None or 0 <= value <= 100


def test_the_smallest_and_largest_of_equal_values_are_that_value() -> None:
    """Not somewhere in the empty end of the domain: records beyond them stand above the noise."""
    fed = federation({"wage": np.full(9000, 7)}, schema=ts.Schema({"wage": ts.Integer(0, 10_000)}))
    assert ts.Quantiles(q=(0, 1), column="wage").fit(fed).quantiles_ == {0.0: 7, 1.0: 7}


def test_a_domain_of_two_values() -> None:
    fed = federation({"x": np.arange(900) % 3 % 2}, schema=ts.Schema({"x": ts.Integer(0, 1)}))
    model = ts.Quantiles(q=(0.5, 0.9), column="x").fit(fed)
    assert model.quantiles_ == {0.5: 0, 0.9: 1}
    assert model.interval_ == {0.5: (0, 0), 0.9: (1, 1)}


def test_no_records_at_all_under_add_remove() -> None:
    model = ts.Quantiles(column="hours", neighbours="add-remove").fit(federation(people(0)))
    assert model.interval_ == {0.5: None}


def test_values_outside_the_domain_are_clamped() -> None:
    data = people(900)
    data["hours"] = np.where(np.arange(900) % 3 == 0, -50, np.where(np.arange(900) % 3 == 1, 500, 60))
    assert ts.Quantiles(q=(0.1, 0.9), column="hours").fit(federation(data)).quantiles_ == {0.1: 0, 0.9: 100}


def test_steps_and_missing_values() -> None:
    schema = ts.Schema({"x": ts.Integer(5, 1005, step=10, missing="drop")})
    rng = np.random.default_rng(0)
    x = np.where(rng.random(3000) < 0.1, np.nan, rng.integers(0, 100, 3000) * 10 + 5)
    model = ts.Quantiles(column="x", epsilon=3.0).fit(federation({"x": x}, schema=schema))
    assert model.quantiles_[0.5] % 10 == 5
    assert abs(model.quantiles_[0.5] - np.nanmedian(x)) <= 30


def test_persons_as_the_unit() -> None:
    data = {"id": np.arange(3000) // 2, "hours": np.where(np.arange(3000) % 5 == 0, 3, 40)}
    fed = federation(data, schema=ts.Schema({"hours": ts.Integer(0, 100)}))
    study = ts.Quantiles(column="hours", epsilon=2.0, neighbours="add-remove").study_for(fed)
    study = study.replace("privacy", unit="person", person="id", max_records=2, max_institutions=1)
    design = ts.Quantiles().design_for(study, layout_of(study))
    plan: Any = plan_study(study, design, allow_not_private=False)
    assert plan.rounds[0].noise[0].sensitivity == 2 * 2**19  # two records of ½ each, in grid units


def test_a_stated_number_is_no_count_of_persons_records() -> None:
    """Even of one record each: a person may be replaced by one without, so nobody holds a study to what it states."""
    data = {"hours": np.arange(6000) % 101, "id": np.arange(6000)}
    fed = federation(data, schema=ts.Schema({"hours": ts.Integer(0, 100)}))
    model = ts.Quantiles(q=(0.25, 0.75), column="hours", epsilon=2.0)
    persons = {"unit": "person", "person": "id", "max_records": 1, "max_institutions": 1}
    study = model.study_for(fed).replace("data", records=12_000).replace("privacy", **persons)
    model.fit_study(fed, study)
    assert abs(model.counts_ - 6000) < 300
    for q, (low, high) in model.interval_.items():
        assert low <= 100 * q <= high


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_where_clients_missed_rounds_there_is_no_interval(neighbours: str) -> None:
    data = {"hours": np.arange(9000) % 101}
    schema = ts.Schema({"hours": ts.Integer(0, 100)})

    def fitted(drop: float) -> ts.Quantiles:
        return ts.Quantiles(column="hours", neighbours=neighbours).fit(
            federation(data, schema=schema, clients=9, drop=drop, seed=3)
        )

    model = fitted(0.2)
    assert any(model.dropped_)
    assert model.interval_ == {0.5: None}
    assert any("missing from some rounds" in note for note in model.answer().notes)
    low, high = fitted(0.0).interval_[0.5]
    assert low <= 50 <= high


def test_a_number_without_a_column_name_is_fitted_plainly() -> None:
    x = np.random.default_rng(1).normal(0, 1, (2000, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ts.Quantiles(bounds=(-10, 10), epsilon=2.0).fit(x)
    assert abs(model.quantiles_[0.5]) < 0.1


# -- faces ------------------------------------------------------------------------------------------------------------


def test_frame_table_picture_and_document(fed: Any) -> None:
    model = ts.Quantiles(q=(0.25, 0.5), column="hours", by="sex", epsilon=2.0).fit(fed)
    frame = model.to_frame()
    assert frame.columns == ["column", "group", "quantile", "q", "estimate", "lower", "upper"]
    assert frame.height == 4
    assert "median" in model.answer().text()
    assert len(model.plot().axes) == 1
    document = json.loads(json.dumps(model.model_document()))
    assert document["type"] == "Quantiles"
    assert len(document["table"]) == 4
    assert "<table>" in model._repr_html_()


def test_the_ledger_cost_of_both_mechanisms_is_in_the_plan(fed: Any) -> None:
    notes = " ".join(ts.Quantiles(column="hours").fit(fed).plan_.notes)
    assert "laplace at epsilon = 1 weighs rho = 0.5" in notes
    assert "gaussian at delta = 1e-06 rho = 0.02" in notes


def test_the_whole_is_charged_once_and_refused_beyond_the_budget() -> None:
    data = ts.Dataset(people(600), budget=1.5, schema=SCHEMA)
    ts.Quantiles(column="hours", by="sex", neighbours="add-remove").fit(data)
    with pytest.raises(ts.BudgetExceeded):
        ts.Quantiles(column="hours", neighbours="add-remove").fit(data)


def test_a_saved_result_is_loaded_with_the_same_answers(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        """
[study]
name = "hours"
program = "quantiles"
features = ["hours", "sex"]
[program]
q = [0.25, 0.5]
column = "hours"
by = "sex"
[privacy]
epsilon = 2.0
mechanism = "laplace"
[data]
records = 900
[data.columns]
hours = { type = "integer", lower = 0, upper = 100 }
sex = { type = "category", values = ["f", "m"] }
""",
        encoding="utf-8",
    )
    import polars as pl

    from tallystick.application.result_document import write_result
    from tallystick.application.simulation import simulate

    data = people(900)
    pl.DataFrame({"hours": data["hours"], "sex": data["sex"]}).write_csv(tmp_path / "d.csv")
    result = simulate(study, data=(tmp_path / "d.csv",), clients=3, seed=1)
    write_result(result, tmp_path / "out")
    again = ts.load(tmp_path / "out" / "result.json")
    assert again.quantiles_["f"][0.5] == 40
    assert result["simulation"]["evaluation"]["rank_error"] < 60
    assert json.loads((tmp_path / "out" / "result.json").read_text())["model"]["table"] == list(again._answer().rows)


# -- bad input --------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "above 1": ({"q": (0.5, 1.5)}, "no share"),
    "below 0": ({"q": -0.1}, "no share"),
    "nan": ({"q": (float("nan"),)}, "no share"),
    "text": ({"q": "0.5"}, "no quantile"),
    "true": ({"q": (True,)}, "no share"),
    "empty": ({"q": ()}, "no quantile"),
    "twice": ({"q": (0.5, 0.5)}, "twice"),
    "twice zero": ({"q": (0.0, -0.0)}, "twice"),
    "complex": ({"q": np.complex128(0.5)}, "no quantile"),
    "a table": ({"q": np.full((2, 2), 0.5)}, "no share"),
    "a set": ({"q": {0.5}}, "no quantile"),
    "epsilon zero": ({"epsilon": 0.0}, "promises nothing"),
    "epsilon text": ({"epsilon": "1"}, "epsilon"),
    "weights": ({"weights": "guess"}, "guess"),
    "weights of another method": ({"weights": "ln2"}, "no such weights"),
    "too many": ({"q": tuple(np.linspace(0, 1, 200))}, "200 quantiles"),
    "category": ({"column": "sex"}, "no ranks"),
    "unknown": ({"column": "hour"}, "hour"),
    "no column": ({"column": []}, "not a column"),
    "column twice": ({"column": ["hours", "hours"]}, "twice"),
    "by itself": ({"by": "hours"}, "also the column"),
    "by a number": ({"by": "wage"}, "not a category"),
    "by unknown": ({"by": "sexx"}, "sexx"),
    "by a list": ({"by": ["sex"]}, "not a column"),
    "method": ({"method": "guess"}, "guess"),
    "mechanism": ({"mechanism": "cauchy"}, "cauchy"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_remedy(fed: Any, name: str) -> None:
    own, said = BAD[name]
    with pytest.raises(ts.TallystickError, match=said) as caught:
        ts.Quantiles(**{"column": "hours", **own}).fit(fed)
    assert caught.value.remedy
    assert not fed.ledger.entries or caught.type is not ts.BudgetExceeded


def test_shares_are_read_as_numpy_has_them(fed: Any) -> None:
    for q in (np.array(0.5), np.array([0.5]), np.float32(0.5), [np.float64(0.5)]):
        assert ts.Quantiles(q=q, column="hours").fit(fed).quantiles_ == {0.5: 40}
    assert str(list(ts.Quantiles(q=-0.0, column="hours").fit(fed).quantiles_)) == "[0.0]"


def test_a_small_group_has_no_smallest_or_largest_value() -> None:
    """Left beyond either are 24 records: of 60 that is no end, and of 30 the smallest would be above the largest."""
    data = people(3000)
    data["sex"] = np.where(np.arange(3000) < 60, "f", "m")
    model = ts.Quantiles(q=(0, 0.5, 1), column="hours", by="sex").fit(federation(data))
    assert model.counts_["f"] > 12
    assert model.quantiles_["f"][0.0] is None
    assert model.quantiles_["f"][1.0] is None
    assert model.interval_["f"][0.0] is None
    assert model.quantiles_["f"][0.5] is not None
    assert model.quantiles_["m"][0.0] <= model.quantiles_["m"][0.5] <= model.quantiles_["m"][1.0]
    assert any("smallest or largest" in note for note in model.answer().notes)


def test_a_target_or_a_threshold_is_refused(fed: Any) -> None:
    with pytest.raises(StudyError, match="no target"):
        ts.Quantiles(column="hours").fit(fed, target="sex")
    study = ts.Quantiles(column="hours").study_for(fed).replace("privacy", threshold=2.0)
    with pytest.raises(StudyError, match="thresholded"):
        ts.Quantiles().fit_study(fed, study)


@pytest.mark.parametrize("declared", [(5, 5, 1), (0, 10, 0), (0, 10, 20), (0, 10, 2.5)])
def test_impossible_domains_and_steps_are_refused_by_the_schema(declared: tuple[Any, Any, Any]) -> None:
    low, high, step = declared
    with pytest.raises(ts.BoundsError):
        ts.Schema({"x": ts.Integer(low, high, step=step)})
