"""Gossip at the command line: a study file planned and simulated, who is trusted, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_runs import clinic

STUDY = """
[study]
name = "illness among peers"
program = "gossip_classifier"
target = "ill"
[privacy]
epsilon = 5.0
[trust]
model = "gossip"
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
sex = { type = "category", values = ["f", "m"] }
ill = { type = "category", values = ["no", "yes"] }
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    clinic(tmp_path, records=600)
    file = tmp_path / "study.toml"
    file.write_text(STUDY, encoding="utf-8")
    return file


def test_a_study_is_simulated_and_says_that_nobody_is_trusted(run: Any, study: Path) -> None:
    asked = ("simulate", study, "--data", study.parent / "clinic.csv", "--clients", 30, "--seed", 1, "--holdout", 0.2)
    said = run(*asked)
    assert said.code == 0, said.err
    assert "Nobody is trusted" in said.out
    assert "of every record of length 1" in said.out
    told = run(*asked, "--format", "json").json
    assert told["privacy"]["mechanism"] == "subset"
    assert (told["privacy"]["epsilon"], told["privacy"]["delta"]) == (5.0, 0.0)
    assert told["privacy"]["trust"] == {"model": "gossip", "trusted": "nobody"}
    assert told["model"]["type"] == "GossipClassifier"
    assert told["cost"]["bytes_up_per_client"] <= 40  # two bytes a record
    assert told["simulation"]["evaluation"]["accuracy"] > 0.6


def test_a_plan_says_what_is_published_and_spends_nothing(run: Any, study: Path) -> None:
    said = run("plan", study, "--records", 600)
    assert said.code == 0, said.err
    assert "public candidates" in said.out
    assert "149 to 1" in said.out
    assert "nobody trusted" in said.out


@pytest.mark.parametrize(
    "setting, code, rule",
    [
        ("privacy.epsilon=11", 3, "local-epsilon-means-something"),
        ("privacy.epsilon=0", 3, "epsilon-is-positive-and-finite"),
        ("privacy.neighbours=add-remove", 3, "a-peer-is-seen"),
        ("privacy.mechanism=laplace", 3, "randomiser-is-the-mechanism"),
        ("study.target=age", 2, "target-is-a-category"),
        ("program.randomiser=best", 2, "StudyError"),
        ("program.kept=[3]", 2, "StudyError"),
    ],
)
def test_what_cannot_be_is_refused(run: Any, study: Path, setting: str, code: int, rule: str) -> None:
    done = run("plan", study, "--records", 600, "--set", setting, "--format", "json")
    assert done.code == code
    assert done.error["rule"] == rule


def test_an_override_is_printed_in_the_result(run: Any, study: Path) -> None:
    asked = ("simulate", study, "--data", study.parent / "clinic.csv", "--clients", 3, "--set", "privacy.epsilon=20")
    assert run(*asked).code == 3
    done = run(*asked, "--set", "program.weak_epsilon=true", "--format", "json").json
    assert done["privacy"]["trust"]["weak_epsilon"] is True
    assert "OVERRIDDEN" in done["privacy"]["statement"]
