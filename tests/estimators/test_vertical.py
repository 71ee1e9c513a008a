"""Institutions with different columns: what is refused, what is said, how people are found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import tallystick as ts
from tallystick.core.errors import DataError
from tallystick.study import Study

SCHEMA = ts.Schema(
    {"age": ts.Number(0, 100), "dose": ts.Number(0, 5), "ward": ts.Category(["a", "b"]), "ill": ts.Category(["n", "y"])}
)
N = 60


def frames(people: list[str] | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    rng = np.random.default_rng(0)
    ids = [f"P{i:03d}" for i in range(N)] if people is None else people
    bank = pl.DataFrame({"id": ids, "age": rng.uniform(0, 100, len(ids)), "ill": rng.choice(["n", "y"], len(ids))})
    hospital = pl.DataFrame({"id": ids, "dose": rng.uniform(0, 5, len(ids)), "ward": rng.choice(["a", "b"], len(ids))})
    return bank, hospital


def federation(*given: Any, **options: Any) -> Any:
    made = {"schema": SCHEMA, "vertical": True, "names": ["bank", "hospital"][: len(given)], "seed": 3}
    return ts.Federation.simulate(given, **{**made, **options})


def fit(fed: Any, **options: Any) -> Any:
    return ts.VerticalClassifier(mechanism="none", **options).fit(fed, target="ill")


def test_the_order_of_rows_does_not_matter() -> None:
    bank, hospital = frames()
    model = fit(federation(bank, hospital, identifier="id"))
    mixed = fit(federation(bank.sample(fraction=1.0, shuffle=True, seed=1), hospital.reverse(), identifier="id"))
    assert (model.coef_ == mixed.coef_).all()
    assert model.study_.data.records == N


def test_the_one_column_that_all_have_is_the_identifier() -> None:
    bank, hospital = frames()
    study = fit(federation(bank, hospital)).study_
    assert study.data.identifier is not None
    assert study.data.identifier.column == "id"
    two = [f.with_columns(other=pl.lit(1)) for f in (bank, hospital)]
    with pytest.raises(ts.StudyError, match="one of them names people"):
        fit(federation(*two))


def test_people_whom_not_all_have_are_left_out() -> None:
    bank, hospital = frames()
    model = fit(federation(bank[:50], hospital[20:], identifier="id"))
    assert model.study_.data.records == 30


def test_rows_belong_together_by_their_place_without_an_identifier_and_that_is_said() -> None:
    bank, hospital = (f.drop("id") for f in frames())
    with pytest.warns(ts.DataWarning, match="by their place"):
        fit(federation(bank, hospital))
    with pytest.raises(DataError, match="bank has 59, hospital has 60"):
        fit(federation(bank[1:], hospital))


def test_identifiers_as_declared() -> None:
    bank, hospital = frames()
    lower = hospital.with_columns(pl.col("id").str.to_lowercase())
    with pytest.raises(DataError, match="nobody in common"):
        fit(federation(bank, lower, identifier="id"))
    assert fit(federation(bank, lower, identifier={"column": "id", "case": "fold"})).study_.data.records == N
    spaced = hospital.with_columns(" " + pl.col("id") + "\u200b")  # blanks at the ends never count
    assert fit(federation(bank, spaced, identifier="id")).study_.data.records == N

    twice = pl.concat([bank, bank[:2]])
    with pytest.raises(DataError, match="4 row"):
        fit(federation(twice, hospital, identifier="id"))
    skipping = {"column": "id", "duplicates": "skip"}
    assert fit(federation(twice, hospital, identifier=skipping)).study_.data.records == N - 2

    blank = bank.with_columns(id=pl.when(pl.col("id") == "P000").then(pl.lit("  ")).otherwise(pl.col("id")))
    with pytest.raises(DataError, match="1 row"):
        fit(federation(blank, hospital, identifier="id"))
    assert fit(federation(blank, hospital, identifier={"column": "id", "blanks": "skip"})).study_.data.records == N - 1
    with pytest.raises(DataError, match="no column 'name'"):
        fit(federation(bank, hospital, identifier="name"))
    with pytest.raises(ts.StudyError, match=r"data\.identifier\.case"):
        fit(federation(bank, hospital, identifier={"column": "id", "case": "upper"}))


def test_a_column_or_the_labels_at_two_parties() -> None:
    bank, hospital = frames()
    with pytest.raises(ts.StudyError, match="labels 'ill' are at two parties"):
        fit(federation(bank, hospital.with_columns(bank["ill"]), identifier="id"))
    with pytest.raises(ts.StudyError, match="column 'age' is at two parties"):
        fit(federation(bank, hospital.with_columns(bank["age"]), identifier="id"))


def test_an_identifier_that_is_learned_from_is_named_as_such() -> None:
    """And not as a column that is at two parties, which it has to be."""
    bank, hospital = frames()
    known = ts.Schema({**SCHEMA, "id": ts.Category(bank["id"].to_list())})
    with pytest.raises(ts.StudyError) as caught:
        fit(federation(bank, hospital, schema=known, identifier="id"))
    assert caught.value.rule == "identifier-is-no-column"


def test_a_column_that_is_named_twice_at_one_party() -> None:
    data = {"columns": SCHEMA.to_dict(), "records": 9, "identifier": "id"}
    blocks = {"bank": {"columns": ["age", "ill", "age"], "norm": 1.0}, "hospital": {"columns": ["dose"], "norm": 1.0}}
    told = {"study": {"name": "twice", "program": "vertical_classifier", "target": "ill", "features": ["age", "dose"]}}
    with pytest.raises(ts.StudyError, match="'age' is named twice among those of 'bank'"):
        Study.from_dict({**told, "data": {**data, "holders": blocks}})


def test_a_column_at_nobody_and_a_holder_of_nothing() -> None:
    bank, hospital = frames()
    with pytest.raises(ts.StudyError, match="no institution holds column 'ward'"):
        fit(federation(bank, hospital.drop("ward"), identifier="id"))
    with pytest.raises(ts.StudyError, match="'hospital' holds no column"):
        ts.VerticalClassifier(mechanism="none").fit(
            federation(bank, hospital, identifier="id"), target="ill", features=["age"]
        )


def test_fewer_than_two_institutions() -> None:
    with pytest.raises(ts.StudyError, match="two at least"):
        federation(frames()[0])


def test_an_institution_may_hold_the_labels_alone() -> None:
    bank, hospital = frames()
    labels = bank.select(["id", "ill"])
    other = hospital.join(bank.select(["id", "age"]), on="id")
    model = fit(federation(labels, other, identifier="id"))
    assert model.study_.data.holders["bank"].norm is None
    assert model.coef_.shape == (1, 4)


def test_blocks_without_a_declared_norm() -> None:
    bank, hospital = frames()
    with pytest.raises(ts.BoundsError, match="'hospital' has no declared norm") as caught:
        fit(federation(bank, hospital, identifier="id", norms={"bank": 1.0}))
    assert "norm = " in (caught.value.remedy or "")
    for wrong in (0.0, -1.0, float("nan"), float("inf"), 1e9):
        with pytest.raises(ts.BoundsError, match="no length of a record"):
            fit(federation(bank, hospital, identifier="id", norms={"bank": 1.0, "hospital": wrong}))
    with pytest.raises(ts.BoundsError, match="no institution here"):
        fit(federation(bank, hospital, identifier="id", norms={"clinic": 1.0}))


def test_what_no_promise_is_made_of() -> None:
    fed = federation(*frames(), identifier="id")
    for options in ({"neighbours": "add-remove"}, {"mechanism": "laplace"}):
        with pytest.raises(ts.PrivacyRefused):
            ts.VerticalClassifier(**options).fit(fed, target="ill")
    study = ts.VerticalClassifier().study_for(fed, target="ill", features=None)
    with pytest.raises(ts.PrivacyRefused, match="know who and how many"):
        study.replace("privacy", unit="person", person="id")
    with pytest.raises(ts.StudyError, match="none can tell"):
        study.replace("data", missing={"marker": "?", "policy": "drop"})
    assert fed.spent.fits == 0


def test_programs_of_whole_records_are_refused_and_the_other_way_round() -> None:
    bank, hospital = frames()
    fed = federation(bank, hospital, identifier="id")
    with pytest.raises(ts.StudyError, match="split by columns"):
        ts.LogisticRegression().fit(fed, target="ill")
    joined = bank.join(hospital, on="id")
    whole = ts.Federation.simulate([joined] * 3, schema=SCHEMA)
    with pytest.raises(ts.StudyError, match="nobody is named who holds the columns"):
        ts.VerticalClassifier().fit(whole, target="ill")
    with pytest.raises(ts.StudyError, match="different columns of the same people"):
        ts.VerticalClassifier(schema=SCHEMA).fit(joined, bank["ill"])
    three = [*frames(), pl.DataFrame({"id": bank["id"], "z": 1.0})]
    schema = ts.Schema({**SCHEMA, "z": ts.Number(0, 1)})
    for trust in ("masks", "proxy"):
        other = ts.Federation.simulate(three, schema=schema, vertical=True, trust=trust, identifier="id")
        with pytest.raises(ts.TrustModelError, match="servers"):
            ts.VerticalClassifier().fit(other, target="ill")


def test_a_study_file_says_the_same() -> None:
    study = ts.VerticalClassifier().study_for(federation(*frames(), identifier="id"), target="ill", features=None)
    text = """
[study]
name = "split"
program = "vertical_classifier"
target = "ill"
[privacy]
epsilon = 1.0
[trust]
servers = 2
[data]
identifier = "id"
records = 60
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
dose = { type = "number", lower = 0, upper = 5 }
ward = { type = "category", values = ["a", "b"] }
ill = { type = "category", values = ["n", "y"] }
[data.holders.bank]
columns = ["age", "ill"]
norm = 1.0
[data.holders.hospital]
columns = ["dose", "ward"]
norm = 1.3
"""
    read = Study.parse(text)
    assert read.data.identifier == study.data.identifier
    assert {n: h.columns for n, h in (read.data.holders or {}).items()} == {
        n: h.columns for n, h in (study.data.holders or {}).items()
    }
    assert Study.from_canonical(read.canonical()) == read
    model = ts.VerticalClassifier(mechanism="none")
    model.fit_study(federation(*frames(), identifier="id"), read.replace("privacy", mechanism="none"))
    other = ts.Federation.simulate(list(frames()), schema=SCHEMA, vertical=True, names=["x", "y"])
    with pytest.raises(ts.StudyError, match="columns are at bank, hospital"):
        model.fit_study(other, read.replace("privacy", mechanism="none"))
    for wrong, said in (
        ({"holders": {"bank": {"columns": list(SCHEMA)}}}, "two at least"),
        ({"holders": None}, "identifier is for institutions"),
        ({"identifier": "age"}, "is declared as a column"),
    ):
        with pytest.raises(ts.StudyError, match=said):
            read.replace("data", **wrong)


def test_an_answer_says_what_the_promise_leaves_out() -> None:
    model = ts.VerticalClassifier(epsilon=2.0).fit(federation(*frames(), identifier="id"), target="ill")
    notes = " ".join(model.answer().notes)
    assert "declared norm" in notes
    assert "in common" in notes
    assert any("follow the protocol" in note for note in model.plan_.notes)
    assert model.plan_.details["norms"].keys() == {"bank", "hospital"}
