"""A record with a bad or missing cell adds zeros in every program, and its sensitivity covers that.

Clients are built as a deployed client builds them. In every round of every built-in program and of one of a user's own:
a bad record alone sums to the zero vector (counts, constants and intercepts too), among others it leaves their sum as
it is without it, to the bit, and replacing a good record by a bad one moves each group by at most what the plan is
calibrated to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import DataError
from tallystick.crypto.field import to_real
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.encoding import study_records
from tallystick.engines.client_map import ChosenMap, ClientMap, ClientMaps
from tallystick.engines.designs import design_of, design_program, designed
from tallystick.engines.planning import layout_of, plan_study, public_facts

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
]
N = 40
COLUMNS = {
    "age": {"type": "number", "lower": 0, "upper": 100},
    "visits": {"type": "integer", "lower": 0, "upper": 9},
    "sex": {"type": "category", "values": ["f", "m"]},
    "basket": {"type": "items", "vocabulary": ["tea", "milk", "bread"], "max_per_record": 2},
    "ill": {"type": "category", "values": ["no", "yes"]},
    "cost": {"type": "number", "lower": 0, "upper": 10},
}
LINEAR = {"kind": "linear", "weights": [[1.0] * 7], "intercept": [0.1]}
PROGRAMS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "logistic": ("logistic_regression", {"rounds": 2}, "ill"),
    "logistic, unscaled": ("logistic_regression", {"rounds": 2, "standardise": False}, "ill"),
    "svc": ("linear_svc", {"rounds": 2}, "ill"),
    "ridge": ("ridge", {}, "cost"),
    "gaussian_nb": ("gaussian_nb", {}, "ill"),
    "gaussian_mixture": ("gaussian_mixture", {"n_components": 2, "rounds": 2}, None),
    "pca": ("pca", {}, None),
    "pca, cosines": ("pca", {"basis": "dct"}, None),
    "truncated_svd": ("truncated_svd", {"columns": "uneven"}, None),
    "pipeline": ("pipeline", {"steps": [{"program": "pca"}, {"program": "linear_svc", "rounds": 2}]}, "ill"),
    "kmeans": ("kmeans", {"n_clusters": 2, "rounds": 2}, None),
    "kmeans, plain": ("kmeans", {"n_clusters": 2, "rounds": 2, "method": "plain", "start": "random"}, None),
    "levels": ("frequent_itemsets", {"min_support": 0.3, "method": "levels"}, None),
    "basis": ("frequent_itemsets", {"min_support": 0.3, "method": "basis"}, None),
    "summary": ("summary", {}, None),
    "evaluation": ("evaluation", {"classifier": LINEAR}, "ill"),
    "own": ("own", {}, "ill"),
}
BAD: list[dict[str, Any]] = [
    {"age": None},
    {"age": "maybe"},
    {"age": math.nan},
    {"visits": {}},
    {"sex": ["f"]},
    {"sex": None},
    {"basket": None},
    {"basket": 7},
]
BAD_TARGET = [{"ill": None, "cost": None}, {"ill": "perhaps", "cost": "much"}, {"ill": [], "cost": math.nan}]


class Own(ts.Program):
    """Σ (record, 1)."""

    bound = 3.0

    def init(self, public: ts.Public) -> Any:
        return np.zeros(len(public.features) + 2)

    def map_in_client(self, record, state):  # type: ignore[no-untyped-def]
        out = np.ones(len(record) + 1)
        out[:-1] = record
        return out

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total


def people() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [
        {
            "age": float(rng.uniform(0, 100)),
            "visits": int(rng.integers(0, 10)),
            "sex": str(rng.choice(["f", "m"])),
            "basket": [str(item) for item in rng.permutation(["tea", "milk", "bread"])[: rng.integers(0, 4)]],
            "ill": str(rng.choice(["no", "yes"])),
            "cost": float(rng.uniform(0, 10)),
            "who": int(rng.integers(0, 15)),
        }
        for _ in range(N)
    ]


def frame(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {column: [record[column] for record in records] for column in [*COLUMNS, "who"]}


def study_of(name: str, *, policy: str | None, mechanism: str = "gaussian", **privacy: Any) -> ts.Study:
    program, keywords, target = PROGRAMS[name]
    columns = {k: v for k, v in COLUMNS.items() if k not in ("ill", "cost") or k == target}
    return ts.Study.from_dict(
        {
            "study": {"name": "t", "program": program, "target": target, "accept_noise": True},
            "program": keywords,
            "privacy": {"epsilon": 2.0, "mechanism": mechanism, **privacy},
            "data": {
                "records": N,
                "columns": columns,
                "missing": None if policy is None else {"marker": "?", "policy": policy},
            },
        }
    )


class Study:
    """A study, and the sums of whatever records are given to one deployed client."""

    def __init__(self, study: ts.Study) -> None:
        self.study = study
        layout = layout_of(study)
        if study.study.program == "own":
            self.design = designed(study, layout, lambda public, _: design_program(Own(), public), rounds=1)
        else:
            self.design = design_of(study, layout, None)
        self.plan = plan_study(study, self.design, allow_not_private=True)
        self.program = self.design.program
        self.state = self.program.init(public_facts(study, layout))
        self.maps = ClientMaps(study, self.program, self.state)

    def client(self, records: list[dict[str, Any]]) -> ClientMap | ChosenMap:
        made = study_records(self.study, frame(records), party="here", lenient=True)
        return self.maps.of(made, lambda *labels: AesStream(derive(b"1" * 32, *labels)), "here")

    def rounds(self) -> Iterator[tuple[int, Any, bytes]]:
        """(number, plan, model) of every round, each reached with the exact sums of good records before it."""
        good = self.client(people())
        for number, plan in enumerate(self.plan.rounds, start=1):
            model = pack_state(self.program.query(self.state))
            yield number, plan, model
            total = to_real(good.contribute(model, plan, number), plan.grid.fraction_bits)
            self.state = self.program.reduce_in_aggregator(total, self.state)


def bad_records(name: str) -> list[dict[str, Any]]:
    """One of the records, spoilt in every way."""
    good = people()[7]
    return [{**good, **spoilt} for spoilt in [*BAD, *(BAD_TARGET if PROGRAMS[name][2] else ())]]


@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("policy", ["error", "drop"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bad_record_adds_zeros_within_the_sensitivity(
    name: str, policy: str | None, mechanism: str, unit: str
) -> None:
    persons = {"unit": "person", "person": "who", "max_records": 2} if unit == "person" else {}
    one = Study(study_of(name, policy=policy, mechanism=mechanism, **persons))
    good, spoilt = people(), bad_records(name)
    if persons:
        spoilt = [*spoilt, {**good[7], "who": None}, {**good[7], "who": " "}]
    without = one.client(good[:7] + good[8:])
    intact, alone = one.client(good), one.client(spoilt)
    replaced = [one.client([*good[:7], bad, *good[8:]]) for bad in spoilt]
    moved_at_all = False
    for number, plan, model in one.rounds():
        assert not alone.contribute(model, plan, number).any()
        left = without.contribute(model, plan, number)
        for client in replaced:
            assert (client.contribute(model, plan, number) == left).all()
        moved = intact.contribute(model, plan, number) - left
        moved_at_all |= bool(moved.any())
        for start, stop, noise in zip(*plan.grid.edges()[:2], plan.noise):
            part = moved[start:stop].astype(float)
            size = np.abs(part).sum() if plan.grid.norm == "l1" else math.sqrt(float(part @ part))
            assert size <= noise.sensitivity
    assert moved_at_all


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "evaluation"])  # its classifier has no marks
def test_under_a_category_policy_a_missing_cell_is_one_and_a_bad_one_adds_zeros(name: str) -> None:
    one = Study(study_of(name, policy="category"))
    alone = one.client([{**people()[7], "age": "maybe"}, {**people()[7], "visits": {}}])
    missing = one.client([{**people()[7], "age": None}])
    for number, plan, model in one.rounds():
        assert not alone.contribute(model, plan, number).any()
        if number == 1:
            assert missing.contribute(model, plan, number).any()


def test_a_bad_record_moves_no_other_records_coin() -> None:
    """Sampled rounds: coins belong to places in the source."""
    privacy = {"neighbours": "add-remove", "sampling": {"no": 0.5, "yes": 0.25}}
    one = Study(study_of("logistic", policy="drop", **privacy))
    good = people()
    alone = [one.client([*[{**r, "age": "maybe"} for r in good[:i]], good[i]]) for i in range(N)]
    spoilt = one.client([{**good[0], "age": "maybe"}, *good[1:]])
    whole = one.client(good)
    for number, plan, model in one.rounds():
        each = [client.contribute(model, plan, number) for client in alone]
        assert (whole.contribute(model, plan, number) == sum(each)).all()
        assert (spoilt.contribute(model, plan, number) == sum(each[1:])).all()


def test_checks_and_simulations_still_say_what_is_wrong() -> None:
    schema = ts.Schema({"age": ts.Number(0, 100), "sex": ts.Category(["f", "m"])})
    for policy in (None, ts.Missing(policy="error")):
        for cells, words in (([None, 1.0], "missing values"), (["maybe", 1.0], "holds text")):
            fed = ts.Federation.simulate([{"age": cells, "sex": ["f", "m"]}], schema=schema, missing=policy)
            with pytest.raises(DataError, match=words):
                ts.Summary(epsilon=5.0).fit(fed)
    study = study_of("summary", policy="error", unit="person", person="who", max_records=2)
    for who in (None, " ", math.nan):
        records = [{**people()[0], "who": who}, people()[1]]
        with pytest.raises(DataError, match="'who' has empty cells"):
            study_records(study, frame(records), lenient=False)
        assert study_records(study, frame(records), lenient=True).rows.tolist() == [1]


# -- what divides by complete records ----------------------------------------------------------------------------------


def half_missing(n: int = 4000) -> dict[str, Any]:
    """Half of the records are incomplete; the others have mean 80 and nearly always tea and milk."""
    rng = np.random.default_rng(3)
    age = rng.normal(80, 5, n)
    age[::2] = math.nan
    basket = np.where(rng.uniform(size=n) < 0.9, "tea;milk", "bread")
    return {"age": age, "basket": basket, "ill": np.where(age > 80, "yes", "no")}


HALF = ts.Schema(
    {
        "age": ts.Number(0, 100),
        "basket": ts.Items(["tea", "milk", "bread"], 2),
        "ill": ts.Category(["no", "yes"]),
    }
)


def half(**options: Any) -> Any:
    return ts.Federation.simulate([half_missing()], schema=HALF, seed=1, missing=ts.Missing(policy="drop"), **options)


def test_with_drop_answers_divide_by_a_noised_count_of_complete_records() -> None:
    table = ts.Summary(epsilon=2.0, columns=["age"]).fit(half()).table_
    mean = next(r for r in table if r["statistic"] == "mean")
    assert abs(mean["estimate"] - 80) < 5 * mean["standard_error"] + 0.5
    assert mean["standard_error"] > 0
    centres = ts.KMeans(n_clusters=1, epsilon=5.0).fit(half(), features=["age"])
    assert abs(float(centres.cluster_centers_[0][0]) - 80) < 3
    assert abs(float(centres.counts_[0]) - 2000) < 200
    for method in ("levels", "basis"):
        found = ts.FrequentItemsets(min_support=0.6, epsilon=5.0, method=method).fit(half(), features=["age", "basket"])
        assert ("basket=milk", "basket=tea") in {tuple(sorted(items)) for items, _ in found.itemsets_}
    model = ts.LogisticRegression(epsilon=5.0, rounds=3).fit(half(), target="ill", features=["age"])
    assert 1500 < model.history_[0].records < 2500


def test_without_drop_nothing_is_counted_and_the_bits_stay() -> None:
    for policy, counted in ((None, False), ("error", False), ("category", False), ("drop", True)):
        for name in ("logistic", "kmeans", "levels", "basis"):
            program = Study(study_of(name, policy=policy)).program
            counting = getattr(program, "moments", None) or program
            assert bool(getattr(counting, "counts", getattr(counting, "counts_records", None))) is counted
        assert ("count" in Study(study_of("summary", policy=policy)).program.sizes) is counted
