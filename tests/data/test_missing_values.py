"""What a missing value means is declared for each column: nothing is imputed from records, or read from them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import tallystick as ts
from tallystick.core.caller import speaking_of_files
from tallystick.core.errors import BoundsError, DataError
from tallystick.data.encoding import encode
from tallystick.study import Study
from tallystick.study.columns import Category, Column, Integer, Items, Missing, Number
from tallystick.study.read_columns import columns_read
from tallystick.study.schema import Schema

CASES: dict[str, tuple[Column, list[Any], list[list[float]]]] = {
    "centre": (Number(0, 200, missing="centre"), [0, None, 200], [[-1], [0], [1]]),
    "centre of bins": (Number(0, 200, bins=[50, 150], missing="centre"), [None, 10], [[0, 1, 0], [1, 0, 0]]),
    "centre of integers": (Integer(0, 10, missing="centre"), [None, 10], [[0], [1]]),
    "a number": (Number(0, 200, missing=50), [None, 50], [[-0.5], [-0.5]]),
    "a whole number": (Integer(0, 10, missing=10), [None, 10], [[1], [1]]),
    "a number in bins": (Number(0, 200, bins=[50], missing=0), [None, 100], [[1, 0], [0, 1]]),
    "flag": (Number(0, 200, missing="flag"), [None, 200], [[0, 1], [1, 0]]),
    "flag of a category": (Category(["a", "b"], missing="flag"), [None, "b"], [[0, 0, 1], [0, 1, 0]]),
    "a category": (Category(["a", "b"], missing="b"), ["", "a"], [[0, 1], [1, 0]]),
    "a merged category": (Category(["a"], merge="rest", missing="rest"), [None, "a"], [[0, 1], [1, 0]]),
    "drop": (Number(0, 200, missing="drop"), [None, 200], [[1]]),
    "drop of items": (Items(["a"], 1, missing="drop"), [None, "a"], [[1]]),
    "none": (Number(0, 200, missing="none"), [0, 200], [[-1], [1]]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("policy", [None, "category", "drop", "error"])
def test_a_columns_own_word_goes_before_the_studys(name: str, policy: str | None) -> None:
    column, cells, expected = CASES[name]
    study = None if policy is None else Missing(policy=policy)
    got = encode({"x": cells}, Schema({"x": column}), missing=study)
    assert got.features.tolist() == expected
    assert ("missing" in got.layout.kinds) == name.startswith("flag")  # no twin is made but where it is asked for


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("drop", "none"))])
def test_no_other_record_decides_what_a_missing_value_becomes(name: str) -> None:
    column, cells, expected = CASES[name]
    at = next(i for i, cell in enumerate(cells) if cell in (None, ""))
    alone = encode({"x": [cells[at]]}, Schema({"x": column})).features.tolist()
    assert alone == [expected[at]]


def test_that_nothing_is_missing_is_declared_and_never_read() -> None:
    schema = Schema({"x": Number(0, 1, missing="none"), "z": Number(0, 1)})
    assert schema.layout(missing=Missing()).names == ("x", "z", "z=?")  # whatever the data hold
    with pytest.raises(DataError, match="'x' has missing values \\(1 of 2, first in row 2\\), which the study refuses"):
        encode({"x": [0, None], "z": [0, 1]}, schema, missing=Missing())
    kept = encode({"x": [0, None], "z": [0, 1]}, schema, missing=Missing(), lenient=True)
    assert kept.rows.tolist() == [0]  # deployed, such a record adds zeros


def test_a_record_without_its_target_is_left_out_unless_its_value_is_declared() -> None:
    def kept(column: Column, cells: list[Any]) -> list[float]:
        schema = Schema({"x": Number(0, 1), "y": column})
        target = encode({"x": [0] * len(cells), "y": cells}, schema, target="y").target
        assert target is not None
        return list(target)

    assert kept(Number(0, 10, missing="centre"), [4, None]) == [4]
    assert kept(Category(["no", "yes"], missing="flag"), ["yes", None]) == [1]
    assert kept(Category(["no", "yes"], missing="no"), ["yes", None]) == [1, 0]
    assert kept(Number(0, 10, missing=2), [4, None]) == [4, 2]


def test_the_studys_marker_is_the_columns_too() -> None:
    schema = Schema({"x": Number(0, 10, missing=5)})
    assert encode({"x": ["?", "5"]}, schema, missing=Missing(policy="error")).features.tolist() == [[0], [0]]
    with pytest.raises(DataError, match="first in row 1"):
        encode({"x": ["?", "5"]}, schema)  # nobody has said that "?" is one


REFUSED: dict[str, tuple[Column, str]] = {
    "misspelt": (Number(0, 1, missing="center"), "Did you mean 'centre'?"),
    "beyond the bounds": (Number(0, 1, missing=7), "missing \\(7\\) is not within lower \\(0\\) and upper \\(1\\)"),
    "not a number": (Number(0, 1, missing=math.nan), "is not known"),
    "true": (Number(0, 1, missing=True), "is not known"),
    "half": (Integer(0, 9, missing=4.5), "not a whole number"),
    "a category has no middle": (Category(["a"], missing="centre"), "'drop'|drop"),
    "no such category": (Category(["a"], missing="b"), "one of the declared values"),
    "word or value": (Category(["drop", "keep"], missing="drop"), "a declared value and a word of its own"),
    "items have no value": (Items(["a"], 1, missing="a"), "is not known"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name: str) -> None:
    column, words = REFUSED[name]
    with pytest.raises(BoundsError, match=words) as refused:
        Schema({"x": column})
    assert "column 'x'" in str(refused.value)


def test_remedies_are_in_the_language_of_the_caller() -> None:
    def told() -> str:
        with pytest.raises(BoundsError) as refused:
            Schema({"x": Number(0, 1, missing="mean")})
        return str(refused.value)

    assert "missing='mean'" in told()
    assert 'missing="centre"' in told()
    with speaking_of_files():
        assert "missing = 'mean'" in told()
        assert 'missing = "centre"' in told()


STUDY = """
[study]
name = "s"
program = "logistic_regression"
target = "y"
[data.columns]
x = { type = "number", lower = 0, upper = 200MISSING }
y = { type = "category", values = ["no", "yes"] }
"""


def test_a_study_file_says_the_same_and_old_studies_keep_their_hash() -> None:
    silent = Study.parse(STUDY.replace("MISSING", ""))
    assert b"missing" not in json.dumps(json.loads(silent.canonical())["data"]["columns"]).encode()
    for word in ('"centre"', '"drop"', '"flag"', '"none"', "50", "50.0"):
        study = Study.parse(STUDY.replace("MISSING", f", missing = {word}"))
        own = json.loads(word)
        assert study.schema_of_data()["x"] == Number(0, 200, missing=own)
        assert Study.from_canonical(study.canonical()).hash == study.hash != silent.hash
        assert dict(columns_read(study))["x"] != dict(columns_read(silent))["x"]
        assert study.drops_incomplete == (own == "drop")
    whole, real = (Study.parse(STUDY.replace("MISSING", f", missing = {word}")) for word in ("50", "50.0"))
    assert whole.canonical() == real.canonical()


@pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
def test_an_estimator_learns_and_predicts_with_a_columns_own_word() -> None:
    data = {"x": [0.0, math.nan, 200.0] * 40, "y": ["no", "no", "yes"] * 40}
    for word, rows in (("centre", 120), ("drop", 80)):
        schema = ts.Schema({"x": ts.Number(0, 200, missing=word), "y": ts.Category(["no", "yes"])})
        fed = ts.Federation.simulate([data], schema=schema, seed=1)
        found = fed.check(target="y").together
        assert (found.used, found.columns[0].missing) == (rows, 40)
    schema = ts.Schema({"x": ts.Number(0, 200, missing="centre"), "y": ts.Category(["no", "yes"])})
    model = ts.LogisticRegression(epsilon=9.0, rounds=3).fit(
        ts.Federation.simulate([data], schema=schema, seed=1), target="y"
    )
    middle, missing = model.decision_function({"x": [100.0, math.nan]})
    assert middle == missing
