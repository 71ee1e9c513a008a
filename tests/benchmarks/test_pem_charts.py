"""The charts: larger is higher, labels fit, and those in docs/results are their tables, drawn to the byte."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from benchmarks.line_charts import Panel, draw, write_chart

from benchmarks import line_charts, pem_figures, pem_time_figure

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
FIGURES = ("2a", "2b", "2c", "3")


def drawn(folder: Path) -> None:
    """Every figure, from the tables that are committed."""
    pem_figures.draw_figure_2(RESULTS / "pem-figure-2.csv", folder)
    pem_time_figure.draw_figure_3(RESULTS / "pem-figure-3.csv", folder / "pem-figure-3.svg")


def test_the_plots_are_those_of_the_tables(tmp_path: Path) -> None:
    drawn(tmp_path)
    for figure in FIGURES:
        name = f"pem-figure-{figure}.svg"
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes(), f"{name}: run `make figures`"


def test_labels_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles stay within their panels and apart, upright labels beside their axes, everything on the page."""
    figures: list[Any] = []

    def keep(panels: list[Panel]) -> Any:
        figures.append(draw(panels))
        return figures[-1]

    monkeypatch.setattr(line_charts, "draw", keep)
    drawn(tmp_path)
    assert len(figures) == len(FIGURES)
    for figure in figures:
        assert misfits(figure) == []
    lines = {"a": [(1, 1.0), (2, 2.0)]}
    plain, tall, wide = (
        Panel(title=t, x="x", y=y, lines=lines) for t, y in (("t", "y"), ("t", 80 * "y"), (90 * "m", "y"))
    )
    assert misfits(draw([plain, plain])) == []
    assert 80 * "y" in misfits(draw([tall]))  # the check is able to fail
    assert 90 * "m" in misfits(draw([wide, plain]))


def misfits(figure: Any) -> list[str]:
    """Texts that do not fit."""
    figure.draw_without_rendering()
    found, right = [], 0.0
    for axes in figure.axes:
        panel, title, upright = axes.bbox, axes.title.get_window_extent(), axes.yaxis.label.get_window_extent()
        if title.x0 < right or title.width > 1.07 * panel.width:
            found.append(axes.title.get_text())
        right = title.x1
        if upright.y0 < panel.y0 or upright.y1 > panel.y1:
            found.append(axes.get_ylabel())
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    if drawn.x0 < 0 or drawn.y0 < 0 or drawn.x1 > width or drawn.y1 > height:
        found.append("beyond the page")
    return found


def test_a_chart_puts_larger_values_higher(tmp_path: Path) -> None:
    panel = Panel(
        title="<a & b>", x="x", y="y", lines={"one": [(1, 1.0), (10, 100.0)], "zero": [(1, -3.0)]}, log_y=True
    )
    (axes,) = draw([panel]).axes
    places = [place for line in axes.lines for place in line.get_transform().transform(line.get_xydata())]
    assert places[0][0] < places[1][0]
    assert places[0][1] < places[1][1]
    assert places[2][1] < places[0][1]  # below the least value of a logarithmic axis: drawn there
    assert axes.lines[1].get_ydata()[0] == panel.least
    write_chart(tmp_path / "c.svg", [panel], caption="c")
    words = [text.text for text in ElementTree.parse(tmp_path / "c.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert {"<a & b>", "one", "zero"} <= set(words)
    flat = Panel(title="", x="", y="", lines={"flat": [(1, 2.0), (2, 2.0)]})
    write_chart(tmp_path / "flat.svg", [flat], caption="")
    assert "nan" not in (tmp_path / "flat.svg").read_text(encoding="utf-8")


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, benchmarks.pem_figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
