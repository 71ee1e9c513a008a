"""Everyday mistakes of an analyst, in Python and on the command line: each is told with its cause and a remedy.

None of them ends well by itself: no exit 0, no fitted model. What is wrong inside data files has a file of its own.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_runs import STUDY, Run, clinic, study_file

import tallystick as ts

Runner = Callable[..., Run]
SCHEMA = ts.Schema({"age": ts.Number(0, 100), "sex": ts.Category(["f", "m"]), "ill": ts.Category(["no", "yes"])})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, records, and what goes wrong with them."""
    folder = tmp_path_factory.mktemp("mistakes")
    study_file(folder)
    lines = clinic(folder).read_text(encoding="utf-8").splitlines()
    cells = lines[5].split(",")
    (folder / "text.csv").write_text("\n".join([*lines[:5], ",".join([cells[0], "forty", *cells[2:]]), *lines[6:]]))
    (folder / "no_target.toml").write_text(STUDY.replace('target = "ill"\n', ""))
    (folder / "no_bounds.toml").write_text(STUDY.replace(", lower = 0, upper = 100", ""))
    (folder / "one_value.toml").write_text(STUDY.replace('["f", "m"]', '"f"'))
    (folder / "stale.toml").write_text(STUDY.replace("[data.columns]", "[data]\nrecords = 9\n[data.columns]"))
    simulated = {"schema": "tallystick/result/1", "kind": "simulation", "study": {"name": "illness"}}
    (folder / "simulated.json").write_text(json.dumps(simulated, indent=2))
    return folder


# what was typed, exit code, words of the cause, words of the remedy
COMMANDS: dict[str, tuple[str, int, str, str]] = {
    "a study that is not there": ("simulate nowhere.toml", 2, "cannot read the study", "Check the path"),
    "records in the study's place": ("simulate clinic.csv", 2, "is not a study", "--data"),
    "records without --data": ("simulate study.toml clinic.csv", 2, "unexpected extra argument", "--data FILE"),
    "a misspelt command": ("simulat study.toml", 2, "No such command", "Did you mean 'simulate'"),
    "an option of the study": ("simulate study.toml --epsilon 1", 2, "No such option", "--help"),
    "--set without its section": ("simulate study.toml --set epsilon=1", 2, "section.key=value", "privacy.epsilon="),
    "a misspelt key": ("simulate study.toml --set privacy.epsilom=1", 2, "unknown key", "Did you mean 'epsilon'"),
    "a misspelt program": ("simulate study.toml --set study.program=logistic", 2, "no program", "logistic_regression"),
    "no target": ("simulate no_target.toml --data clinic.csv", 2, "none is named", 'target = "ill" under [study]'),
    "a number as a class": ("simulate study.toml --data clinic.csv --set study.target=age", 2, "'age'", "ridge"),
    "a misspelt target": ("simulate study.toml --data clinic.csv --set study.target=il", 2, "'il'", "mean 'ill'"),
    "no bounds": ("simulate no_bounds.toml --data clinic.csv", 2, "age.lower", "Add it"),
    "one value for a list": ("simulate one_value.toml --data clinic.csv", 2, "a list belongs here", "JSON Schema"),
    "a number in quotes": ('simulate study.toml --set privacy.epsilon="much"', 2, "where a number belongs", "Correct"),
    "no such records": ("simulate study.toml --data clinics.csv", 2, "does not exist", "Give the path"),
    "text in a number column": ("simulate study.toml --data text.csv --clients 3", 2, "'age'", "missing value"),
    "a stale number of records": ("simulate stale.toml --data clinic.csv", 2, "states 9 records", "data.records=120"),
    "one client only": (
        "simulate study.toml --data clinic.csv --set trust.min_clients=3",
        4,
        "1 client(s) where the study asks for min_clients = 3",
        "--clients 3",
    ),
    "too many words for the clients": (
        "simulate study.toml --data clinic.csv --data text.csv --clients 2",
        2,
        "--clients with several --data files",
        "One file is one client",
    ),
    "a share in percent": ("simulate study.toml --data clinic.csv --holdout 10", 2, "between 0 and 1", "0.1"),
    "hardly any budget": ("simulate study.toml --data clinic.csv --set privacy.epsilon=0.01", 3, "noise", "Raise eps"),
    "nowhere to write": ("simulate study.toml --data clinic.csv --csv no/where.csv", 2, "cannot write", "--csv"),
    "a plan of nobody knows how many": ("plan study.toml", 2, "number of records", "--records N"),
    "a simulation to verify": ("verify simulated.json", 6, "result of a simulation", "study result"),
    "outside the party's folder": ("study list", 2, "role.toml", "--config"),
    "no study named": ("study result", 2, "Missing argument 'STUDY'", "tallystick study result --help"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command_says_what_is_wrong_and_what_to_do(
    run: Runner, place: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    typed, code, cause, remedy = COMMANDS[mistake]
    monkeypatch.chdir(place)
    done = run(*typed.split(), "--format", "json")
    assert done.code == code != 0
    assert cause in done.error["cause"]
    told = f"{done.error['cause']} {done.error['remedy']}"
    assert remedy in told
    assert len(done.error["remedy"] or "") > 10
    assert "Traceback" not in done.err


def frame(**changed: Any) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    age = rng.integers(20, 90, 120).astype(float)
    return pd.DataFrame({"age": age, "sex": rng.choice(["f", "m"], 120), "ill": np.where(age > 55, "yes", "no")})


def federation(*frames: Any, **options: Any) -> Any:
    return ts.Federation.simulate(list(frames) or [frame()] * 3, **{"schema": SCHEMA, "seed": 1, **options})


def logistic() -> ts.LogisticRegression:
    return ts.LogisticRegression(epsilon=10.0, rounds=1)


# what was called, the error, words of the cause, words of the remedy
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str, str]] = {
    "simulate(frame)": (
        lambda: ts.Federation.simulate(frame(), schema=SCHEMA),
        ts.StudyError,
        "not a list of frames",
        "frame[i::3] for i in range(3)",
    ),
    "no target": (lambda: logistic().fit(federation()), ts.StudyError, "none is named", 'fit(fed, target="ill")'),
    "a number as a class": (lambda: logistic().fit(federation(), target="age"), ts.StudyError, "'age'", "ts.Ridge"),
    "a class as a number": (
        lambda: ts.Ridge().fit(federation(), target="ill"),
        ts.StudyError,
        "'ill'",
        "ts.LogisticRegression",
    ),
    "a misspelt feature": (
        lambda: logistic().fit(federation(), target="ill", features=["agee"]),
        ts.StudyError,
        "'agee' is not declared",
        "Did you mean 'age'",
    ),
    "no schema": (
        lambda: logistic().fit(federation(schema=None), target="ill"),
        ts.BoundsError,
        "not declared",
        '"age": ts.Number(lower=..., upper=...)',
    ),
    "a target beside a frame": (
        lambda: logistic().fit(frame(), target="ill"),
        ts.StudyError,
        "a DataFrame",
        "ts.Federation.simulate",
    ),
    "frames that are no federation": (
        lambda: logistic().fit([frame(), frame()], target="ill"),
        ts.StudyError,
        "a list of tables",
        "ts.Federation.simulate",
    ),
    "labels beside a federation": (
        lambda: logistic().fit(federation(), frame()["ill"]),
        ts.StudyError,
        "name the target column",
        'fit(fed, target="…")',
    ),
    "one institution": (
        lambda: logistic().fit(federation(frame(), min_clients=3), target="ill"),
        ts.TooFewParties,
        "1 client(s)",
        "min_clients = 2",
    ),
    "a column that is not there": (
        lambda: logistic().fit(federation(frame(), frame().drop(columns="sex")), target="ill"),
        ts.StudyError,
        "no column 'sex'",
        "Columns there: age, ill",
    ),
    "two of one name": (
        lambda: federation(frame(), frame(), names=["north", "north"]),
        ts.StudyError,
        "a name twice",
        "a name of its own",
    ),
    "a result that is not there": (lambda: ts.load("nowhere.json"), ts.StudyError, "cannot read", "Check the path"),
    "no consortium": (
        lambda: ts.Federation.connect("nowhere/consortium.toml"),
        ts.StudyError,
        "there is no file",
        "consortium.toml that the authority sent",
    ),
    "an answer before a fit": (lambda: logistic().to_frame(), Exception, "not fitted yet", "Call 'fit'"),
    "an unfitted model to evaluate": (
        lambda: ts.evaluate(logistic(), federation(), target="ill", epsilon=1.0),
        ts.StudyError,
        "cannot be evaluated",
        "Pass a fitted classifier",
    ),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_a_call_says_what_is_wrong_and_what_to_do(mistake: str) -> None:
    call, kind, cause, remedy = CALLS[mistake]
    with pytest.raises(kind) as said:
        call()
    assert cause in str(said.value)
    assert remedy in str(said.value)


def test_a_result_of_one_institution_and_a_useless_model_are_remarked_on(run: Runner, place: Path) -> None:
    """Both are allowed in a simulation; neither passes without a word."""
    words = ("simulate", place / "study.toml", "--data", place / "clinic.csv", "--seed", 1)
    assert "one institution only" in run(*words).out
    useless = run(*words, "--holdout", 0.3, "--set", "privacy.epsilon=0.2", "--set", "study.accept_noise=true")
    assert "WARNING" in useless.out


def test_what_is_meant_well_is_not_refused(run: Runner, place: Path) -> None:
    """The control: the same calls and commands without their mistake."""
    done = run("simulate", place / "study.toml", "--data", place / "clinic.csv", "--clients", 3, "--seed", 1)
    assert done.code == 0
    assert "(intercept)" in done.out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = logistic().fit(federation(), target="ill", name="illness", purpose="whom to invite")
    assert (model.study_.study.name, model.study_.study.purpose) == ("illness", "whom to invite")
    assert len(repr(model.plan_)) < 200
