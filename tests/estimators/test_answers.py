"""The answer as a table: original units that predict as the model does, intervals that cover as they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.estimators.answer import Answer
from tallystick.estimators.coefficients import undo_scaling

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
SCHEMA = ts.Schema(
    {
        "age": ts.Number(20, 90),
        "pressure": ts.Integer(60, 200, step=2),
        "spent": ts.Number(10, 5000, log=True),
        "group": ts.Category(["u", "v"], merge="other"),
        "hours": ts.Number(0, 10, bins=[2, 5, 8]),
        "cost": ts.Number(0, 500),
        "risk": ts.Category(["low", "middle", "high"]),
    }
)
FEATURES = ["age", "pressure", "spent", "group", "hours"]


def people(n: int = 900) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    age, hours = rng.uniform(10, 100, n), rng.uniform(-1, 11, n)  # some beyond their bounds
    pressure, spent = np.rint(rng.normal(120, 20, n)), np.exp(rng.uniform(2, 9, n))
    group = rng.choice(["u", "v", "x", "y"], n, p=[0.5, 0.3, 0.1, 0.1])
    cost = 2 * age + 0.5 * pressure + np.where(group == "u", 10, -5) + 3 * hours + rng.normal(0, 20, n)
    risk = np.array(["low", "middle", "high"])[np.digitize(age + rng.normal(0, 9, n), [45, 70])]
    return {
        "age": age,
        "pressure": pressure,
        "spent": spent,
        "group": group,
        "hours": hours,
        "cost": cost,
        "risk": risk,
    }


@pytest.fixture(scope="module")
def fed() -> Any:
    data = people()
    return ts.Federation.simulate([{k: v[i::3] for k, v in data.items()} for i in range(3)], schema=SCHEMA, seed=2)


def from_table(model: Any, data: dict[str, Any], of: str | None = None) -> Any:
    """A score by hand: the table's terms and the schema's bounds, as a reader of the printed table would do it."""
    score = np.zeros(len(data["age"]))
    for row in model.to_frame().iter_rows(named=True):
        if of is not None and row["class"] != of:
            continue
        term = row["term"]
        if row["kind"] == "intercept":
            x = np.ones(len(score))
        elif row["kind"] in ("number", "log"):
            column = SCHEMA[term]
            x = np.clip(data[term], column.lower, column.upper)
            x = column.lower + 2 * np.rint((x - column.lower) / 2) if term == "pressure" else x
            x = np.log1p(x - column.lower) if row["kind"] == "log" else x
        elif term.startswith("group="):
            named = np.where(np.isin(data["group"], ["u", "v"]), data["group"], "other")
            x = (named == term.removeprefix("group=")).astype(float)
        else:
            cut = [-math.inf, 2, 5, 8, math.inf]
            at = ["hours<2", "2<=hours<5", "5<=hours<8", "hours>=8"].index(term)
            x = ((data["hours"] >= cut[at]) & (data["hours"] < cut[at + 1])).astype(float)
        score += row["coefficient"] * x
    return score


def test_predictions_from_the_table_are_those_of_the_model(fed: Any) -> None:
    data = people(300)
    ridge = ts.Ridge(epsilon=5.0).fit(fed, target="cost", features=FEATURES)
    assert np.allclose(from_table(ridge, data), ridge.predict(data), rtol=1e-9, atol=1e-9)
    several = ts.LogisticRegression(epsilon=5.0, rounds=3).fit(fed, target="risk", features=FEATURES)
    scores = np.column_stack([from_table(several, data, of) for of in ("low", "middle", "high")])
    assert np.allclose(scores, several.decision_function(data), rtol=1e-9, atol=1e-9)
    assert (several.classes_[scores.argmax(axis=1)] == several.predict(data)).all()


def test_a_missing_number_counts_as_the_middle_of_its_bounds() -> None:
    schema = ts.Schema({"x": ts.Number(10, 30), "y": ts.Category(["no", "yes"])})
    x = np.where(np.arange(300) % 5, np.linspace(10, 30, 300), np.nan)
    frame = {"x": x, "y": np.where(np.linspace(0, 1, 300) > 0.5, "yes", "no")}
    fed = ts.Federation.simulate([frame], schema=schema, seed=1, missing=ts.Missing("?", "category"))
    model = ts.LogisticRegression(epsilon=5.0, rounds=2).fit(fed, target="y")
    at = {row["term"]: row["coefficient"] for row in model.to_frame().iter_rows(named=True)}
    (score,) = model.decision_function({"x": [math.nan]})
    assert score == pytest.approx(at["(intercept)"] + at["x"] * 20 + at["x=?"])


def noise_free(model: Any, fed: Any) -> tuple[Any, Any]:
    """The released sums without their noise, and the coefficients they give: only a test can have them."""
    program = model._program
    (records,) = fed.records(model.study_)
    sums = program.map_block(program.prepare(records.features, records.target), 0.0)
    total = np.zeros(program.size)
    np.add.at(total, sums.indices, sums.values)
    intercept, weights = undo_scaling(*program.model(total, {}), model._layout)
    return total, np.array([intercept, *weights])


def coverage(model: Any, total: Any, truth: Any, times: float, mechanism: str, draws: int = 250) -> Any:
    """How often each interval of the printed table holds the noise-free coefficient, at ``times`` the planned noise."""
    rng = np.random.default_rng(11)
    noise = model._noise()
    std = np.concatenate([np.full(g.group.size, noise[g.group.name]) for g in model.plan_.rounds[0].noise])
    held = np.zeros(len(truth))
    for _ in range(draws):
        shape = (2, len(std))  # two servers
        drawn = rng.laplace(0, 0.5, shape) if mechanism == "laplace" else rng.normal(0, math.sqrt(0.5), shape)
        state = total + times * std * drawn.sum(axis=0)
        model.history_ = (state,)
        model._accept(state, model._layout)
        frame = model.to_frame()
        held += (frame["lower"].to_numpy() <= truth) & (truth <= frame["upper"].to_numpy())
    return held / draws


@pytest.mark.parametrize(
    "records, epsilon, features, mechanism",
    [
        (20_000, 1.0, ["age", "pressure"], "gaussian"),
        (20_000, 3.0, FEATURES, "gaussian"),
        (20_000, 3.0, ["age", "pressure"], "laplace"),
    ],
)
def test_the_intervals_of_ridge_cover_as_they_say(
    records: int, epsilon: float, features: list[str], mechanism: str
) -> None:
    fed = ts.Federation.simulate([people(records)], schema=SCHEMA, seed=1)
    model = ts.Ridge(epsilon=epsilon, mechanism=mechanism).fit(fed, target="cost", features=features)
    total, truth = noise_free(model, fed)
    found = coverage(model, total, truth, 1.0, mechanism)
    assert found.min() > 0.91
    assert 0.935 < found.mean() < 0.985
    assert coverage(model, total, truth, 1.5, mechanism, 100).mean() < 0.88  # the control: more noise than was planned


def test_intervals_are_not_promised_where_they_would_not_hold(fed: Any) -> None:
    few = ts.Ridge(epsilon=1.0).fit(fed, target="cost", features=FEATURES)
    assert few.to_frame()["lower"].is_null().all()
    assert any("No noise intervals" in note for note in few.answer().notes)
    descent = ts.LinearSVC(epsilon=5.0, rounds=3).fit(fed, target="risk", features=["age"])
    assert "lower" not in descent.to_frame().columns
    assert any("No noise intervals: the noise of 4 rounds" in note for note in descent.answer().notes)
    # A category without merge may have records with none of its values: its sums say too little about each value.
    open_ended = ts.Schema({**dict(SCHEMA), "group": ts.Category(["u", "v", "x", "y"])})
    many = ts.Federation.simulate([people(20_000)], schema=open_ended, seed=1)
    assert ts.Ridge(epsilon=3.0).fit(many, target="cost", features=FEATURES).to_frame()["lower"].is_null().all()


@pytest.mark.parametrize("method", ["auto", "plain"])
def test_the_intervals_of_counts_cover_the_records_nearest_to_the_centres_before(method: str) -> None:
    data = {k: v for k, v in people(3000).items() if k in ("age", "hours")}
    schema = ts.Schema({"age": ts.Number(20, 90), "hours": ts.Number(0, 10)})
    start = [[-0.5, 0.0], [0.0, 0.5], [0.5, -0.5]]
    held, off = [], []
    for seed in range(60):
        fed = ts.Federation.simulate([data], schema=schema, seed=seed)
        model = ts.KMeans(3, epsilon=2.0, start=start, method=method, rounds=4).fit(fed)
        before = model.history_[-2].centres[:3]
        (records,) = fed.records(model.study_)
        nearest = ((records.features[:, None, :] - before) ** 2).sum(axis=2).argmin(axis=1)
        truth = np.bincount(nearest, minlength=3)
        frame = model.to_frame()
        low, high = frame["count_lower"].to_numpy(), frame["count_upper"].to_numpy()
        held.append((low <= truth) & (truth <= high))
        middle, half = (low + high) / 2, (high - low) / 4
        off.append((middle - half <= truth) & (truth <= middle + half))
    assert np.mean(held) > 0.93
    assert np.mean(off) < 0.85  # the control: half as wide


def test_every_estimator_has_a_table_a_frame_and_a_page(fed: Any) -> None:
    model = ts.LogisticRegression(epsilon=5.0, rounds=1).fit(fed, target="risk", features=["age"])
    found = [
        model,
        ts.Summary(columns=["age", "group"]).fit(fed),
        ts.FrequentItemsets(0.4, epsilon=5.0).fit(fed, features=["group", "hours"]),
        ts.KMeans(2).fit(fed, features=["age", "hours"]),
        ts.evaluate(model, fed, target="risk", epsilon=1.0),
    ]
    for one in found:
        frame, page, text = one.to_frame(), one._repr_html_(), one.answer().text()
        assert frame.height == len(one.answer().rows) > 0
        assert page.count("<tr>") == frame.height + 1
        assert "Differentially private" in page
        assert all(name in text for name in frame.columns)
    summary = found[1].to_frame()
    assert {"estimate", "lower", "upper"} <= set(summary.columns)
    assert any("95%" in note for note in found[1].answer().notes)
    assert "<table>" not in ts.Ridge()._repr_html_()  # nothing to show before a fit: scikit-learn's own page


def test_a_page_is_not_written_by_the_data() -> None:
    answer = Answer.of([{"<b>": "<script>", "n": 1.5}], notes=["a & b"])
    assert "<script>" not in answer.html()
    assert "&lt;script&gt;" in answer.html()


def test_long_and_wide_tables_are_cut_and_turned_and_say_so() -> None:
    long = Answer.of([{"n": i} for i in range(100)])
    assert "40 more rows" in long.text()
    assert long.frame().height == 100
    wide = Answer.of([{f"c{i}": float(i) for i in range(12)}]).text()
    assert wide.splitlines()[3].split() == ["c3", "3.0000"]
    assert Answer.of([], columns=("items", "support")).frame().columns == ["items", "support"]
