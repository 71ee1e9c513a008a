"""Everyday mistakes in data: each gives a message that names cause and remedy, and none a useless model with exit 0."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_runs import STUDY, Run, clinic, study_file

import tallystick as ts

Runner = Callable[..., Run]
Edit = Callable[[str], str]
pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")


def column(at: int, cell: Callable[[str], str], rows: slice = slice(None)) -> Edit:
    """The text with the cells of a column written otherwise, in all rows or in some."""

    def edit(text: str) -> str:
        head, *lines = text.splitlines()
        cells = [line.split(",") for line in lines]
        for row in cells[rows]:
            row[at] = cell(row[at])
        return "\n".join([head, *map(",".join, cells)]) + "\n"

    return edit


def declare(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new)


def same(text: str) -> str:
    return text


AGE, SEX, ILL = 1, 2, 4
AGE_LINE = 'age = { type = "number", lower = 0, upper = 100 }'
ONLY_AGE = declare('target = "ill"', 'target = "ill"\nfeatures = ["age"]')


class Mistake(NamedTuple):
    """What is wrong with the file and the study, how the command ends, and what it must say."""

    data: Edit
    study: Edit
    code: int
    said: tuple[str, ...]


MISTAKES = {
    "a miscoded target": Mistake(
        column(ILL, str.upper),
        same,
        2,
        ("120 of 120 targets are", "YES", "the study declares no, yes", "YES as yes", "NO as no"),
    ),
    "a few unknown targets": Mistake(
        column(ILL, lambda _: "maybe", slice(3)), same, 2, ("3 of 120 targets are maybe; the study declares no, yes",)
    ),
    "targets with a marker": Mistake(
        column(ILL, lambda _: "", slice(1)),
        same,
        2,
        (
            "column 'ill' has missing values (1 of 120, first in row 1)",
            'ill = { type = "category", …, missing = "flag" }',
        ),
    ),
    "unknown categories": Mistake(
        column(SEX, lambda s: {"f": "female", "m": "male"}[s]),
        same,
        0,
        ("120 of 120 values of 'sex' are", "female", "the study declares f, m", "count as no category", "unknown"),
    ),
    "categories in capitals": Mistake(column(SEX, str.upper), same, 0, ("F as f", "M as m")),
    "nothing but unknown categories": Mistake(
        column(SEX, str.upper),
        declare('target = "ill"', 'target = "ill"\nfeatures = ["sex"]'),
        2,
        ("no column tells two records apart: 120 of 120 values of 'sex'", "F as f"),
    ),
    "text in a number column": Mistake(
        column(AGE, lambda _: "old", slice(16, 17)),
        same,
        2,
        ("column 'age' is declared as a number", "first in row 17", "marks a missing value", "[data]"),
    ),
    "a decimal comma": Mistake(
        column(AGE, lambda a: f'"{a},5"'),
        same,
        2,
        ("column 'age' is declared as a number", "first in row 1 ", "12.5, not 12,5"),
    ),
    "a marker nobody declared": Mistake(
        column(AGE, lambda _: "NA", slice(0, 40, 3)), same, 2, ("first in row 1 ", 'missing = { marker = "…"')
    ),
    "missing values nobody declared": Mistake(
        column(AGE, lambda _: "", slice(4, 9)),
        same,
        2,
        (
            "column 'age' has missing values (5 of 120, first in row 5)",
            'age = { type = "number", …, missing = "centre" }',
        ),
    ),
    "an empty column": Mistake(
        column(AGE, lambda _: ""),
        declare(AGE_LINE, AGE_LINE.replace(" }", ', missing = "centre" }')),
        0,
        ("All 120 values of 'age' are missing: the column is empty", "leave it out of the study"),
    ),
    "nothing but an empty column": Mistake(
        column(AGE, lambda _: " "),
        lambda text: ONLY_AGE(text).replace(AGE_LINE, AGE_LINE.replace(" }", ', missing = "flag" }')),
        2,
        ("no column tells two records apart", "the column is empty"),
    ),
    "an empty column that drops every record": Mistake(
        column(AGE, lambda _: ""),
        declare(AGE_LINE, AGE_LINE.replace(" }", ', missing = "drop" }')),
        2,
        ("none of the 120 records can be used", "'age' missing in 120", "Fill it"),
    ),
    "an empty target": Mistake(
        column(ILL, lambda _: "?"),
        declare("[data.columns]", '[data]\nmissing = { marker = "?", policy = "category" }\n[data.columns]'),
        2,
        ("none of the 120 records can be used", "'ill' missing in 120", "Fill it"),
    ),
    "semicolons": Mistake(
        lambda text: text.replace(",", ";"), same, 2, ("separated by semicolons", "Save it with commas")
    ),
    "tabs": Mistake(lambda text: text.replace(",", "\t"), same, 2, ("separated by tabs", ".tsv")),
    "a missing column": Mistake(
        lambda text: text.replace("id,age", "id,alter"),
        same,
        2,
        ("has no column 'age'", "Columns there: id, alter", "Rename"),
    ),
    "a misspelt column": Mistake(
        lambda text: text.replace("id,age", "id,Age"), same, 2, ("has no column 'age'", "Did you mean 'Age'?")
    ),
    "values in another unit": Mistake(
        column(AGE, lambda a: str(int(a) * 365)),
        same,
        0,
        ("120 of 120 values of 'age' lie outside 0 to 100 and count as the nearer bound", "Check the unit"),
    ),
    "nothing but clamped values": Mistake(
        column(AGE, lambda a: str(int(a) * 365)), ONLY_AGE, 2, ("no column tells two records apart", "Check the unit")
    ),
    "a clamped target": Mistake(
        column(AGE, lambda a: str(int(a) * 365)),
        lambda text: (
            text.replace('"logistic_regression"', '"ridge"')
            .replace('target = "ill"', 'target = "age"\nfeatures = ["sex"]')
            .replace("rounds = 3", "")
        ),
        2,
        ("120 of 120 targets lie outside 0 to 100", "Check the unit"),
    ),
    "a constant column": Mistake(
        column(SEX, lambda _: "f"), same, 0, ("All 120 values of 'sex' are the same", "constant")
    ),
    "a header and no record": Mistake(
        lambda text: text.splitlines()[0] + "\n", same, 2, ("the data hold no record", "--data")
    ),
    "an empty file": Mistake(lambda _: "", same, 2, ("is empty", "first line must name the columns")),
    "a word that is not known": Mistake(
        same,
        declare(AGE_LINE, AGE_LINE.replace(" }", ', missing = "center" }')),
        2,
        ("column 'age': missing = 'center' is not known", 'missing = "centre"', "Did you mean 'centre'?"),
    ),
    "a missing value beyond the bounds": Mistake(
        same,
        declare(AGE_LINE, AGE_LINE.replace(" }", ", missing = 999 }")),
        2,
        ("column 'age': missing (999.0) is not within lower (0) and upper (100)", 'missing = "centre"'),
    ),
}


def made(folder: Path, mistake: Mistake) -> tuple[Path, Path]:
    """The study and the file, each with its mistake."""
    data = clinic(folder)
    data.write_text(mistake.data(data.read_text()))
    return study_file(folder, mistake.study(STUDY)), data


@pytest.mark.parametrize("name", MISTAKES)
def test_a_simulation_says_what_is_wrong_and_what_to_do(run: Runner, tmp_path: Path, name: str) -> None:
    mistake = MISTAKES[name]
    study, data = made(tmp_path, mistake)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ts.DataWarning)
        done = run("simulate", study, "--data", data, "--clients", 3, "--seed", 1)
    told = done.err + "".join(str(w.message) for w in warned if w.category is ts.DataWarning)
    assert done.code == mistake.code
    for words in mistake.said:
        assert words in told
    assert "ts." not in told  # whoever types commands is not told what to write in Python


@pytest.mark.parametrize("name", ["a miscoded target", "nothing but clamped values", "an empty target", "semicolons"])
def test_a_check_before_enrolment_says_so_too(run: Runner, tmp_path: Path, name: str) -> None:
    """No client, no keys: a study file and the records."""
    study, data = made(tmp_path, MISTAKES[name])
    done = run("data", "check", study, "--source", data)
    assert done.code == 2
    assert "NOTHING CAN BE LEARNED" in done.out or "separated by semicolons" in done.err


def test_a_check_counts_what_a_simulation_refuses(run: Runner, tmp_path: Path) -> None:
    """As a deployed study would: a bad cell costs its record, and the table says how many and where."""
    study, data = made(tmp_path, MISTAKES["text in a number column"])
    done = run("data", "check", study, "--source", data, "--format", "json")
    assert done.code == 0
    age = next(c for c in done.json["columns"] if c["name"] == "age")
    assert (done.json["records"], done.json["used"], age["unusable"], age["dropped"]) == (120, 119, 1, 1)
    assert "1 of 120 values of 'age' are no numbers, first in row 17" in age["meaning"]
    assert "12.5, not 12,5" in age["remedy"]
    clean = run("data", "check", study_file(tmp_path), "--source", clinic(tmp_path))
    assert clean.code == 0
    assert "Every record can be used as it is meant." in clean.out


def test_one_miscoded_institution_of_three_is_named(run: Runner, tmp_path: Path) -> None:
    files = [clinic(tmp_path, name, 60, seed) for seed, name in enumerate(("north", "south", "west"))]
    files[1].write_text(column(ILL, str.upper)(files[1].read_text()))
    options = [option for file in files for option in ("--data", file)]
    done = run("simulate", study_file(tmp_path), *options, "--seed", 1, "--format", "json")
    assert done.error["party"] == "south.csv"
    assert done.error["rule"] == "unknown-target"
    assert "60 of 60 targets are" in done.error["cause"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ("there is no role file", "--source FILE")),
        (("--source", "clinic.csv", "--accept"), ("--accept is for the data set of a client", "Leave --source out")),
        (("--source", "gone.csv"), ("file gone.csv does not exist", ".csv or .parquet")),
    ],
    ids=["no role file", "accept a file", "no file"],
)
def test_a_check_that_cannot_be_made(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    clinic(tmp_path)
    done = run("data", "check", study_file(tmp_path), *options)
    assert done.code == 2
    for words in said:
        assert words in done.err
