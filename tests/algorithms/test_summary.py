"""The summary: exact statistics without noise, standard errors that are the noise's own, bounds that hold."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from block_runs import budget_of, encodable, mixed, plan_of, random_records, run
from row_independence import RowsDependError, check_row_independence

import tallystick as ts
from tallystick.algorithms.program import Public
from tallystick.algorithms.tables.summary import SummaryProgram, design_summary
from tallystick.algorithms.tables.summary_table import summarise
from tallystick.core.errors import StudyError
from tallystick.data.encoding import encode
from tallystick.engines.planning import layout_of, public_facts
from tallystick.privacy.contribution import Contribution, Dense, total

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.DataWarning")  # odd data on purpose

SCHEMA = {
    "age": {"type": "number", "lower": 0, "upper": 100},
    "income": {"type": "number", "lower": -10, "upper": 90},
    "size": {"type": "integer", "lower": 0, "upper": 20},
    "sex": {"type": "category", "values": ["f", "m"], "merge": "other"},
    "town": {"type": "category", "values": ["A", "B", "C"]},
}


def public_of(records: int | None, **data: Any) -> Public:
    study = ts.Study.from_dict(
        {"study": {"name": "s", "program": "summary"}, "data": {"columns": SCHEMA, "records": records, **data}}
    )
    return public_facts(study, layout_of(study))


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, n)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.clip(0.4 * age + rng.normal(0, 15, n), -10, 90),
            "size": rng.integers(0, 21, n),
            "sex": rng.choice(["f", "m", "x"], n),
            "town": rng.choice(["A", "B", "C", "nowhere"], n),
        }
    )


def estimate(table: list[dict[str, Any]], column: str, statistic: str, of: str | None = None) -> dict[str, Any]:
    return next(r for r in table if (r["column"], r["statistic"], r["of"]) == (column, statistic, of))


def fitted(frame: pd.DataFrame, **own: Any) -> Any:
    settings = {"mechanism": "none", **own}
    fed = ts.Federation.simulate(
        [frame.iloc[i::3] for i in range(3)],
        schema=ts.Schema.from_dict(SCHEMA),
        seed=settings.pop("seed", 1),
        missing=settings.pop("missing", None),
    )
    return ts.Summary(**settings).fit(fed)


# -- without noise it is pandas ---------------------------------------------------------------------------------------


def test_without_noise_every_number_is_exact() -> None:
    frame = people(900, 1)
    table = fitted(frame, cuts={"age": [20, 30, 65]}).table_
    for name in ("age", "income", "size"):
        assert estimate(table, name, "mean")["estimate"] == pytest.approx(frame[name].mean(), abs=1e-5)
        assert estimate(table, name, "variance")["estimate"] == pytest.approx(frame[name].var(ddof=0), abs=1e-4)
        assert estimate(table, name, "count")["estimate"] == 900
    for a, b in (("age", "income"), ("income", "size"), ("age", "size")):
        assert estimate(table, a, "correlation", b)["estimate"] == pytest.approx(frame[a].corr(frame[b]), abs=1e-5)
    assert estimate(table, "sex", "histogram", "other")["estimate"] == (frame.sex == "x").sum()
    assert estimate(table, "sex", "count")["estimate"] == 900
    for town in "ABC":
        assert estimate(table, "town", "histogram", town)["estimate"] == (frame.town == town).sum()
    assert estimate(table, "town", "count")["estimate"] == pytest.approx((frame.town != "nowhere").sum())
    ages = pd.cut(frame.age, [0, 20, 30, 65, 101], right=False).value_counts(sort=False).to_numpy()
    assert [r["estimate"] for r in table if r["column"] == "age" and r["statistic"] == "histogram"] == ages.tolist()
    incomes = np.histogram(frame.income, bins=10, range=(-10, 90))[0]
    found = [r["estimate"] for r in table if r["column"] == "income" and r["statistic"] == "histogram"]
    np.testing.assert_allclose(found, incomes, atol=1e-6)
    assert all(r["standard_error"] == 0 for r in table)
    assert all(r["lower"] == r["estimate"] == r["upper"] for r in table)


def test_a_value_at_a_cut_belongs_above_it() -> None:
    frame = people(60, 2)
    frame["age"] = np.repeat([20.0, 30.0, 65.0], 20)
    table = fitted(frame, cuts={"age": [20, 30, 65]}, columns=["age"]).table_
    counts = [r["estimate"] for r in table if r["statistic"] == "histogram"]
    np.testing.assert_allclose(counts, [0, 20, 20, 20], atol=1e-6)


@pytest.mark.parametrize("policy", ["category", "drop"])
def test_missing_values_are_told_and_left_out(policy: str) -> None:
    frame = people(300, 3)
    frame.loc[:99, "age"] = np.nan
    frame.loc[90:149, "town"] = None
    table = fitted(frame, missing=ts.Missing(marker="?", policy=policy)).table_
    kept = frame.dropna() if policy == "drop" else frame
    assert estimate(table, "age", "mean")["estimate"] == pytest.approx(kept.age.mean(), abs=1e-5)
    assert estimate(table, "age", "variance")["estimate"] == pytest.approx(kept.age.var(ddof=0), abs=1e-4)
    assert estimate(table, "age", "count")["estimate"] == pytest.approx(kept.age.notna().sum())
    if policy == "category":
        assert estimate(table, "age", "missing")["estimate"] == pytest.approx(100)
        assert estimate(table, "town", "missing")["estimate"] == pytest.approx(60)
    pairs = {(r["column"], r["of"]) for r in table if r["statistic"] == "correlation"}
    assert (("age", "income") in pairs) == (policy == "drop")  # a number that may be missing has no correlation


def test_a_declared_bin_of_the_schema_becomes_a_cut_and_the_mean_stays() -> None:
    schema = ts.Schema({"age": ts.Number(0, 100, bins=[18, 65]), "gain": ts.Number(0, 99_999, log=True)})
    frame = {"age": np.linspace(0, 100, 60), "gain": np.geomspace(1, 90_000, 60)}
    fed = ts.Federation.simulate([{k: v[i::3] for k, v in frame.items()} for i in range(3)], schema=schema, seed=1)
    table = ts.Summary(mechanism="none").fit(fed).table_
    assert [r["of"] for r in table if r["column"] == "age" and r["statistic"] == "histogram"] == [
        "0 to 18",
        "18 to 65",
        "65 to 100",
    ]
    assert estimate(table, "age", "mean")["estimate"] == pytest.approx(50.0)
    assert estimate(table, "gain", "mean")["estimate"] == pytest.approx(frame["gain"].mean(), rel=1e-4)


def test_a_study_may_keep_its_logarithm_and_says_so() -> None:
    columns = {"gain": {"type": "number", "lower": 0, "upper": 999, "log": True}}
    study = ts.Study.from_dict(
        {
            "study": {"name": "s", "program": "summary"},
            "program": {"cuts": {"gain": [9, 99]}},
            "privacy": {"mechanism": "none"},
            "data": {"columns": columns},
        }
    )
    frames = [{"gain": np.array([1.0, 9.0, 50.0, 500.0])} for _ in range(3)]
    fed = ts.Federation.simulate(frames, schema=study.schema_of_data(), seed=1)
    table = ts.Summary().fit_study(fed, study).table_
    assert [r["estimate"] for r in table if r["statistic"] == "histogram"] == pytest.approx([3, 6, 3])
    assert estimate(table, "gain", "log_mean")["estimate"] == pytest.approx(np.log1p([1, 9, 50, 500]).mean())


# -- with noise: errors are what they say -----------------------------------------------------------------------------


def _walked(program_of: Any, public: Public, frame: Any, mechanism: str, neighbours: str, runs: int) -> Any:
    """(tables of as many noisy runs, the exact table): the sums are made once, the noise is drawn by its known law."""
    budget = budget_of(mechanism, neighbours=neighbours)
    design = design_summary({"bins": 6}, public, budget)
    plan = plan_of(design, budget, len(frame))
    state = run(design, plan, public, program_of, np.zeros(len(frame)))
    std = {n.group.name: plan.rounds[0].std_of(n.group.name) for n in plan.rounds[0].noise}
    rng = np.random.default_rng(11)
    records = len(frame) if neighbours == "replace-one" else None
    names = {"records": records, "complete": ["age", "income", "size", "sex"], "z": 1.96}
    exact = summarise(design.program, state, dict.fromkeys(std, 0.0), **names)
    tables = []
    for _ in range(runs):
        noise = np.concatenate([rng.normal(0, std[n.group.name], n.group.size) for n in plan.rounds[0].noise])
        tables.append(summarise(design.program, state + noise, std, **names))
    return tables, exact


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_standard_errors_and_intervals_are_those_of_the_noise(neighbours: str) -> None:
    """300 runs: each statistic's error over its standard error has variance 1 (±5 σ of a χ² of 300: ±0.41)."""
    n = 20_000
    frame = people(n, 4)
    public = public_of(n if neighbours == "replace-one" else None)
    schema = ts.Schema.from_dict(SCHEMA)
    features = encode(frame, schema).features
    tables, exact = _walked(features, public, frame, "gaussian", neighbours, 300)
    for at, row in enumerate(exact):
        errors = np.array([t[at]["standard_error"] for t in tables])
        if row["standard_error"] == 0 and not errors.any():
            continue  # a public number
        z = np.array([(t[at]["estimate"] - row["estimate"]) / t[at]["standard_error"] for t in tables])
        if abs(row["estimate"]) > 0.2 and row["statistic"] != "count":  # not cut at 0, at n
            assert 0.59 < np.mean(z**2) < 1.41, row
            assert abs(z.mean()) < 0.3, row
        covered = np.mean(
            [t[at]["lower"] <= row["estimate"] + 1e-9 and row["estimate"] - 1e-9 <= t[at]["upper"] for t in tables]
        )
        assert covered > 0.89, row


def test_a_constant_column_has_no_correlation() -> None:
    frame = people(300, 5)
    frame["age"] = 40.0
    for mechanism, eps in (("none", 1.0), ("gaussian", 2.0), ("laplace", 2.0)):
        table = fitted(frame, mechanism=mechanism, epsilon=eps, delta=1e-6 if mechanism == "gaussian" else None).table_
        row = estimate(table, "age", "correlation", "income")
        assert (row["estimate"], row["lower"], row["upper"]) == (None, -1.0, 1.0)
        variance = estimate(table, "age", "variance")
        assert variance["lower"] == 0.0


# -- bounds and row independence --------------------------------------------------------------------------------------


def _mixed() -> Public:
    kinds = ["category"] * 3 + ["item"] * 4 + ["category"] + ["number"] + ["number", "missing"]
    return dataclasses.replace(mixed(records=60), classes=(), units=tuple((k, 0.0, 1.0, 0.0) for k in kinds))


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_neighbours_move_each_group_within_its_sensitivity(mechanism: str, neighbours: str) -> None:
    public = _mixed()
    if neighbours == "add-remove":
        public = dataclasses.replace(public, records=None)
    budget = budget_of(mechanism, neighbours=neighbours)
    design = design_summary({"bins": 3}, public, budget)
    plan = plan_of(design, budget, 60).rounds[0]
    records = np.array(encodable(public, [-1.0, 0.1, 1.0]))
    values = design.program.map_block(records, 0.0)
    assert isinstance(values, Dense)
    vectors = np.array([total(Dense(values=row[None, :]), plan.grid) for row in values.values])
    np.testing.assert_array_equal(vectors, np.rint(values.values * plan.grid.scale))  # the platform clips nothing
    starts, stops, _ = plan.grid.edges()
    for g, noise in enumerate(plan.noise):
        parts = np.unique(vectors[:, starts[g] : stops[g]], axis=0)
        if neighbours == "add-remove":
            gaps = parts.astype(float)
        else:
            gaps = np.array([a - b for a, b in itertools.combinations(parts[:: max(1, len(parts) // 400)], 2)], float)
        if len(gaps) == 0:
            gaps = np.zeros((1, 1))
        sizes = np.abs(gaps).sum(axis=1) if mechanism == "laplace" else np.sqrt((gaps**2).sum(axis=1))
        assert sizes.max() <= noise.sensitivity * (1 + 1e-9)
        if len(parts) > 2:
            assert sizes.max() >= 0.6 * noise.sensitivity


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
def test_rows_are_independent_to_the_bit(mechanism: str) -> None:
    public = dataclasses.replace(_mixed(), records=None if mechanism == "laplace" else 60)
    features, _ = random_records(public, 60, np.random.default_rng(4))
    budget = budget_of(mechanism, neighbours="add-remove" if mechanism == "laplace" else "replace-one")
    design = design_summary({}, public, budget)
    grid = plan_of(design, budget, 60).rounds[0].grid
    check_row_independence(design.program, features, None, [(0.0, grid)])


class CentredByItsBlock(SummaryProgram):
    """Planted: moments around the block's own mean."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        mine = prepared - prepared.mean(axis=0) * 0.1 if len(prepared) else prepared
        return super().map_block(mine, state)


def test_a_planted_block_mean_is_caught() -> None:
    public = _mixed()
    features, _ = random_records(public, 60, np.random.default_rng(4))
    design = design_summary({}, public, budget_of("gaussian"))
    grid = plan_of(design, budget_of("gaussian"), 60).rounds[0].grid
    planted = CentredByItsBlock(design.program.columns, correlations=True, counts=False)
    with pytest.raises(RowsDependError):
        check_row_independence(planted, features, None, [(0.0, grid)])


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"columns": ["age", "shoe"]}, "'shoe'"),
        ({"columns": []}, "empty or repeats"),
        ({"columns": ["age", "age"]}, "empty or repeats"),
        ({"correlations": "False"}, "neither true nor false"),
        ({"bins": 0}, "bins = 0"),
        ({"bins": 2.5}, "bins = 2.5"),
        ({"bins": 10**6}, "bins"),
        ({"cuts": {"age": [50, 20]}}, "cuts of 'age'"),
        ({"cuts": {"age": [-5]}}, "cuts of 'age'"),
        ({"cuts": {"age": ["old"]}}, "cuts of 'age'"),
        ({"cuts": {"age": [math.nan]}}, "cuts of 'age'"),
        ({"cuts": [1, 2]}, "cuts is not a table"),
        ({"cuts": {"shoe": [1]}}, "cuts is not a table"),
    ],
)
def test_impossible_settings_are_refused(own: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        design_summary(own, public_of(100), budget_of("gaussian"))


def test_a_study_of_noise_is_called_hopeless() -> None:
    assert "standard error" in str(design_summary({}, public_of(50), budget_of("gaussian", 0.05)).hopeless)
    assert design_summary({}, public_of(10**5), budget_of("gaussian")).hopeless is None
