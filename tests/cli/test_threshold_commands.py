"""``[privacy] threshold`` on the command line: what simulate and plan say of it, and values that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import STUDY, Run

Runner = Callable[..., Run]
MANY = """
[study]
name = "basket"
program = "basket.py"
[privacy]
epsilon = 5.0
delta = 1e-6
threshold = 3.5
[data.columns]
b = { type = "items", vocabulary = [WORDS], max_per_record = 2 }
"""
PROGRAM = """
import numpy as np
import tallystick as ts


class Basket(ts.Program):
    rounds = 3
    bound = 2.0

    def init(self, public):
        return np.zeros(len(public.features))

    def map_in_client(self, record, state):
        return record

    def reduce_in_aggregator(self, total, state):
        return state + total / 3.0
"""


@pytest.fixture
def baskets(tmp_path: Path) -> tuple[Path, Path]:
    """3,000 items, of which four were ever bought."""
    words = ", ".join(f'"i{j}"' for j in range(3000))
    study, data = tmp_path / "basket.toml", tmp_path / "basket.csv"
    study.write_text(MANY.replace("WORDS", words))
    (tmp_path / "basket.py").write_text(PROGRAM.lstrip())
    data.write_text("b\n" + "i5;i70\ni5;i900\ni70;i2999\n" * 200)
    return study, data


def test_simulate_tells_what_travelled(run: Runner, baskets: tuple[Path, Path]) -> None:
    study, data = baskets
    options = ("simulate", study, "--data", data, "--clients", 3, "--seed", 1)
    cost = run(*options, "--format", "json").json["cost"]
    assert cost["bytes_state_dense_per_client"] == 3 * 8 * 3000
    assert cost["bytes_state_per_client"] < 0.2 * cost["bytes_state_dense_per_client"]
    assert cost["bytes_state_per_client"] < cost["bytes_down_per_client"]
    text = run(*options).out
    (line,) = [line for line in text.splitlines() if line.startswith("  state ")]
    saved = 1 - cost["bytes_state_per_client"] / cost["bytes_state_dense_per_client"]
    assert f"{cost['bytes_state_per_client'] / 3000:.1f} kB a client and round, {saved:.0%} saved" in line
    silent = run(*options, "--set", "privacy.threshold=0", "--format", "json").json["cost"]
    assert silent["bytes_state_per_client"] == 4 + 2 * 8 * 3000  # all of it, but for the zeros it starts with


def test_plan_calls_it_free(run: Runner, study: Path, data: Path) -> None:
    plain = run("plan", study, "--records", 500, "--format", "json").json
    made = run("plan", study, "--records", 500, "--set", "privacy.threshold=2", "--format", "json").json
    assert made["privacy"] == plain["privacy"]
    assert made["rounds"] == plain["rounds"]
    (note,) = set(made["notes"]) - set(plain["notes"])
    assert "below 2 standard deviations" in note
    assert "costs no budget" in note
    assert note in run("plan", study, "--records", 500, "--set", "privacy.threshold=2").out


@pytest.mark.parametrize("bad", ["-1", "nan", "inf", "true", '"2"', "many", "[1]"])
def test_what_is_no_threshold_is_refused(run: Runner, study: Path, data: Path, bad: str) -> None:
    done = run("plan", study, "--records", 500, "--set", f"privacy.threshold={bad}", "--format", "json")
    assert done.code == 2
    assert done.error["rule"] == "wrong-value"
    assert "privacy.threshold" in done.error["cause"]


def test_a_misspelt_key_is_told(run: Runner, study: Path) -> None:
    done = run("plan", study, "--set", "privacy.treshold=2", "--format", "json")
    assert done.code == 2
    assert "'threshold'" in done.error["remedy"]
    assert "threshold" not in STUDY
