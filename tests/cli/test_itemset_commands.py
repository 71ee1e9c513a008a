"""Itemsets at the command line: the bench's rows, a plan that says no, and a study that is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_runs import Run

from tallystick import bench as benchmarks
from tallystick.algorithms.itemsets.exact import mine
from tallystick.bench import itemsets as bench_itemsets

STUDY = """
[study]
name = "baskets"
program = "frequent_itemsets"
[program]
min_support = 0.02
method = "levels"
[data.columns]
basket = { type = "items", vocabulary = ["a", "b", "c", "d"], max_per_record = 3 }
day = { type = "category", values = ["week", "weekend"] }
"""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TALLYSTICK_DATA", raising=False)
    monkeypatch.setattr(bench_itemsets, "_RECORDS", 400)


def plant(monkeypatch: pytest.MonkeyPatch, *, sets_too_few: int) -> None:
    """A stand-in for mlxtend that answers with our own sets, or with too few of them."""

    def apriori(frame: Any, *, min_support: float, max_len: int, low_memory: bool) -> Any:
        assert low_memory, "its default mode exhausts the machine"
        block = np.arange(frame.shape[1])
        levels = mine(frame.to_numpy(), block, least=min_support * len(frame), longest=max_len)
        return pd.DataFrame(
            {"itemsets": [frozenset(s) for level in levels for s in level.sets.tolist()][sets_too_few:][::-1]}
        )

    for name in ("mlxtend", "mlxtend.frequent_patterns"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["mlxtend.frequent_patterns"].apriori = apriori  # type: ignore[attr-defined]


@pytest.mark.usefixtures("made_up")
def test_the_bench_without_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    result = benchmarks.run("itemsets", quick=True)
    mining, counting = result["rows"]
    assert [mining["case"], counting["case"]] == ["exact-mining", "bitset-count"]
    assert mining["reference"] is None
    assert "mlxtend is not installed" in mining["note"]
    assert "made-up" in mining["note"]
    assert counting["ratio"] > 0
    assert "exact-mining" in benchmarks.describe(result)


@pytest.mark.usefixtures("made_up")
def test_the_bench_checks_that_the_peer_found_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, sets_too_few=0)
    assert bench_itemsets.rows(quick=True)[0]["ratio"] > 0
    plant(monkeypatch, sets_too_few=300)
    with pytest.raises(RuntimeError, match="different sets"):
        bench_itemsets.rows(quick=True)


def test_a_hopeless_support_at_the_command_line(tmp_path: Path, run: Callable[..., Run]) -> None:
    study, data = tmp_path / "study.toml", tmp_path / "shop.csv"
    study.write_text(STUDY)
    rows = ["a;b,week", "c;d;a,weekend", "b,week"] * 200
    data.write_text("basket,day\n" + "\n".join(rows) + "\n")
    planned = run("plan", str(study), "--records", "600", "--format", "json")
    assert planned.code == 0
    document = planned.json
    assert "smallest useful min_support" in document["hopeless"]
    assert any("public limits" in note for note in document["notes"])
    refused = run("simulate", str(study), "--data", str(data), "--clients", "3", "--format", "json")
    assert refused.code == 3
    assert refused.error["rule"] == "result-above-noise"
    ran = run(
        "simulate", str(study), "--data", str(data), "--clients", "3", "--seed", "1", "--format", "json",
        "--set", "program.method=basis", "--set", "privacy.epsilon=20.0",
    )  # fmt: skip
    assert ran.code == 0
    result = ran.json
    assert result["simulation"]["evaluation"]["itemset_loss"] < 0.2
    assert len(result["model"]["itemsets"]) == len(result["model"]["supports"])
