"""The accuracy table of the gossip classifier: a cell of it measured, written, and not measured again."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.pem_tables import read_table

from benchmarks import gossip_accuracy

ROOT = Path(__file__).parents[2]


def test_the_published_table_meets_the_marks() -> None:
    rows = {(r["set"], float(r["epsilon"])): r for r in read_table(ROOT / "docs" / "results" / "gossip-accuracy.csv")}
    for cell, mark in gossip_accuracy.MARKS.items():
        assert float(rows[cell]["accuracy"]) >= mark
    for name, paper in gossip_accuracy.PAPER.items():
        row = rows[name, 50.0]
        assert float(row["accuracy"]) >= paper[50.0] - float(row["standard_error"])


@pytest.mark.skipif(not gossip_accuracy.DATA.exists(), reason="the evaluation data are not at ../shared/data")
def test_a_cell_is_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--quick", "--sets", "segmentation", "--epsilons", "10", "--out", str(tmp_path)]
    assert gossip_accuracy.main(asked) == 0
    first = (tmp_path / "gossip-accuracy.csv").read_text()
    assert "run 0" in capsys.readouterr().err
    assert gossip_accuracy.main(asked) == 0
    assert (tmp_path / "gossip-accuracy.csv").read_text() == first
    assert "run 0" not in capsys.readouterr().err
