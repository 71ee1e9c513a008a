"""The figures of consensus SVMs: measured where nothing is there, drawn from the table alone, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import svm_figures
from tallystick.bench import run


def test_the_committed_plots_are_those_of_the_committed_table(tmp_path: Path) -> None:
    svm_figures.draw(svm_figures.RESULTS / "svm-figure-4.csv", tmp_path)
    for name in ("svm-figure-4-z.svg", "svm-figure-4-accuracy.svg"):
        assert (tmp_path / name).read_bytes() == (svm_figures.RESULTS / name).read_bytes(), name


def test_a_quick_run_measures_draws_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = svm_figures.rows(quick=True, out=tmp_path)
    assert len(rows) == 3 * len(svm_figures.METHODS)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("svm-figure-4-accuracy.svg", "svm-figure-4-z.svg", "svm-figure-4.csv")
    ]
    monkeypatch.setattr(svm_figures, "measure", lambda **_: pytest.fail("measured again"))
    assert svm_figures.rows(quick=True, out=tmp_path) == rows


def test_the_bench_has_a_row_for_every_promise() -> None:
    made = run("svm", quick=True)["rows"]
    kinds = {r["case"].rsplit(" ", 1)[1] for r in made}
    assert kinds == {"local-step", "admm-rounds", "interior-point", "interior-point-objective"}
    assert all("(made up)" in r["case"] for r in made)
    assert all("the same bits" in r["unit"] for r in made if r["case"].endswith("interior-point"))
