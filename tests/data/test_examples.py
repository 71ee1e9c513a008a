"""The invented data: public shape, as easy and as hard as promised, and a function of seed and position alone."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from tests.data.example_tables import clinic, clinic_schema, ties, ties_schema

from tallystick.core.errors import StudyError
from tallystick.data.encoding import encode
from tallystick.data.examples import census, census_schema
from tallystick.study.columns import Category, Missing

ADULT = Path(__file__).parents[3] / "shared" / "data" / "adult.parquet"


def test_census_is_a_function_of_seed_and_position() -> None:
    assert census(50).equals(census(80).head(50))
    assert census(50, seed=1).equals(census(50))
    assert not census(50, seed=2).equals(census(50))
    assert census(0).shape == (0, 13)
    for wrong in (-1, 2.5, True):
        with pytest.raises(StudyError):
            census(wrong)  # type: ignore[arg-type]


def test_census_known_answer() -> None:
    """A change here changes every published example: say so in the changelog."""
    text = census(200, seed=1).write_csv()
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "b773137f87b00c3f"


def test_census_needs_nothing_outside_its_schema() -> None:
    frame = census(20_000)
    schema = census_schema()
    assert set(schema) == set(frame.columns)
    got = encode(frame, schema, target="income", missing=Missing())
    assert got.tallies.clamped == {}
    assert set(got.tallies.unknown) == {"native_country"}
    assert set(got.tallies.missing) == {"workclass", "occupation", "native_country"}
    married = frame.filter(pl.col("marital_status") == "Married-civ-spouse")
    assert set(married["relationship"]) <= {"Husband", "Wife", "Other-relative"}
    assert set(married.filter(pl.col("relationship") == "Husband")["sex"]) == {"Male"}


def test_census_is_as_hard_as_promised() -> None:
    got = encode(census(20_000), census_schema(), target="income", missing=Missing())
    assert got.target is not None
    majority = 1 - got.target.mean()
    assert 0.74 < majority < 0.78
    train = np.arange(len(got)) % 4 != 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(max_iter=200).fit(got.features[train], got.target[train])
    accuracy = model.score(got.features[~train], got.target[~train])
    assert 0.84 < accuracy < 0.87
    shuffled = LogisticRegression(max_iter=50).fit(got.features[train], np.roll(got.target[train], 1))
    assert shuffled.score(got.features[~train], got.target[~train]) < 0.78  # the label comes from the attributes


def test_clinic_and_ties_fit_their_schemas() -> None:
    got = encode(clinic(), clinic_schema(), target="readmitted", missing=Missing())
    assert len(got) == 600
    assert set(got.tallies.missing) == {"bmi"}
    assert got.tallies.unknown == {}
    assert got.target is not None
    assert 0.3 < got.target.mean() < 0.6
    assert set(clinic()["hospital"]) == {"north", "south", "west"}
    assert len(encode(ties(7), ties_schema(), target="label")) == 7


@pytest.mark.data
@pytest.mark.skipif(not ADULT.exists(), reason=f"the Adult data are not at {ADULT}")
def test_census_has_the_columns_and_vocabularies_of_adult() -> None:
    adult = pl.read_parquet(ADULT).with_columns(pl.col(pl.Categorical).cast(pl.String))
    frame = census(5_000)
    for name, column in census_schema().items():
        if isinstance(column, Category) and column.merge is None:
            assert set(column.values) == set(adult[name].unique()) - {"?"}
    assert set(frame["native_country"]) <= set(adult["native_country"])
    assert set(frame.columns) <= set(adult.columns)
