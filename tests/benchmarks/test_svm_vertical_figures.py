"""The vertical half of Figure 4: measured where nothing is there, drawn from the table alone, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import svm_vertical_figures as figures


def test_the_committed_plots_are_those_of_the_committed_table(tmp_path: Path) -> None:
    figures.draw(figures.RESULTS / "svm-figure-4-vertical.csv", tmp_path)
    for name in ("svm-figure-4-vertical-z.svg", "svm-figure-4-vertical-accuracy.svg"):
        assert (tmp_path / name).read_bytes() == (figures.RESULTS / name).read_bytes(), name


def test_a_quick_run_measures_draws_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = figures.rows(quick=True, out=tmp_path)
    assert len(rows) == 3 * len(figures.METHODS)
    assert (tmp_path / "svm-figure-4-vertical.csv").exists()
    monkeypatch.setattr(figures, "measure", lambda **_: pytest.fail("measured again"))
    assert figures.rows(quick=True, out=tmp_path) == rows
