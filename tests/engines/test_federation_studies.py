"""Studies through a simulated federation: units, neighbours, mechanisms, trust, drop-outs, exact sums."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.engines.federation import SimulatedFederation

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
]

COLUMNS = {"x": {"type": "number", "lower": -1, "upper": 1}, "label": {"type": "category", "values": ["a", "b"]}}


class Totals(ts.Program):
    """Σ (x, 1) over the records."""

    bound = 2.0

    def init(self, public: ts.Public) -> Any:
        return np.zeros(2)

    def map_in_client(self, record, state):  # type: ignore[no-untyped-def]
        out = np.ones(2)
        out[0] = record[0]
        return out

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total


def frame(records: int = 90, seed: int = 0, persons: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = np.round(rng.uniform(-1, 1, records), 3)
    return {"x": x, "label": np.where(x > 0, "b", "a"), "who": np.arange(records) % persons}


def thirds(data: dict[str, Any], parts: int = 3) -> list[dict[str, Any]]:
    return [{k: v[i] for k, v in data.items()} for i in np.array_split(np.arange(len(data["x"])), parts)]


def study(program: str = "logistic_regression", **sections: Any) -> ts.Study:
    raw: dict[str, Any] = {
        "study": {"name": "t", "program": program, "target": "label" if program != "program" else None},
        "program": {"rounds": 3} if program != "program" else {},
        "privacy": {"epsilon": 5.0},
        "data": {"columns": COLUMNS},
    }
    for name, values in sections.items():
        raw[name] = raw.get(name, {}) | values
    raw["study"]["accept_noise"] = True
    if program == "program":
        raw["study"]["features"] = ["x"]
    return ts.Study.from_dict(raw)


def totals(data: Any, **privacy: Any) -> Any:
    fed = ts.Federation.simulate(data, seed=3)
    made = study("program", privacy={"mechanism": "none", **privacy})
    return ts.ProgramEstimator(Totals()).fit_study(fed, made)


# -- exact sums -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 3, 30])
def test_sums_are_exact_for_any_number_of_clients(clients: int) -> None:
    data = frame()
    model = totals(thirds(data, clients))
    assert model.state_[1] == 90
    whole = totals([data])
    np.testing.assert_array_equal(model.state_, whole.state_)
    assert model.state_[0] == pytest.approx(data["x"].sum(), abs=1e-6)


def test_the_model_is_the_same_bits_however_records_are_dealt() -> None:
    data = frame()
    order = np.random.default_rng(1).permutation(90)
    shuffled = {k: v[order] for k, v in data.items()}
    models = []
    for frames in ([data], thirds(data), thirds(shuffled, 7)):
        fed = ts.Federation.simulate(frames, seed=11)
        models.append(ts.LogisticRegression(epsilon=5.0, rounds=5).fit_study(fed, study()))
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.intercept_, models[0].intercept_)


def test_seeds_are_streams_of_their_own() -> None:
    first, second = (
        ts.LogisticRegression(rounds=3).fit_study(ts.Federation.simulate([frame()], seed=s), study()) for s in (1, 2)
    )
    assert not np.array_equal(first.coef_, second.coef_)
    with pytest.raises(ts.StudyError, match="seed"):
        ts.Federation.simulate([frame()], seed=1.5)  # type: ignore[arg-type]


# -- unit = person ----------------------------------------------------------------------------------------------------


def test_a_persons_records_are_bounded_together_at_each_institution() -> None:
    data = frame(records=90, persons=3) | {"x": np.zeros(90)}
    capped = totals([data], unit="person", person="who", max_records=4)
    # each record adds (0, 1), thirty a person; the person's sum is shortened to max_records x bound = 8
    assert capped.state_[1] == pytest.approx(3 * 8.0, rel=1e-6)
    twice = totals([data, data, data], unit="person", person="who", max_records=4, max_institutions=3)
    assert twice.state_[1] == pytest.approx(9 * 8.0, rel=1e-6)  # no institution sees the others
    loose = totals([data], unit="person", person="who", max_records=30)
    assert loose.state_[1] == 90


def test_the_person_pays_for_records_and_institutions() -> None:
    def noise(**privacy: Any) -> float:
        fed = ts.Federation.simulate(thirds(frame()), seed=1)
        model = ts.LogisticRegression(rounds=2).fit_study(fed, study(privacy=privacy))
        return float(model.privacy_.noise_std["total"])

    record = noise()
    person = noise(unit="person", person="who", max_records=4, max_institutions=2)
    assert person == pytest.approx(8 * record, rel=1e-4)
    assert noise(max_records=4, max_institutions=2) == record  # caps without unit = "person" mean nothing


def test_the_statement_speaks_of_persons() -> None:
    fed = ts.Federation.simulate(thirds(frame()), seed=1)
    made = study(privacy={"unit": "person", "person": "who", "max_records": 4, "max_institutions": 2})
    model = ts.LogisticRegression(rounds=2).fit_study(fed, made)
    assert model.privacy_.unit == "person"
    assert "replacing any one person" in model.privacy_.statement
    assert "up to 4 records' worth" in model.privacy_.statement
    assert "at most 2 institution(s)" in model.privacy_.statement


@pytest.mark.parametrize(
    "privacy, words",
    [
        ({"unit": "person"}, "without the column"),
        ({"unit": "person", "person": "nobody"}, "no column 'nobody'"),
        ({"unit": "person", "person": "who", "max_records": 0}, "max_records = 0"),
        ({"unit": "person", "person": "who", "max_institutions": -1}, "max_institutions = -1"),
    ],
)
def test_persons_must_be_named_and_capped(privacy: dict[str, Any], words: str) -> None:
    fed = ts.Federation.simulate(thirds(frame()), seed=1)
    with pytest.raises(ts.TallystickError, match=words):
        ts.LogisticRegression(rounds=2).fit_study(fed, study(privacy=privacy))
    assert fed.spent.fits == 0


@pytest.mark.parametrize("nobody", [None, math.nan, "", "  "])
def test_a_record_of_nobody_is_refused(nobody: Any) -> None:
    data = frame() | {"who": np.array([nobody, *map(str, range(89))], dtype=object)}
    fed = ts.Federation.simulate([data], names=["clinic"], seed=1)
    with pytest.raises(ts.StudyError, match="'who' has empty cells") as refused:
        ts.LogisticRegression(rounds=2).fit_study(fed, study(privacy={"unit": "person", "person": "who"}))
    assert refused.value.party == "clinic"  # type: ignore[attr-defined]
    assert fed.spent.fits == 0


def test_one_record_a_person_is_the_record_unit() -> None:
    data = frame(persons=90)
    models = []
    for privacy in ({}, {"unit": "person", "person": "who"}):
        fed = ts.Federation.simulate([data], seed=1)
        models.append(ts.LogisticRegression(rounds=3, mechanism="none").fit_study(
            fed, study(privacy={"mechanism": "none", **privacy}, data={"records": 90})
        ))  # fmt: skip
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_where_the_count_is_secret_it_is_counted_with_noise() -> None:
    for privacy in ({"neighbours": "add-remove"}, {"unit": "person", "person": "who"}):
        fed = ts.Federation.simulate(thirds(frame(records=3000, persons=3000)), seed=2)
        model = ts.LogisticRegression(rounds=3).fit_study(fed, study(privacy=privacy))
        assert model.study_.data.records is None
        counted = model.history_[0].records
        assert counted != 3000
        assert counted == pytest.approx(3000, rel=0.2)


# -- neighbours, mechanisms, trust ------------------------------------------------------------------------------------


def fitted(**sections: Any) -> ts.LogisticRegression:
    fed = ts.Federation.simulate(thirds(frame()), seed=5, **sections.pop("federation", {}))
    return ts.LogisticRegression(rounds=3).fit_study(fed, study(**sections))


def test_add_remove_needs_half_the_noise() -> None:
    replace, remove = fitted(), fitted(privacy={"neighbours": "add-remove"})
    assert replace.privacy_.noise_std["total"] == pytest.approx(2 * remove.privacy_.noise_std["total"], rel=1e-4)
    assert "adding or removing any one record" in remove.privacy_.statement


def test_laplace_is_pure() -> None:
    model = fitted(privacy={"mechanism": "laplace"})
    assert model.privacy_.delta == 0
    assert model.plan_.spent_epsilon() <= 5.0
    assert "(pure)" in model.privacy_.statement
    assert "except with probability" not in model.privacy_.statement
    assert {r.grid.norm for r in model.plan_.rounds} == {"l1"}
    with pytest.raises(ts.TallystickError, match="pure-epsilon-has-no-delta"):
        fitted(privacy={"mechanism": "laplace", "delta": 1e-6})


def test_no_noise_is_not_private() -> None:
    model = fitted(privacy={"mechanism": "none"})
    as_dict = model.privacy_.as_dict()
    assert as_dict["differentially_private"] is False
    assert as_dict["epsilon"] is None
    assert as_dict["statement"].startswith("NOT differentially private")
    json.dumps(as_dict, allow_nan=False)


def test_a_fit_without_noise_spoils_the_federations_statement() -> None:
    fed = ts.Federation.simulate([frame()], seed=1)
    ts.LogisticRegression(rounds=2, mechanism="none").fit_study(fed, study(privacy={"mechanism": "none"}))
    assert fed.spent.epsilon is None
    assert fed.spent.differentially_private is False


def test_fewer_colluders_need_less_noise_of_each() -> None:
    all_but_one = fitted(trust={"servers": 3})
    one = fitted(trust={"servers": 3, "colluding": 1})
    assert all_but_one.privacy_.trust == {"model": "servers", "servers": 3, "colluding": 2, "honest": 1}
    assert one.privacy_.trust == {"model": "servers", "servers": 3, "colluding": 1, "honest": 2}
    ratio = all_but_one.privacy_.noise_std["per_server"] / one.privacy_.noise_std["per_server"]
    assert ratio == pytest.approx(math.sqrt(2), rel=1e-3)


def test_every_server_adds_its_noise() -> None:
    """The spread of released sums around the true one is what all servers' noise together gives."""
    data, errors = frame(300), []
    expected = 0.0
    for seed in range(60):
        fed = ts.Federation.simulate([data], seed=seed)
        model = ts.ProgramEstimator(Totals()).fit_study(fed, study("program", trust={"servers": 3, "colluding": 1}))
        errors += [model.state_[1] - 300, model.state_[0] - data["x"].sum()]
        expected = float(model.privacy_.noise_std["total"])
    assert np.std(errors) == pytest.approx(expected, rel=0.3)  # 120 draws: 0.3 is 4.6 standard errors
    assert abs(np.mean(errors)) < 4 * expected / math.sqrt(120)


def test_drop_outs_cost_only_their_own_records() -> None:
    data = frame(120)
    frames = thirds(data, 6)
    fed = ts.Federation.simulate(frames, seed=4, drop=0.15, min_clients=2)
    made = study(privacy={"mechanism": "none"}, trust={"min_clients": 2})
    model = ts.LogisticRegression(rounds=5, mechanism="none").fit_study(fed, made)
    dropped = [set(names) for names in model.dropped_]
    assert any(dropped)
    assert set(model.contributors_) == {f"client-{i}" for i in range(1, 7)} - dropped[-1]
    again = ts.Federation.simulate(frames, seed=4, drop=0.15, min_clients=2)
    same = ts.LogisticRegression(rounds=5, mechanism="none").fit_study(again, made)
    assert same.dropped_ == model.dropped_
    np.testing.assert_array_equal(same.coef_, model.coef_)


@pytest.mark.parametrize("drop", [-0.1, 1.0, math.nan, math.inf])
def test_drop_is_a_probability(drop: float) -> None:
    with pytest.raises(ts.StudyError, match="drop"):
        ts.Federation.simulate([frame()], drop=drop)


@pytest.mark.parametrize("names", [["a"], ["a", "a", "b"], ["a", "b", "c/d"], ["", "b", "c"]])
def test_names_are_distinct_and_plain(names: list[str]) -> None:
    with pytest.raises(ts.TallystickError):
        ts.Federation.simulate(thirds(frame()), names=names)


def test_a_federation_of_nobody() -> None:
    with pytest.raises(ts.StudyError, match="no institution"):
        ts.Federation.simulate([])


def test_a_federation_shows_no_record() -> None:
    fed = ts.Federation.simulate([frame() | {"x": np.full(90, 0.123456)}], schema=ts.Schema({"x": ts.Number(-1, 1)}))
    assert isinstance(fed, SimulatedFederation)
    assert "0.123456" not in repr(fed)


def test_the_public_number_of_records_is_that_of_all_rows() -> None:
    """Replacing a record by an incomplete one changes nothing public: neither the study nor its noise."""
    whole, holed = frame(), frame()
    holed["x"][4] = math.nan
    holed["label"][5] = "?"
    made = study(data={"missing": {"marker": "?", "policy": "drop"}})
    models = [
        ts.LogisticRegression(rounds=2).fit_study(ts.Federation.simulate([data], seed=1), made)
        for data in (whole, holed)
    ]
    assert [m.study_.data.records for m in models] == [90, 90]
    assert models[0].study_.hash == models[1].study_.hash


# -- a program that goes wrong ----------------------------------------------------------------------------------------


def test_a_state_that_is_not_finite_is_not_released() -> None:
    class Diverges(Totals):
        rounds = 2

        def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
            return np.array([math.inf, 0.0])

    fed = ts.Federation.simulate([frame()], seed=1)
    model = ts.ProgramEstimator(Diverges())
    with pytest.raises(ts.RoundAborted, match="state-is-finite"):
        model.fit_study(fed, study("program"))
    assert not hasattr(model, "state_")
    assert fed.spent.fits == 1  # a noisy total had left: the charge stays


def test_progress_is_told_of_every_round() -> None:
    steps: list[tuple[int, int]] = []

    def progress(done: int, rounds: int) -> None:
        steps.append((done, rounds))

    told: Callable[[int, int], None] = progress
    fed = ts.Federation.simulate([frame()], seed=1)
    ts.LogisticRegression(rounds=3).fit_study(fed, study(), progress=told)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
