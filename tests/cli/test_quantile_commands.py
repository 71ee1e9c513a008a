"""Quantiles at the command line: a study file planned and simulated, the ledger cost of both mechanisms, the bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick import bench

STUDY = """
[study]
name = "hours"
program = "quantiles"
[program]
q = [0.25, 0.5]
column = "hours"
by = "sex"
[privacy]
epsilon = 2.0
mechanism = "laplace"
[data]
records = 900
[data.columns]
hours = { type = "integer", lower = 0, upper = 100 }
sex = { type = "category", values = ["f", "m"] }
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    rows = [f"{40 if rng.random() < 0.7 else rng.integers(0, 101)},{'fm'[i % 2]}" for i in range(900)]
    (tmp_path / "d.csv").write_text("hours,sex\n" + "\n".join(rows) + "\n", encoding="utf-8")
    file = tmp_path / "study.toml"
    file.write_text(STUDY, encoding="utf-8")
    return file


def test_a_plan_prints_the_ledger_cost_of_both_mechanisms(run: Any, study: Path) -> None:
    said = run("plan", study)
    assert said.code == 0, said.err
    words = " ".join(said.out.split())
    assert "laplace at epsilon = 2 weighs rho = 2, gaussian at delta = 1e-06 rho = 0.101" in words
    assert "a count at the whole price has a noise of 2 with laplace" in words
    assert "at most 15 rounds" in words
    assert "a replaced record may leave one and enter another" in words


def test_a_study_is_simulated_and_printed_as_a_table(run: Any, study: Path) -> None:
    said = run("simulate", study, "--data", study.parent / "d.csv", "--clients", 3, "--seed", 1)
    assert said.code == 0, said.err
    assert "median" in said.out
    answered = run("simulate", study, "--data", study.parent / "d.csv", "--clients", 3, "--seed", 1, "--format", "json")
    made = json.loads(answered.out)
    assert {row["group"]: row["estimate"] for row in made["model"]["table"] if row["q"] == 0.5} == {"f": 40, "m": 40}
    assert "rank_error" in made["simulation"]["evaluation"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("program.q=[1.5]", "q = [0.25, 0.5, 0.75]"),
        ("program.by='hours'", "also the column"),
        ("program.by=''", "by names ''"),
        ("program.weights='ln2'", 'method = "subranges"'),
        ("study.target='sex'", "no target"),
        ("program.column='sex'", "no ranks"),
        ("privacy.threshold=2", "threshold"),
    ],
)
def test_what_cannot_be_is_refused_in_the_language_of_files(run: Any, study: Path, setting: str, said: str) -> None:
    refused = run("plan", study, "--set", setting)
    assert refused.code == 2
    assert said in " ".join(refused.err.split())


def test_the_bench_has_its_rows() -> None:
    rows = {row["case"]: row for row in bench.run("quantiles", quick=True)["rows"]}
    assert set(rows) >= {"counts-seconds", "counts-rounds", "counts-rank-error"}
    assert rows["counts-rounds"]["value"] <= 15
    assert rows["counts-rank-error"]["value"] < 40


DRAWN = {"program.method": "exponential", "privacy.mechanism": "exponential", "trust.model": "parties"}


def test_a_draw_that_cannot_tell_its_records_apart_is_refused_beforehand(run: Any, study: Path) -> None:
    few = study.parent / "few.csv"
    drawn = [part for key, value in DRAWN.items() for part in ("--set", f"{key}={value!r}")]
    few.write_text("hours,sex\n3,f\n90,m\n", encoding="utf-8")
    said = run("simulate", study, "--data", few, "--clients", 2, "--set", "data.records=2", *drawn)
    assert said.code == 3
    assert "a draw tells ranks to about 4 records, and there are 2" in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("program", "setting", "said"),
    [("mode", "program.column='sexx'", "no such column"), ("mode", None, "no column is named"),
     ("risk_minimizer", None, "no column is named"), ("risk_minimizer", "program.column='sex'", "no number"),
     ("above_threshold", "program.threshold=10", "Name those as `column`")],
)  # fmt: skip
def test_what_parties_select_is_refused_in_words(
    run: Any, tmp_path: Path, program: str, setting: str | None, said: str
) -> None:
    file = tmp_path / "selected.toml"
    mechanism = "laplace" if program == "above_threshold" else "exponential"
    file.write_text(
        f'[study]\nname = "s"\nprogram = "{program}"\n[privacy]\nepsilon = 1.0\nmechanism = "{mechanism}"\n'
        '[trust]\nmodel = "parties"\n[data]\nrecords = 90\n[data.columns]\n'
        'hours = { type = "number", lower = 0, upper = 100 }\nsex = { type = "category", values = ["f", "m"] }\n',
        encoding="utf-8",
    )
    refused = run("plan", file, *([] if setting is None else ["--set", setting]))
    assert refused.code == 2
    assert said in " ".join(refused.err.split())
