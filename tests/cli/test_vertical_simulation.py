"""``tallystick simulate`` where the files hold different columns of the same people, and what ``plan`` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tallystick as ts

STUDY = """
[study]
name = "split"
program = "vertical_classifier"
target = "ill"
[privacy]
epsilon = 2.0
delta = 1e-6
[trust]
servers = 2
[data]
identifier = "id"
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
dose = { type = "number", lower = 0, upper = 5 }
ill = { type = "category", values = ["n", "y"] }
[data.holders.bank]
columns = ["age", "ill"]
norm = 1.0
[data.holders.hospital]
columns = ["dose"]
norm = 1.0
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    rng = np.random.default_rng(0)
    n = 1500
    age, dose = rng.uniform(0, 100, n), rng.uniform(0, 5, n)
    ids = [f"p{i}" for i in range(n)]
    ill = np.where(age / 50 + dose / 2.5 > 2, "y", "n")
    bank, hospital, study = tmp_path / "bank.csv", tmp_path / "hospital.csv", tmp_path / "split.toml"
    pl.DataFrame({"id": ids, "age": age, "ill": ill}).write_csv(bank)
    pl.DataFrame({"id": ids, "dose": dose}).reverse()[:1200].write_csv(hospital)
    study.write_text(STUDY, encoding="utf-8")
    return study, bank, hospital


def test_a_study_of_two_files_is_fitted_evaluated_and_loaded(run: Any, files: Any, tmp_path: Path) -> None:
    study, bank, hospital = files
    out = tmp_path / "out"
    done = run("simulate", study, "--data", bank, "--data", hospital, "--holdout", "0.2", "--seed", "1", "--out", out,
               "--format", "json")  # fmt: skip
    assert done.code == 0
    assert done.json["simulation"]["records"] == 1200  # whom both have
    assert done.json["simulation"]["evaluation"]["accuracy"] > 0.85
    assert "in common" in done.json["privacy"]["statement"]
    loaded = ts.load(out / "result.json")
    assert loaded.coef_.tolist() == done.json["model"]["coef"]
    exact = tmp_path / "exact"
    svc = ("--set", "study.program=vertical_svc", "--set", "privacy.mechanism=none")
    assert run("simulate", study, "--data", bank, "--data", hospital, "--seed", "1", "--out", exact, *svc).code == 0
    assert "exact numbers" in ts.load(exact / "result.json").solution_["reducer_saw"]


def test_files_that_are_not_the_institutions_are_refused(run: Any, files: Any, tmp_path: Path) -> None:
    study, bank, hospital = files
    for extra in ((), ("--data", hospital, "--clients", "3")):
        done = run("simulate", study, "--data", bank, *extra, "--format", "json")
        assert done.code == 2
    other = tmp_path / "clinic.csv"
    other.write_bytes(hospital.read_bytes())
    done = run("simulate", study, "--data", bank, "--data", other, "--format", "json")
    assert (done.code, done.error["rule"]) == (2, "holders-are-the-institutions")


def test_the_plan_says_whom_to_trust(run: Any, files: Any) -> None:
    done = run("plan", files[0], "--records", "1000")
    assert done.code == 0
    for said in ("follow the protocol", "dealer together with any institution", "in common"):
        assert said in " ".join(done.out.split())
