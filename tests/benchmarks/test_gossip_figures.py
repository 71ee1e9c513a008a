"""The figures on gossip learning: measured where nothing is there, drawn from the tables alone, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import gossip_figures
from tallystick.bench import run

PLOTS = (
    *("gossip-figure-1-logistic.svg", "gossip-figure-1-pegasos.svg", "gossip-figure-2.svg", "gossip-figure-3.svg"),
    *("gossip-figure-4.svg", "gossip-figure-5-logistic.svg", "gossip-figure-5-pegasos.svg"),
)


def test_the_committed_plots_are_those_of_the_committed_tables(tmp_path: Path) -> None:
    gossip_figures.draw(gossip_figures.RESULTS, tmp_path)
    for name in PLOTS:
        assert (tmp_path / name).read_bytes() == (gossip_figures.RESULTS / name).read_bytes(), name


def test_a_quick_run_measures_draws_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = gossip_figures.rows(quick=True, out=tmp_path)
    tables = [f"gossip-figure-{figure}.csv" for figure in gossip_figures.FIGURES]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*PLOTS, *tables])
    for method in ("strategy", "data_column", "cell", "method", "hyperplane"):
        monkeypatch.setattr(gossip_figures.Measuring, method, lambda *_: pytest.fail("measured again"))
    again = gossip_figures.rows(quick=True, out=tmp_path)
    assert [r["case"] for r in again] == [r["case"] for r in rows]
    assert [r["value"] for r in again] == pytest.approx([r["value"] for r in rows], abs=1e-4)


def test_the_bench_has_a_row_for_every_promise() -> None:
    made = run("gossip", quick=True)["rows"]
    kinds = [r["case"].split()[0] for r in made]
    assert sorted(set(kinds)) == ["cost", "cycle", "cycle-mnist", "perturbed"]
    assert all(r["value"] > 0 for r in made)
